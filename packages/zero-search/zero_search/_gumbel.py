"""Gumbel search: sequential halving at the root, a deterministic rule below it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._backup import AbstractBackup, MeanBackup
from ._check import check_count, check_kinds, check_limits, check_range
from ._expand import Rules
from ._model import AbstractPriorModel
from ._qtransform import AbstractQTransform, CompletedByMixedValue, transformed
from ._root import (
    default_room,
    evaluate_root,
    first_carry,
    kept_or_empty,
    next_carry,
    num_actions,
    SearchCarry,
    tree_stats,
)
from ._sample import safe_softmax
from ._select import AbstractSelection, highest
from ._simulate import search
from ._statistics import NodeStatistics
from ._tree import empty, plant, statistics, Tree
from ._tree_planner import AbstractTreePlanner, Outlook


class GumbelSearch(AbstractTreePlanner[AbstractPriorModel]):
    """Full Gumbel MuZero: a policy improvement with any number of simulations.

    At the root, the `max_num_considered_actions` best of `gumbel + logits` share the simulations
    by sequential halving; below it, actions are taken so that visit frequencies follow
    `softmax(logits + transformed Q)`. The weights of the plan are that softmax at the root, and
    the action is the best of `gumbel + logits + transformed Q` among the most visited. For play
    at full strength set `gumbel_scale=0`.

    The transformed Q is that of `qtransform`: completed by the mixed value and put on the scale of
    logits. In place of [`zero_search.CompletedByMixedValue`][] any other may stand.

    Final states, illegal actions, full trees and reuse are as in [`zero_search.TreeSearch`][]. With
    `reuse=True` the halving shares out the new simulations alone, as if there had been none
    before, while Q-values and the weights of the plan rest on the kept visits too; the Gumbel
    noise is drawn anew for every move.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", sections 3 to 5.
    """

    num_simulations: int
    max_num_considered_actions: int = 16
    gumbel_scale: float = 1.0
    qtransform: AbstractQTransform = CompletedByMixedValue()
    gamma: float = 1.0
    max_nodes: int | None = None
    max_depth: int | None = None
    reuse: bool = False
    backup: AbstractBackup = MeanBackup()

    def __check_init__(self):
        considered = self.max_num_considered_actions
        check_kinds("GumbelSearch", AbstractQTransform, qtransform=self.qtransform)
        check_kinds("GumbelSearch", AbstractBackup, backup=self.backup)
        check_count("GumbelSearch", 1, num_simulations=self.num_simulations)
        check_count("GumbelSearch", 1, max_num_considered_actions=considered)
        check_range("GumbelSearch", 0, gumbel_scale=self.gumbel_scale)
        check_range("GumbelSearch", 0, 1, gamma=self.gamma)
        check_limits("GumbelSearch", self.max_nodes, self.max_depth)

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        tree = self._empty(state, num_actions(model, state)) if self.reuse else None
        return first_carry(state, tree)

    def explore(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Outlook, SearchCarry, Tree]:
        """Searches from every row of `state`, without a decision."""
        root = evaluate_root(model, state, key)
        top = jnp.max(root.logits, axis=1, keepdims=True)
        logits = root.logits - jnp.where(top > -jnp.inf, top, 0.0)
        gumbel = jnp.zeros_like(logits)
        if self.gumbel_scale > 0:  # drawing costs little but takes long to compile
            gumbel = self.gumbel_scale * root_gumbel(root.noise_key, logits.shape[1])
        batch, actions = logits.shape
        tree = kept_or_empty(carry, batch, lambda: self._empty(state, actions))
        planted = plant(tree, self._selection, state, logits, root.value)
        kept = statistics(planted).visits
        tree, stats = search(
            planted,
            model,
            Rules(self._selection, self.backup, self.gamma, self.max_depth),
            num_simulations=self.num_simulations,
            key=root.search_key,
            root_rule=Halving(gumbel, logits, kept, self._table(), self.qtransform),
        )
        outlook = Outlook(
            root=statistics(tree),
            kept=kept,
            noise=gumbel,
            ply=carry.ply,
            key=root.action_key,
            stats=tree_stats(root, planted, tree, stats),
        )
        return outlook, SearchCarry(ply=carry.ply, tree=tree if self.reuse else None), tree

    def decide(
        self, outlook: Outlook
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """The best of `gumbel + logits + transformed Q` among the most visited actions.

        The weights are the softmax of the sum without the Gumbel noise.
        """
        root, logits = outlook.root, outlook.root.prior[:, 0]
        rule = Halving(outlook.noise, logits, outlook.kept, self._table(), self.qtransform)
        action = rule.choose(root, jnp.max(root.visits - outlook.kept, axis=1))
        return action, safe_softmax(logits + transformed(self.qtransform, root))

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move and keeps the subtree that still holds."""
        return next_carry(carry, action, next_state, last)

    def _empty(self, state: PyTree[Array], actions: int) -> Tree:
        room = default_room(self.num_simulations, self.max_nodes, self.reuse)
        return empty(state, self._selection, room, actions)

    @property
    def _selection(self) -> "Interior":
        return Interior(self.qtransform)

    def _table(self) -> Int[np.ndarray, "considered simulations"]:
        most = self.max_num_considered_actions
        rows = [halving(m, self.num_simulations) for m in range(most + 1)]
        return np.asarray(rows, np.int32)


class Interior(AbstractSelection):
    """Takes the action whose visit frequency lags most behind the improved policy (eq. 14)."""

    qtransform: AbstractQTransform

    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        return jnp.stack([logits, safe_softmax(logits)], axis=1)

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        improved = safe_softmax(node.prior[:, 0] + transformed(self.qtransform, node))
        return improved - node.visits / node.count[:, None]


class Halving(eqx.Module):
    """The root's rule: the best action among those with the visit count now due."""

    gumbel: Float[Array, "batch actions"]
    logits: Float[Array, "batch actions"]
    kept: Float[Array, "batch actions"]  # visits from the move before
    table: Int[np.ndarray, "considered simulations"]
    qtransform: AbstractQTransform

    def __call__(self, sim: int | Int[Array, ""], root: NodeStatistics) -> Int[Array, " batch"]:
        legal = jnp.sum(self.logits > -jnp.inf, axis=1)
        row = jnp.minimum(legal, self.table.shape[0] - 1)
        return self.choose(root, jnp.asarray(self.table)[row, sim].astype(jnp.float32))

    def choose(self, root: NodeStatistics, due: Float[Array, " batch"]) -> Int[Array, " batch"]:
        """The best of `gumbel + logits + transformed Q` among legal actions with `due` visits."""
        scores = self.gumbel + self.logits + transformed(self.qtransform, root)
        # A legal action stays above `-inf` however small its prior: it may be the only one due.
        scores = jnp.maximum(-1e9, scores)
        due_now = root.visits - self.kept == due[:, None]
        return highest(jnp.where(due_now & (self.logits > -jnp.inf), scores, -jnp.inf))


def root_gumbel(key: Key[Array, " batch"], num_actions: int) -> Float[Array, "batch actions"]:
    return jax.vmap(lambda k: jr.gumbel(k, (num_actions,), jnp.float32))(key)


def halving(num_considered: int, num_simulations: int) -> list[int]:
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
