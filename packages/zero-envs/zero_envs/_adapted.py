"""What the adapters to gymnax and Stoa have in common: an environment of a library is two functions
and the shapes of its states."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._environment import (
    absorbing_transition,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    check_vector,
    checked_action,
    depends_on_key,
    Observation,
    Transition,
)
from ._foreign import (
    Bounds,
    checked_bounds,
    default_numerics,
    Limits,
    raw_key,
    strongly_typed,
    with_keys,
    within_bounds,
    without_keys,
)


class Stepped(NamedTuple):
    """What a step of a library results in, before anything is reset."""

    state: Any
    observation: Any
    reward: Array
    terminated: Array
    truncated: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """An environment of a library.

    **Attributes:**

    - `call`, `name`: what made it and what it is called, for messages.
    - `reset`: maps a key to a state and its observation.
    - `step`: maps a state, an action and a key to the result.
    - `steady`: whether it is known that the key makes no difference, though `step` looks at it.
    """

    call: str
    name: str
    reset: Callable[[Array], tuple[Any, Any]]
    step: Callable[[Any, Array, Array], Stepped]
    steady: bool = False

    @ft.cached_property
    def shapes(self) -> Any:
        """The shapes of a state, its keys included."""
        with default_numerics(self.name):
            return jax.eval_shape(lambda: self.reset(raw_key(jax.random.key(0))))[0]

    @ft.cached_property
    def random(self) -> bool:
        """Whether a step, of an integer as its action, draws."""
        if self.steady:
            return False

        def step(position: Any, action: Array, key: Array) -> Stepped:
            after = self.step(with_keys(self.shapes, position, key), action, raw_key(key))
            return after._replace(state=without_keys(after.state))

        given = without_keys(self.shapes), jax.ShapeDtypeStruct((), jnp.int32)
        with default_numerics(self.name):
            return depends_on_key(step, *given)


class AdaptedState(eqx.Module):
    """A state of an environment of gymnax or Stoa.

    **Attributes:**

    - `position`: the library's own state, in which PRNG keys are `None`.
    - `observation`: the library's observation, which it returns with the state.
    - `over`: whether the state is final.
    """

    position: Any
    observation: Any
    over: Bool[Array, ""]


class AbstractAdaptedEnvironment(AbstractEnvironment[AdaptedState, Any]):
    """What environments of gymnax and Stoa with different actions have in common."""

    library: eqx.AbstractVar[Library]
    num_players: ClassVar[int] = 1

    def init(self, *, key: PRNGKeyArray) -> AdaptedState:
        with default_numerics(self.library.name):
            position, observation = self.library.reset(raw_key(key))
        return AdaptedState(
            position=strongly_typed(without_keys(position)),
            observation=strongly_typed(observation),
            over=jnp.zeros((), jnp.bool_),
        )

    def raw(self, state: AdaptedState) -> Any:
        """The library's own state, with an arbitrary key."""
        return with_keys(self.library.shapes, state.position, jax.random.key(0))


