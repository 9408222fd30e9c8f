"""What the adapters to brax and MuJoCo Playground have in common."""

import contextlib
import functools as ft
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractContinuousEnvironment,
    check_vector,
    Observation,
    Transition,
)
from ._foreign import (
    default_numerics,
    Limits,
    raw_key,
    strongly_typed,
    with_keys,
    within_bounds,
    without_keys,
)


class PhysicsState(eqx.Module):
    """A state of an environment of brax or of MuJoCo Playground.

    **Attributes:**

    - `physics`: brax's pipeline state or MuJoCo's data, the last finite one.
    - `observation`: the library's observation, which it returns with the state and has no public
        function to compute.
    - `info`: the environment's own information, in which PRNG keys are `None`.
    - `steps`: the number of steps so far.
    - `over`: whether the state is final.
    - `failed`: whether it is final because the simulation returned a number that is not finite.
    """

    physics: Any
    observation: Any
    info: Any
    steps: Int[Array, ""]
    over: Bool[Array, ""]
    failed: Bool[Array, ""]


class AbstractPhysicsEnvironment(AbstractContinuousEnvironment[PhysicsState]):
    """An environment of brax or of MuJoCo Playground, without the wrappers of these libraries.

    - `init` draws a new initial state. (The libraries' wrappers return to the first one.)
    - The library's `done` is a termination. `max_steps` is a truncation: `last` with discount 1.
        Its `time_out` is ignored, because brax's inverted pendulum sets it when it falls.
    - Actions in [-1, 1] are scaled to the bounds of each dimension, and others are clipped.
    - If a step results in a number that is not finite, the episode is truncated: the state stays,
        the reward is 0 and `failed` is set, so that the episode can be discarded.
    """

    env: eqx.AbstractVar[Any]
    max_steps: eqx.AbstractVar[int]
    _limits: eqx.AbstractVar[Limits]
    #: What the library's state calls its `physics`.
    _physics: eqx.AbstractClassVar[str]

    def init(self, *, key: PRNGKeyArray) -> PhysicsState:
        with calling(type(self.env).__name__):
            first = self.env.reset(raw_key(key))
        return self._kept(first, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_))

    def step(
        self, state: PhysicsState, action: Float[Array, " action_size"], *, key: PRNGKeyArray
    ) -> tuple[PhysicsState, Transition]:
        """Takes an action; `key` is for environments that draw random numbers."""
        check_vector(self, action)
        before = self.raw(state)
        before = before.replace(info=with_keys(_shapes(self.env).info, before.info, key))
        with calling(type(self.env).__name__):
            after = self.env.step(before, within_bounds(action, self._limits))
        steps = state.steps + 1
        ended = jnp.asarray(after.done, jnp.float32) > 0
        next_state = self._kept(after, steps, ended | (steps >= self.max_steps))
        reward = jnp.asarray(after.reward, jnp.float32)
        failed = ~_finite((next_state.physics, next_state.observation, reward)) & ~state.over
        stays = state.over | failed
        transition = absorbing_transition(
            state.over,
            jnp.where(failed, 0.0, reward),
            terminated=ended & ~failed,
            truncated=failed | next_state.over,
        )
        next_state = jax.tree.map(lambda old, new: jnp.where(stays, old, new), state, next_state)
        marks = (next_state.over | failed, next_state.failed | failed)
        return eqx.tree_at(lambda s: (s.over, s.failed), next_state, marks), transition

    def failed(self, state: PhysicsState) -> Bool[Array, ""]:
        """Whether the simulation returned a number that is not finite."""
        return state.failed

    def observe(self, state: PhysicsState) -> Observation:
        """The library's observation: an array or a dictionary of arrays."""
        return Observation(features=state.observation, legal=None)

    def raw(self, state: PhysicsState) -> Any:
        """The library's own state, for its tools, in which reward and metrics are 0."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), _shapes(self.env))
        # The environments write into these dictionaries, so they are copied.
        info = jax.tree.map(lambda x: x, state.info)
        return zeros.replace(obs=state.observation, info=info, **{self._physics: state.physics})

    def _kept(self, raw: Any, steps: Int[Array, ""], over: Bool[Array, ""]) -> PhysicsState:
        """What is kept of a state of the library."""
        return PhysicsState(
            physics=strongly_typed(getattr(raw, self._physics)),
            observation=strongly_typed(raw.obs),
            info=strongly_typed(without_keys(raw.info)),
            steps=steps,
            over=over,
            failed=jnp.zeros((), jnp.bool_),
        )


@ft.cache
def _shapes(env: Any) -> Any:
    """The shapes of the library's state. They are cached, because tracing a reset takes seconds."""
    with calling(type(env).__name__):
        return jax.eval_shape(env.reset, raw_key(jax.random.key(0)))


@contextlib.contextmanager
def calling(name: str) -> Iterator[None]:
    """Suppresses the deprecation warnings of the libraries and of their dependencies."""
    with default_numerics(f"The environment {name}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextlib.contextmanager
def building(name: str) -> Iterator[None]:
    """Suppresses what MuJoCo says of a model as well."""
    # MuJoCo is a dependency of the libraries, not of this package.
    mujoco: Any = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    # By default it writes its warnings to a file in the working folder.
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with calling(name):
            yield
    finally:
        mujoco.set_mju_user_warning(before)


def _finite(tree: Any) -> Bool[Array, ""]:
    numbers = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.all(jnp.isfinite(x)) for x in numbers]).all()
