"""Looking inside a search tree: NumPy on the host, one game at a time."""

import dataclasses
import heapq
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, SupportsIndex

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float, Int, PyTree

from ._chance import decision, is_chance
from ._check import check_count
from ._svg import Box, draw, write
from ._tree import DISCOUNT, FINAL, RAW, REWARD, Tree, VALUE


Names = Callable[[int], str] | Sequence[str] | None


class TreeNode(NamedTuple):
    """A stored node. What belongs to the edge that leads to it is `None` at the root.

    **Attributes:**

    - `node`, `parent`, `action`, `depth`: its number, that of its parent, the action that leads to
        it, and how many edges lie above it.
    - `side`: 1 where the root's player moves, -1 where the opponent does. At a chance node, and
        behind a discount of 0, as at the parent.
    - `visits`: how often a simulation took that edge; at the root, one more than all its edges.
    - `prior`: the probability of the action, or of the outcome, at the parent.
    - `value`: what the backup made of the outcomes, for the player to move here.
    - `q`, `reward`: value and reward of the action, for the parent's player.
    - `raw_value`: the evaluator's value, for the player to move here.
    - `discount`: signed, times gamma; below 0 where the turn passes to the opponent.
    - `final`: whether nothing follows: the end, a truncation, or no legal action.
    - `chance`: whether outcomes follow, not actions.
    """

    node: int
    parent: int | None
    action: int | None
    depth: int
    side: int
    visits: int
    prior: float | None
    value: float
    q: float | None
    raw_value: float
    reward: float | None
    discount: float | None
    final: bool
    chance: bool


