"""The configuration of a run, and the options that do not change its numbers."""

import dataclasses
import importlib.util
import inspect
import math
import os
import pathlib
import types
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
    Union,
)

import jax
from jaxtyping import PyTree

from .. import Checkpoints, read_json
from ._errors import UsageError, warn
from ._sinks import NO_WANDB


Config = TypeVar("Config")

#: What every `seed` may be: a key holds 32 bits of it.
SEEDS = (0, 2**32 - 1)
# What messages call a kind of number, and the largest that 32 bits hold.
_NUMBERS = {int: ("a whole number", 2**31 - 1), float: ("a number", 3e38)}
_WORDS = {bool: "true or false", str: "a text"}


@runtime_checkable
class RunConfig(Protocol):
    """What [`zero_train.app.train`][] reads of an app's configuration, a frozen dataclass of all
    hyperparameters. Each is a flag and an entry of config.json. Its `__post_init__` calls
    [`zero_train.app.check_bounds`][]."""

    @property
    def seed(self) -> int:
        """The seed of all random numbers of the run."""
        ...

    @property
    def checkpoint_every(self) -> int:
        """The number of steps between two checkpoints of the whole state."""
        ...


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run is run. No option changes its numbers."""

    out: pathlib.Path
    """The run folder."""
    resume: bool = False
    """Go on with the run in the folder, exactly where it was saved."""
    max_minutes: float | None = None
    """Save and stop so many minutes after the first step began; --resume goes on."""
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
    """The arguments of `check` and `create` of [`zero_train.RunFolder`][]."""
    return {
        "path": options.out,
        "config": dataclasses.asdict(config),
        "resume": options.resume,
        # A resumed run may save more or less often; everything else must be as it was.
        "may_differ": ("checkpoint_every",),
    }


def check_bounds(
    config: Any, bounds: Mapping[str, tuple[float, float]] = types.MappingProxyType({})
) -> None:
    """Checks the values of a configuration, in its `__post_init__`: every field has its annotated
    type, and every number is finite and within bounds.

    **Arguments:**

    - `config`: a dataclass, perhaps of dataclasses. Tuples are checked element by element, and
        `None` passes where the annotation allows it.
    - `bounds`: the least and the greatest value of a field by name. By default an integer is from
        0 to the greatest of 32 bits, a field `seed` is in `SEEDS`, and other numbers are finite.

    **Raises:** [`zero_train.app.UsageError`][], in the words of the command line.
    """
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, bounds)
        else:
            _check(flag(name), value, hint, bounds.get(name, SEEDS if name == "seed" else None))


def _check(name: str, value: Any, hint: Any, bounds: tuple[float, float] | None) -> None:
    """Checks one value against its annotation `hint`. Messages call it `name`."""
    kinds = get_args(hint)
    if value is None and type(None) in kinds:
        return
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (kind for kind in kinds if kind is not type(None))
        _check(name, value, hint, bounds)
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        for element in value:
            _check(name, element, kinds[0], bounds)
    elif get_origin(hint) is Literal:
        if value not in kinds:
            raise _refused(name, value, f"give one of {', '.join(map(str, kinds))}")
    elif hint in _NUMBERS:
        _check_number(name, value, hint, bounds)
    elif hint in _WORDS and not isinstance(value, hint):
        raise _refused(name, value, f"give {_WORDS[hint]}")


def _check_number(
    name: str, value: Any, kind: type[int] | type[float], bounds: tuple[float, float] | None
) -> None:
    what, largest = _NUMBERS[kind]
    # JSON has one kind of number, and for Python true is one.
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise _refused(name, value, f"give {what}")
    usual = (0, math.inf) if kind is int else (-math.inf, math.inf)
    least, most = usual if bounds is None else bounds
    limit = largest if most == math.inf else most
    if max(least, -largest) <= value <= limit:
        return
    if least == -math.inf:
        allowed = "it must be finite"
    elif most < math.inf or limit < value < math.inf:
        allowed = f"give {least} to {limit}"
    else:
        allowed = f"give at least {least}"
    raise _refused(name, value, allowed)


def _refused(name: str, value: Any, allowed: str) -> UsageError:
    shown = str(value) if isinstance(value, int | float) else repr(value)
    shown = f"{shown[:40]}..." if len(shown) > 50 else shown
    return UsageError(f"{name} {shown} was given; {allowed}.")


def load_config(kind: type[Config], folder: str | os.PathLike[str], prog: str) -> Config:
    """The configuration of the run in `folder`.

    **Arguments:**

    - `kind`: the dataclass of the configuration, which checks its own values with
        [`zero_train.app.check_bounds`][].
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
        stored = read_json(path)
        if not isinstance(stored, dict):
            raise ValueError("it is no JSON object")
        lacking = set(inspect.signature(kind).parameters) - set(stored)
        if lacking:
            raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
        return kind(**stored)
    except (ValueError, TypeError) as e:
        raise UsageError(
            f"{path} is not the configuration of a run of `{prog} train`: "
            f"{str(e).removeprefix(f'{path} ').rstrip('.')}; give the folder of one."
        ) from e


def load_parameters(folder: str | os.PathLike[str], like: PyTree) -> tuple[int, Any]:
    """The newest parameters of the run in `folder`, and the step they were saved at. Where they are
    damaged a warning says so, and the ones before are loaded.

    **Arguments:**

    - `like`: shapes and dtypes of what [`zero_train.app.AbstractRun`][]`.parameters` returned.

    **Raises:** [`zero_train.CheckpointError`][] where all parameters are damaged, there are none,
    or the newest are of another configuration.
    """
    saved = Checkpoints(pathlib.Path(folder) / "parameters", keep=None)
    step, parameters = saved.restore_latest(like, tell=warn)
    return step, jax.device_put(parameters)


def flag(name: str) -> str:
    """A field's flag on the command line."""
    return f"--{name.replace('_', '-')}"
