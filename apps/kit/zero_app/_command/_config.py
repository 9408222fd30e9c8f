"""The configuration of a run."""

import dataclasses
import functools as ft
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints, Literal, Union

from annotated_types import BaseMetadata, Ge, GroupedMetadata, Interval, Le

from ._errors import flag, UsageError
from ._lazy import optax, zero_search, zero_train


#: The greatest seed: a key holds 32 bits of it.
MAX_SEED = 2**32 - 1
#: The type of a seed's field.
Seed = Annotated[int, Interval(ge=0, le=MAX_SEED)]
#: The type of a field that counts what there is at least one of.
Count = Annotated[int, Ge(1)]
#: The type of a field for a number from 0 to 1.
Fraction = Annotated[float, Interval(ge=0, le=1)]
#: The type of a field for a number that is not negative.
NonNegative = Annotated[float, Ge(0)]
#: The type of a field for the seconds that a picture is shown.
Delay = Annotated[float, Interval(ge=0, le=3600)]
#: The type of a field for the seconds that a player thinks about a move.
Seconds = Annotated[float, Interval(ge=0.01, le=86400)]
#: The type of a field for the simulations per move of a player; 0 is its network alone.
Simulations = Annotated[int, Interval(ge=0, le=10**6 - 1)]
# The name of a kind of number in messages, and the largest one that 32 bits hold.
_NUMBERS = {int: ("a whole number", 2**31 - 1), float: ("a number", 3e38)}
_WORDS = {bool: "true or false", str: "a text"}


#: Rows of names of fields, the fields whose values are the reason that those have no effect, and
#: whether it is so for a configuration. Where several rows apply to a field the last one counts.
UnusedWhere = Sequence[tuple[Sequence[str], tuple[str, ...], Callable[[Any], bool]]]


@dataclasses.dataclass(frozen=True)
class AbstractConfig:
    """The hyperparameters of every run. An app's configuration is a frozen dataclass derived from
    this one; each field is a flag, documented by the string below it, and an entry of config.json.

    A field may say what its numbers are by Ge, Le and Interval of annotated-types, as in
    `Annotated[int, Interval(ge=1, le=256)]`, which a class below keeps where its field is only an
    `int`. By default an integer is from 0 to the greatest of 32 bits, and other numbers are finite.
    A class may have `absent`: what newer fields are in runs whose config.json lacks them, beside
    those of the classes above it. Its `code` lists the fields in which `module:Class` and
    `file.py:Class` name code of the user's own, which is run for a stored configuration only with
    --run-code.

    Its `unused_where` lists fields that may have no effect, beside those of the classes above it.
    Their flags are refused on the command line alone, so older runs that have one can still be
    loaded.
    """

    seed: Seed = 0
    """The seed of all randomness."""
    steps: Count = 200
    """Steps of the loop, each of which collects from every environment and then updates."""
    envs: Count = 128
    """Parallel environments, over all acting devices."""
    unroll: Count = 4
    """Moves in every environment per step."""
    updates: Count = 4
    """Gradient updates per step."""
    batch: Count = 512
    """Samples of the replay per gradient update, over all learning devices."""
    shards: Count = 8
    """Parts of the replay buffer. By default this is 8, or the number of learning devices if that
    is larger and a power of two. Every number of learning devices that divides it gives the same
    results."""
    actor_devices: int = 0
    """The number of --devices that only act, while the others learn from the rows of the step
    before; with 0 all devices do both."""
    evaluate_every: Count = 25
    """Steps between two evaluations."""
    checkpoint_every: int = 0
    """Steps between two checkpoints; with 0 there is one a minute, or fewer, so that saving, until
    all is on disk, takes at most 5 % of the time."""
    init: str = ""
    """A trained player whose parameters the run begins with, with a fresh optimiser: the folder of
    a run, a file of a player, or pretrained for the one that comes with the command."""

    absent: ClassVar[Mapping[str, Any]] = {"actor_devices": 0, "init": ""}
    code: ClassVar[tuple[str, ...]] = ()
    unused_where: ClassVar[UnusedWhere] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for name, divisor in (("envs", "shards"), ("batch", "shards"), ("envs", "actor_devices")):
            value, parts = getattr(self, name), getattr(self, divisor)
            if parts and value % parts:  # there may be no devices that only act
                raise UsageError(
                    f"--{name} {value} does not divide into {flag(divisor)} {parts}; "
                    f"give a multiple of {parts}, or other {flag(divisor)}."
                )

    def unused(self) -> dict[str, tuple[str, ...]]:
        """The fields that have no effect, by name, and the fields whose values are the reason."""
        found = dict[str, tuple[str, ...]]()
        for kind in reversed(type(self).__mro__):
            for names, why, applies in vars(kind).get("unused_where", ()):
                found |= dict.fromkeys(names, why) if applies(self) else {}
        return found

    def unused_error(self, name: str) -> UsageError:
        """What is wrong with a field that is `unused`, as the command line says it."""
        why = " ".join(_words(x, getattr(self, x)) for x in self.unused()[name])
        value = getattr(self, name)
        said = _words(name, value) if isinstance(value, bool) else flag(name)
        return UsageError(f"{said} has no effect with {why}; leave it out.")


