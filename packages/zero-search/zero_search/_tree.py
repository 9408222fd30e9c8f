"""Search trees between searches: their arrays, and the rules by which they grow.

A node is a row of each array. Statistics of an edge lie in its parent's row, so an edge whose
child could not be stored still counts.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._chance import decision, Outcomes, widened
from ._check import (
    check_count,
    check_kernels,
    check_kinds,
    check_limits,
    check_option,
    check_planted,
    check_positive,
    check_result,
    plain_numbers,
)
from ._rules import AbstractBackup, AbstractSelection, best_action, MeanBackup, prepare
from ._sample import equal_rows, safe_softmax
from ._types import Bools, Floats, Ints, NodeStatistics


# Columns of `Tree.step`.
ACTION = 0  # the action to take here
CODE = 1  # its child code

# Columns of `Tree.node`.
COUNT = 0  # visits, the node's own evaluation included
VALUE = 1  # what the backup made of the outcomes, for the player to move here
REWARD = 2  # reward of the edge that leads here, for the parent's player
DISCOUNT = 3  # signed discount of that edge, times gamma
RAW = 4  # the evaluator's value
COLUMNS = 5

# Child codes: a node's number, or `UNSTORED`, or `FINAL - number` for a child that is never
# expanded.
UNSTORED = -1
FINAL = -2


class Tree(eqx.Module):
    """Search trees, before and after a search.

    Nodes are numbered in the order in which they were stored; the root is number 0. Where there
    are chance nodes, `actions` is the larger number of actions and outcomes.

    **Attributes:**

    - `step`: the action to take next at each node and the code of its child. They are cached, so
        that a walk down need not score.
    - `node`: visits, value, reward and discount of the edge from the parent, and raw value.
    - `edge`: visits and Q-value of each action; where proofs are kept the least and the greatest
        return; and if leaves are evaluated several at a time the number of walks that have not
        come back.
    - `child`: the code of each child: its number, or below 0 where there is none to walk to.
    - `prior`: what the selection rule keeps of the prior.
    - `parent`: the number of the parent.
    - `state`: the model's node.
    - `size`: the number of nodes stored.
    """

    step: Int[Array, "batch nodes 2"]
    node: Float[Array, "batch nodes columns"]
    edge: Float[Array, "batch nodes planes actions"]
    child: Int[Array, "batch nodes actions"]
    prior: Float[Array, "batch nodes features actions"]
    parent: Int[Array, "batch nodes"]
    state: PyTree[Array]
    size: Ints

    @classmethod
    def empty(
        cls,
        node: PyTree[Array],
        prior: Float[Array, "batch features columns"],
        max_nodes: int,
        num_leaves: int = 1,
        *,
        bounded: bool = False,
    ) -> "Tree":
        """Trees without nodes, for nodes like `node` and priors like `prior`, of which only shapes
        and dtypes count."""
        batch, features, width = prior.shape
        rows = (batch, max_nodes)
        return cls(
            step=jnp.zeros((*rows, 2), jnp.int32),
            node=jnp.zeros((*rows, COLUMNS), jnp.float32),
            edge=jnp.zeros((*rows, planes(num_leaves, bounded), width), jnp.float32),
            child=jnp.full((*rows, width), UNSTORED, jnp.int32),
            prior=jnp.zeros((*rows, features, width), jnp.float32),
            parent=jnp.zeros(rows, jnp.int32),
            state=jax.tree.map(lambda x: jnp.zeros((*rows, *x.shape[1:]), x.dtype), node),
            size=jnp.zeros(rows[:1], jnp.int32),
        )

    def plant(
        self, node: PyTree[Array], prior: Float[Array, "batch features columns"], value: Floats
    ) -> "Tree":
        """The trees with roots that are evaluated anew: node, prior and raw value are replaced,
        kept statistics stay.

        `prior` is what [`zero_search.Rules.prior`][] returned for the root's logits, which may
        carry noise: it reaches the root's row and no other.
        """
        first = lambda x: x[:, 0]
        held = lambda t: (jax.tree.map(first, t.state), first(t.prior), t.node[:, 0, RAW])
        check_planted((node, prior, value), jax.eval_shape(held, self))
        # A legal set that shrank since the subtree was grown keeps neither visits nor outcomes.
        edge = self.edge[:, 0] * (prior[:, :1] > -jnp.inf).astype(jnp.float32)
        visits, qvalues = edge[:, 0], edge[:, 1]
        count = 1.0 + jnp.sum(visits, axis=1)
        whole = count == 1.0 + jnp.sum(self.edge[:, 0, 0], axis=1)
        left = (value + jnp.sum(visits * qvalues, axis=1)) / count
        mean = jnp.where(self.size > 0, jnp.where(whole, self.node[:, 0, VALUE], left), value)
        zero = jnp.zeros_like(value)
        return dataclasses.replace(
            self,
            node=self.node.at[:, 0].set(jnp.stack([count, mean, zero, zero, value], axis=-1)),
            edge=self.edge.at[:, 0].set(edge),
            prior=self.prior.at[:, 0].set(prior),
            parent=self.parent.at[:, 0].set(0),
            state=jax.tree.map(lambda t, x: t.at[:, 0].set(x), self.state, node),
            size=jnp.maximum(self.size, 1),
        )

    @property
    def root(self) -> NodeStatistics:
        """The statistics of the roots."""
        return statistics(self.prior[:, 0], self.edge[:, 0], self.node[:, 0])


def statistics(
    prior: Float[Array, "batch features actions"],
    edge: Float[Array, "batch planes actions"],
    node: Float[Array, "batch columns"],
) -> NodeStatistics:
    """What the rows of a tree say of nodes."""
    value, raw_value = node[:, VALUE], node[:, RAW]
    return NodeStatistics(prior, edge[:, 0], edge[:, 1], node[:, COUNT], value, raw_value)


class Rules(eqx.Module):
    """The replaceable parts of a search.

    **Attributes:**

    - `selection`, `backup`: which action to try next, and what a node's value becomes.
    - `outcomes`: how chance nodes are searched; `None` in a world without them.
    - `max_depth`: nothing deeper is expanded; a leaf there is revisited with its first value.
    - `stop_at_final`: revisit final nodes, and take a discount beyond 1 for a fault of the model;
        otherwise expand below them like anywhere else, with discounts of any size, as mctx does.
    - `num_leaves`: walks of a game before their leaves are evaluated together.
    - `virtual_loss`: how many losing visits a walk counts for until its leaf is evaluated.
    - `kernels`: `"plain"` or `"pallas"`, what the walks are made of.
    - `max_return`: the greatest return of any position, either way, if proofs are kept; the model
        is deterministic then.
    """

    selection: AbstractSelection
    backup: AbstractBackup = MeanBackup()
    outcomes: Outcomes | None = None
    max_depth: int | None = None
    stop_at_final: bool = True
    num_leaves: int = 1
    virtual_loss: float = 1.0
    kernels: str = "plain"
    max_return: float | None = None

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_option("Rules", ("plain", "pallas"), kernels=self.kernels)
        check_rules("Rules", self)
        if self.max_return is not None and (self.outcomes is not None or self.kernels != "plain"):
            raise ValueError(
                f"`max_return={self.max_return}` was given for a model with chance nodes or for "
                '`kernels="pallas"`, which prove nothing: leave it out.'
            )
        if self.outcomes is not None and self.kernels != "plain":
            raise ValueError(
                f"`TreeSearch(kernels={self.kernels!r})` over a model with chance nodes: only "
                '"plain" has them; leave `kernels` out, or give `outcomes="frozen"`.'
            )

    def prior(
        self, logits: Float[Array, "batch columns"], chance: Floats | None = None
    ) -> Float[Array, "batch features width"]:
        """What the tree keeps of the logits of new nodes.

        `chance` is above 0 at chance nodes; `None` where all nodes are decisions.
        """
        if self.outcomes is None:
            return prepare(self.selection, logits)
        actions, number = self.outcomes.num_actions, self.outcomes.num_outcomes
        features, width = prepare(self.selection, logits[:, :actions]), max(actions, number)
        if chance is None:
            return widened(features, width)
        outcomes = logits[:, :number]
        odds = jnp.where(outcomes > -jnp.inf, safe_softmax(outcomes), -jnp.inf)
        odds = jnp.broadcast_to(widened(odds, width)[:, None], (*features.shape[:2], width))
        return jnp.where((chance > 0)[:, None, None], odds, widened(features, width))

    def decisions(self, node: NodeStatistics) -> NodeStatistics:
        """The statistics with the columns of actions alone."""
        return node if self.outcomes is None else _columns(node, self.outcomes.num_actions)

    def choose(self, node: NodeStatistics, chance: Floats | None) -> Ints:
        """The action, or at a chance node the outcome, to take next."""
        action = best_action(self.selection, self.decisions(node))
        if self.outcomes is None or chance is None:
            return action
        outcome = self.outcomes.choose(_columns(node, self.outcomes.num_outcomes), chance)
        return jnp.where(chance > 0, outcome, action)

    def passed_on(self, chance: Floats | None, outcome: Floats, value: Floats) -> Floats:
        """What nodes whose value is now `value` pass on of a simulation that returned `outcome`
        there."""
        if chance is None or self.outcomes is None:
            return outcome
        return jnp.where(chance > 0, self.outcomes.passed_on(outcome, value), outcome)

    def value(self, node: NodeStatistics, chance: Floats | None, outcome: Floats) -> Floats:
        """The new values of nodes after a simulation whose return from there is `outcome`."""
        value = self.backup(self.decisions(node), outcome)
        check_result(self.backup, "__call__", value, outcome.shape, "one value for every row")
        if self.outcomes is None or chance is None:
            return value
        expected = self.outcomes.value(_columns(node, self.outcomes.num_outcomes), outcome)
        return jnp.where(chance > 0, expected, value)


def planes(num_leaves: int, bounded: bool) -> int:
    """How many numbers the edges of a tree have each."""
    return (2 if num_leaves == 1 else 3) + 2 * bounded


def check_rules(owner: str, rules: Any) -> None:
    """What [`zero_search.Rules`][] and [`zero_search.TreeSearch`][] both have."""
    check_kinds(owner, AbstractSelection, selection=rules.selection)
    check_kinds(owner, AbstractBackup, backup=rules.backup)
    check_limits(owner, max_depth=rules.max_depth)
    check_count(owner, 1, num_leaves=rules.num_leaves)
    if rules.max_return is not None:
        check_positive(owner, max_return=rules.max_return)
    check_kernels(owner, rules.kernels)


def _columns(node: NodeStatistics, number: int) -> NodeStatistics:
    prior, visits, qvalues = (x[..., :number] for x in (node.prior, node.visits, node.qvalues))
    return dataclasses.replace(node, prior=prior, visits=visits, qvalues=qvalues)


def follow(
    tree: Tree,
    reached: Bool[Array, "batch nodes"],
    action: Ints,
    chance: Bool[Array, "batch nodes"] | None,
) -> Bool[Array, "batch nodes"]:
    """The nodes to which `action` may have led from those `reached`.

    At a chance node it is not known which outcome has happened, so all of its children count.
    """
    child = jnp.take_along_axis(tree.child, action[:, None, None], axis=2)[..., 0]
    slot = jnp.arange(tree.parent.shape[1], dtype=jnp.int32)[None]
    up = lambda x: jnp.take_along_axis(x, tree.parent, axis=1)
    led = up(reached) & (up(child) == slot) & (slot > 0)
    if chance is None:
        return led
    return (led & ~chance) | (up(led & chance) & (slot > 0))


def keep(tree: Tree, reached: Bool[Array, "batch nodes"], node: PyTree[Array]) -> Tree:
    """What still holds of the trees where the new roots are `node`: the part below that of the
    nodes `reached` which equals it in every leaf; the most visited, if outcomes led to several."""
    new = jax.tree.map(lambda x: x[:, None], decision(node))
    equal = reached & equal_rows(decision(tree.state), new, 2)
    index = jnp.argmax(jnp.where(equal, tree.node[..., COUNT], -1.0), axis=1)
    return subtree(tree, index.astype(jnp.int32), jnp.any(equal, axis=1))


def subtree(tree: Tree, root: Ints, keep: Bools) -> Tree:
    """The trees below the nodes `root`, their nodes moved to the front in the same order.

    A row that is not to `keep` becomes empty.
    """
    batch, max_nodes = tree.parent.shape
    lane = jnp.arange(batch)
    below = _descendants(tree, root) & keep[:, None]
    # Parents come before their children, so the new root is the first of its descendants.
    number = jnp.cumsum(below, axis=1, dtype=jnp.int32) - 1
    size = jnp.sum(below, axis=1, dtype=jnp.int32)
    slot = jnp.arange(max_nodes, dtype=jnp.int32)
    source = jnp.zeros((batch, max_nodes), jnp.int32)
    to = jnp.where(below, number, max_nodes)
    source = source.at[lane[:, None], to].set(slot[None], mode="drop")
    live = slot[None] < size[:, None]

    def move(x: Array, fill: Any) -> Array:
        axes = (batch, max_nodes) + (1,) * (x.ndim - 2)
        return jnp.where(live.reshape(axes), x[lane[:, None], source], jnp.asarray(fill, x.dtype))

    step = move(tree.step, 0)
    code = jnp.where(live, _renumber(step[..., CODE], number), 0)
    parent = jnp.maximum(_renumber(move(tree.parent, 0), number), 0)
    child = move(tree.child, UNSTORED)
    return Tree(
        step=step.at[..., CODE].set(code),
        node=move(tree.node, 0),
        edge=move(tree.edge, 0),
        child=_renumber(child.reshape(batch, -1), number).reshape(child.shape),
        prior=move(tree.prior, 0),
        parent=jnp.where(live, parent, 0),
        # Behind the last node anything may lie, and keys of random numbers have no zero.
        state=jax.tree.map(lambda x: x[lane[:, None], source], tree.state),
        size=size,
    )


def _descendants(tree: Tree, root: Ints) -> Bool[Array, "batch nodes"]:
    """Which nodes lie at or below `root`: pointer doubling, as many gathers as `log2 depth`."""
    batch, max_nodes = tree.parent.shape
    slot = jnp.arange(max_nodes, dtype=jnp.int32)[None]
    up = jnp.where(slot == root[:, None], slot, tree.parent)

    def double(carry):
        up, _ = carry
        higher = jnp.take_along_axis(up, up, axis=1)
        return higher, jnp.any(higher != up)

    up, _ = jax.lax.while_loop(lambda carry: carry[1], double, double((up, None)))
    return (up == root[:, None]) & (slot < tree.size[:, None])


def _renumber(
    code: Int[Array, "batch entries"], number: Int[Array, "batch nodes"]
) -> Int[Array, "batch entries"]:
    final = code <= FINAL
    index = jnp.where(final, FINAL - code, jnp.maximum(code, 0))
    new = jnp.take_along_axis(number, index, axis=1)
    return jnp.where(final, FINAL - new, jnp.where(code < 0, code, new))
