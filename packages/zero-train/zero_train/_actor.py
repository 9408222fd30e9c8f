"""Who acts. Planners, networks, random players and other engines are all actors."""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from zero_envs import Observation, Transition


Carry = TypeVar("Carry")


class AbstractActor(eqx.Module, Generic[Carry]):
    """Acts in a batch of environments. It carries its own networks and planner.

    Batch-native: states, observations and actions have a leading `[batch]` axis and every row has
    a key of its own.
    """

    @abc.abstractmethod
    def init(self, state: PyTree[Array]) -> Carry:
        """The carry before the first move of `state`'s rows."""

    @abc.abstractmethod
    def act(
        self,
        state: PyTree[Array],
        obs: Observation,
        carry: Carry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[PyTree[Array], PyTree[Array], Carry]:
        """**Returns:** `(action, record, carry)`; the record is what a learner will want."""

    @abc.abstractmethod
    def advance(
        self, carry: Carry, action: Any, next_state: PyTree[Array], transition: Transition
    ) -> Carry:
        """Hears of every move, the opponent's too. Rows with `transition.last` start anew."""