def _words(name: str, value: Any) -> str:
    """A field and its value as they are said on the command line."""
    if isinstance(value, bool):
        return flag(name) if value else f"--no-{flag(name)[2:]}"
    return f"{flag(name)} {value}"


@dataclasses.dataclass(frozen=True)
class AbstractAdamWConfig(AbstractConfig):
    """The configuration of an agent with one optimiser, AdamW. The learning rate rises evenly to
    its peak, and then falls until the end of the run."""

    learning_rate: Annotated[float, Interval(ge=1e-12, le=1)] = 3e-3  # with 0 nothing is learned
    """Peak learning rate of AdamW."""
    warmup: int = 0
    """Updates over which the learning rate rises to its peak."""
    decay: Fraction = 0.05
    """The learning rate falls to this fraction of its peak; 1 keeps it constant."""
    schedule: Literal["cosine", "exponential"] = "cosine"
    """How the learning rate falls."""
    weight_decay: NonNegative = 1e-4
    """AdamW's decoupled weight decay."""
    clip: NonNegative = 1.0
    """Maximum global norm of the gradient; 0 for no maximum."""

    absent: ClassVar[Mapping[str, Any]] = {"schedule": "cosine", "warmup": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "exponential" and self.decay == 0:
            raise UsageError(
                "--decay 0 was given, which nothing reaches that falls exponentially; give more, "
                "or --schedule cosine."
            )

    def rates(self) -> "optax.Schedule":
        """The learning rate of each gradient update."""
        total, peak = self.steps * self.updates, self.learning_rate
        first = peak / max(self.warmup, 1)
        if self.schedule == "exponential":
            fall = max(total - self.warmup, 1)
            return optax.warmup_exponential_decay_schedule(
                first, peak, self.warmup, transition_steps=fall, decay_rate=self.decay
            )
        last = max(total, self.warmup + 1)
        return optax.warmup_cosine_decay_schedule(first, peak, self.warmup, last, peak * self.decay)

    def optimiser(self) -> "optax.GradientTransformation":
        """The optimiser, which clips gradients first. Its learning rate is logged."""
        adamw = optax.inject_hyperparams(optax.adamw, static_args=_CONSTANTS)
        adam = adamw(self.rates(), weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adam) if self.clip else adam


@dataclasses.dataclass(frozen=True)
class AbstractTreeSearchConfig(AbstractAdamWConfig):
    """The configuration of a player of board games by tree search."""

    capacity: Annotated[int, Ge(2)] = 512
    """Positions kept for replay, per parallel game."""
    opening_plies: Annotated[int, Le(10**4)] = 0
    """Greatest number of random moves at the start of a game of self-play. Each game has a number
    of them drawn from 0 to this, fewer where one would end it, and only the moves after them are
    learned from."""
    search: Literal["gumbel", "puct", "muzero"] = "gumbel"
    """Gumbel sequential halving, AlphaZero PUCT, or MuZero PUCT."""
    simulations: Annotated[int, Interval(ge=1, le=10**6)] = 16
    """Simulations per move while collecting."""
    considered: Count = 8
    """Gumbel: moves considered at the root."""
    exploration: NonNegative = 1.25
    """PUCT: weight of the prior while collecting. Trained players that search by PUCT use it too,
    but for those of AlphaZero."""
    noise: Fraction = 0.25
    """PUCT: fraction of Dirichlet noise in the root's prior."""
    concentration: Annotated[float, Ge(1e-6)] = 10.0
    """PUCT: total concentration of the Dirichlet noise, divided by the number of legal moves."""
    temperature_moves: int = 20
    """PUCT: plies of a game, after its random moves, in which the move is sampled from the visits.
    """
    temperature: NonNegative = 0.0
    """PUCT: temperature at which moves of later plies are sampled from the visits; at 0 the most
    visited move is played."""
    player_exploration: NonNegative = 1.25
    """AlphaZero: weight of the prior in the searches of the trained player."""
    prior_temperature: Annotated[float, Ge(0.01)] = 1.0
    """AlphaZero: temperature of the network's policy in the searches of the trained player. Above 1
    they try moves sooner that the network thinks unlikely."""
    decisive_moves: bool = False
    """AlphaZero: let the searches of the trained player see which moves end the game at once, for
    which it tries every move of every position that a search reaches, and keep what that proves."""
    player_simulations: Annotated[int, Interval(ge=1, le=10**6)] = 64
    """Simulations per move of the trained player, where a command is not given another number."""
    value_weight: NonNegative = 1.0
    """Weight of the value loss."""
    value_mix: Fraction = 0.3
    """Fraction of the searched value in the value target."""
    average: Fraction = 0.95
    """Decay of the moving average of the parameters, which plays; with 0 the newest parameters
    play."""

    absent: ClassVar[Mapping[str, Any]] = {
        "opening_plies": 0,
        "temperature": 0.0,
        "player_exploration": 1.25,
        "prior_temperature": 1.0,
        "decisive_moves": False,
    }
    unused_where: ClassVar[UnusedWhere] = (
        (("considered",), ("search",), lambda c: c.search != "gumbel"),
        (("concentration",), ("noise",), lambda c: not c.noise),
        (
            ("noise", "concentration", "temperature_moves", "temperature"),
            ("search",),
            lambda c: c.search == "gumbel",
        ),
    )

    def explorer(self, **parts: Any) -> "zero_search.TreeSearch":
        """The planner of self-play; `parts` are of [`zero_search.TreeSearch`][], for PUCT."""
        if self.search == "gumbel":
            considered = self.considered
            return zero_search.TreeSearch.gumbel(
                self.simulations, max_num_considered_actions=considered, kernels="auto"
            )
        noise = zero_search.DirichletNoise(self.noise, total=self.concentration)
        parts = {
            "kernels": "auto",
            "noise": noise if self.noise else None,
            "temperature": zero_search.Temperature(1.0, self.temperature, self.temperature_moves),
            **parts,
        }
        if self.search == "muzero":
            return zero_search.TreeSearch.muzero(self.simulations, c=self.exploration, **parts)
        return zero_search.TreeSearch.alphazero(self.simulations, c=self.exploration, **parts)

    def planner(self, **parts: Any) -> "zero_search.TreeSearch":
        """The planner of the trained player: without noise, it plays the most visited move, unless
        `parts` have another readout, and keeps the subtree of the move that was played. Over a
        model whose root needs the observation no tree can be kept: replace it by one without
        `reuse`. `parts` are arguments of [`zero_search.TreeSearch`][]."""
        rule = zero_search.PUCT(self.exploration)
        own: dict[str, Any] = {"selection": rule, "reuse": True, "kernels": "auto"}
        return zero_search.TreeSearch(self.player_simulations, **(own | parts))

    def alphazero(
        self,
        network: Callable[..., Any],
        model: Callable[..., Any],
        *,
        max_return: float = 1.0,
        **parts: Any,
    ) -> "zero_train.ExpertIteration":
        """The agent of this configuration. Its player plays the move of the highest lower
        confidence bound ([`zero_search.LowerBound`][]), whose width is `max_return`, the greatest
        return of a game: in Othello and Connect Four that was stronger than the most visited move.
        `network` and `model` are as for [`zero_train.ExpertIteration.alphazero`][], and `parts`
        others of its arguments, in place of those of the configuration. With `decisive_moves` the
        player's `model` is given that argument, too, and its search `max_return`."""
        bound = zero_search.LowerBound(max_return)
        rule = zero_search.PUCT(self.player_exploration, prior_temperature=self.prior_temperature)
        player_model = most = None
        if self.decisive_moves:
            player_model, most = ft.partial(model, decisive_moves=True), max_return
            player_model(zero_train.indifferent, gamma=1.0)  # raises where they cannot be known
        known: dict[str, Any] = {
            "optimiser": self.optimiser(),
            "explorer": self.explorer(),
            "planner": self.planner(selection=rule, readout=bound, max_return=most),
            "value_weight": self.value_weight,
            "value_mix": self.value_mix,
            "l2": 0.0,
            "average_decay": self.average,
            "player_model": player_model,
        }
        return zero_train.ExpertIteration.alphazero(network=network, model=model, **(known | parts))


# The arguments of AdamW that no state of the optimiser has to hold.
_CONSTANTS = ("b1", "b2", "eps", "eps_root", "weight_decay")


def check_fields(config: Any) -> None:
    """Checks the values of a configuration, a dataclass perhaps of dataclasses, in its
    `__post_init__`: every field has its annotated type, and every number is finite and what its
    annotation allows, see [`zero_app.AbstractConfig`][]. Tuples are checked element by element, and
    `None` passes where the annotation allows it."""
    kind = type(config)
    hints = get_type_hints(kind)  # without what annotated-types says
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_fields(value)
        else:
            _check(flag(field.name), value, hints[field.name], _range(kind, field.name))


@ft.cache
def _range(kind: type, name: str) -> tuple[Any, Any]:
    """The least and the greatest number of a field, `None` where nothing is said: those of the
    nearest class whose annotation says one."""
    least = most = None
    for base in kind.__mro__:
        if name not in inspect.get_annotations(base):
            continue
        for mark in _marks(get_type_hints(base, include_extras=True)[name]):
            match mark:
                case Ge(ge=bound):
                    least = bound
                case Le(le=bound):
                    most = bound
                case BaseMetadata():
                    raise TypeError(
                        f"{kind.__name__}.{name} is annotated with {mark}; give Ge, Le or Interval."
                    )
        if (least, most) != (None, None):
            break
    return least, most


def _marks(hint: Any) -> Iterator[Any]:
    """What annotations inside of a type say, those of the elements of a tuple included."""
    for mark in getattr(hint, "__metadata__", ()):
        yield from mark if isinstance(mark, GroupedMetadata) else [mark]
    for inner in get_args(hint):
        yield from _marks(inner)


def _check(name: str, value: Any, hint: Any, allowed: tuple[Any, Any]) -> None:
    """Checks one value against its annotation `hint`, and numbers against the least and the
    greatest one allowed. Messages call it `name`."""
    kinds = get_args(hint)
    if value is None and type(None) in kinds:
        return
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (kind for kind in kinds if kind is not type(None))
        _check(name, value, hint, allowed)
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        for element in value:
            _check(name, element, kinds[0], allowed)
    elif get_origin(hint) is Literal:
        if value not in kinds:
            raise _refused(name, value, f"give one of {', '.join(map(str, kinds))}")
    elif hint in _NUMBERS:
        _check_number(name, value, hint, *allowed)
    elif hint in _WORDS and not isinstance(value, hint):
        raise _refused(name, value, f"give {_WORDS[hint]}")


def _check_number(
    name: str, value: Any, kind: type[int] | type[float], least: Any, most: Any
) -> None:
    what, largest = _NUMBERS[kind]
    # JSON has one kind of number, and for Python true is one.
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise _refused(name, value, f"give {what}")
    least = (0 if kind is int else -math.inf) if least is None else least
    limit = largest if most is None else most
    if max(least, -largest) <= value <= limit:
        return
    if least == -math.inf or (most is None and value == math.inf):
        allowed = "it must be finite"
    elif most is not None or limit < value < math.inf:
        allowed = f"give {least} to {limit}"
    else:
        allowed = f"give at least {least}"
    raise _refused(name, value, allowed)


def _refused(name: str, value: Any, allowed: str) -> UsageError:
    shown = str(value) if isinstance(value, int | float) else repr(value)
    shown = f"{shown[:40]}..." if len(shown) > 50 else shown
    return UsageError(f"{name} {shown} was given; {allowed}.")


def inherited(kind: type, name: str) -> dict[str, Any]:
    """The entries of a mapping of a class, such as its `absent`, and of those of its bases."""
    parts = (vars(base).get(name, {}) for base in reversed(kind.__mro__))
    return {key: value for part in parts for key, value in part.items()}
