"""What most signatures share: shapes with one entry a row, where a row is a game or a node, and
what a search knows of its nodes, which is the input of every replaceable part."""

from typing import TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key


Node = TypeVar("Node")

Keys = Key[Array, " batch"]
Ints = Int[Array, " batch"]
Floats = Float[Array, " batch"]
Bools = Bool[Array, " batch"]
PerAction = Float[Array, "batch actions"]
Mask = Bool[Array, "batch actions"]
#: A number that may be known while a search is traced, such as that of a simulation.
Number = int | Int[Array, ""]

# What a model's `predict` and `step` return: `(logits, value)`, `(next_node, reward, discount,
# last)`.
Prediction = tuple[PerAction, Floats]
Stepped = tuple[Node, Floats, Floats, Bools]


class NodeStatistics(eqx.Module):
    """What a search knows of some nodes, one a row. Values are for the player to move there.

    **Attributes:**

    - `prior`: what [`zero_search.AbstractSelection.prepare`][] returned; every feature of an
        illegal action is `-inf`, and of one that `TreeSearch.max_return` rules out, which may have
        been visited.
    - `visits`, `qvalues`: of each action; a Q-value (reward included) means nothing where there
        are no visits.
    - `count`: visits of the node: of all its actions, and 1 for its own evaluation.
    - `value`: the node's value, as the backup made it.
    - `raw_value`: the evaluator's value of the node.
    """

    prior: Float[Array, "batch features actions"]
    visits: PerAction
    qvalues: PerAction
    count: Floats
    value: Floats
    raw_value: Floats

    @property
    def probabilities(self) -> PerAction:
        """The prior policy; `-inf` where illegal."""
        return self.prior[:, -1]

    @property
    def legal(self) -> Mask:
        return self.prior[:, 0] > -float("inf")


class RootStatistics(eqx.Module):
    """What a search knows of its roots: the input of root rules and readouts.

    **Attributes:**

    - `node`: visits, Q-values and values of the roots.
    - `logits`: the prior's, with the noise of the root rule if it has any; `-inf` where illegal.
    - `known`: the actions whose Q-value means something: the visited ones.
    - `kept`: the visits that were kept from the move before; `node.visits` includes them.
    - `started`: how many simulations of this search have taken each action. It differs from the
        new visits where several leaves are evaluated at a time: a walk to a leaf that another walk
        of its group has just stored is no visit.
    - `gumbel`: the noise that the root rule drew, on the scale of logits; zeros without any.
    - `num_legal`: how many actions are legal. It is counted once, before the first simulation.
    - `ply`: moves played in the episode so far.
    - `sound`: the actions that a plan may take where a search proves returns
        (`TreeSearch.max_return`); `None` elsewhere.
    """

    node: NodeStatistics
    logits: PerAction
    known: Mask
    kept: PerAction
    started: PerAction
    gumbel: PerAction
    num_legal: Ints
    ply: Ints
    sound: Mask | None = None

    @property
    def playable(self) -> Mask:
        """The actions that a plan may take: all legal ones, but for those that are proven worse."""
        return self.logits > -float("inf") if self.sound is None else self.sound
