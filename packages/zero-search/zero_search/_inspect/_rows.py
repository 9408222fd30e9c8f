"""A search tree as a table: one row a node, or one row an action."""

from typing import NamedTuple


class TreeNode(NamedTuple):
    """A stored node. What belongs to the edge that leads to it is `None` at the root.

    **Attributes:**

    - `node`, `parent`, `action`, `depth`: its number, whence and by which action it is reached.
    - `side`: 1 where the root's player moves, -1 where the opponent does. Where nothing follows, as
        at the parent.
    - `visits`: how often a simulation took that edge; at the root, one more than all its edges.
    - `prior`: the action's probability at the parent.
    - `value`: what the backup made of the outcomes, for the player to move here.
    - `q`, `reward`: value and reward of the action, for the parent's player.
    - `raw_value`: the evaluator's word, for the player to move here.
    - `discount`: signed, times gamma; below 0 where the turn passes to the opponent.
    - `final`: whether nothing follows: the end, a truncation, or no legal action.
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


class TreeEdge(NamedTuple):
    """An action at a node.

    **Attributes:**

    - `node`, `action`: of which node.
    - `legal`, `prior`: what the evaluator said, as a probability; at the root, with its noise.
    - `visits`, `share`: how often it was taken, and which part of all visits at the node.
    - `q`: its value for the player who acts, reward included; `None` if it was never taken.
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
