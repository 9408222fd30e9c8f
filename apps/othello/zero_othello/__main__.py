"""The command line: `othello train|eval|play|gtp`."""

import dataclasses
import difflib
import importlib.metadata
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import jax
import tyro

from ._config import Config, PRESETS
from ._errors import UsageError


Arguments = TypeVar("Arguments")

_HELP = """usage: othello COMMAND [flags]

Train an AlphaZero player of Othello and play against it.

  train        train a player; its run folder is runs/PRESET unless --out says otherwise
  eval RUN     play a match against random, greedy, positional, uct or another run
  play RUN     play against it in the terminal
  gtp RUN      serve it to a board program over the Go Text Protocol

`othello COMMAND --help` lists the flags."""


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train a player from self-play alone. Stop it with Ctrl-C or SIGTERM; --resume goes on."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    preset: Literal["tiny", "quick", "standard", "large"] = "quick"
    """Where the defaults of all other flags come from; quick on a CPU, standard elsewhere."""
    out: pathlib.Path | None = None
    """The run folder; runs/PRESET by default."""
    resume: bool = False
    """Go on with the run in the folder, exactly where it was saved."""
    max_minutes: float | None = None
    """Save and stop after so many minutes; --resume goes on."""
    devices: int = 1
    """Devices to split games, trees and replay over; on a CPU they are virtual."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the extra wandb)."""


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Play a match against a fixed opponent or another run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    opponent: str = "random"
    """random, greedy, positional, uct, or the folder of another run."""
    games: int = 100
    """An even number: each opening of 6 random plies is played from both seats."""
    simulations: int | None = None
    """Simulations a move; 0 is the network alone. By default what the run was configured for."""
    seed: int = 0
    """Openings and ties follow from it."""
    json: bool = False
    """Print one JSON line instead."""


@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play against a trained player in the terminal."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations a move. By default what the run was configured for."""
    colour: Literal["black", "white"] = "black"
    """Your colour; black moves first."""
    seed: int = 0
    """The player's search follows from it."""


@dataclasses.dataclass(frozen=True)
class GtpArguments:
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations a move. By default what the run was configured for."""


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    from zero_train import CheckpointError, NonFiniteError, RunError

    try:
        _dispatch(sys.argv[1:])
    except (UsageError, RunError, CheckpointError, NonFiniteError) as e:
        print(f"othello: {e}", file=sys.stderr)
        sys.exit(2)


def _dispatch(words: list[str]) -> None:
    commands: dict[str, Callable[[list[str]], None]] = {
        "train": _train,
        "eval": _eval,
        "play": _play,
        "gtp": _gtp,
    }
    if not words or words[0] in ("-h", "--help"):
        print(_HELP)
        return
    if words[0] not in commands:
        raise UsageError(f"no command is called {words[0]!r}; choose one of {', '.join(commands)}.")
    commands[words[0]](words[1:])


def _train(words: list[str]) -> None:
    preset = _preset(words)
    defaults = TrainArguments(config=PRESETS[preset], preset=preset)
    arguments = _parse(TrainArguments, "train", words, default=defaults)
    _start_jax(arguments.devices)
    from ._train import Options, train

    options = Options(
        out=arguments.out or pathlib.Path("runs") / preset,
        resume=arguments.resume,
        max_minutes=arguments.max_minutes,
        devices=arguments.devices,
        wandb=arguments.wandb,
    )
    train(arguments.config, options)


def _eval(words: list[str]) -> None:
    arguments = _parse(EvalArguments, "eval", words)
    _start_jax()
    from ._eval import evaluate

    evaluate(
        arguments.run,
        against=arguments.opponent,
        games=arguments.games,
        simulations=arguments.simulations,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _play(words: list[str]) -> None:
    arguments = _parse(PlayArguments, "play", words)
    _start_jax()
    from rich.console import Console

    from ._play import Session

    player = _player(arguments.run, arguments.simulations, arguments.seed)
    Session(player, Console(), colour=arguments.colour).run()


def _gtp(words: list[str]) -> None:
    arguments = _parse(GtpArguments, "gtp", words)
    _start_jax()
    from ._gtp import GtpEngine, serve

    engine = GtpEngine(_player(arguments.run, arguments.simulations, 0))
    serve(engine, sys.stdin, sys.stdout)


def _player(run: str, simulations: int | None, seed: int) -> Any:
    import jax.random as jr

    from ._build import player_planner
    from ._load import load
    from ._player import Player

    trained = load(run)
    number = trained.config.player_simulations if simulations is None else simulations
    if number < 1:
        raise UsageError(f"--simulations {number} was given; give at least 1.")
    model = trained.agent.model(trained.agent.evaluator(trained.params))
    planner = player_planner(trained.config, number)
    return Player(trained.env, planner, model, key=jr.key(seed))


def _preset(words: Sequence[str]) -> Any:
    """The preset must be known before the flags, because it gives their defaults."""
    for word, value in zip(words, [*words[1:], None], strict=True):
        name, _, joined = word.partition("=")
        if name == "--preset":
            given = joined or value
            if given not in PRESETS:
                raise UsageError(
                    f"--preset {given} is unknown; choose one of {', '.join(PRESETS)}."
                )
            return given
    return "standard" if _has_accelerator() else "quick"


def _has_accelerator() -> bool:
    # Asking JAX would start its backend, which must wait until the number of devices is set.
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return platforms.split(",")[0] != "cpu"
    return bool(importlib.metadata.entry_points(group="jax_plugins"))


def _parse(kind: type[Arguments], command: str, words: list[str], **options: Any) -> Arguments:
    arguments, unknown = tyro.cli(
        kind, prog=f"othello {command}", args=words, return_unknown_args=True, **options
    )
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [
            f"--{field.name.replace('_', '-')}"
            for field in (*dataclasses.fields(Config), *dataclasses.fields(kind))  # pyright: ignore[reportArgumentType]
        ]
        near = difflib.get_close_matches(flag, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"see othello {command} --help."
        raise UsageError(f"{flag} is no flag of othello {command}; {hint}")
    return arguments


def _start_jax(devices: int = 1) -> None:
    """Before any backend starts: virtual CPU devices, and compiled programs kept on disk."""
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(caches / "zero" / "jax"))


if __name__ == "__main__":
    main()
