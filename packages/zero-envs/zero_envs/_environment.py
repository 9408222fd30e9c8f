"""What an environment is: one example at a time, randomness passed in, signed discounts."""

import abc
from typing import Any, Generic, Protocol, runtime_checkable, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


State = TypeVar("State")
Action = TypeVar("Action")


class Observation(eqx.Module):
    """What the player to move sees.

    **Attributes:**

    - `features`: any pytree of arrays, from the view of the player to move.
    - `legal`: which discrete actions may be taken, or which values of their components; `None`
        where actions are continuous.
    """

    features: PyTree[Array]
    legal: Bool[Array, "*axes actions"] | None


class Transition(eqx.Module):
    """What one step returned.

    **Attributes:**

    - `reward`: belongs to the player who just acted.
    - `discount`: sign and end only. `+1` when the same player moves again, `-1` when the opponent
        does, `0` where the game is over. A planner's or agent's gamma is its own affair.
        `reward + gamma * discount * value(next)` is the value for the player who just acted.
    - `last`: the next state is final, because the game ended (`discount` 0) or because it was
        truncated (`discount` not 0: bootstrap from the next state).
    """

    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    last: Bool[Array, "*axes"]


class AbstractEnvironment(eqx.Module, Generic[State, Action]):
    """An environment for one example; callers `jax.vmap`.

    No method keeps anything between calls and no state holds a PRNG key, so nobody who holds a
    state can foresee its future.
    """

    #: The state holds something the player to move cannot observe. Planners refuse such an
    #: environment unless it is an [`zero_envs.AbstractHiddenEnvironment`][].
    hidden: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def init(self, *, key: PRNGKeyArray) -> State:
        """A fresh initial state."""

    @abc.abstractmethod
    def step(self, state: State, action: Action, *, key: PRNGKeyArray) -> tuple[State, Transition]:
        """Plays `action`. A final state is absorbing: reward 0, discount 0, `last` again."""

    @abc.abstractmethod
    def observe(self, state: State) -> Observation:
        """What the player to move sees in `state`."""


@runtime_checkable
class Fallible(Protocol):
    """An environment whose simulation may break down, as physics may by returning NaN.

    A step that breaks down leaves the state as it was, pays nothing and is `last`.
    """

    def failed(self, state: Any) -> Bool[Array, ""]:
        """Whether the simulation broke down in the step to `state`: the episode counts for
        nothing."""
        ...


class AbstractDiscreteEnvironment(AbstractEnvironment[State, Int[Array, ""]], Generic[State]):
    """An environment whose actions are the integers below `num_actions`."""

    num_actions: eqx.AbstractVar[int]


class AbstractContinuousEnvironment(
    AbstractEnvironment[State, Float[Array, " action_size"]], Generic[State]
):
    """An environment whose actions are vectors in `[-1, 1]`."""

    action_size: eqx.AbstractVar[int]


class AbstractFactoredEnvironment(
    AbstractEnvironment[State, Int[Array, " components"]], Generic[State]
):
    """An environment whose actions are several integers at once: too many combinations for one
    integer and a tree search, none too many for particles.

    Its observations' `legal` has the values of the first component, then those of the second, and
    so on, as the logits of a `zero_nets.MultiDiscrete` do. It speaks of each component by itself:
    a value is legal that belongs to some legal action. What a combination does that is illegal
    although all of its values are legal is up to the rules.
    """

    #: How many values each component has.
    num_values: eqx.AbstractVar[tuple[int, ...]]


class AbstractHiddenEnvironment(AbstractDiscreteEnvironment[State], Generic[State]):
    """A discrete environment whose state holds what the player cannot see."""

    #: The number of different signals.
    num_signals: eqx.AbstractVar[int]

    @abc.abstractmethod
    def resample(self, state: State, *, key: PRNGKeyArray) -> State:
        """Another state the player could not tell from this one, from the exact posterior."""

    @abc.abstractmethod
    def signal(self, state: State, action: Int[Array, ""], next_state: State) -> Int[Array, ""]:
        """What the player learned from the step: an integer below `num_signals`.

        It tells the `discount` and `last` of the step, and unless the game is over all that can be
        seen: states that looked alike, and gave the same signals to the same actions, look alike.
        The reward need not be told.
        """


class AbstractChanceEnvironment(AbstractDiscreteEnvironment[State], Generic[State]):
    """A discrete environment that knows the probabilities of its own dice."""

    #: The number of chance outcomes after any action.
    num_outcomes: eqx.AbstractVar[int]

    @abc.abstractmethod
    def afterstate(self, state: State, action: Int[Array, ""]) -> PyTree[Array]:
        """The state between the action and the dice."""

    @abc.abstractmethod
    def outcome_logits(self, afterstate: PyTree[Array]) -> Float[Array, " outcomes"]:
        """Log-probabilities of the outcomes; `-inf` where one cannot happen."""

    @abc.abstractmethod
    def resolve(
        self, afterstate: PyTree[Array], outcome: Int[Array, ""]
    ) -> tuple[State, Transition]:
        """The state after a given outcome."""
