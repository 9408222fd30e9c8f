"""Small games with known values, for tests of planners and agents."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._environment import (
    absorbing_transition,
    AbstractDiscreteEnvironment,
    check_count,
    check_state,
    checked_action,
    Observation,
    Transition,
)


class CorridorState(eqx.Module):
    """The cell of the player; the last cell is final."""

    position: Int[Array, ""]


class Corridor(AbstractDiscreteEnvironment[CorridorState]):
    """One player walks from the left end of `length` cells to the right end.

    Action 0 goes left (it has no effect in the first cell) and action 1 goes right. Reaching the
    last cell has reward 1 and terminates the episode. For truncated episodes, wrap it in
    [`zero_envs.TimeLimit`][]. The features are the one-hot position.
    """

    length: int = 5
    num_actions: int = eqx.field(init=False, default=2)
    hidden: bool = eqx.field(init=False, default=False)

    def __check_init__(self):
        check_count("Corridor", 2, length=self.length)

    def init(self, *, key: PRNGKeyArray) -> CorridorState:
        """Starts in the first cell."""
        del key
        return CorridorState(jnp.zeros((), jnp.int32))

    def step(
        self, state: CorridorState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CorridorState, Transition]:
        """Walks one cell."""
        del key
        action = checked_action(self, action)
        check_state(self, state.position, 0)
        goal = self.length - 1
        over = state.position == goal
        walked = jnp.maximum(state.position + 2 * action - 1, 0)
        position = jnp.where(over, state.position, walked)
        ended = position == goal
        transition = absorbing_transition(over, ended.astype(jnp.float32), terminated=ended)
        return CorridorState(position), transition

    def observe(self, state: CorridorState) -> Observation:
        """The one-hot position; both actions are always legal."""
        check_state(self, state.position, 0)
        return Observation(
            features=jax.nn.one_hot(state.position, self.length, dtype=jnp.float32),
            legal=jnp.ones(2, jnp.bool_),
        )


class NimState(eqx.Module):
    """The number of remaining objects; 0 is final."""

    heap: Int[Array, ""]


class Nim(AbstractDiscreteEnvironment[NimState]):
    """Two players take turns to take 1 to `most` objects from a heap; taking the last one wins.

    Action `a` takes `a + 1` objects. The reward of the winning action is 1 and that of others is 0.
    Taking more objects than remain is illegal and loses the game (reward -1). The features are the
    one-hot size of the heap, with `heap + 1` entries.
    """

    heap: int = 7
    most: int = 3
    num_actions: int = eqx.field(init=False)
    hidden: bool = eqx.field(init=False, default=False)

    def __post_init__(self):
        check_count("Nim", heap=self.heap, most=self.most)
        self.num_actions = int(self.most)

    def init(self, *, key: PRNGKeyArray) -> NimState:
        """Starts with a full heap."""
        del key
        return NimState(jnp.asarray(self.heap, jnp.int32))

    def step(
        self, state: NimState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[NimState, Transition]:
        """Takes `action + 1` objects."""
        del key
        action = checked_action(self, action)
        check_state(self, state.heap, 0)
        over = state.heap == 0
        left = state.heap - 1 - action
        outcome = jnp.where(left == 0, 1.0, jnp.where(left < 0, -1.0, 0.0))
        transition = absorbing_transition(over, outcome, terminated=left <= 0, sign=-1.0)
        return NimState(jnp.maximum(left, 0)), transition

    def observe(self, state: NimState) -> Observation:
        """The one-hot heap. In a final state every action is legal."""
        check_state(self, state.heap, 0)
        legal = jnp.arange(1, self.most + 1, dtype=jnp.int32) <= state.heap
        return Observation(
            features=jax.nn.one_hot(state.heap, self.heap + 1, dtype=jnp.float32),
            legal=legal | (state.heap == 0),
        )

    def value(self, state: NimState) -> Float[Array, ""]:
        """The value under optimal play for the player to move: 1, -1, or 0 in a final state.

        The player to move loses if and only if the heap is a multiple of `most + 1` (Bouton, 1901).
        Otherwise taking `heap % (most + 1)` objects is the only winning action.
        """
        lost = state.heap % (self.most + 1) == 0
        value = jnp.where(lost, -1.0, 1.0)
        return jnp.where(state.heap == 0, 0.0, value).astype(jnp.float32)
