"""What a sweep is over."""

import dataclasses
import difflib
import importlib.util
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_type_hints, Literal

import tyro
from annotated_types import Interval

from .._command._config import AbstractConfig, check_fields, NonNegative
from .._command._errors import flag, UsageError
from ._options import Launch


_MISSING = (
    "a sweep needs the package optuna; begin the command with `uv run --extra sweep` or install it "
    "with `pip install optuna`."
)
#: As many combinations of other flags are looked at to find one that a value fits to.
_MOST_TRIED = 1000
_FORMS = "give NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C with the name of a flag of training"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is swept over, and for how long."""

    over: tuple[str, ...] = ()
    """The flags to search for, each as NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C, such as
    learning-rate=log:1e-4:1e-2 blocks=1:3 search=gumbel,puct."""
    trials: Annotated[int, Interval(ge=1, le=10**6)] = 20
    """How many configurations are tried, by all workers of the sweep together."""
    minutes: NonNegative | None = None
    """Stop so many minutes after the command began; the same command goes on."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    """Tree-structured Parzen estimators, random draws, or all combinations of lists."""
    prune: bool = True
    """End a trial whose best evaluation so far is below the median of what the trials before it
    had at that step."""
    storage: str = ""
    """Where the trials are kept, as a URL of SQLAlchemy such as postgresql://USER@HOST/NAME, which
    workers on several machines share; by default OUT/sweep.db, by SQLite."""
    out: pathlib.Path
    """The folder of the runs of the trials, and of best.json."""
    run_code: bool = False
    """Run code that --config or --init names."""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch()
    """The devices of each run."""

    def __post_init__(self) -> None:
        check_fields(self)


def space_of(config: AbstractConfig, over: Sequence[str], sampler: str) -> dict[str, Any]:
    """Optuna's distributions of the flags of a sweep, by the names of the fields."""
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(_MISSING)
    if not over:
        raise UsageError(f"--over is missing; {_FORMS}.")
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    names = [field.name for field in dataclasses.fields(config)]
    hints, space = get_type_hints(type(config)), dict[str, Any]()
    given = dict[str, list[Any]]()  # the values of each flag, of a range its ends
    unused, swept = config.unused(), {swept_field(said) for said in over}
    for said in over:
        _, equals, spec = said.partition("=")
        name, refused = swept_field(said), f"--over {said} was given"
        if not equals or not spec:
            raise UsageError(f"{refused}; {_FORMS}.")
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0.7)
            then = f"did you mean {flag(near[0])}?" if near else f"{_FORMS}."
            raise UsageError(f"{refused}, and training has no flag {flag(name)}; {then}")
        if name in ("seed", "env"):
            then = "give --seeds" if name == "seed" else "sweep over one environment"
            raise UsageError(f"{refused}; {then}.")
        if name in space:
            raise UsageError(f"{refused}, and {flag(name)} twice; give each flag once.")
        if name in unused and not swept & {*unused[name]}:
            raise UsageError(f"{refused}, and {config.unused_error(name)}")
        # What may be None is swept over all else.
        hint = next((x for x in get_args(hints[name]) if x in (int, float)), hints[name])
        kind = {float: FloatDistribution, int: IntDistribution}.get(hint)
        is_range = ":" in spec and kind is not None
        words = spec.removeprefix("log:").split(":") if is_range else spec.split(",")
        values = given[name] = [_value(hint, word, refused) for word in words]
        if kind is None or not is_range:
            space[name] = CategoricalDistribution(values)
            continue
        log = spec.startswith("log:")
        if sampler == "grid":
            raise UsageError(f"{refused} with --sampler grid; give a list, {name}=A,B,C.")
        if len(values) != 2 or not values[0] < values[1]:
            raise UsageError(f"{refused}; a range is LOW:HIGH of two numbers, the lower one first.")
        if log and not values[0] > 0:
            raise UsageError(f"{refused}; a range of logarithms begins above 0.")
        space[name] = kind(*values, log=log)
    for said, (name, values) in zip(over, given.items(), strict=True):
        others = {other: given[other] for other in given if other != name}
        for value in values:
            _check_fits(config, {name: value}, others, f"--over {said} was given")
    return space


def swept_field(said: str) -> str:
    """The field of a flag of a sweep, such as `"learning-rate=log:1e-4:1e-2"`."""
    return said.removeprefix("--").partition("=")[0].replace("-", "_")


def grid_of(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of lists."""
    points = itertools.product(*(one.choices for one in space.values()))
    return [dict(zip(space, point, strict=True)) for point in points]


def _value(hint: Any, word: str, refused: str) -> Any:
    """A value of a flag."""
    try:
        if hint is bool:
            return {"true": True, "false": False}[word.lower()]
        return hint(word) if hint in (int, float) else word
    except (ValueError, KeyError) as e:
        kinds = {int: "a whole number", float: "a number", bool: "true or false"}
        raise UsageError(f"{refused}; {word} is not {kinds[hint]}.") from e


def _check_fits(
    config: AbstractConfig, value: dict[str, Any], others: Mapping[str, list[Any]], refused: str
) -> None:
    """Raises where a configuration cannot have a value, neither as the other flags are nor with any
    of the values that they are swept over."""
    every = (dict(zip(others, x, strict=True)) for x in itertools.product(*others.values()))
    first: UsageError | None = None
    for rest in itertools.islice(itertools.chain([{}], every), _MOST_TRIED):
        try:
            dataclasses.replace(config, **value, **rest)
            return
        except UsageError as e:
            first = first or e
    raise UsageError(f"{refused}: {first}") from first
