"""Jumanji's environments (Bonnet et al., 2024, arXiv:2306.09884)."""

import copy
import functools as ft
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ._environment import (
    absorbing_transition,
    AbstractDiscreteEnvironment,
    AbstractFactoredEnvironment,
    Observation,
    step_draws,
    Transition,
)
from ._foreign import (
    check_foreign,
    check_no_options,
    check_unwrapped,
    default_numerics,
    import_or_explain,
    raw_key,
    strongly_typed,
)
from ._known import JUMANJI_FACTORED, JUMANJI_HIDDEN, JUMANJI_RANDOM, unknown
from ._sokoban import SokobanGenerator


# The class in messages; the other class has this name after another word.
_CALL = "JumanjiEnvironment"

# With more actions, most of a policy head and of the children of a search node are never used.
_MOST_ACTIONS = 4_096


class JumanjiState(eqx.Module):
    """A state of a Jumanji environment.

    **Attributes:**

    - `position`: Jumanji's own state, in which the PRNG key is `None`.
    - `observation`: Jumanji's observation. Jumanji returns it with the state and has no public
        function to compute it.
    - `steps`: the number of steps so far.
    - `over`: whether the state is final.
    """

    position: Any
    observation: Any
    steps: Int[Array, ""]
    over: Bool[Array, ""]


class FactoredJumanjiEnvironment(AbstractFactoredEnvironment[JumanjiState]):
    """A single-player environment of Jumanji whose actions are vectors of integers.

    It is like [`zero_envs.JumanjiEnvironment`][], but does not flatten the actions of several
    components, so the number of joint actions is not limited.
    """

    env: Any = eqx.field(static=True)
    features: Callable[[Any], PyTree[Array]] = eqx.field(static=True)
    max_steps: int | None
    num_values: tuple[int, ...] = eqx.field(static=True)
    hidden: bool

    def __init__(
        self,
        env: Any,
        *,
        features: Callable[[Any], PyTree[Array]] | None = None,
        hidden: bool | None = None,
        **options: Any,
    ):
        """See [`zero_envs.JumanjiEnvironment`][]."""
        made = env if isinstance(env, _Made) else _make("Factored" + _CALL, env, hidden, options)
        self.env, self.max_steps, self.num_values, self.hidden = made
        self.features = features or _FEATURES.get(_name(self.env), _without_mask)
        # If the shape of Jumanji's mask is unknown, this fails now and not in the first step.
        jax.eval_shape(lambda: self.observe(self.init(key=jax.random.key(0))))

    def init(self, *, key: PRNGKeyArray) -> JumanjiState:
        with default_numerics(f"jumanji's {_name(self.env)}"):
            made = self.env.reset(raw_key(key))
        return _kept(made, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_))

    def step(
        self, state: JumanjiState, action: Int[Array, " components"], *, key: PRNGKeyArray
    ) -> tuple[JumanjiState, Transition]:
        """Takes an action. With a traced one out of range the state stays, the reward is 0 and the
        episode goes on."""
        _check_bounds(self.env, action, self.num_values)
        values = np.asarray(self.num_values, np.int32)
        action = jnp.asarray(action, jnp.int32)
        # Jumanji may clip an action out of range or give a reward for it, so it gets another one.
        outside = jnp.any((action < 0) | (action >= values))
        spec = self.env.action_spec
        played = jnp.where(outside, 0, action).astype(spec.dtype).reshape(spec.shape)
        before = state.position.replace(key=raw_key(key))
        with default_numerics(f"jumanji's {_name(self.env)}"):
            made = self.env.step(before, played)
            after = made[1]
            ended = after.last()
        steps = state.steps + 1
        last = ended if self.max_steps is None else ended | (steps >= self.max_steps)
        stays = state.over | outside
        next_state = _kept(made, steps, last)
        next_state = jax.tree.map(lambda old, new: jnp.where(stays, old, new), state, next_state)
        # An environment that truncates by itself has a discount other than 0 then.
        transition = absorbing_transition(
            state.over,
            jnp.where(outside, 0.0, after.reward),
            terminated=ended & (after.discount == 0) & ~outside,
            truncated=last & ~outside,
        )
        return next_state, transition

    def observe(self, state: JumanjiState) -> Observation:
        """The features, and the legal values of each component."""
        with default_numerics(f"jumanji's {_name(self.env)}"):
            features = self.features(state.observation)
        return Observation(features=features, legal=_factored_legal(state, self.num_values))

    def raw(self, state: JumanjiState) -> Any:
        """Jumanji's own state, with an arbitrary key."""
        return state.position.replace(key=raw_key(jax.random.key(0)))


