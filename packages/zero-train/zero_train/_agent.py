"""Who acts, who learns, and the row of experience that passes from one to the other."""

import abc
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from zero_envs import Observation, Transition


Carry = TypeVar("Carry")
AgentState = TypeVar("AgentState")
#: Scalars by name, to log.
Metrics = dict[str, Float[Array, ""]]


class Experience(eqx.Module):
    """One row of experience, for any leading axes.

    After a transition with `last`, the collector writes one more row holding the true final
    observation (`last=True`; reward 0, discount 0, a filler action), so a truncated episode can
    be bootstrapped and nothing is evaluated twice. Such rows are masked in every loss.

    **Attributes:**

    - `obs`, `action`, `reward`: what the player to move saw, its action, and its own reward.
    - `discount`: signed: -1 when the opponent moved next, 0 at the end.
    - `last`: the row is a final observation.
    - `record`: what the actor stored for the learner, such as a part of its plan.
    """

    obs: Observation
    action: PyTree[Array]
    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    last: Bool[Array, "*axes"]
    record: PyTree[Array]


class AbstractActor(eqx.Module, Generic[Carry]):
    """Acts in a batch of environments. It carries its own networks and planner.

    Batch-native: states, observations, actions and every leaf of a carry have a leading `[batch]`
    axis, and every row has a key of its own.
    """

    @abc.abstractmethod
    def init(self, state: PyTree[Array]) -> Carry:
        """The carry before the first move of `state`'s rows."""

    @abc.abstractmethod
    def act(
        self, state: PyTree[Array], obs: Observation, carry: Carry, *, key: Key[Array, " batch"]
    ) -> tuple[PyTree[Array], PyTree[Array], Carry]:
        """**Returns:** `(action, record, carry)`; the record is what is stored for the learner."""

    @abc.abstractmethod
    def advance(self, carry: Carry, action: Any, transition: Transition) -> Carry:
        """Updates the carry after a move of any player. Rows with `transition.last` start anew."""


class AbstractAgent(eqx.Module, Generic[AgentState]):
    """A learning algorithm: three methods, no environments, devices, logging or files.

    [`zero_train.AbstractBlockAgent`][] and [`zero_train.AbstractReanalysingAgent`][] have a fourth,
    for agents that want it. An `init` that also takes an `actor` of the agent, a trained player,
    begins with its networks and statistics of observations, and all else fresh.
    """

    @abc.abstractmethod
    def init(self, *, key: PRNGKeyArray) -> AgentState:
        """Fresh parameters and optimiser state: a pytree of arrays only."""

    @abc.abstractmethod
    def actor(self, state: AgentState, *, explore: bool) -> AbstractActor:
        """An actor with the current parameters, exploring or at its strongest."""

    @abc.abstractmethod
    def update(
        self, state: AgentState, batch: PyTree[Array], *, key: PRNGKeyArray
    ) -> tuple[AgentState, Metrics] | tuple[AgentState, Metrics, Float[Array, " batch"]]:
        """One gradient step on one [`zero_memory.Batch`][].

        **Returns:** the state and metrics to log. An agent for a buffer with priorities returns as
        a third the new priority of each row or window that was drawn, which the loop hands to the
        buffer.
        """


class AbstractBlockAgent(AbstractAgent[AgentState], Generic[AgentState]):
    """An agent that looks once at every block of rows when they are collected, before it learns:
    to keep statistics of observations, or to say how its planner fares."""

    @abc.abstractmethod
    def digest(self, state: AgentState, rows: Experience) -> tuple[AgentState, Metrics]:
        """Looks at the new rows `[envs, time]` of all devices, also while the replay is filled.

        **Returns:** the state, and metrics with other names than those of `update`. They are logged
        for a step, and dropped while the replay is filled.
        """


class AbstractReanalysingAgent(AbstractAgent[AgentState], Generic[AgentState]):
    """An agent that can plan stored positions anew, with what it has learned since
    (`Loop.reanalyse`)."""

    @abc.abstractmethod
    def reanalyser(self, state: AgentState) -> Callable[..., Experience]:
        """A pytree `(rows, *, key) -> rows` that makes the records of `rows` anew, whose leading
        axis and that of the keys are rows of a batch. It runs on every device for its own rows."""
