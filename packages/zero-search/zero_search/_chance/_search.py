"""Search where chance moves."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._check import check_kinds
from .._root import num_actions, SearchCarry
from .._tree import Tree, UNSTORED
from .._tree_planner import AbstractTreePlanner, Outlook
from .._tree_search import TreeSearch
from ._model import AbstractAfterstateModel, AbstractChanceModel
from ._outcomes import Outcomes, RULES
from ._plies import ActionNoise, ByKind, ByKindBackup, Node, Plies


class ChanceSearch(AbstractTreePlanner[AbstractChanceModel]):
    """Tree search with chance nodes, which weigh outcomes by their probabilities.

    [`zero_search.TreeSearch`][] takes `model.step` for certain: it would search one future drawn
    by luck. Here an action leads to an afterstate, whose visits are shared out among the outcomes,
    so that values are expectations: with enough simulations, those of expectimax. All else is the
    given `planner`'s: selection rule, root noise, temperature, gamma, room, reuse.

    A simulation adds one node, an afterstate or a state, and asks the evaluator once. A new
    afterstate gets the value of an [`zero_search.AbstractAfterstateModel`][]; any other model is
    asked about the state behind one outcome, which then counts as that outcome's first visit.
    An action that leaves one possible outcome leads to the next state at once: without chance
    this is exactly the search of `planner`.

    **Reuse** keeps the subtree of the outcome that really happened: the one whose stored state
    equals the next state in every leaf.

    **Arguments:**

    - `planner`: what searches. Its rule scores decisions only and never sees an outcome.
    - `outcomes`: `"proportional"` takes the outcome that lags most behind its probability `p`, the
        largest `p / (visits + 1)`, without any luck, and an afterstate is worth the mean of its
        visits; `"sampled"` draws from the probabilities instead. `"weighted"` takes each outcome
        once, the likeliest first, before any comes twice, and weighs their values by `p`. It is
        broad where the others are deep: better with values as good as those of a trained network,
        worse with none.

    Antonoglou et al. 2022, "Planning in stochastic environments with a learned model", section 4
    (there afterstates always have a value of their own, and single outcomes a node).
    """

    planner: TreeSearch
    outcomes: str = "proportional"

    def __check_init__(self):
        check_kinds("ChanceSearch", TreeSearch, planner=self.planner)
        if self.outcomes not in RULES:
            raise ValueError(
                f"`ChanceSearch(outcomes={self.outcomes!r})`: must be one of "
                f"{', '.join(map(repr, RULES))}."
            )

    def init(self, model: AbstractChanceModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        plies, planner = self._parts(model, state)
        return planner.init(plies, plies.root(state))

    def explore(
        self,
        model: AbstractChanceModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Outlook, SearchCarry, Tree]:
        """Searches from every row of `state`, without a decision.

        **Returns:** what is known of the actions alone; the carry; and trees whose columns are the
        actions, then the outcomes.
        """
        plies, planner = self._parts(model, state)
        outlook, carry, tree = planner.explore(plies, plies.root(state), carry, key=key)
        return _only_actions(outlook, plies.num_actions), carry, tree

    def decide(
        self, outlook: Outlook
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """As `planner` does."""
        return self.planner.decide(outlook)

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move and keeps what was grown below the realised outcome."""
        if carry.tree is not None:
            tree, next_state = _realise(carry.tree, action, next_state)
            carry = SearchCarry(ply=carry.ply, tree=tree)
        return self.planner.advance(carry, action, next_state, last)

    def _parts(
        self, model: AbstractChanceModel, state: PyTree[Array]
    ) -> tuple["Plies", TreeSearch]:
        if not isinstance(model, AbstractChanceModel):
            raise ValueError(
                f"`ChanceSearch` got a `{type(model).__name__}`, which does not know the "
                "probabilities of its outcomes: give it an `AbstractChanceModel`, or take "
                "`TreeSearch`, or `Hindsight` over it."
            )
        actions = num_actions(model, state)
        outcomes = Outcomes(self.outcomes, not isinstance(model, AbstractAfterstateModel))
        noise = self.planner.noise
        planner = dataclasses.replace(
            self.planner,
            selection=ByKind(self.planner.selection, outcomes, actions),
            noise=None if noise is None else ActionNoise(noise, actions),
            backup=ByKindBackup(self.planner.backup, outcomes, actions),
            gamma=1.0,
        )
        return Plies(model, self.planner.gamma, actions, outcomes.sampled), planner


def _only_actions(outlook: Outlook, num_actions: int) -> Outlook:
    """The outlook without its columns of outcomes."""
    where = lambda x: (x.root.prior, x.root.visits, x.root.qvalues, x.kept, x.noise)
    return eqx.tree_at(where, outlook, tuple(x[..., :num_actions] for x in where(outlook)))


def _realise(
    tree: Tree, action: Int[Array, " batch"], next_state: PyTree[Array]
) -> tuple[Tree, Node]:
    """Lets the root's `action` lead straight to the node of the outcome that happened.

    **Returns:** those trees, and the next state as a node of them. Among outcomes that led to the
    same state the most visited counts; the edge leads nowhere if none was stored.
    """
    lane = jnp.arange(action.shape[0])
    code = tree.child[lane, 0, action]
    at = jnp.maximum(code, 0)
    codes = tree.child[lane, at]

    def equal(stored: Array, given: Array) -> Array:
        stored, given = stored[lane[:, None], jnp.maximum(codes, 0)], given[:, None]
        match = stored == given
        if jnp.issubdtype(given.dtype, jnp.floating):
            match = match | (jnp.isnan(stored) & jnp.isnan(given))
        return jnp.all(match.reshape(*codes.shape, -1), axis=2)

    matches = jax.tree.leaves(jax.tree.map(equal, tree.state.state, next_state))
    happened = (codes >= 0) & jnp.all(jnp.stack(matches), axis=0)
    visits = jnp.where(happened, tree.edge[lane, at, 0], -1.0)
    found = jnp.where(jnp.any(happened, axis=1), codes[lane, jnp.argmax(visits, axis=1)], UNSTORED)
    chance = (code >= 0) & tree.state.chance[lane, at]
    code = jnp.where(chance, found, code)
    tree = eqx.tree_at(lambda t: t.child, tree, tree.child.at[lane, 0, action].set(code))
    node = jax.tree.map(lambda x: x[lane, jnp.maximum(code, 0)], tree.state)
    return tree, eqx.tree_at(lambda n: n.state, node, next_state)
