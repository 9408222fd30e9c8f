"""Games of chance to search over, and exact values for them."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_search import AbstractChanceModel, AbstractPriorModel, sampled_step

from .helpers import _mix, _unit, Node, quick_jit, RandomTree


UNUSED: Any = None  # the models here draw nothing when they predict or resolve


class RandomDice(AbstractChanceModel[Node, Node]):
    """Actions of a `RandomTree` with three outcomes each, of hashed probabilities.

    `certain` of the afterstates have a single possible outcome.
    """

    tree: RandomTree
    sides: int = 3
    certain: float = 0.0

    @property
    def num_outcomes(self):
        return self.sides

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    @eqx.filter_jit
    def afterstate(self, node, action):
        name = _mix(node.name * jnp.uint32(37) + action.astype(jnp.uint32) + jnp.uint32(5))
        return Node(name, node.depth, node.done)

    @eqx.filter_jit
    def outcome_logits(self, afterstate):
        lanes = jnp.arange(self.num_outcomes, dtype=jnp.uint32)[None] + jnp.uint32(3)
        logits = 2 * _unit(_mix(afterstate.name[:, None] * jnp.uint32(13) + lanes), 8)
        only = (_unit(afterstate.name, 9) < self.certain)[:, None] & (lanes != 3)
        return jnp.where(only, -jnp.inf, logits)

    def afterstate_value(self, afterstate, *, key):
        return None

    def resolve(self, afterstate, outcome):
        return self.tree.step(afterstate, outcome, key=UNUSED)

    def predict(self, node, *, key):
        return self.tree.predict(node, key=key)


class Die(AbstractPriorModel[jax.Array]):
    """One throw of a six-sided die, which the next state shows."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        face = jax.vmap(lambda k: jr.randint(k, (), 0, 6))(key)
        reward = face.astype(jnp.float32)
        return face, reward, jnp.zeros_like(reward), jnp.ones_like(face, bool)

    def predict(self, node, *, key):
        return jnp.zeros((*node.shape, 1)), jnp.zeros(node.shape)


class OtherDice(AbstractChanceModel[Node, Node]):
    """`dice` with the result of one method spoilt. `"afterstate_value"` stands for hashed values of
    the afterstates, which are otherwise `None`."""

    dice: RandomDice
    method: str = "none"
    spoil: Callable[[Any], Any] = eqx.field(static=True, default=lambda x: x)

    @property
    def num_outcomes(self):
        return self.dice.num_outcomes

    def _maybe(self, method, result):
        return self.spoil(result) if method == self.method else result

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    def afterstate(self, node, action):
        return self.dice.afterstate(node, action)

    def outcome_logits(self, afterstate):
        return self._maybe("outcome_logits", self.dice.outcome_logits(afterstate))

    def afterstate_value(self, afterstate, *, key):
        if self.method != "afterstate_value":
            return None
        return self.spoil(2 * _unit(afterstate.name, 10) - 1)

    def resolve(self, afterstate, outcome):
        return self._maybe("resolve", self.dice.resolve(afterstate, outcome))

    def predict(self, node, *, key):
        return self._maybe("predict", self.dice.predict(node, key=key))


def judged(dice: RandomDice) -> OtherDice:
    """The same with a hashed value for every afterstate."""
    return OtherDice(dice, "afterstate_value")


def branches(dice: RandomDice, state: Node):
    """Every outcome of every action: where it leads (`[batch * actions * outcomes]`), and reward,
    discount and probability (`[batch, actions, outcomes]`); then which actions are legal.
    """
    batch, actions, outcomes = state.name.shape[0], dice.tree.num_actions, dice.num_outcomes
    repeat = lambda x, n: jax.tree.map(lambda y: jnp.repeat(y, n), x)
    each = lambda n, m: jnp.tile(jnp.arange(n, dtype=jnp.int32), m)
    after = dice.afterstate(repeat(state, actions), each(actions, batch))
    probs = jax.nn.softmax(dice.outcome_logits(after))
    landed, reward, discount, _ = dice.resolve(
        repeat(after, outcomes), each(outcomes, batch * actions)
    )
    split = lambda x: x.reshape(batch, actions, outcomes)
    legal = jnp.isfinite(dice.predict(state, key=UNUSED)[0])
    return landed, split(reward), split(discount), split(probs), legal


def expectimax(dice: RandomDice, state: Node, levels: int) -> jax.Array:
    """Exact Q-values of every action, `-inf` where illegal; all ends after `levels` moves."""
    landed, total, discount, probs, legal = branches(dice, state)
    if levels > 1:
        best = jnp.max(expectimax(dice, landed, levels - 1), axis=1)
        total += discount * best.reshape(total.shape)
    return jnp.where(legal, jnp.sum(probs * total, axis=2), -jnp.inf)


def hindsight(dice: RandomDice, state: Node) -> np.ndarray:
    """Exact Q-values in games of two moves for a player who foresees the second one's outcomes:
    the mean over all futures of the best that there is in each.
    """
    spread = quick_jit(lambda s: branches(dice, s))
    landed, *root = spread(state)
    reward, discount, probs, legal = map(np.asarray, root)
    _, *below = spread(landed)
    prize, _, chance, allowed = map(np.asarray, below)
    best = np.zeros(len(prize))
    for future in itertools.product(range(dice.num_outcomes), repeat=dice.tree.num_actions):
        at = (slice(None), np.arange(dice.tree.num_actions), future)
        best += chance[at].prod(axis=1) * np.where(allowed, prize[at], -np.inf).max(axis=1)
    total = reward + discount * best.reshape(reward.shape)
    return np.where(legal, (probs * total).sum(axis=2), -np.inf)
