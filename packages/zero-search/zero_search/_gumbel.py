"""Gumbel search: sequential halving at the root, a deterministic rule below it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import check_max_nodes, check_range
from ._model import AbstractPriorModel
from ._planner import AbstractPlanner, Plan
from ._root import evaluate_root, first_carry, make_plan, next_carry, SearchCarry
from ._sample import safe_softmax
from ._select import AbstractSelection, NodeStatistics
from ._simulate import search
from ._tree import empty, plant, statistics, Tree


class GumbelSearch(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """Full Gumbel MuZero: a policy improvement with any number of simulations.

    At the root, the `max_num_considered_actions` best of `gumbel + logits` share the simulations
    by sequential halving; below it, actions are taken so that visit frequencies follow
    `softmax(logits + transformed Q)`. The weights of the plan are that softmax at the root, and
    the action is the best of `gumbel + logits + transformed Q` among the most visited. For play
    at full strength set `gumbel_scale=0`. Nothing but the move number is kept between moves.

    The transformed Q is `(maxvisit_init + largest visit count) * value_scale * Q`, where the Q of
    an unvisited action is the mixed value of appendix D, equation 33, and with `rescale_values`
    all Q of a node are first stretched to `[0, 1]`. Illegal actions count as unvisited ones there.

    Final states, illegal actions and full trees are treated as in [`zero_search.TreeSearch`][].

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", sections 3 to 5.
    """

    num_simulations: int
    max_num_considered_actions: int = 16
    gumbel_scale: float = 1.0
    value_scale: float = 0.1
    maxvisit_init: float = 50.0
    rescale_values: bool = True
    gamma: float = 1.0
    max_nodes: int | None = None

    def __check_init__(self):
        at_least_1 = ("num_simulations", "max_num_considered_actions")
        at_least_0 = ("gumbel_scale", "value_scale", "maxvisit_init")
        for low, names in ((1, at_least_1), (0, at_least_0)):
            check_range("GumbelSearch", low, **{name: getattr(self, name) for name in names})
        check_range("GumbelSearch", 0, 1, gamma=self.gamma)
        check_max_nodes("GumbelSearch", self.max_nodes)

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0."""
        del model
        return first_carry(state)

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`; `stats` as in [`zero_search.TreeSearch`][]."""
        root = evaluate_root(model, state, key)
        highest = jnp.max(root.logits, axis=1, keepdims=True)
        logits = root.logits - jnp.where(highest > -jnp.inf, highest, 0.0)
        gumbel = self.gumbel_scale * root_gumbel(root.noise_key, logits.shape[1])
        rule = _Halving(gumbel, logits, self._table(), self._selection())
        max_nodes = self.num_simulations + 1 if self.max_nodes is None else self.max_nodes
        tree = empty(state, rule.selection, max_nodes, logits.shape[1])
        tree, depth = search(
            plant(tree, rule.selection, state, logits, root.value),
            model,
            rule.selection,
            num_simulations=self.num_simulations,
            gamma=self.gamma,
            key=root.search_key,
            root_rule=rule,
        )
        found = statistics(tree)
        action = rule.choose(found, jnp.max(found.visits, axis=1))
        weights = safe_softmax(logits + rule.selection.transform(found))
        return make_plan(found, action, weights, depth=depth, nodes=tree.size), carry

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move."""
        del action, next_state
        return next_carry(carry, last)

    def _selection(self) -> "_Interior":
        return _Interior(self.value_scale, self.maxvisit_init, self.rescale_values)

    def _table(self) -> Int[np.ndarray, "considered simulations"]:
        most = self.max_num_considered_actions
        rows = [_halving(m, self.num_simulations) for m in range(most + 1)]
        return np.asarray(rows, np.int32)


class _Interior(AbstractSelection):
    """Takes the action whose visit frequency lags most behind the improved policy (eq. 14)."""

    value_scale: float
    maxvisit_init: float
    rescale_values: bool

    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        return jnp.stack([logits, safe_softmax(logits)], axis=1)

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        improved = safe_softmax(node.prior[:, 0] + self.transform(node))
        return improved - node.visits / (1 + jnp.sum(node.visits, axis=1, keepdims=True))

    def transform(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        """Q-values completed by the mixed value (eq. 33) and scaled (eq. 8)."""
        visits, qvalues = node.visits, node.qvalues
        visited = visits > 0
        total = jnp.sum(visits, axis=1, keepdims=True)
        # A visited action whose probability underflowed must not divide by zero.
        probs = jnp.maximum(jnp.finfo(jnp.float32).tiny, node.prior[:, 1])
        mass = jnp.sum(jnp.where(visited, probs, 0.0), axis=1, keepdims=True)
        share = jnp.where(visited, probs * qvalues / jnp.where(visited, mass, 1.0), 0.0)
        weighted = jnp.sum(share, axis=1, keepdims=True)
        mixed = (node.raw_value[:, None] + total * weighted) / (total + 1)
        completed = jnp.where(visited, qvalues, mixed)
        if self.rescale_values:
            low = jnp.min(completed, axis=1, keepdims=True)
            high = jnp.max(completed, axis=1, keepdims=True)
            completed = (completed - low) / jnp.maximum(high - low, 1e-8)
        scale = self.maxvisit_init + jnp.max(visits, axis=1, keepdims=True)
        return scale * self.value_scale * completed


class _Halving(eqx.Module):
    """The root's rule: the best action among those with the visit count now due."""

    gumbel: Float[Array, "batch actions"]
    logits: Float[Array, "batch actions"]
    table: Int[np.ndarray, "considered simulations"]
    selection: _Interior

    def __call__(
        self, sim: int | Int[Array, ""], tree: Tree, base: Int[Array, " batch"]
    ) -> Int[Array, " batch"]:
        legal = jnp.sum(self.logits > -jnp.inf, axis=1)
        row = jnp.minimum(legal, self.table.shape[0] - 1)
        due = jnp.asarray(self.table)[row, sim].astype(jnp.float32)
        return self.choose(statistics(tree, base), due)

    def choose(self, root: NodeStatistics, due: Float[Array, " batch"]) -> Int[Array, " batch"]:
        """The best of `gumbel + logits + transformed Q` among legal actions with `due` visits."""
        scores = self.gumbel + self.logits + self.selection.transform(root)
        # A legal action stays above `-inf` however small its prior: it may be the only one due.
        scores = jnp.maximum(-1e9, scores)
        allowed = (root.visits == due[:, None]) & (self.logits > -jnp.inf)
        return jnp.argmax(jnp.where(allowed, scores, -jnp.inf), axis=1).astype(jnp.int32)


def root_gumbel(key: Key[Array, " batch"], num_actions: int) -> Float[Array, "batch actions"]:
    return jax.vmap(lambda k: jr.gumbel(k, (num_actions,), jnp.float32))(key)


def _halving(num_considered: int, num_simulations: int) -> list[int]:
    """The visit count that is due at each simulation (Danihelka et al., section 3 and figure 1).

    Each of about `log2 m` phases gives every surviving action the same number of visits; then
    half of them survive, never fewer than two.
    """
    if num_considered <= 1:
        return list(range(num_simulations))
    phases = math.ceil(math.log2(num_considered))
    due: list[int] = []
    visits, survivors = 0, num_considered
    while len(due) < num_simulations:
        rounds = max(1, num_simulations // (phases * survivors))
        for _ in range(rounds):
            due += [visits] * survivors
            visits += 1
        survivors = max(2, survivors // 2)
    return due[:num_simulations]
