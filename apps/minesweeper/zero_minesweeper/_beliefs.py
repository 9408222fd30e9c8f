"""Beliefs about mines, and what follows from them whoever judges a board."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int8, Key

from zero_envs import MinesweeperState
from zero_search import (
    AbstractChanceModel,
    Belief,
    BeliefModel,
    PredictedBelief,
    safe_softmax,
)


MineBelief = Belief[MinesweeperState]
PredictedMines = PredictedBelief[MinesweeperState]
# The last signal; those before are numbers.
_MINE = -1


class MineBeliefs(AbstractChanceModel[MineBelief, PredictedMines]):
    """A [`zero_search.BeliefModel`][] of boards that pay for wins alone, searched from `start`.

    - A move is discounted by its risk, the share of particles in which it opens a mine, and chance
      is left with the numbers: what a mine leads to is known without being visited.
    - Where some cell is a mine in no particle, that cell is the only legal one. It costs nothing to
      open and may tell something, so nothing better is lost, and the tree need not branch.
    - Where there is none, nobody wins more often than the least likely mine is none, whatever the
      evaluator says.

    At `start` the last two do not hold: nothing was safe there, and particles may be but a sample.
    """

    beliefs: BeliefModel
    start: Int8[Array, "batch rows columns"]

    def afterstate(self, state: MineBelief, action: Int[Array, " batch"]) -> PredictedMines:
        after = self.beliefs.afterstate(state, action)
        safe = safe_softmax(after.logits).at[:, _MINE].set(0.0)
        chance = jnp.sum(safe, axis=1, keepdims=True)
        numbers = jnp.where(chance > 0, after.logits.at[:, _MINE].set(-jnp.inf), after.logits)
        return eqx.tree_at(
            lambda x: (x.logits, x.reward, x.discount),
            after,
            (numbers, chance * after.reward, chance * after.discount),
        )

    def outcome_logits(self, afterstate: PredictedMines) -> Float[Array, "batch outcomes"]:
        return self.beliefs.outcome_logits(afterstate)

    def resolve(
        self, afterstate: PredictedMines, outcome: Int[Array, " batch"]
    ) -> tuple[MineBelief, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return self.beliefs.resolve(afterstate, outcome)

    def predict(
        self, state: MineBelief, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch cells"], Float[Array, " batch"]]:
        logits, value = self.beliefs.predict(state, key=key)
        batch, number = state.weights.shape
        mines = state.particles.mines.reshape(batch, number, -1)
        risk = jnp.sum(jnp.where(mines, state.weights[:, :, None], 0.0), axis=1)
        legal = logits > -jnp.inf
        safe = legal & (risk == 0)
        least = jnp.min(jnp.where(legal, risk, jnp.inf), axis=1)
        # A belief is that of one board: that of its likeliest particle, for the others may be dead.
        alive = jnp.argmax(state.weights, axis=1)
        board = state.particles.board[jnp.arange(batch), alive]
        moved = jnp.any(board != self.start, axis=(1, 2)) & jnp.any(legal, axis=1)
        only = safe & (jnp.cumsum(safe, axis=1, dtype=jnp.int32) == 1)
        forced = (moved & jnp.any(safe, axis=1))[:, None]
        logits = jnp.where(forced, jnp.where(only, 0.0, -jnp.inf), logits)
        return logits, jnp.where(moved, jnp.minimum(value, 1.0 - least), value)