class TreeEdge(NamedTuple):
    """An action at a node, or an outcome at a chance node.

    **Attributes:**

    - `node`, `action`: of which node; the number of the action, or of the outcome.
    - `legal`, `prior`: what the evaluator said, as a probability; at the root, with its noise. Of
        an outcome, whether it is possible, and its probability.
    - `visits`, `share`: how often it was taken, and which part of all visits at the node.
    - `q`: its value for the player who acts, or has acted, reward included; `None` if it was never
        taken.
    - `child`: the node behind it; `None` if it was never taken, or if there was no room.
    - `final`: whether that node is known to have no successors.
    """

    node: int
    action: int
    legal: bool
    prior: float
    visits: int
    share: float
    q: float | None
    child: int | None
    final: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SearchTree:
    """One game's search tree. Node 0 is the root, and parents come before their children.

    Statistics of an action lie with the node where it is taken, so one whose child found no room
    (`child` is -1) has them too. Get one from [`zero_search.read_tree`][]; notebooks draw it.

    Over a chance model an action may lead to a chance node, where column `k` is outcome `k`. There
    are as many columns as actions or outcomes, whichever are more; the others are never legal.

    **Attributes:**

    - `parent`, `action`: of the edge that leads to each node, -1 at the root.
    - `value`, `raw_value`: for the player to move there.
    - `reward`, `discount`: of that edge, for the parent's player; 0 at the root.
    - `final`: nodes that nothing follows.
    - `chance`: nodes where chance moves.
    - `legal`, `prior`, `visits`, `qvalues`, `child`: of every action at every node; a Q-value, for
        the player who acts, means nothing where there are no visits.
    - `states`: the model's nodes; at a chance node, the one behind its first outcome.
    """

    parent: Int[np.ndarray, " nodes"]
    action: Int[np.ndarray, " nodes"]
    value: Float[np.ndarray, " nodes"]
    raw_value: Float[np.ndarray, " nodes"]
    reward: Float[np.ndarray, " nodes"]
    discount: Float[np.ndarray, " nodes"]
    final: Bool[np.ndarray, " nodes"]
    chance: Bool[np.ndarray, " nodes"]
    legal: Bool[np.ndarray, "nodes actions"]
    prior: Float[np.ndarray, "nodes actions"]
    visits: Int[np.ndarray, "nodes actions"]
    qvalues: Float[np.ndarray, "nodes actions"]
    child: Int[np.ndarray, "nodes actions"]
    states: PyTree[np.ndarray]

    def __len__(self) -> int:
        return len(self.parent)

    def nodes(self) -> list[TreeNode]:
        """All stored nodes, one row each, in the order in which they were found."""
        visits = 1 + int(self.visits[0].sum())
        value, raw = self.value.tolist(), self.raw_value.tolist()
        root = TreeNode(
            0, None, None, 0, 1, visits, None, value[0], None, raw[0], None, None, False, False
        )
        rows = [root]
        for node in range(1, len(self)):
            parent, action = int(self.parent[node]), int(self.action[node])
            row = TreeNode(
                node=node,
                parent=parent,
                action=action,
                depth=rows[parent].depth + 1,
                side=rows[parent].side * self._turn(node),
                visits=int(self.visits[parent, action]),
                prior=float(self.prior[parent, action]),
                value=value[node],
                q=float(self.qvalues[parent, action]),
                raw_value=raw[node],
                reward=float(self.reward[node]),
                discount=float(self.discount[node]),
                final=bool(self.final[node]),
                chance=bool(self.chance[node]),
            )
            rows.append(row)
        return rows

    def actions(self, node: SupportsIndex = 0) -> list[TreeEdge]:
        """Statistics of all actions at a node, or outcomes, illegal ones too, by number."""
        node = self._number(node)
        total = max(1, int(self.visits[node].sum()))
        edges = []
        for action, visits in enumerate(self.visits[node].tolist()):
            child = int(self.child[node, action])
            edges.append(
                TreeEdge(
                    node=node,
                    action=action,
                    legal=bool(self.legal[node, action]),
                    prior=float(self.prior[node, action]),
                    visits=visits,
                    share=visits / total,
                    q=float(self.qvalues[node, action]) if visits else None,
                    child=child if child >= 0 else None,
                    final=child >= 0 and bool(self.final[child]),
                )
            )
        return edges

    def state(self, node: SupportsIndex = 0) -> PyTree[Any]:
        """The model's state at a node."""
        at = self._number(node)
        return jax.tree.map(lambda x: x[at], self.states)

    def principal_variation(
        self, max_length: int | None = None, *, first: int | None = None
    ) -> list[TreeEdge]:
        """The most visited action at the root, then the most visited one at its child, and so on;
        of equally visited ones the higher Q-value, then the lower number. Outcomes likewise.

        With `first` the line begins with this action, and is empty where that was never taken.
        """
        check_count("principal_variation", 0, max_length=max_length or 0)
        line: list[TreeEdge] = []
        node: int | None = 0
        while node is not None and (max_length is None or len(line) < max_length):
            tried = self._tried(node)
            if first is not None and not line:
                tried = [edge for edge in tried if edge.action == first]
            line += tried[:1]
            node = tried[0].child if tried else None
        return line

    def svg(
        self,
        *,
        max_nodes: int = 60,
        max_depth: int = 6,
        max_children: int = 4,
        name_action: Names = None,
        name_outcome: Names = None,
        describe: Callable[[Any], str] | None = None,
    ) -> str:
        """Draws the most visited part. Write the text to a file to keep it.

        Colours and printed values are for the root's player; everything else is in the titles,
        which browsers show when the mouse rests on a box.

        **Arguments:**

        - `max_nodes`, `max_depth`, `max_children`: how many boxes are drawn at most besides the
            root, how deep, and how many for one node; "+3 more" stands for the others.
        - `name_action`: what to call the actions: a function of the number, or all names.
        - `name_outcome`: what to call the outcomes.
        - `describe`: what to write below a label, given the node's state; line breaks are kept.
            Chance nodes are not described.
        """
        names = self._namer(name_action, name_outcome)
        return draw(self._shown("svg", names, describe, max_nodes, max_depth, max_children))

    def text(
        self,
        *,
        max_nodes: int = 20,
        max_depth: int = 3,
        max_children: int = 4,
        name_action: Names = None,
        name_outcome: Names = None,
    ) -> str:
        """The same for a terminal: action or outcome, visits, value for the root's player."""
        names = self._namer(name_action, name_outcome)
        return write(self._shown("text", names, None, max_nodes, max_depth, max_children))

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return self.svg()

    def _number(self, node: SupportsIndex) -> int:
        number = operator.index(node)
        if not 0 <= number < len(self):
            raise IndexError(f"`node={number}`: this tree has the nodes 0 to {len(self) - 1}.")
        return number

    def _turn(self, node: int) -> int:
        return -1 if self.discount[node] < 0 else 1

    def _tried(self, node: int) -> list[TreeEdge]:
        """Visited actions, the principal one first."""
        tried = [edge for edge in self.actions(node) if edge.visits]
        return sorted(tried, key=lambda edge: (-edge.visits, -(edge.q or 0.0), edge.action))

    def _namer(self, actions: Names, outcomes: Names) -> Callable[[TreeEdge], str]:
        """What to call an edge."""
        action = self._names("name_action", actions, ~self.chance, str)
        outcome = self._names("name_outcome", outcomes, self.chance, "outcome {}".format)
        return lambda edge: (outcome if self.chance[edge.node] else action)(edge.action)

    def _names(
        self, owner: str, given: Names, nodes: Bool[np.ndarray, " nodes"], default: Any
    ) -> Callable[[int], str]:
        """The names of the columns at some of the nodes."""
        if given is None:
            return default
        if callable(given):
            return given
        most = self.child.shape[1]
        # Where chance moves, there may be more columns than are ever used.
        used = np.flatnonzero(self.legal[nodes].any(axis=0))
        fewer = self.chance.any() or owner == "name_outcome"
        least = 1 + int(used.max(initial=-1)) if fewer else most
        if not least <= len(given) <= most:
            kind = owner.removeprefix("name_")
            raise ValueError(
                f"`{owner}` has {len(given)} names for {least} {kind}s: give one for each, or a "
                f"function of the {kind}'s number."
            )
        return given.__getitem__

    def _most_visited(
        self, max_nodes: int, max_depth: int, max_children: int
    ) -> dict[int | None, list[TreeEdge]]:
        """What to show below each node: no action has more visits than the one above it, so the
        most visited ones hang together.
        """
        kept: dict[int | None, list[TreeEdge]] = {}
        order = itertools.count()  # among equals, as found
        queue = [(-edge.visits, next(order), 1, edge) for edge in self._tried(0)[:max_children]]
        while queue and max_nodes > 0:
            _, _, depth, edge = heapq.heappop(queue)
            kept.setdefault(edge.node, []).append(edge)
            max_nodes -= 1
            if edge.child is not None and depth < max_depth:
                for below in self._tried(edge.child)[:max_children]:
                    heapq.heappush(queue, (-below.visits, next(order), depth + 1, below))
        return kept

    def _shown(
        self,
        owner: str,
        name: Callable[[TreeEdge], str],
        describe: Callable[[Any], str] | None,
        max_nodes: int,
        max_depth: int,
        max_children: int,
    ) -> Box:
        """The most visited part as boxes."""
        limits = dict(max_nodes=max_nodes, max_depth=max_depth, max_children=max_children)
        check_count(owner, 1, **limits)
        kept = self._most_visited(**limits)

        def box(edge: TreeEdge, side: int, main: bool, label: str) -> Box:
            node, shown = edge.child, kept.get(edge.child, [])
            hidden, lines = 0, []
            below = side
            if node is not None:
                hidden = len(self._tried(node)) - len(shown)
                if describe is not None and not self.chance[node]:
                    lines = describe(self.state(node)).splitlines()
                below = side * self._turn(node)
            return Box(
                name=label,
                visits=edge.visits,
                value=side * (edge.q or 0.0),
                lines=tuple(lines),
                title=self._title(edge, label),
                main=main,
                own=side > 0,
                stored=node is not None,
                final=edge.final,
                more=f"+{hidden} more" if hidden else "",
                children=tuple(
                    box(child, below, main and i == 0, name(child)) for i, child in enumerate(shown)
                ),
            )

        visits = 1 + int(self.visits[0].sum())
        value = float(self.value[0])
        root = TreeEdge(-1, -1, True, 1.0, visits, 1.0, value, child=0, final=False)
        return box(root, 1, True, "root")

    def _title(self, edge: TreeEdge, label: str) -> str:
        lines = [label]
        if edge.node >= 0:
            chance = self.chance[edge.node]
            kind, prior = ("outcome", "probability") if chance else ("action", "prior")
            lines += [
                f"{kind} {edge.action} at node {edge.node}",
                f"{edge.visits} visits, {edge.share:.1%} of those there; {prior} {edge.prior:.1%}",
                f"Q {edge.q:+.4f} for the player who {'acted' if chance else 'acts'}",
            ]
        node = edge.child
        if node is None:
            return "\n".join([*lines, "not stored: the tree was full"])
        whose = "who acted" if self.chance[node] else "to move there"
        lines.append(
            f"node {node}: value {self.value[node]:+.4f}, evaluator's {self.raw_value[node]:+.4f}, "
            f"for the player {whose}"
        )
        if node > 0:
            lines.append(f"reward {self.reward[node]:+g}, discount {self.discount[node]:+g}")
        return "\n".join(lines + ["nothing follows"] * edge.final)


