"""What a search knows of a node: the input of every replaceable part."""

import equinox as eqx
from jaxtyping import Array, Float


class NodeStatistics(eqx.Module):
    """What a search knows of some nodes, one a row. Values are for the player to move there.

    **Attributes:**

    - `prior`: what [`zero_search.AbstractSelection.prepare`][] returned; every feature of an
        illegal action is `-inf`.
    - `visits`, `qvalues`: of each edge; a Q-value (reward included) means nothing where there are
        no visits.
    - `count`: visits of the node: of all its edges, and 1 for its own evaluation.
    - `value`: the node's value, as the backup made it.
    - `raw_value`: the evaluator's value of the node.
    """

    prior: Float[Array, "rows features actions"]
    visits: Float[Array, "rows actions"]
    qvalues: Float[Array, "rows actions"]
    count: Float[Array, " rows"]
    value: Float[Array, " rows"]
    raw_value: Float[Array, " rows"]

    @property
    def probabilities(self) -> Float[Array, "rows actions"]:
        """The prior policy; `-inf` where illegal."""
        return self.prior[:, -1]
