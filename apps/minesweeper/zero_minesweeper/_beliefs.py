"""Beliefs about mines, and a model of them that uses the exact risks."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from zero_envs import MinesweeperState
from zero_search import AbstractChanceModel, Belief, BeliefModel, PredictedBelief, sampled_step


class MineBelief(eqx.Module):
    """A belief about a board, and the probability of a mine in each cell.

    `risk` is exact at the root, and the weighted fraction of the particles below.
    """

    belief: Belief[MinesweeperState]
    risk: Float[Array, "*axes cells"]


PredictedMines = PredictedBelief[MinesweeperState]
# The last signal is a mine; the others are numbers.
_MINE = -1
# A risk of 1 may be a little less once it is rounded.
_CERTAIN = 1 - 1e-6


class MineBeliefs(AbstractChanceModel[MineBelief, PredictedMines]):
    """A [`zero_search.BeliefModel`][] of boards with a reward for wins only.

    - A move is discounted by its risk, and the chance outcomes are the numbers. A mine is no
      outcome, because its value is known to be 0.
    - If some cell is safe, the first safe cell is the only legal action. Opening it has no cost and
      may give information, so no better action is excluded.
    - If no cell is safe, the value is at most the probability that the safest cell is safe, and
        cells that are mines for certain are illegal where there are others.
    """

    beliefs: BeliefModel

    @property
    def num_outcomes(self) -> int:
        return self.beliefs.num_outcomes

    def root(self, state: MineBelief, obs: Any, *, key: Key[Array, " batch"]) -> MineBelief:
        return state

    def step(
        self, node: MineBelief, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[MineBelief, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return sampled_step(self, node, action, key=key)

    def afterstate(self, node: MineBelief, action: Int[Array, " batch"]) -> PredictedMines:
        after = self.beliefs.afterstate(node.belief, action)
        numbers = after.logits.at[:, _MINE].set(-jnp.inf)
        some = jnp.any(numbers > -jnp.inf, axis=1, keepdims=True)
        safe = 1.0 - jnp.take_along_axis(node.risk, action[:, None], axis=1)
        return eqx.tree_at(
            lambda x: (x.logits, x.reward, x.discount),
            after,
            (
                # If a mine is the only possible outcome, it stays possible.
                jnp.where(some, numbers, after.logits),
                safe * after.reward,
                safe * after.discount,
            ),
        )

    def outcome_logits(self, afterstate: PredictedMines) -> Float[Array, "batch outcomes"]:
        return self.beliefs.outcome_logits(afterstate)

    def afterstate_value(self, afterstate: PredictedMines, *, key: Key[Array, " batch"]) -> None:
        return None

    def resolve(
        self, afterstate: PredictedMines, outcome: Int[Array, " batch"]
    ) -> tuple[MineBelief, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        belief, reward, discount, last = self.beliefs.resolve(afterstate, outcome)
        mines = belief.particles.mines.reshape(*belief.weights.shape, -1)
        risk = jnp.sum(jnp.where(mines, belief.weights[:, :, None], 0.0), axis=1)
        return MineBelief(belief, risk), reward, discount, last

    def predict(
        self, node: MineBelief, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch cells"], Float[Array, " batch"]]:
        logits, value = self.beliefs.predict(node.belief, key=key)
        legal = logits > -jnp.inf
        safe = legal & (node.risk == 0)
        least = jnp.min(jnp.where(legal, node.risk, jnp.inf), axis=1)
        # Numbers that are not finite stay so, because the search counts them.
        sound = jnp.isfinite(value) & jnp.all(jnp.isfinite(logits) | (logits == -jnp.inf), axis=1)
        known = sound & jnp.any(legal, axis=1)
        forced = (known & jnp.any(safe, axis=1))[:, None]
        first = safe & (jnp.cumsum(safe, axis=1, dtype=jnp.int32) == 1)
        # A cell that is a mine for certain loses, and its visits would be learned from.
        doomed = known[:, None] & (node.risk >= _CERTAIN) & (least < _CERTAIN)[:, None]
        logits = jnp.where(doomed, -jnp.inf, logits)
        logits = jnp.where(forced, jnp.where(first, 0.0, -jnp.inf), logits)
        return logits, jnp.where(known, jnp.minimum(value, 1.0 - least), value)
