"""The command line: `spo train|eval|watch|compare|report|export`."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Literal

from zero_train.app import errors_of, peek, run

from ._app import APP
from ._config import Config, presets


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The flags on which presets depend."""

    env: str = Config.env
    agent: Literal["spo", "mpo"] = Config.agent


def run_command(words: Sequence[str], prog: str | None = None) -> None:
    """Runs one command, `train` with the presets of the environment; `prog` is as in
    [`zero_train.app.run`][].

    **Raises:** [`zero_train.app.UsageError`][] for bad input.
    """
    app = APP
    if words[:1] == ["train"]:
        chosen = peek(_Chosen, "spo train", words[1:])
        app = dataclasses.replace(APP, presets=presets(chosen.env, chosen.agent))
    run(app, words, prog)


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    with errors_of("spo"):
        run_command(sys.argv[1:])


if __name__ == "__main__":
    main()
