"""The interface of replay buffers."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


State = TypeVar("State")


class Batch(eqx.Module):
    """A sample of a buffer.

    **Attributes:**

    - `items`: the sampled items; every leaf has the leading axes `[batch]` or `[batch, time]`.
    - `weights`: the weight of each row in the loss; a row of weight 0 must not count.
    - `indices`: the place of each row in the buffer, `env * capacity + slot`, environments counted
        over all shards.
    - `outcome`: the return of each row to the end of its episode, from the view of the player who
        moved; `None` for buffers that do not compute it.
    """

    items: PyTree[Array]
    weights: Float[Array, "*axes"]
    indices: Int[Array, "*axes"]
    outcome: Float[Array, "*axes"] | None = None


class AbstractBuffer(eqx.Module, Generic[State]):
    """A replay buffer for items of any pytree structure, with one ring for each environment."""

    #: The number of environments, over all shards.
    num_envs: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self, example: PyTree[Array]) -> State:
        """Returns an empty buffer for items shaped like `example` (one item, no leading axes)."""

    @abc.abstractmethod
    def add(self, state: State, items: PyTree[Array]) -> State:
        """Adds `items[envs, time]`, in the order in which they happened."""

    @abc.abstractmethod
    def sample(self, state: State, *, key: PRNGKeyArray) -> Batch:
        """Samples a batch. If the buffer holds nothing to sample it raises a `ValueError`; under
        jit all weights are 0 instead."""

    @abc.abstractmethod
    def ready(self, state: State) -> Bool[Array, ""]:
        """Returns whether the buffer holds enough to sample."""
