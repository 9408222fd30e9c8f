"""Several trees for one move, each with a future of its own."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ._check import batch_size, check_count, check_keys, check_kinds, check_move, check_states
from ._model import AbstractHiddenModel, AbstractModel
from ._planner import AbstractPlanner, Plan
from ._readout import AbstractReadout
from ._root import make_plan, SearchCarry
from ._statistics import NodeStatistics
from ._tree import Tree
from ._tree_planner import AbstractTreePlanner, Outlook


T = TypeVar("T")


class HindsightCarry(eqx.Module):
    """What is kept between moves.

    **Attributes:**

    - `trees`: the inner planner's carry; all its arrays begin with `[batch, trees]`.
    """

    trees: SearchCarry


class Hindsight(AbstractPlanner[AbstractModel, HindsightCarry]):
    """Hindsight optimisation: the mean of `num_trees` searches of different frozen futures.

    Where the world is random, a tree search samples the outcome of an action once, when it expands
    it, and from then on takes it for certain. One such tree plans for one future. Here every
    position gets several, each with outcomes, root noise and, with `resample`, a hidden state of
    its own; their roots are averaged, every tree counting the same, and the mean root decides. All
    trees are searched together, as `batch * num_trees` rows of the inner planner.

    What this converges to is the *hindsight value*: the mean over futures of the best that could
    be done had one known that future, `E[max]` where a player can only have `max E`. It is never
    too low, and too high wherever knowing the dice would help: a gamble that can be declined in
    time looks as if it always were. With the probabilities of the outcomes at hand,
    [`zero_search.ChanceSearch`][] has no such bias.

    On a deterministic model without root noise all trees are equal, and so is the plan to that of
    the inner planner with any key. With one tree it is the inner planner's for the keys
    `jax.random.fold_in(key, 0)` (tree `k` has `fold_in(key, k)`, halved by `split` if hidden states
    are resampled, the second half being the planner's).

    **Actions that a tree never visited.** With `unvisited="masked"` an action's Q-value is the mean
    over those trees that visited it. With `"zero"` the others count with a Q of 0, and so does a
    legal action that no tree visited: it may even be the best. Otherwise such an action has the
    plan's `value` for a Q-value, as in any plan, and is never chosen by a `readout`. Visits are
    means over all trees.

    **Value.** That of the policy read out: `sum(weights * Q)`. Without a `readout` it is the mean
    of the trees' root values, in which what was tried for exploration counts as well.

    **Carry.** The inner planner's for all trees. Without its `reuse` that is the move number: trees
    are fresh each move. With it each tree keeps the subtree of the played action, if the outcome
    that the tree had frozen is what really happened, with the outcomes it had frozen below. That
    and `resample` exclude each other: a kept subtree belongs to one hidden state.

    **Arguments:**

    - `planner`: what searches: [`zero_search.TreeSearch`][], [`zero_search.GumbelSearch`][], or,
        for hidden states or a readout, [`zero_search.ChanceSearch`][], which freezes nothing.
    - `num_trees`: for one position. `planner.num_simulations` is that of one tree.
    - `readout`: how the mean root becomes a policy. `None` reads it as the inner planner reads its
        own, with that one's temperature. (Over Gumbel noise the mean over trees is what is left.)
    - `unvisited`: `"masked"` or `"zero"`.
    - `resample`: give each tree a hidden state of its own, by an
        [`zero_search.AbstractHiddenModel`][].

    The plan's `stats` add up `nodes`, `reused` and `invalid` over trees; `depth` is a mean.

    Chong, Givan and Chang 2000, "A framework for simulation-based network control via hindsight
    optimization"; Yoon, Fern, Givan and Kambhampati 2008, "Probabilistic planning via
    determinization in hindsight".
    """

    planner: AbstractTreePlanner
    num_trees: int
    readout: AbstractReadout | None = None
    unvisited: str = "masked"
    resample: bool = False

    def __check_init__(self):
        check_kinds("Hindsight", AbstractTreePlanner, planner=self.planner)
        check_count("Hindsight", 1, num_trees=self.num_trees)
        if self.readout is not None:
            check_kinds("Hindsight", AbstractReadout, readout=self.readout)
        if self.unvisited not in ("masked", "zero"):
            raise ValueError(
                f'`Hindsight(unvisited={self.unvisited!r})`: must be "masked" or "zero".'
            )

    def init(self, model: AbstractModel, state: PyTree[Array]) -> HindsightCarry:
        """The inner planner's carry for all trees."""
        carry = self.planner.init(model, _repeated(state, self.num_trees))
        if self.resample and carry.tree is not None:
            raise ValueError(
                "`Hindsight(resample=True)` got a planner with `reuse=True`: a kept subtree is "
                "that of one hidden state; leave out one of the two."
            )
        return self._fold(carry)

    def plan(
        self,
        model: AbstractModel,
        state: PyTree[Array],
        carry: HindsightCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, HindsightCarry]:
        """Searches `num_trees` trees from every row of `state`.

        **Returns:** the plan of their mean root and the carry for `advance`.
        """
        return self.grow(model, state, carry, key=key)[:2]

    def grow(
        self,
        model: AbstractModel,
        state: PyTree[Array],
        carry: HindsightCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, HindsightCarry, Tree]:
        """As `plan`, and the trees as well: row `r` has the `num_trees` from `r * num_trees` on."""
        check_keys(key, batch_size(state))
        trees = jnp.arange(self.num_trees, dtype=jnp.int32)
        if self.resample:
            state = self._hide(model, state, trees, key)
            own = lambda k, i: _halves(k, i)[1]
        else:
            state = _repeated(state, self.num_trees)
            own = jr.fold_in
        keys = jax.vmap(lambda k: jax.vmap(lambda i: own(k, i))(trees))(key).reshape(-1)
        outlook, inner, grown = self.planner.explore(model, state, _rows(carry), key=keys)
        mean, known = _mean_outlook(outlook, self.num_trees, zero=self.unvisited == "zero")
        root, value = mean.root, mean.root.value
        if self.readout is None:
            action, weights = self.planner.decide(mean)
        else:
            action, weights = self.readout(root, known, mean.ply, key=mean.key)
            worth = jnp.sum(weights * root.qvalues, axis=1)
            # A row of filler has no policy.
            value = jnp.where(jnp.any(weights > 0, axis=1), worth, value)
        plan = make_plan(root, action, weights, known, value, **mean.stats)
        return plan, self._fold(inner), grown

    def advance(
        self,
        carry: HindsightCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> HindsightCarry:
        """Tells every tree which action was played and where it led."""
        check_move(carry.trees.ply.shape[0], action, next_state, last)
        moved = _repeated((action, next_state, last), self.num_trees)
        return self._fold(self.planner.advance(_rows(carry), *moved))

    def _fold(self, carry: SearchCarry) -> HindsightCarry:
        split = lambda x: x.reshape(-1, self.num_trees, *x.shape[1:])
        return HindsightCarry(jax.tree.map(split, carry))

    def _hide(
        self,
        model: AbstractModel,
        state: PyTree[Array],
        trees: Int[Array, " trees"],
        key: Key[Array, " batch"],
    ) -> PyTree[Array]:
        """A hidden state for every tree, one row each."""
        if not isinstance(model, AbstractHiddenModel):
            raise ValueError(
                f"`Hindsight(resample=True)` got a `{type(model).__name__}`, which cannot "
                "`resample`: give it an `AbstractHiddenModel`, or leave `resample` out."
            )

        def tree(i: Int[Array, ""]) -> PyTree[Array]:
            hide = jax.vmap(lambda k: _halves(k, i)[0])(key)
            hidden = model.resample(state, key=hide)
            check_states(state, hidden, "resample")
            return hidden

        # Not `batch * num_trees` rows: what `resample` works out of a state alone, such as the
        # tables of an exact posterior, is then shared by its trees. Keys are derived inside, for
        # the check of key reuse cannot follow a transposed array of them.
        hidden = jax.vmap(tree, out_axes=1)(trees)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), hidden)


