"""Networks with memory: when it begins anew, and how windows are read with it."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ._agent import Experience


@runtime_checkable
class RecurrentNetwork(Protocol):
    """A network with memory, for ONE environment, as a `zero_nets.Recurrent` is."""

    def init(self) -> PyTree[Array]:
        """The memory before an episode."""
        ...

    def __call__(self, features: Any, memory: PyTree[Array]) -> tuple[Any, PyTree[Array]]:
        """One step: the result, and the memory for the next one."""
        ...

    def scan(
        self, features: Any, resets: Bool[Array, " time"], memory: PyTree[Array]
    ) -> tuple[Any, PyTree[Array]]:
        """All steps of a sequence. Before those of `resets` the memory is that of `init`."""
        ...


def fresh(network: Any, rows: int) -> PyTree[Array]:
    """What the network's `init` says, for so many rows: the memory of episodes that begin."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape)), network.init())


def recalled(network: RecurrentNetwork, features: PyTree[Array], rows: Experience) -> Any:
    """What the network says of windows `[batch, time]`, read from the memory that is stored with
    their first rows (R2D2, Kapturowski et al. 2019, "Recurrent experience replay in distributed
    reinforcement learning", section 3: the stored state)."""
    # The row after a final one is the first of an episode.
    resets = jnp.pad(rows.last[:, :-1], ((0, 0), (1, 0)))
    memory = jax.tree.map(lambda x: x[:, 0], rows.record.memory)
    return jax.vmap(network.scan)(features, resets, memory)[0]
