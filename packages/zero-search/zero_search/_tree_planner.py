"""What all planners that grow trees share: a search, then a decision by what it found."""

import abc
from typing import Generic

import equinox as eqx
from jaxtyping import Array, Float, Int, Key, PyTree

from ._planner import AbstractPlanner, Model, Plan
from ._root import make_plan, SearchCarry
from ._statistics import NodeStatistics
from ._tree import Tree


class Outlook(eqx.Module):
    """What a search knows of its roots: all that a decision rests on.

    **Attributes:**

    - `root`: statistics of the roots.
    - `kept`: visits of their actions from the move before.
    - `noise`: what the search added to their logits besides; zeros but in Gumbel search.
    - `ply`: moves played in the episode so far.
    - `key`: for drawing an action.
    - `stats`: of the search, for the plan.
    """

    root: NodeStatistics
    kept: Float[Array, "batch actions"]
    noise: Float[Array, "batch actions"]
    ply: Int[Array, " batch"]
    key: Key[Array, " batch"]
    stats: dict[str, Array]


class AbstractTreePlanner(AbstractPlanner[Model, SearchCarry], Generic[Model]):
    """A planner that grows one tree a row and decides by what it then knows of the root."""

    @abc.abstractmethod
    def explore(
        self, model: Model, state: PyTree[Array], carry: SearchCarry, *, key: Key[Array, " batch"]
    ) -> tuple[Outlook, SearchCarry, Tree]:
        """Searches from every row of `state`, without a decision."""

    @abc.abstractmethod
    def decide(
        self, outlook: Outlook
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """The action to play, and the weights of the plan."""

    def plan(
        self, model: Model, state: PyTree[Array], carry: SearchCarry, *, key: Key[Array, " batch"]
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`.

        **Returns:** the plan and the carry for `advance`.

        Raises a `ValueError` when traced with keys, or a model's results, of wrong shape or dtype.
        """
        return self.grow(model, state, carry, key=key)[:2]

    def grow(
        self, model: Model, state: PyTree[Array], carry: SearchCarry, *, key: Key[Array, " batch"]
    ) -> tuple[Plan, SearchCarry, Tree]:
        """As `plan`, and the trees as well, for [`zero_search.read_tree`][]."""
        outlook, carry, tree = self.explore(model, state, carry, key=key)
        action, weights = self.decide(outlook)
        return make_plan(outlook.root, action, weights, **outlook.stats), carry, tree
