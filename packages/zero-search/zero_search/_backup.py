"""What a node's value becomes when a simulation has passed through it."""

import abc

import equinox as eqx
import jax.numpy as jnp

from ._check import check_result
from ._statistics import NodeStatistics
from ._types import Floats


class AbstractBackup(eqx.Module):
    """Turns a node's statistics into its value, on the way up.

    The Q-value of the edge above becomes `reward + discount * value`, so values
    propagate whatever the rule; only the outcome of the simulation is passed on unchanged.
    """

    @abc.abstractmethod
    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
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

    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
        return (node.value * (node.count - 1.0) + outcome) / node.count


class MaxBackup(AbstractBackup):
    """The best Q-value of the visited actions.

    A complete tree then has exactly the value of best play. With a noisy evaluator the value is too
    high, because the maximum prefers actions that were overrated.

    Coulom 2006, "Efficient selectivity and backup operators in Monte-Carlo tree search".
    """

    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
        del outcome
        return jnp.max(jnp.where(node.visits > 0, node.qvalues, -jnp.inf), axis=1)


def back_up(rule: AbstractBackup, node: NodeStatistics, outcome: Floats) -> Floats:
    """What `rule` returns, if it has the right shape."""
    value = rule(node, outcome)
    check_result(rule, "__call__", value, outcome.shape, "one value for every row")
    return value
