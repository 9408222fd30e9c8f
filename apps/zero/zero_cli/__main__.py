"""The command line: `zero train|eval|play|watch|compare|report|list`."""

import dataclasses
import math
from typing import Any, Literal

import tyro

from zero_train.app import (
    Command,
    expects_accelerator,
    main as run_command,
    parse,
    parse_run,
    peek,
    start_jax,
    UsageError,
)

from ._config import presets, SIMULATIONS


# The allowed range of each flag, inclusive.
_PLAYING = {"games": (2, 10**8), "simulations": SIMULATIONS}
_WATCHING = {"simulations": SIMULATIONS, "max_moves": (1, math.inf), "delay": (0, math.inf)}


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Play games and print the score (games of two players) or the mean return (others)."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    opponent: str = "random"
    """random, or the folder of another run of the same game."""
    games: int = 200
    """An even number, because each opening of 2 random plies is played from both seats."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seed: int = 0
    """The seed of openings, chance and ties."""
    json: bool = False
    """Print one JSON line."""


@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play against a trained player in the terminal."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seat: Literal["first", "second"] = "first"
    """Who moves first: you, or the player."""
    seed: int = 0
    """The seed of the game and of the player's search."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Watch a trained player alone, or against itself."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    max_moves: int | None = None
    """Moves after which it stops; by default those of the run's configuration."""
    delay: float = 0.5
    """Seconds between two moves."""
    seed: int = 0
    """The seed of the game and of the player's search."""


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """What must be known before all other flags."""

    agent: Literal["alphazero", "expert", "spo", "mpo"] | None = None
    devices: int = 1


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    run_command("zero", "Train, measure and play any game.", COMMANDS)


def _train(words: list[str]) -> None:
    if words[:1] in (["-h"], ["--help"]):
        print(
            "usage: zero train ENV [flags]\n\n"
            "Train a player of an environment, such as pgx/connect_four; `zero list` has all.\n"
            "`zero train ENV --help` lists the flags, which depend on the agent that can play it."
        )
        return
    if not words or words[0].startswith("-"):
        raise UsageError(
            "`zero train ENV [flags]` needs the name of an environment first, such as "
            "pgx/connect_four; `zero list` has them all."
        )
    name, *words = words
    if any(word.partition("=")[0] == "--env" for word in words):
        raise UsageError(f"--env was given for {name}; name one environment.")
    words = ["--out", f"runs/{name.replace('/', '-').replace(':', '-')}", *words]
    from ._apps import commands
    from ._worlds import build_world, OWN_APPS

    if name in OWN_APPS:
        return commands(OWN_APPS[name])["train"].run(words)
    chosen = peek(_Chosen, "zero train", words)
    start_jax(chosen.devices)
    world = build_world(name)
    agent: Any = world.choose(chosen.agent)
    quick = [] if expects_accelerator() else ["--preset", "quick"]
    if agent in ("spo", "mpo"):
        if name in ("cartpole", "pendulum", "brax/inverted_pendulum"):
            quick = []  # SPO's own default was tuned for these.
        return commands("spo")["train"].run([*quick, "--agent", agent, "--env", name, *words])
    config, options = parse_run(
        f"zero train {name}",
        "Train a player from its own plans. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
        words,
        presets(name, agent, world.size),
        preset="quick" if quick else "standard",
    )
    from ._train import train

    train(config, world, options)


def _eval(words: list[str]) -> None:
    arguments = parse(EvalArguments, "zero eval", words, _PLAYING)
    start_jax()
    from ._eval import evaluate

    evaluate(
        arguments.run,
        opponent=arguments.opponent,
        games=arguments.games,
        simulations=arguments.simulations,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _play(words: list[str]) -> None:
    arguments = parse(PlayArguments, "zero play", words, _PLAYING)
    start_jax()
    from ._play import play

    play(
        arguments.run,
        simulations=arguments.simulations,
        human_first=arguments.seat == "first",
        seed=arguments.seed,
    )


def _watch(words: list[str]) -> None:
    arguments = parse(WatchArguments, "zero watch", words, _WATCHING)
    start_jax()
    from ._watch import watch

    watch(**dataclasses.asdict(arguments))


def _compare(words: list[str]) -> None:
    if words[:1] in (["-h"], ["--help"]):
        print("usage: zero compare RUN RUN [flags]\n\nThe flags are those of `zero eval --help`.")
        return
    if len(words) < 2 or words[1].startswith("-"):
        raise UsageError("`zero compare RUN RUN [flags]` needs the folders of two runs.")
    first, second, *words = words
    _eval([first, "--opponent", second, *words])


def _report(words: list[str]) -> None:
    if words[:1] in (["-h"], ["--help"]):
        print("usage: zero report RUN\n\nWrites report.html into the folder of a run again.")
        return
    if len(words) != 1:
        raise UsageError("`zero report RUN` needs the folder of a run, and nothing else.")
    import importlib

    from ._apps import app_of, APPS

    report = importlib.import_module(f"{APPS[app_of(words[0])]}._report")
    print(f"The report is {report.write_report(words[0])}")


def _list(words: list[str]) -> None:
    if words[:1] in (["-h"], ["--help"]):
        print("usage: zero list [PART]\n\nThe environments whose name has PART, or all.")
        return
    if len(words) > 1:
        raise UsageError("`zero list [PART]` takes a part of a name, and nothing else.")
    start_jax()
    from ._list import list_environments

    list_environments(words[0] if words else None)


def _of_run(name: str, own: Any) -> Any:
    """A command that is that of the app which made the run."""

    def run(words: list[str]) -> None:
        if words[:1] in (["-h"], ["--help"]):
            return own(words)
        if not words or words[0].startswith("-"):
            raise UsageError(f"`zero {name} RUN [flags]` needs the folder of a run first.")
        from ._apps import app_of, commands

        app = app_of(words[0])
        if app == "zero":
            return own(words)
        theirs = commands(app)
        if name not in theirs:
            has = ", ".join(command for command in theirs if command != "train")
            raise UsageError(f"{words[0]} is a run of `{app}`, which has {has}, and no {name}.")
        return theirs[name].run(words)

    return run


COMMANDS = {
    "train": Command(_train, "train a player; its run folder is runs/ENV", operands="ENV"),
    "eval": Command(_of_run("eval", _eval), "play games and print how they went", operands="RUN"),
    "play": Command(_of_run("play", _play), "play against a player", operands="RUN"),
    "watch": Command(_of_run("watch", _watch), "watch a player play", operands="RUN"),
    "compare": Command(_of_run("compare", _compare), "a match of two runs", operands="RUN RUN"),
    "report": Command(_report, "write the report of a run again", operands="RUN"),
    "list": Command(_list, "the environments, and who can play them", operands="[PART]"),
}


if __name__ == "__main__":
    main()
