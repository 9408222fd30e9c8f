"""Nim on one heap: the smallest two-player game whose every value is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._environment import AbstractDiscreteEnvironment, Observation, Transition


class NimState(eqx.Module):
    """How many objects are left, for the player to move. Final when none is."""

    heap: Int[Array, ""]


class Nim(AbstractDiscreteEnvironment[NimState]):
    """Two players take 1 to `most` objects from one heap in turn; who takes the last one wins.

    Action `a` takes `a + 1` objects. The winner's reward is 1, every other reward 0. Taking more
    than is left is illegal and loses the game at once (reward -1). The features are the heap's
    size, one-hot with `heap + 1` entries.
    """

    heap: int
    most: int
    num_actions: int
    hidden: bool

    def __init__(self, heap: int = 7, most: int = 3):
        if heap < 1 or most < 1:
            raise ValueError(
                f"Nim(heap={heap}, most={most}): both must be at least 1; try Nim(heap=7, most=3)."
            )
        self.heap = heap
        self.most = most
        self.num_actions = most
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> NimState:
        """The full heap."""
        del key
        return NimState(jnp.asarray(self.heap, jnp.int32))

    def step(
        self, state: NimState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[NimState, Transition]:
        """Takes `action + 1` objects."""
        del key
        over = state.heap == 0
        left = state.heap - 1 - action.astype(jnp.int32)
        outcome = jnp.where(left == 0, 1.0, jnp.where(left < 0, -1.0, 0.0))
        last = over | (left <= 0)
        transition = Transition(
            reward=jnp.where(over, 0.0, outcome).astype(jnp.float32),
            discount=jnp.where(last, 0.0, -1.0).astype(jnp.float32),
            last=last,
        )
        return NimState(jnp.maximum(left, 0)), transition

    def observe(self, state: NimState) -> Observation:
        """The one-hot heap; in a final state every action is legal filler."""
        legal = jnp.arange(1, self.most + 1, dtype=jnp.int32) <= state.heap
        return Observation(
            features=jax.nn.one_hot(state.heap, self.heap + 1, dtype=jnp.float32),
            legal=legal | (state.heap == 0),
        )

    def value(self, state: NimState) -> Float[Array, ""]:
        """The value under perfect play for the player to move: 1, -1, or 0 in a final state.

        The player to move loses exactly on multiples of `most + 1` (Bouton, 1901); elsewhere
        taking `heap % (most + 1)` objects is the only winning move.
        """
        lost = state.heap % (self.most + 1) == 0
        value = jnp.where(lost, -1.0, 1.0)
        return jnp.where(state.heap == 0, 0.0, value).astype(jnp.float32)