def _halves(key: PRNGKeyArray, tree: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Of one tree: the key of its hidden state and that of its search."""
    hide, search = jr.split(jr.fold_in(key, tree))
    return hide, search


def _rows(carry: HindsightCarry) -> SearchCarry:
    """The inner planner's carry, one row a tree."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), carry.trees)


def _repeated(tree: T, number: int) -> T:
    """Every row `number` times in a row, so that shares of a batch are shares of its trees."""
    return jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), tree)


def _mean_outlook(
    outlook: Outlook, number: int, *, zero: bool
) -> tuple[Outlook, Bool[Array, "batch actions"]]:
    """The mean over trees, and whose mean Q-value means something."""
    split = lambda x: x.reshape(-1, number, *x.shape[1:])
    first = lambda x: split(x)[:, 0]
    root, stats = outlook.root, dict(outlook.stats)
    depth = _mean(split(stats.pop("depth")))
    legal = split(root.prior[:, 0] > -jnp.inf)
    visited = split(root.visits > 0)
    qvalues = jnp.where(visited, split(root.qvalues), 0.0)
    counted = legal if zero else visited
    mean = Outlook(
        root=NodeStatistics(
            prior=_mean(split(root.prior)),
            visits=_mean_count(split(root.visits)),
            qvalues=_mean(qvalues, counted),
            count=_mean_count(split(root.count)),
            value=_mean(split(root.value)),
            raw_value=_mean(split(root.raw_value)),
        ),
        kept=_mean_count(split(outlook.kept)),
        noise=_mean(split(outlook.noise)),
        ply=first(outlook.ply),
        key=first(outlook.key),
        stats={"depth": depth} | {name: jnp.sum(split(x), axis=1) for name, x in stats.items()},
    )
    return mean, jnp.any(counted, axis=1)


def _mean_count(x: Float[Array, "batch trees ..."]) -> Float[Array, "batch ..."]:
    """Of whole numbers, over the trees: equal where sums are, exact where it is a whole number."""
    total, number = jnp.sum(x.astype(jnp.int32), axis=1), x.shape[1]
    whole, rest = jnp.divmod(total, jnp.int32(number))
    return whole.astype(jnp.float32) + rest.astype(jnp.float32) / number


def _mean(
    x: Float[Array, "batch trees ..."], over: Bool[Array, "batch trees ..."] | None = None
) -> Float[Array, "batch ..."]:
    """Over the trees, those in `over` if given; 0 where there are none.

    Exact where all are equal: differences from the largest are added up.
    """
    if over is None:
        over = jnp.ones(x.shape, jnp.bool_)
    top = jnp.max(x, axis=1, keepdims=True, where=over, initial=-jnp.inf)
    # The largest may be `-inf`, and `-inf - -inf` is NaN.
    below = jnp.where(over & (x != top), x - top, 0.0)
    number = jnp.sum(over, axis=1, dtype=jnp.float32)
    mean = top[:, 0] + jnp.sum(below, axis=1) / jnp.maximum(number, 1.0)
    return jnp.where(number > 0, mean, 0.0)
