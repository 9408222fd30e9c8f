"""The command line: `othello train|eval|play|gtp`."""

import contextlib
import dataclasses
import difflib
import importlib.metadata
import io
import itertools
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import jax
import tyro

from ._config import Config, PRESETS
from ._errors import UsageError


Arguments = TypeVar("Arguments")

_SLOW_CONVOLUTIONS = "xla_cpu_experimental_ynn_fusion_type"

_HELP = """usage: othello COMMAND [flags]

Train an AlphaZero player of Othello and play against it.

  train        train a player; its run folder is runs/PRESET unless --out says otherwise
  eval RUN     play a match against random, greedy, positional, uct or another run
  play RUN     play against it in the terminal
  gtp RUN      serve it to a board program over the Go Text Protocol

`othello COMMAND --help` lists the flags."""


Preset = Literal["tiny", "quick", "standard", "large"]


@dataclasses.dataclass(frozen=True)
class _PresetOnly:
    preset: str | None = None


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train a player from self-play alone. Stop it with Ctrl-C or SIGTERM; --resume goes on."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    preset: Preset = "quick"
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
    """Simulations a move; 0 is the network alone. By default what the run was configured for."""
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
    """Simulations a move; 0 is the network alone. By default what the run was configured for."""


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    from zero_train import CheckpointError, NonFiniteError, RunError

    try:
        _dispatch(sys.argv[1:])
    except (UsageError, RunError, CheckpointError, NonFiniteError, OSError) as e:
        print(f"othello: {e}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


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
    # The preset gives the defaults of all other flags, so it must be known before them.
    given = _parse(_PresetOnly, "train", words, add_help=False).preset
    preset: Any = _default_preset() if given is None else given
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset} is unknown; choose one of {', '.join(PRESETS)}.")
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

    player = _player(arguments.run, arguments.simulations, 0)
    # Controllers wait longer for the first answer than for a move.
    player.warm_up()
    engine = GtpEngine(player)
    serve(engine, sys.stdin, sys.stdout)


def _player(run: str, simulations: int | None, seed: int) -> Any:
    import jax.random as jr

    from ._build import player_planner
    from ._load import load
    from ._player import NetworkAlone, Player

    trained = load(run)
    number = trained.config.player_simulations if simulations is None else simulations
    if number < 0:
        raise UsageError(f"--simulations {number} was given; give 0 (no search) or more.")
    model = trained.agent.model(trained.agent.evaluator(trained.params))
    planner = player_planner(trained.config, number) if number else NetworkAlone()
    return Player(trained.env, planner, model, key=jr.key(seed))


def _default_preset() -> Preset:
    # Asking JAX would start its backend, which must wait until the number of devices is set.
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return "quick" if platforms.split(",")[0] == "cpu" else "standard"
    return "standard" if importlib.metadata.entry_points(group="jax_plugins") else "quick"


def _parse(kind: type[Arguments], command: str, words: list[str], **options: Any) -> Arguments:
    """What tyro makes of the words; its complaints become one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments, unknown = tyro.cli(
                kind, prog=f"othello {command}", args=words, return_unknown_args=True, **options
            )
    except SystemExit as e:
        if not e.code:
            raise  # --help
        raise UsageError(_one_line(complaint.getvalue())) from e
    if unknown and kind is not _PresetOnly:
        flag = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(flag, _flags(kind), n=1)
        hint = f"did you mean {near[0]}?" if near else f"see othello {command} --help."
        raise UsageError(f"{flag} is no flag of othello {command}; {hint}")
    return arguments


def _one_line(text: str) -> str:
    """tyro draws a box of many lines; its title and first paragraph say what is wrong."""
    lines = [line.strip(" \u2500\u2502\u256d\u256e\u2570\u256f-+|") for line in text.splitlines()]
    said = itertools.takewhile(
        lambda line: not line.startswith(("Argument helptext", "For full helptext")),
        filter(None, lines),
    )
    title, *rest = said
    return f"{title}: {' '.join(rest).rstrip('.')}."


def _flags(kind: Any) -> list[str]:
    names = [field.name for part in (Config, kind) for field in dataclasses.fields(part)]
    return [f"--{name.replace('_', '-')}" for name in names]


def _start_jax(devices: int = 1) -> None:
    """Before any backend starts: virtual CPU devices, and compiled programs kept on disk."""
    flags = os.environ.get("XLA_FLAGS", "")
    if importlib.metadata.version("jaxlib") == "0.10.2" and _SLOW_CONVOLUTIONS not in flags:
        # This version halves the speed of convolutions on a CPU (benchmarks/nets_conv_layout.py);
        # 0.10.1 does not, and other versions may not know the flag, which ends the process.
        os.environ["XLA_FLAGS"] = f"{flags} --{_SLOW_CONVOLUTIONS}=".strip()
    if devices > jax.config.jax_num_cpu_devices:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_num_cpu_devices", devices)
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(caches / "zero" / "jax"))


if __name__ == "__main__":
    main()
