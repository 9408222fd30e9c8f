"""Who learns."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._actor import AbstractActor
from ._experience import Experience


AgentState = TypeVar("AgentState")
#: Scalars by name, to log.
Metrics = dict[str, Float[Array, ""]]


class AbstractAgent(eqx.Module, Generic[AgentState]):
    """A learning algorithm: three methods, no environments, devices, logging or files.

    [`zero_train.AbstractBlockAgent`][] has a fourth, for agents that want it.
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
        """Looks at new rows of `[envs, time]`, of all devices, also while the replay is filled.

        **Returns:** the state, and metrics to log beside those of the updates, by other names; of
        a step only.
        """
