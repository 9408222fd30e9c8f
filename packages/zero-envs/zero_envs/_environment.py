"""The environment interfaces: one example at a time, keys as arguments, signed discounts."""

import abc
import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, runtime_checkable, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


State = TypeVar("State")
Action = TypeVar("Action")


class Observation(eqx.Module):
    """The observation of the player to move.

    **Attributes:**

    - `features`: a pytree of arrays, from the view of the player to move.
    - `legal`: a mask of the legal actions, or of the legal values of all components of an action;
        `None` if actions are continuous.
    """

    features: PyTree[Array]
    legal: Bool[Array, "*axes actions"] | None


class Transition(eqx.Module):
    """The result of one step.

    **Attributes:**

    - `reward`: the reward of the player who just acted.
    - `discount`: `+1` if the same player moves next, `-1` if the opponent does, and `0` if the
        episode terminated. It does not include the discount factor gamma of a planner or agent.
        The value for the player who just acted is `reward + gamma * discount * value(next)`,
        where `value(next)` is from the view of the player to move.
    - `last`: whether the next state is final, because the episode terminated (`discount` is 0) or
        was truncated (`discount` is not 0, so bootstrap from the next state).
    """

    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    last: Bool[Array, "*axes"]


def absorbing_transition(
    over: Bool[Array, ""],
    reward: Float[Array, ""] | float,
    *,
    terminated: Bool[Array, ""] | bool,
    truncated: Bool[Array, ""] | bool = False,
    sign: Float[Array, ""] | float = 1.0,
) -> Transition:
    """The transition of a step, or reward 0, discount 0 and `last` if the episode is `over`.

    `sign` is the discount of a step that does not terminate the episode.
    """
    ended = over | terminated
    return Transition(
        reward=jnp.where(over, 0.0, reward).astype(jnp.float32),
        discount=jnp.where(ended, 0.0, sign).astype(jnp.float32),
        last=ended | truncated,
    )


def checked_action(env: "AbstractDiscreteEnvironment[Any]", action: Any) -> Int[Array, ""]:
    """The action as an int32, once it is known to be one integer and, unless traced, in range."""
    try:
        # JAX would take an integer of NumPy's that has more than 32 bits for another one.
        given = action if isinstance(action, Array) else np.asarray(action)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{type(env).__name__}: the action is {action!r}; it must be one integer from 0 to "
            f"{env.num_actions - 1}."
        ) from None
    known = not isinstance(given, Tracer)
    fits = given.shape == () and jnp.issubdtype(given.dtype, jnp.integer)
    if not fits or (known and not 0 <= int(given) < env.num_actions):
        shown = given.tolist() if known else f"{given.dtype}{list(given.shape)}"
        raise ValueError(
            f"{type(env).__name__}: the action is {shown}; it must be one integer from 0 to "
            f"{env.num_actions - 1}. Use jax.vmap over a batch."
        )
    return jnp.asarray(given, jnp.int32)


def depends_on_key(step: Callable[..., Any], *given: Any) -> bool:
    """Whether what `step(*given, key)` returns differs from key to key, by its trace."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))
    jax.eval_shape(step, *given, jax.eval_shape(lambda: jax.random.key(0)))  # may raise
    axes = (*(None for _ in given), 0)
    try:
        # This refuses results that differ from key to key.
        jax.eval_shape(jax.vmap(step, in_axes=axes, out_axes=None), *given, keys)
    except ValueError:
        return True
    return False


def draws(env: "AbstractEnvironment[Any, Any]") -> bool:
    """Whether what a step of a discrete environment results in depends on its key: what the
    attribute `random` of the environment says, or else the trace of a step."""
    said = getattr(env, "random", None)
    return step_draws(env) if said is None else said


def step_draws(env: "AbstractEnvironment[Any, Any]") -> bool:
    """Whether a step's result depends on its key, by the trace of one."""
    try:
        state = jax.eval_shape(lambda: env.init(key=jax.random.key(0)))
    except jax.errors.ConcretizationTypeError as e:
        raise ValueError(
            f"{type(env).__name__}: `init` cannot be traced, so it is not known whether a step "
            "draws; give it an attribute `random`, True or False."
        ) from e
    step = lambda state, action, key: env.step(state, action, key=key)
    return depends_on_key(step, state, jax.ShapeDtypeStruct((), jnp.int32))


