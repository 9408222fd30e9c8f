"""What the commands of `zero` do."""

import dataclasses
import os
import pathlib
import signal
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

import zero_app
from zero_app import (
    check_flags,
    COMMANDS,
    errors_of,
    expects_accelerator,
    Launch,
    peek,
    read_config,
    run,
    start_jax,
    StoredRun,
    UsageError,
)

from ._agents import choose, facts_of, OWN_APPS, SPO_AGENTS, TUNED
from ._apps import APP, app_of, APPS, PLAYER
from ._config import Agent, presets


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Chosen:
    """What must be known before all other flags."""

    agent: Agent | Literal["spo", "mpo", "ppo", "vmpo"] | None = None
    config: pathlib.Path | None = None
    launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch()


def main(words: Sequence[str]) -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    with errors_of("zero"):
        _run(words)


def train(env: str, *, out: str | os.PathLike[str], **flags: Any) -> StoredRun:
    """Trains as `zero train ENV` does, from Python, and returns the run.

    ```python
    run = zero_cli.train("cartpole", agent="ppo", steps=100_000, out="runs/ppo")
    run.plot().savefig("ppo.svg")
    ```

    **Arguments:**

    - `env`: an environment, as `zero list` names it.
    - `flags`: those of `zero train ENV`, with underscores; several values are a tuple or list.

    It runs in the main thread, where signals stop it.

    **Raises:** [`zero_app.UsageError`][] for what the command refuses.
    """
    if "seeds" in flags:
        raise UsageError("seeds was given; call `train` for each seed, each with its own `out`.")
    if "help" in flags:
        raise UsageError(f"help was given; `zero train {env} --help` lists the flags.")
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("`train` was called in a thread; call it in the main one.")
    words = []
    for name, value in {"out": out, **flags}.items():
        said = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{said}" if value else f"--no-{said}")
        elif isinstance(value, tuple | list):
            words += [f"--{said}", *map(str, value)]
        else:
            words += [f"--{said}", str(value)]
    # An interruption ends the command at once, and shall not end who calls this.
    before = signal.signal(signal.SIGINT, lambda *_: signal.default_int_handler(*_))
    try:
        _train("train", [env, *words])
    finally:
        signal.signal(signal.SIGINT, before)
    return zero_app.open(out)


def _run(words: Sequence[str]) -> None:
    name, *rest = [*words, ""]
    if name in ("train", "sweep"):
        _train(name, rest[:-1])
    elif name in ("list", "compare", "", "-h", "--help") or rest[0] in ("-h", "--help"):
        run(APP, words)  # runs of any apps are compared, where Minesweeper has another `compare`
    elif name in (*APP.commands, *COMMANDS) and (not rest[0] or rest[0].startswith("-")):
        needs = (
            "a run first; give its folder" if name == "report" else f"a player first; give {PLAYER}"
        )
        raise UsageError(f"`zero {name} RUN [flags]` needs {needs}.")
    else:
        _of_run(name, rest[0], words)


def _of_run(name: str, folder: str, words: Sequence[str]) -> None:
    """Runs a command of the app that made a run."""
    has_run = os.path.lexists(pathlib.Path(folder, "config.json"))
    if name not in (*APP.commands, *COMMANDS) or (name == "report" and not has_run):
        return run(APP, words)
    app, player = app_of(folder)
    if name in APP.commands and name not in app.commands:
        has = ", ".join(dict.fromkeys((*app.commands, *COMMANDS)))
        raise UsageError(f"{folder} is a player of `{app.name}`, which has {has}, and no {name}.")
    run(app, [name, player, *words[2:]], f"zero {name} {folder}")


def _stored(path: pathlib.Path, env: str) -> dict[str, Any]:
    """What a configuration of this environment has in a file, which its app checks."""
    stored = read_config(path)
    if not isinstance(stored, dict):
        return {}
    if stored.get("env", env) != env:
        raise UsageError(f"--config {path} is of {stored['env']}, and not of {env}.")
    return stored


def _train(command: str, words: list[str]) -> None:
    """Runs `train` or `sweep` of the app that plays an environment."""
    what, folder = "Train a player of an environment", "runs"
    if command == "sweep":
        what = "Search for the flags with which training in an environment ends best"
        folder = "sweeps"
    if words[:1] in (["-h"], ["--help"]):
        print(
            f"usage: zero {command} ENV [flags]\n\n"
            f"{what}, such as pgx/connect_four; `zero list` has all.\n"
            f"The flags depend on the environment: `zero {command} ENV --help` lists them."
        )
        return
    if not words or words[0].startswith("-"):
        raise UsageError(
            f"`zero {command} ENV [flags]` needs the name of an environment first, such as "
            "pgx/connect_four; `zero list` has them all."
        )
    name, *words = words
    if any(word.partition("=")[0] == "--env" for word in words):
        raise UsageError(f"--env was given for {name}; name one environment.")
    prog = f"zero {command} {name}"
    words = ["--out", f"{folder}/{name.replace('/', '-').replace(':', '-')}", *words]
    if name in OWN_APPS:
        app, *flags = OWN_APPS[name]
        return run(APPS[app], [command, *flags, *words], prog)
    chosen = peek(_Chosen, prog, words)
    stored = {} if chosen.config is None else _stored(chosen.config, name)
    preset = "standard" if expects_accelerator() else "quick"
    facts = facts_of(name)
    if facts is None:  # code of one's own, or a name that is refused
        from ._worlds import build_world

        start_jax(chosen.launch)
        facts = build_world(name).facts
    agent: Any = choose(name, facts, chosen.agent or stored.get("agent"))
    if agent in SPO_AGENTS:
        tuned = agent in TUNED.get(name, ())
        usual = [] if preset == "standard" or tuned or chosen.config else ["--preset", preset]
        return run(APPS["spo"], [command, *usual, "--agent", agent, "--env", name, *words], prog)
    check_flags(APP, prog, words, command)
    from ._board import commands_of
    from ._worlds import build_world

    start_jax(chosen.launch)
    world = build_world(name)
    fitting = presets(name, agent, world.size, world.players, board=world.is_board)
    commands = commands_of(APP, world)
    run(
        dataclasses.replace(APP, presets=fitting, preset=preset, commands=commands),
        [command, *words],
        prog,
    )
