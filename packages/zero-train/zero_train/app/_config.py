"""What a run is told: its configuration, and how it is run."""

import dataclasses
import importlib.util
import inspect
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import (
    Any,
    get_args,
    get_origin,
    get_type_hints,
    Literal,
    Protocol,
    runtime_checkable,
    TypeVar,
)

import jax
from jaxtyping import PyTree

from .. import Checkpoints
from ._errors import UsageError, warn
from ._sinks import NO_WANDB


Config = TypeVar("Config")


@runtime_checkable
class RunConfig(Protocol):
    """What [`zero_train.app.train`][] reads of an app's configuration: a frozen dataclass of
    every hyperparameter, each of which is a flag and an entry of config.json."""

    @property
    def seed(self) -> int:
        """Everything random in the run derives from it."""
        ...

    @property
    def checkpoint_every(self) -> int:
        """Steps between two checkpoints of the whole state."""
        ...


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run is run: nothing here changes its numbers."""

    out: pathlib.Path
    """The run folder."""
    resume: bool = False
    """Go on with the run in the folder, exactly where it was saved."""
    max_minutes: float | None = None
    """Save and stop after so many minutes; --resume goes on."""
    devices: int = 1
    """Devices to split games, trees and replay over; on a CPU they are virtual."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the extra wandb)."""

    def __post_init__(self) -> None:
        limits = {} if self.max_minutes is None else {"max_minutes": (0, math.inf)}
        check_bounds(self, {"devices": (1, math.inf), **limits})
        if self.wandb and importlib.util.find_spec("wandb") is None:
            raise UsageError(NO_WANDB)


def folder_of(config: Any, options: Options) -> dict[str, Any]:
    """What [`zero_train.RunFolder`][] is told of a run: to look at its folder before anything is
    built, and to create it."""
    return {
        "path": options.out,
        "config": dataclasses.asdict(config),
        "resume": options.resume,
        # A resumed run may save more or less often; everything else must be as it was.
        "may_differ": ("checkpoint_every",),
    }


def check_bounds(config: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Looks at the values of a configuration, in its `__post_init__`.

    **Arguments:**

    - `bounds`: what each field may be, ends included. NaN and infinity never are.

    **Raises:** [`zero_train.app.UsageError`][], in the words of the command line.
    """
    for name, (least, most) in bounds.items():
        value = getattr(config, name)
        if not least <= value <= most or value == math.inf:
            allowed = f"at least {least}" if most == math.inf else f"{least} to {most}"
            raise UsageError(f"{flag(name)} {value} was given; give {allowed}.")


def load_config(kind: type[Config], folder: str | os.PathLike[str], prog: str) -> Config:
    """The configuration of the run in `folder`.

    **Arguments:**

    - `kind`: the dataclass that the run's config.json was made of.
    - `prog`: the app's command.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run, or another app's.
    """
    path = pathlib.Path(folder) / "config.json"
    if not path.is_file():
        raise UsageError(
            f"{pathlib.Path(folder)} holds no run (no config.json); give the folder of a run, "
            f"as `{prog} train --out` made it."
        )
    try:
        stored = json.loads(path.read_text())
        lacking = set(inspect.signature(kind).parameters) - set(stored)
        if lacking:
            raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
        for name, hint in get_type_hints(kind).items():
            if get_origin(hint) is Literal and stored[name] not in get_args(hint):
                allowed = ", ".join(map(repr, get_args(hint)))
                raise ValueError(f"{name} is {stored[name]!r}, none of {allowed}")
        return kind(**stored)
    except (OSError, ValueError, TypeError) as e:
        raise UsageError(
            f"{path} is not the configuration of a run of `{prog} train`: "
            f"{str(e).rstrip('.')}; give the folder of one."
        ) from e


def load_player(folder: str | os.PathLike[str], like: PyTree) -> tuple[int, Any]:
    """The newest player of the run in `folder`, and the step it was saved at. Where it is damaged
    it is the one before, which is said.

    **Arguments:**

    - `like`: shapes and dtypes of what [`zero_train.app.AbstractRun`][]`.player` gave.

    **Raises:** [`zero_train.CheckpointError`][] where there is no player that is not damaged, or
    it is of another configuration.
    """
    players = Checkpoints(pathlib.Path(folder) / "players", keep=None)
    step, player = players.restore_latest(like, tell=warn)
    return step, jax.device_put(player)


def flag(name: str) -> str:
    """A field's flag on the command line."""
    return f"--{name.replace('_', '-')}"
