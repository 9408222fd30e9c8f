"""What a node's value becomes when a simulation has passed through it."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ._check import check_result
from ._statistics import NodeStatistics


class AbstractBackup(eqx.Module):
    """Turns a node's statistics into its value, on the way up.

    The Q-value of the edge above becomes `reward + gamma * discount * value`, so values
    propagate whatever the rule; only the outcome of the simulation is passed on unchanged.
    """

    @abc.abstractmethod
    def __call__(
        self, node: NodeStatistics, outcome: Float[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """The new values of the nodes, for the player to move there.

        **Arguments:**

        - `node`: its `count` and the taken edge's visits and Q-value include this visit; its
            `value` does not yet.
        - `outcome`: the return of this simulation from the node on.
        """


class MeanBackup(AbstractBackup):
    """The mean of all outcomes, the node's own evaluation being the first.

    Coulom 2006, "Efficient selectivity and backup operators in Monte-Carlo tree search".
    """

    def __call__(
        self, node: NodeStatistics, outcome: Float[Array, " rows"]
    ) -> Float[Array, " rows"]:
        return (node.value * (node.count - 1.0) + outcome) / node.count


def back_up(
    rule: AbstractBackup, node: NodeStatistics, outcome: Float[Array, " rows"]
) -> Float[Array, " rows"]:
    """What `rule` returns, if it has the right shape."""
    value = rule(node, outcome)
    check_result(rule, "__call__", value, outcome.shape, "one value for every row")
    return value
