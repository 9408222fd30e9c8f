"""What a replay buffer is."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


State = TypeVar("State")


class Batch(eqx.Module):
    """What a buffer hands to the learner.

    **Attributes:**

    - `items`: the sampled items, every leaf with the leading axes (`[batch]` or `[batch, time]`).
    - `weights`: weight of each row in the loss; 0 marks a row that must not count.
    - `indices`: where each row lies in the buffer.
    """

    items: PyTree[Array]
    weights: Float[Array, "*axes"]
    indices: Int[Array, "*axes"]


class AbstractBuffer(eqx.Module, Generic[State]):
    """A replay buffer over items of any pytree structure, one ring an environment."""

    @abc.abstractmethod
    def init(self, example: PyTree[Array]) -> State:
        """An empty buffer for items shaped like `example` (one item, no leading axes)."""

    @abc.abstractmethod
    def add(self, state: State, items: PyTree[Array]) -> State:
        """Adds `items[envs, time]`, in the order they happened."""

    @abc.abstractmethod
    def sample(self, state: State, *, key: PRNGKeyArray) -> Batch:
        """Draws a batch."""

    @abc.abstractmethod
    def ready(self, state: State) -> Bool[Array, ""]:
        """Whether there is enough to sample."""