def read_tree(tree: Tree, row: SupportsIndex = 0) -> SearchTree:
    """Copies the tree of one row of a batch to the host.

    **Arguments:**

    - `tree`: what a planner's `grow` returned, or the `tree` kept in its carry.
    - `row`: which row of the batch.

    Raises an `IndexError` if there is no such row, and a `ValueError` if no tree was kept there or
    while tracing.
    """
    if isinstance(tree.size, Tracer):
        raise ValueError(
            "`read_tree` got a tree that is being traced: return it from the jitted function and "
            "read it outside."
        )
    row, batch = operator.index(row), tree.size.shape[0]
    if not 0 <= row < batch:
        raise IndexError(f"`read_tree(row={row})`: this batch has the rows 0 to {batch - 1}.")
    one = jax.device_get(jax.tree.map(lambda x: x[row], tree))
    size = int(one.size)
    if size == 0:
        raise ValueError(f"`read_tree(row={row})`: no tree was kept for this row; plan first.")
    one = jax.tree.map(lambda x: x[:size] if x.ndim else x, one)
    ends = one.child <= FINAL
    child = np.where(ends, FINAL - one.child, one.child)
    at, taken = np.nonzero(child >= 0)
    parent, action = (np.full((size,), -1, np.int32) for _ in range(2))
    final = np.zeros((size,), bool)
    behind = child[at, taken]
    parent[behind], action[behind], final[behind] = at, taken, ends[at, taken]
    legal = one.prior[:, 0] > -np.inf
    inner = np.arange(size) > 0  # what led to the root is no part of the tree
    chance = is_chance(one.state)
    return SearchTree(
        parent=parent,
        action=action,
        value=one.node[:, VALUE],
        raw_value=one.node[:, RAW],
        reward=np.where(inner, one.node[:, REWARD], np.float32(0)),
        discount=np.where(inner, one.node[:, DISCOUNT], np.float32(0)),
        final=final,
        chance=np.zeros((size,), bool) if chance is None else np.asarray(chance),
        legal=legal,
        # A selection keeps its prior's probabilities as the last feature.
        prior=np.where(legal, one.prior[:, -1], np.float32(0)),
        visits=one.edge[:, 0].astype(np.int32),
        qvalues=one.edge[:, 1],
        child=child,
        states=decision(one.state),
    )