class AdaptedEnvironment(AbstractAdaptedEnvironment, AbstractDiscreteEnvironment[AdaptedState]):
    """A discrete environment of gymnax or Stoa, as [`zero_envs.gymnax_environment`][] and
    [`zero_envs.stoa_environment`][] make it.

    - Nothing is reset within a step: a final state keeps its observation.
    - A time limit is a truncation: `last` with discount 1. `max_steps` is the library's, or `None`.
    - A state holds no PRNG key: chance depends on the `key` of `step`.
    - The features are the observation. If it has a field `action_mask`, that is the mask of the
        legal actions and no feature; else all actions are legal.
    """

    library: Library = eqx.field(static=True)
    num_actions: int
    hidden: bool
    max_steps: int | None

    @property
    def random(self) -> bool:
        """Whether its steps draw, which tells no odds."""
        return self.library.random

    def step(
        self, state: AdaptedState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[AdaptedState, Transition]:
        return _step(self.library, state, checked_action(self, action), key)

    def observe(self, state: AdaptedState) -> Observation:
        features, mask = _without_mask(state.observation)
        legal = jnp.ones(self.num_actions, jnp.bool_)
        if mask is not None:
            if mask.size != self.num_actions:
                raise ValueError(
                    f"{self.library.call}(<{self.library.name}>): its action mask has the shape "
                    f"{list(mask.shape)} for {self.num_actions} actions; give one number for each."
                )
            # Several components are numbered in row-major order. A softmax needs at least one.
            legal = (mask.astype(jnp.bool_) | ~jnp.any(mask)).reshape(-1)
        return Observation(features=features, legal=legal)


class ContinuousAdaptedEnvironment(
    AbstractAdaptedEnvironment, AbstractContinuousEnvironment[AdaptedState]
):
    """A continuous environment of gymnax or Stoa: see [`zero_envs.AdaptedEnvironment`][].

    Actions in [-1, 1] are scaled to the bounds of each dimension, and others are clipped.
    """

    library: Library = eqx.field(static=True)
    action_size: int
    hidden: bool
    max_steps: int | None
    _shape: tuple[int, ...] = eqx.field(static=True)
    _limits: Limits = eqx.field(static=True)

    def step(
        self, state: AdaptedState, action: Float[Array, " action_size"], *, key: PRNGKeyArray
    ) -> tuple[AdaptedState, Transition]:
        check_vector(self, action)
        action = within_bounds(action, self._limits).reshape(self._shape)
        return _step(self.library, state, action, key)

    def observe(self, state: AdaptedState) -> Observation:
        return Observation(features=state.observation, legal=None)


def continuous(
    library: Library, shape: tuple[int, ...], bounds: Bounds, **known: Any
) -> ContinuousAdaptedEnvironment:
    """The environment of a library whose actions are arrays of that shape within bounds. `known`
    are the fields that do not depend on what the actions are."""
    limits = checked_bounds(library.call, library.name, shape, bounds)
    return ContinuousAdaptedEnvironment(
        library=library, action_size=len(limits[0]), _shape=tuple(shape), _limits=limits, **known
    )


def _step(
    library: Library, state: AdaptedState, action: Array, key: PRNGKeyArray
) -> tuple[AdaptedState, Transition]:
    before = with_keys(library.shapes, state.position, key)
    with default_numerics(library.name):
        after = library.step(before, action, raw_key(key))
    transition = absorbing_transition(
        state.over,
        jnp.asarray(after.reward, jnp.float32),
        terminated=jnp.asarray(after.terminated, jnp.bool_),
        truncated=jnp.asarray(after.truncated, jnp.bool_),
    )
    made = (without_keys(after.state), after.observation)
    keep = lambda old, new: jnp.where(state.over, old, _as_before(library, old, new))
    kept = jax.tree.map(keep, (state.position, state.observation), made)
    return AdaptedState(*kept, over=transition.last), transition


def _as_before(library: Library, old: Array, new: Any) -> Array:
    """An array in the dtype that it begins with: a library may begin with a Python number and go on
    with an array of another dtype."""
    new = jnp.asarray(new)
    floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in (old, new)]
    narrow = old.dtype.itemsize < min(4, new.dtype.itemsize) and not new.weak_type
    if floats == [False, True] or (floats == [False, False] and narrow):
        raise ValueError(
            f"{library.call}(<{library.name}>): an array of {old.dtype} goes on as {new.dtype} "
            f"after a step, which would be cut down; begin with {new.dtype}."
        )
    return new.astype(old.dtype)


def _without_mask(observation: Any) -> tuple[PyTree[Array], Array | None]:
    """The fields of an observation but its mask, and the mask, if it has one."""
    fields = observation
    if hasattr(observation, "_asdict"):
        fields = observation._asdict()
    elif dataclasses.is_dataclass(observation):
        fields = {x.name: getattr(observation, x.name) for x in dataclasses.fields(observation)}
    if not isinstance(fields, dict) or "action_mask" not in fields:
        return observation, None
    return {name: x for name, x in fields.items() if name != "action_mask"}, fields["action_mask"]
