"""Looking inside a search tree: NumPy on the host, one game at a time."""

import dataclasses
import heapq
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from .._check import check_count
from ._outline import Box, write
from ._rows import TreeEdge, TreeNode
from ._svg import draw


Names = Callable[[int], str] | Sequence[str] | None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SearchTree:
    """One game's search tree. Node 0 is the root, and parents come before their children.

    Statistics of an action lie with the node where it is taken, so one whose child found no room
    (`child` is -1) has them too. Get one from [`zero_search.read_tree`][]; notebooks draw it.

    **Attributes:**

    - `parent`, `action`: of the edge that leads to each node, -1 at the root.
    - `value`, `raw_value`: for the player to move there.
    - `reward`, `discount`: of that edge, for the parent's player; 0 at the root.
    - `final`: nodes that nothing follows.
    - `legal`, `prior`, `visits`, `qvalues`, `child`: of every action at every node; a Q-value, for
        the player who acts, means nothing where there are no visits.
    - `states`: the model's states.
    """

    parent: Int[np.ndarray, " nodes"]
    action: Int[np.ndarray, " nodes"]
    value: Float[np.ndarray, " nodes"]
    raw_value: Float[np.ndarray, " nodes"]
    reward: Float[np.ndarray, " nodes"]
    discount: Float[np.ndarray, " nodes"]
    final: Bool[np.ndarray, " nodes"]
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
            0, None, None, 0, 1, visits, None, value[0], None, raw[0], None, None, False
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
            )
            rows.append(row)
        return rows

    def actions(self, node: SupportsIndex = 0) -> list[TreeEdge]:
        """Statistics of all actions at a node, illegal ones too, by number."""
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

    def principal_variation(self, max_length: int | None = None) -> list[TreeEdge]:
        """The most visited action at the root, then the most visited one at its child, and so on;
        of equally visited ones the higher Q-value, then the lower number.
        """
        check_count("principal_variation", 0, max_length=max_length or 0)
        line: list[TreeEdge] = []
        node: int | None = 0
        while node is not None and (max_length is None or len(line) < max_length):
            tried = self._tried(node)
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
        describe: Callable[[Any], str] | None = None,
    ) -> str:
        """Draws the most visited part. Write the text to a file to keep it.

        Colours and printed values are for the root's player; everything else is in the titles,
        which browsers show when the mouse rests on a box.

        **Arguments:**

        - `max_nodes`, `max_depth`, `max_children`: how many boxes are drawn at most besides the
            root, how deep, and how many for one node; "+3 more" stands for the others.
        - `name_action`: what to call the actions: a function of the number, or all names.
        - `describe`: what to write below a label, given the node's state; line breaks are kept.
        """
        limits = dict(max_nodes=max_nodes, max_depth=max_depth, max_children=max_children)
        check_count("svg", 1, **limits)
        kept = self._most_visited(**limits)
        return draw(self._outline(kept, self._names(name_action), describe))

    def text(
        self,
        *,
        max_nodes: int = 20,
        max_depth: int = 3,
        max_children: int = 4,
        name_action: Names = None,
    ) -> str:
        """The same for a terminal: action, visits, value for the root's player."""
        limits = dict(max_nodes=max_nodes, max_depth=max_depth, max_children=max_children)
        check_count("text", 1, **limits)
        return write(self._outline(self._most_visited(**limits), self._names(name_action)))

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

    def _names(self, given: Names) -> Callable[[int], str]:
        if given is None:
            return str
        if callable(given):
            return given
        if len(given) != self.child.shape[1]:
            raise ValueError(
                f"`name_action` has {len(given)} names for {self.child.shape[1]} actions: give "
                "one for each, or a function of the action's number."
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

    def _outline(
        self,
        kept: dict[int | None, list[TreeEdge]],
        name: Callable[[int], str],
        describe: Callable[[Any], str] | None = None,
    ) -> Box:
        def box(edge: TreeEdge, side: int, main: bool, label: str) -> Box:
            node, shown = edge.child, kept.get(edge.child, [])
            hidden, lines = 0, []
            below = side
            if node is not None:
                hidden = len(self._tried(node)) - len(shown)
                lines = [] if describe is None else describe(self.state(node)).splitlines()
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
                    box(child, below, main and i == 0, name(child.action))
                    for i, child in enumerate(shown)
                ),
            )

        visits = 1 + int(self.visits[0].sum())
        value = float(self.value[0])
        root = TreeEdge(-1, -1, True, 1.0, visits, 1.0, value, child=0, final=False)
        return box(root, 1, True, "root")

    def _title(self, edge: TreeEdge, label: str) -> str:
        lines = [label]
        if edge.node >= 0:
            lines += [
                f"action {edge.action} at node {edge.node}",
                f"{edge.visits} visits, {edge.share:.1%} of those there; prior {edge.prior:.1%}",
                f"Q {edge.q:+.4f} for the player who acts",
            ]
        node = edge.child
        if node is None:
            return "\n".join([*lines, "not stored: the tree was full"])
        lines.append(
            f"node {node}: value {self.value[node]:+.4f}, evaluator's {self.raw_value[node]:+.4f}, "
            "for the player to move there"
        )
        if node > 0:
            lines.append(f"reward {self.reward[node]:+g}, discount {self.discount[node]:+g}")
        return "\n".join(lines + ["nothing follows"] * edge.final)