def check_vector(env: "AbstractContinuousEnvironment[Any]", action: Any) -> None:
    """Raises a `ValueError` if the action does not have one number for each dimension, or is not
    traced and NaN."""
    if jnp.shape(action) != (env.action_size,):
        raise ValueError(
            f"{type(env).__name__}: the action has shape {list(jnp.shape(action))}; it must be a "
            f"vector of {env.action_size} numbers. Use jax.vmap over a batch."
        )
    if not isinstance(action, Tracer) and np.isnan(np.asarray(action, np.float32)).any():
        raise ValueError(f"{type(env).__name__}: the action is {action}; it must hold no NaN.")


def check_state(env: "AbstractEnvironment[Any, Any]", leaf: Any, ndim: int) -> None:
    """Raises a `ValueError` for a batch of states, whose `leaf` has more axes than that of one."""
    if jnp.ndim(leaf) != ndim:
        raise ValueError(
            f"{type(env).__name__}: a state has an array of shape {list(jnp.shape(leaf))} where "
            f"one state has {ndim} axes. Use jax.vmap over a batch."
        )


def check_count(owner: str, least: int = 1, /, **sizes: Any) -> None:
    """Raises a `ValueError` where a size of `owner` is not an integer of at least `least`."""
    for name, size in sizes.items():
        if not (isinstance(size, int | np.integer) and size >= least):
            raise ValueError(f"{owner}({name}={size!r}): it must be an integer, at least {least}.")


def check_number(owner: str, least: float, most: float, /, **fields: Any) -> None:
    """Raises a `ValueError` where a field of `owner` is not a finite number in a range."""
    for name, x in fields.items():
        number = isinstance(x, int | float | np.integer | np.floating)
        if not (number and least <= x <= most and math.isfinite(x)):
            bounds = f" from {least:g} to {most:g}" if most < math.inf else f", {least:g} or more"
            allowed = bounds if least > -math.inf else ""
            raise ValueError(f"{owner}({name}={x!r}): it must be a finite number{allowed}.")


def plain(x: Any) -> Any:
    """A scalar of NumPy's as a number of Python's: what is computed from it keeps its dtype, and
    does not overflow."""
    return x.item() if isinstance(x, np.generic) else x


def check_cells(owner: str, size: int, /, **fields: Any) -> None:
    """Raises a `ValueError` where a field of `owner` is not a tuple of different cells, pairs of
    integers from 0 to `size - 1`, and at least one."""
    for name, cells in fields.items():
        tuples = isinstance(cells, tuple) and all(isinstance(x, tuple) for x in cells)
        whole = tuples and all(
            isinstance(n, int | np.integer) and 0 <= n < size for x in cells for n in x
        )
        if not whole or {len(x) for x in cells} != {2} or len({*cells}) < len(cells):
            raise ValueError(
                f"{owner}({name}={cells!r}): it must be a tuple of different pairs of integers "
                f"from 0 to {size - 1}."
            )


class AbstractEnvironment(eqx.Module, Generic[State, Action]):
    """An environment for one example; use `jax.vmap` over a batch.

    Methods are pure functions. A state holds no PRNG key, so the future cannot be predicted from
    it.
    """

    #: Whether the state holds something that the player to move cannot observe. Planners refuse
    #: such an environment unless it is a [`zero_envs.AbstractHiddenEnvironment`][].
    hidden: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def init(self, *, key: PRNGKeyArray) -> State:
        """Draws an initial state."""

    @abc.abstractmethod
    def step(self, state: State, action: Action, *, key: PRNGKeyArray) -> tuple[State, Transition]:
        """Takes an action. Final states are absorbing: reward 0, discount 0 and `last`."""

    @abc.abstractmethod
    def observe(self, state: State) -> Observation:
        """The observation of the player to move."""


