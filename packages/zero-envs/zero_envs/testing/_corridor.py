"""A corridor: the smallest single-player environment that can be left unfinished."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from .._environment import AbstractDiscreteEnvironment, Observation, Transition


class CorridorState(eqx.Module):
    """Which cell the walker is in. Final in the last one."""

    position: Int[Array, ""]


class Corridor(AbstractDiscreteEnvironment[CorridorState]):
    """One player walks from the left end of `length` cells to the right end.

    Action 0 goes left (and stays put in the first cell), action 1 goes right. Reaching the last
    cell gives 1 and ends the episode. There is no time limit of its own: wrap it in
    [`zero_envs.TimeLimit`][] for episodes that are truncated. The features are the position,
    one-hot with `length` entries.
    """

    length: int
    num_actions: int
    hidden: bool

    def __init__(self, length: int = 5):
        if length < 2:
            raise ValueError(f"Corridor(length={length}): a corridor has at least 2 cells.")
        self.length = length
        self.num_actions = 2
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> CorridorState:
        """The first cell."""
        del key
        return CorridorState(jnp.zeros((), jnp.int32))

    def step(
        self, state: CorridorState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[CorridorState, Transition]:
        """Walks one cell."""
        del key
        goal = self.length - 1
        over = state.position == goal
        walked = jnp.maximum(state.position + 2 * action.astype(jnp.int32) - 1, 0)
        position = jnp.where(over, state.position, walked)
        last = position == goal
        transition = Transition(
            reward=(last & ~over).astype(jnp.float32),
            discount=(~last).astype(jnp.float32),
            last=last,
        )
        return CorridorState(position), transition

    def observe(self, state: CorridorState) -> Observation:
        """The one-hot position; both actions are always legal."""
        return Observation(
            features=jax.nn.one_hot(state.position, self.length, dtype=jnp.float32),
            legal=jnp.ones(2, jnp.bool_),
        )