class JumanjiEnvironment(AbstractDiscreteEnvironment[JumanjiState]):
    """A single-player environment of Jumanji whose actions are discrete.

    - Actions of several components are flattened to one integer in row-major order. There may be
        up to 4 096 of them; for more see [`zero_envs.FactoredJumanjiEnvironment`][].
    - With a traced action out of range the state stays, the reward is 0 and the episode goes on.
    - Jumanji reports its `time_limit` as a termination. Here it is a truncation: `last` with
        discount 1.
    - Jumanji's state holds a PRNG key. Here it does not: chance depends on the `key` of `step`.
    - If Jumanji has no mask, or the mask (or its row for a component) is false everywhere, all
        actions (or values of that component) are legal.

    **Attributes:**

    - `factored`: the same environment with unflattened actions.
    """

    factored: FactoredJumanjiEnvironment
    num_actions: int
    num_players: int
    hidden: bool

    def __init__(
        self,
        env: Any,
        *,
        features: Callable[[Any], PyTree[Array]] | None = None,
        hidden: bool | None = None,
        **options: Any,
    ):
        """**Arguments:**

        - `env`: an id of `jumanji.registered_environments()`, for instance `"Snake-v1"`, or a
            `jumanji.Environment`, possibly wrapped. `"Sokoban-v0"` draws its levels with a
            [`zero_envs.SokobanGenerator`][]; for Jumanji's data set, which is downloaded, pass its
            generator.
        - `features`: maps Jumanji's observation to the features. By default these are one array
            `[rows, columns, planes]` for `Game2048`, `Snake` and `Sokoban`, one array
            `[faces, rows, columns, colours]` for `RubiksCube`, and a dictionary of all fields of
            the observation but the mask for all others.
        - `hidden`: whether the state is only partly observable. It is required for environments
            that are not Jumanji's own.
        - `options`: with an id, the arguments of the environment's constructor, such as
            `generator`, `reward_fn` or `time_limit`.
        """
        made = _make(_CALL, env, hidden, options)
        self.factored = FactoredJumanjiEnvironment(made, features=features)
        self.num_players, self.hidden = 1, self.factored.hidden
        values = self.factored.num_values
        self.num_actions = math.prod(values)
        if self.num_actions > _MOST_ACTIONS:
            raise ValueError(
                f"{_CALL}(<{_name(self.env)}>): its {len(values)} components make "
                f"{self.num_actions} joint actions, more than {_MOST_ACTIONS}; choose a "
                "smaller one, or construct FactoredJumanjiEnvironment, for particle or sampled "
                "search."
            )

    @property
    def env(self) -> Any:
        """Jumanji's environment, without its time limit."""
        return self.factored.env

    @property
    def max_steps(self) -> int | None:
        """The time limit, or `None`."""
        return self.factored.max_steps

    @property
    def random(self) -> bool:
        """Whether its steps draw, which tells no odds."""
        foreign = any(not _is_own(kind) for kind in _kinds(self.env))
        return step_draws(self) if foreign else _name(self.env) in JUMANJI_RANDOM

    def init(self, *, key: PRNGKeyArray) -> JumanjiState:
        return self.factored.init(key=key)

    def step(
        self, state: JumanjiState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[JumanjiState, Transition]:
        """Takes an action; see [`zero_envs.FactoredJumanjiEnvironment.step`][]."""
        _check_bounds(self.env, action, (self.num_actions,))
        action = jnp.asarray(action, jnp.int32)
        outside = (action < 0) | (action >= self.num_actions)
        parts = jnp.stack(jnp.unravel_index(action, self.factored.num_values))
        # -1 is out of range for every component.
        return self.factored.step(state, jnp.where(outside, -1, parts), key=key)

    def observe(self, state: JumanjiState) -> Observation:
        """The features, and the mask of the flattened actions."""
        features = self.factored.observe(state).features
        return Observation(features=features, legal=_joint_legal(state, self.factored.num_values))

    def raw(self, state: JumanjiState) -> Any:
        """Jumanji's own state, with an arbitrary key."""
        return self.factored.raw(state)


def _kept(made: tuple[Any, Any], steps: Int[Array, ""], over: Bool[Array, ""]) -> JumanjiState:
    """What is kept of what Jumanji's `reset` or `step` returned."""
    position, first = made
    return JumanjiState(
        position=strongly_typed(position.replace(key=None)),
        observation=strongly_typed(first.observation),
        steps=steps,
        over=over,
    )


def _check_bounds(env: Any, action: Any, num_values: tuple[int, ...]) -> None:
    """Refuses an action out of range, unless it is traced."""
    # NumPy makes no integers of other things than numbers.
    kind = action.dtype if hasattr(action, "dtype") else np.asarray(action).dtype
    if not jnp.issubdtype(kind, jnp.integer):
        raise ValueError(f"{_name(env)}: the action {action} is no integer; give integers.")
    if isinstance(action, Tracer):
        return
    given = np.ravel(np.asarray(action))
    if given.size != len(num_values):
        raise ValueError(
            f"{_name(env)}: the action {given.tolist()} has {given.size} components; it must "
            f"have {len(num_values)}. Use jax.vmap over a batch."
        )
    if np.any((given < 0) | (given >= np.asarray(num_values))):
        raise ValueError(
            f"{_name(env)}: the action {given.tolist()} is outside; each component must be from "
            f"0 to {', '.join(str(n - 1) for n in num_values)}."
        )


class _Made(NamedTuple):
    """An environment without its time limit, the limit, the number of values of each component of
    an action, and whether the state is only partly observable."""

    env: Any
    max_steps: int | None
    num_values: tuple[int, ...]
    hidden: bool


def _make(call: str, env: Any, hidden: bool | None, options: dict[str, Any]) -> _Made:
    """The environment that the class of that name makes of its arguments."""
    if isinstance(env, str):
        registration = import_or_explain("jumanji.registration", call)
        allowed = registration.registered_environments()
        if env not in allowed:
            raise unknown(call, env, allowed)
        env, limit = _configured(call, env, options) if options else _registered(env)
    else:
        check_no_options(call, env.unwrapped if hasattr(env, "unwrapped") else env, options)
        check_foreign(call, env, "an id or a jumanji.Environment", "action_spec", "unwrapped")
        check_unwrapped(call, env)
        env, limit = _unlimited(env)
    num_values = _num_values(call, env)
    with default_numerics(f"jumanji's {_name(env)}"):
        reward = jax.eval_shape(lambda: env.reset(raw_key(jax.random.key(0)))[1].reward)
    if reward.shape:
        raise ValueError(
            f"{call}(<{_name(env)}>): it has rewards for {reward.shape[0]} agents, but "
            "there must be one; wrap it in jumanji.wrappers.MultiToSingleWrapper, which adds them, "
            "or choose another environment."
        )
    return _Made(env, limit, num_values, _is_hidden(call, env) if hidden is None else hidden)


def _name(env: Any) -> str:
    return type(env.unwrapped).__name__


def _kinds(env: Any) -> Iterator[type]:
    """The classes of the wrappers, outermost first, and of what they wrap."""
    while env is not env.unwrapped:
        yield type(env)
        env = env._env
    yield type(env)


def _is_own(kind: type) -> bool:
    return kind.__module__.startswith("jumanji.")


def _is_hidden(call: str, env: Any) -> bool:
    for kind in _kinds(env):
        if not _is_own(kind):
            raise ValueError(
                f"{call}(<{kind.__name__}>): not one of Jumanji's own, so it is not "
                "known whether its state is fully observable; pass hidden=True or False."
            )
    name, inner = _name(env), env.unwrapped
    # Its agents see as many cells as `fov` in each direction.
    near = name == "LevelBasedForaging" and inner.fov < inner.grid_size - 1
    return near or name in JUMANJI_HIDDEN


def jumanji_environment(
    name: str, **options: Any
) -> JumanjiEnvironment | FactoredJumanjiEnvironment:
    """The environment of an id, factored where there are too many actions to number them."""
    factored = name.partition("-")[0] in JUMANJI_FACTORED
    return (FactoredJumanjiEnvironment if factored else JumanjiEnvironment)(name, **options)


@ft.cache
def _registered(name: str) -> tuple[Any, int | None]:
    """Returns the same object for the same id, so that nothing is traced twice."""
    return _unlimited(_construct(name, {}))


def _configured(call: str, name: str, options: dict[str, Any]) -> tuple[Any, int | None]:
    kind = type(_registered(name)[0].unwrapped)
    allowed = list(inspect.signature(kind).parameters)
    refused = [option for option in options if option not in allowed]
    if refused:
        raise ValueError(
            f'{call}("{name}", {", ".join(refused)}): {kind.__name__} takes '
            f"{', '.join(allowed)}; for anything else pass a jumanji.wrappers.Wrapper of your own."
        )
    return _unlimited(_construct(name, options))


def _construct(name: str, options: dict[str, Any]) -> Any:
    registration = import_or_explain("jumanji.registration", _CALL)
    with default_numerics(f"jumanji/{name}"):
        if name == "Sokoban-v0" and "generator" not in options:
            # Jumanji would download its own levels.
            options = {"generator": SokobanGenerator(), **options}
        return registration.make(name, **options)


def _unlimited(env: Any) -> tuple[Any, int | None]:
    """The environment without its time limit, and the limit.

    With the limit, a termination at the limit could not be distinguished from a truncation.
    """
    limit = getattr(env, "time_limit", None)
    if limit is None:
        return env, None
    env = copy.copy(env)
    if env is not env.unwrapped and "time_limit" not in vars(env):
        env._env, _ = _unlimited(env._env)
    else:
        env.time_limit = jnp.iinfo(jnp.int32).max
    return env, int(limit)


def _num_values(call: str, env: Any) -> tuple[int, ...]:
    spec = env.action_spec
    values, minimum = getattr(spec, "num_values", None), getattr(spec, "minimum", None)
    bounded = minimum is not None and np.issubdtype(spec.dtype, np.integer)
    if values is None and bounded and not np.any(minimum):  # as those of `MultiCVRP` are
        values = np.broadcast_to(np.asarray(spec.maximum, np.int64) + 1, spec.shape)
    if values is None:
        raise ValueError(
            f"{call}(<{_name(env)}>): its actions are a {type(spec).__name__} of "
            f"{np.dtype(spec.dtype).name}; they must be integers from 0 on. Choose another "
            "environment."
        )
    return tuple(np.ravel(np.asarray(values)).tolist())


def _joint_legal(state: JumanjiState, num_values: tuple[int, ...]) -> Bool[Array, " actions"]:
    """The mask of joint actions. If Jumanji's has one row for each component, a joint action is
    legal if all of its values are."""
    mask = getattr(state.observation, "action_mask", None)
    if mask is None:
        return jnp.ones(math.prod(num_values), jnp.bool_)
    if mask.shape != num_values:
        mask = ft.reduce(jnp.logical_and.outer, _rows(mask, num_values))
    return _all_if_none(jnp.ravel(mask))


def _factored_legal(state: JumanjiState, num_values: tuple[int, ...]) -> Bool[Array, " values"]:
    """The mask of the values of all components. If Jumanji's is over joint actions, a value is
    legal if it is part of a legal action."""
    mask = getattr(state.observation, "action_mask", None)
    if mask is None:
        return jnp.ones(sum(num_values), jnp.bool_)
    if mask.shape != num_values:
        return jnp.concatenate(_rows(mask, num_values))
    axes = range(mask.ndim)
    rows = [jnp.any(mask, axis=tuple(j for j in axes if j != i)) for i in axes]
    return jnp.concatenate([_all_if_none(row) for row in rows])


def _rows(mask: Array, num_values: tuple[int, ...]) -> list[Bool[Array, " values"]]:
    """The legal values of each component. Values beyond the end of its row are illegal."""
    if mask.ndim != 2 or len(mask) != len(num_values) or mask.shape[1] > max(num_values):
        raise ValueError(
            f"Jumanji's action mask has the shape {mask.shape} for actions of {num_values}; it "
            "must be the same, or one row for each component."
        )
    width = mask.shape[1]
    rows = [mask[i, :n] for i, n in enumerate(num_values)]
    rows = [jnp.pad(row, (0, max(0, n - width))) for row, n in zip(rows, num_values, strict=True)]
    return [_all_if_none(row) for row in rows]


def _all_if_none(legal: Array) -> Bool[Array, " values"]:
    """The mask, or all values if none is legal, because a softmax needs at least one."""
    legal = legal.astype(jnp.bool_)
    return legal | ~jnp.any(legal)


def _without_mask(observation: Any) -> dict[str, PyTree[Array]]:
    fields = observation._asdict()
    fields.pop("action_mask", None)
    return fields


def _sokoban(observation: Any) -> Array:
    """Planes of the agent, boxes, walls and targets."""
    moving, fixed = observation.grid[..., 0], observation.grid[..., 1]
    planes = [moving == 3, moving == 4, fixed == 1, fixed == 2]
    return jnp.stack(planes, axis=-1).astype(jnp.float32)


_FEATURES: dict[str, Callable[[Any], Any]] = {
    # As in pgx, there are planes for tiles up to 2^30.
    "Game2048": lambda seen: jax.nn.one_hot(seen.board, 31, dtype=jnp.float32),
    "RubiksCube": lambda seen: jax.nn.one_hot(seen.cube, 6, dtype=jnp.float32),
    "Snake": lambda seen: seen.grid.astype(jnp.float32),
    "Sokoban": _sokoban,
}
