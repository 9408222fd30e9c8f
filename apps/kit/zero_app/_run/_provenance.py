"""Which run the files of a folder are of, and whether they are what it wrote.

A run has an identity, a random text that is made when it begins. Each line of starts.jsonl has it,
and so have the manifests of checkpoints and players, beside the step and the configuration, and the
JSON files of [`zero_app.RunFolder.write_json`][]. Logs must be the same in two runs of one
configuration: a checkpoint has their lengths and checksums. Older versions wrote no identity.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ._checkpoint import Checkpoints
from ._disk import read_whole
from ._lines import Distinct, lines_of, measured, read_json, read_object, RunError
from ._manifest import CheckpointError, Misnamed


CONFIG = "config.json"
#: How many differing values a line says.
_SHOWN = 6
#: The logs, and what two lines of one may not share, as in `lines_of`.
LOGS: Mapping[str, Distinct] = {
    "metrics": "step",
    "timings": "step",
    "episodes": "nothing",
    "evaluations": "nothing",
    "starts": "nothing",
}
#: Those of evaluations.
EVALUATED = ("episodes", "evaluations")
#: The folders of its checkpoints and of its players.
CHECKPOINTS, PLAYERS = "checkpoints", "parameters"
#: The file that says that all steps are done, and saved: a run that was told to stop ends with exit
#: code 0 as well.
FINISHED = "finished"


def run_of(folder: pathlib.Path) -> str | None:
    """The identity of the run in `folder`; `None` where an older version wrote all of it."""
    stated = (run for run in _stated(folder) if run is not None)
    # That log may be lost.
    saved = (about["run"] for _, _, about in _saved(folder) if "run" in about)
    return next(itertools.chain(stated, saved), None)


def check_run(folder: pathlib.Path, *, tell: Callable[[str], object] | None = None) -> None:
    """Checks that all checkpoints and players in `folder` are of its run and its configuration.
    Damaged ones are left to whoever restores them. With `tell` a configuration in config.json that
    one of them was not saved with is told in a line, and raises nothing."""
    run, config = run_of(folder), read_object(folder / CONFIG)
    saved = {about.get("run") for _, _, about in _saved(folder)}
    if len(saved) == 1 and None not in saved and run not in saved:
        raise RunError(
            f"{folder / 'starts.jsonl'} is of {_called(run)}, and all that is saved in {folder} of "
            f"{_called(saved.pop())}; put back the one that was there, or remove it."
        )
    starts = [*_stated(folder)]
    older = not starts or None in starts
    for path, _, about in _saved(folder):
        of, trained_with = about.get("run"), about.get("config", {})
        if of != run and not (of is None and older):
            raise RunError(
                f"{path} is of {_called(of)}, and {folder} of {_called(run)}; remove it, or put "
                "back what was there."
            )
        if different := differences(config, trained_with, trained_with.keys()):
            said = f"{folder / CONFIG} is not what {path} was saved with: {different}."
            if tell is None:
                raise RunError(
                    f"{said} Put the stored values back; --init {folder} with another --out begins "
                    "a run of other values with its player."
                )
            tell(said)
            tell = lambda line: None


def check_logs(
    folder: pathlib.Path,
    *,
    tell: Callable[[str], object],
    step: int | None = None,
    names: Collection[str] = LOGS.keys(),
) -> None:
    """Checks that the logs in `folder` of these names, by default all, are what the run wrote, as
    the checkpoint of `step` says, by default the newest. `tell` is called with a line for each log
    of which lines were changed or lost. Steps that are repeated or not in order raise a
    [`zero_app.RunError`][] with the file and the line."""
    of_step = lambda one: step in (None, one[1])
    _, until, about = next(filter(of_step, _saved(folder, CHECKPOINTS)), (None, 0, {}))
    for name in names:
        distinct = LOGS[name]
        log, written = folder / f"{name}.jsonl", about.get("logs", {}).get(name)
        changed = written is not None and measured(log, written[0]) != tuple(written)
        # Two rows of an evaluation may well be the same, unless the file is not what was written.
        if name in EVALUATED and changed:
            distinct = "line"
        for _ in lines_of(log, distinct=distinct):
            pass
        if changed:
            tell(
                f"{log} is damaged: lines up to step {until} are not what was written, or missing. "
                "Put a copy back to have them again."
            )


def finished_steps(folder: pathlib.Path) -> int:
    """How many steps of the run in `folder` are done and saved, where these are all; else 0."""
    with contextlib.suppress(OSError, ValueError):
        said = read_whole(folder / FINISHED).decode()
        if (found := re.fullmatch(r"(\d+) steps(?: of run (\w+))?\n", said)) and (
            found[2] in (None, run_of(folder))
        ):
            return int(found[1])
    return 0


def read_of_run(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file in the folder of a run, which [`zero_app.RunFolder.write_json`][] wrote,
    or an older version."""
    found = read_json(path)
    if isinstance(found, dict) and (of := found.pop("run", None)) is not None:
        folder = pathlib.Path(path).parent
        if of != (run := run_of(folder)):
            raise RunError(f"{path} is of {_called(of)}, and {folder} of {_called(run)}.")
    return found


def differences(given: Mapping[str, Any], stored: Mapping[str, Any], keys: Collection[str]) -> str:
    """The values of these keys that are not the stored ones, as a list of words: a few of them,
    and first the environment."""
    absent = object()
    differ = [key for key in keys if given.get(key, absent) != stored.get(key, absent)]
    first = sorted(differ, key=lambda key: (key != "env", key))[:_SHOWN]
    said = [f"{key} {_shown(given, key)} (stored: {_shown(stored, key)})" for key in first]
    return ", ".join(said + [f"{len(differ) - _SHOWN} more"] * (len(differ) > _SHOWN))


def _shown(config: Mapping[str, Any], key: str) -> str:
    return json.dumps(config[key]) if key in config else "absent"


def _stated(folder: pathlib.Path) -> Iterator[str | None]:
    """The identity that each line of starts.jsonl has; older versions wrote none."""
    kind = lambda name: str if name == "run" else object
    return (row.get("run") for row in lines_of(folder / "starts.jsonl", kind))


def _called(run: str | None) -> str:
    return "a run of an older version" if run is None else f"run {run}"


def _saved(
    folder: pathlib.Path, *stores: str
) -> Iterator[tuple[pathlib.Path, int, dict[str, Any]]]:
    """The path and the step of each checkpoint and player that is not damaged, and what is said
    about it: the newest first, checkpoints before players. One that has the name of another step
    raises a [`zero_app.CheckpointError`][]."""
    for store in stores or (CHECKPOINTS, PLAYERS):
        saved = Checkpoints(folder / store)
        for step in reversed(saved.steps()):
            # It may be removed meanwhile, as by the run that goes on.
            try:
                about = saved.about(step)
            except (CheckpointError, KeyError) as e:
                if isinstance(e.__cause__, Misnamed):
                    raise
            else:
                yield saved.directory / f"{step:08d}", step, about