@runtime_checkable
class Fallible(Protocol):
    """An environment whose simulation may fail, for example by returning NaN.

    A step that fails keeps the state, has reward 0 and is `last`.
    """

    def failed(self, state: Any) -> Bool[Array, ""]:
        """Whether the simulation failed in the step to `state`, so that the episode is invalid."""
        ...


class AbstractDiscreteEnvironment(AbstractEnvironment[State, Int[Array, ""]], Generic[State]):
    """An environment whose actions are integers from 0 to `num_actions - 1`."""

    num_actions: eqx.AbstractVar[int]


class AbstractContinuousEnvironment(
    AbstractEnvironment[State, Float[Array, " action_size"]], Generic[State]
):
    """An environment whose actions are vectors in `[-1, 1]`."""

    action_size: eqx.AbstractVar[int]


class AbstractFactoredEnvironment(
    AbstractEnvironment[State, Int[Array, " components"]], Generic[State]
):
    """An environment whose actions are vectors of integers.

    It is meant for action spaces that are too large to number them, but not for sampled actions.
    The `legal` mask of an observation is the concatenation of one mask for each component, in the
    order of the logits of a `zero_nets.MultiDiscrete`. A value of a component is legal if it is
    part of some legal action. The environment defines the effect of an illegal combination of legal
    values.
    """

    #: The number of values of each component.
    num_values: eqx.AbstractVar[tuple[int, ...]]


class AbstractHiddenEnvironment(AbstractDiscreteEnvironment[State], Generic[State]):
    """A discrete environment whose state is only partly observable."""

    #: The number of signals.
    num_signals: eqx.AbstractVar[int]

    @abc.abstractmethod
    def resample(self, state: State, *, key: PRNGKeyArray) -> State:
        """Draws a state from the exact posterior given everything that the player observed."""

    @abc.abstractmethod
    def signal(self, state: State, action: Int[Array, ""], next_state: State) -> Int[Array, ""]:
        """The information that the player received in a step, from 0 to `num_signals - 1`.

        If two states have equal observations, and the same action gives the same signal in both,
        then the `discount` and `last` of the two steps are equal and, unless the game is over, so
        are the next observations. Rewards may differ.
        """


class AbstractObservedEnvironment(AbstractDiscreteEnvironment[State], Generic[State]):
    """A discrete environment that hides its state and says how likely each observation is.

    It is a partially observable Markov decision process. Its states hold what the player has just
    observed, noise included, so that `observe` draws nothing. [`zero_envs.Filtered`][] keeps what
    the player can know of the state, which is what planners and networks see.
    """

    @abc.abstractmethod
    def observation_log_prob(
        self, observation: Observation, state: State, action: Int[Array, ""], next_state: State
    ) -> Float[Array, ""]:
        """The log-probability, or log-density, of an observation after a step; `-inf` where the
        step cannot show it.

        What `next_state` itself happens to show does not matter. The action is -1 for the first
        observation of an episode, and both states are the first one.
        """


class AbstractChanceEnvironment(AbstractDiscreteEnvironment[State], Generic[State]):
    """A discrete environment with known probabilities of finitely many chance outcomes."""

    #: The number of chance outcomes after any action.
    num_outcomes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def afterstate(self, state: State, action: Int[Array, ""]) -> PyTree[Array]:
        """The state after the action and before the chance outcome."""

    @abc.abstractmethod
    def outcome_logits(self, afterstate: PyTree[Array]) -> Float[Array, " outcomes"]:
        """The log-probabilities of the outcomes; `-inf` for impossible ones."""

    @abc.abstractmethod
    def resolve(
        self, afterstate: PyTree[Array], outcome: Int[Array, ""]
    ) -> tuple[State, Transition]:
        """The next state and the transition for a given outcome."""
