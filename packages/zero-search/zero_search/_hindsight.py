"""Several trees for one move, each with a guess and a future of its own."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ._check import (
    batch_size,
    check_count,
    check_keys,
    check_kinds,
    check_move,
    check_option,
    check_own_carry,
    plain_numbers,
)
from ._model import AbstractPriorModel, guesses
from ._planner import AbstractPlanner, Plan
from ._root import read_out
from ._sample import folded, numbered, split_rows
from ._tree import Tree
from ._tree_search import SearchCarry, TreeSearch
from ._types import Bools, Ints, Keys, NodeStatistics, RootStatistics


T = TypeVar("T")


class Hindsight(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """Hindsight optimisation: the mean root of `num_trees` searches of different futures.

    Where the world is random and the search has no chance nodes (with
    `TreeSearch(outcomes="frozen")`, or over a model that tells neither odds nor that it is
    `random`), it draws the outcome of an action once, when it expands it, and from then on takes it
    for certain. One such tree plans for one future. Here every position gets several, each with
    outcomes, root noise and a draw of `model.root` of its own: where something is hidden, each has
    another guess at it. Their roots are averaged, every tree counting the same, and the readout of
    `planner` decides by the mean root. All trees are searched together, as `batch * num_trees`
    rows. The literature calls this root parallelisation over determinisations. Trees with chance
    nodes freeze nothing: each plans for all futures, and their mean is no hindsight.

    What this converges to is the *hindsight value*: the mean over futures of the best that could
    be done had one known that future, `E[max]` where a player can only have `max E`. It is never
    too low, and too high wherever knowing the future would help: a gamble looks as if one could
    always decline it when it is going to fail. A tree search over a chance model or over beliefs
    has no such bias.

    On a deterministic model without root noise all trees are equal, and so is the plan to that of
    `planner` with any key. With one tree it is the plan of `planner` for the keys
    `jax.random.fold_in(key, 0)`; tree `k` has `fold_in(key, k)`.

    **Actions that a tree never visited.** With `unvisited="masked"` an action's Q-value is the mean
    over those trees that visited it. With `"zero"` the others count with a Q of 0, and so does a
    legal action that no tree visited: it may even be the best. Visits are means over all trees.

    **Carry.** That of `planner`, whose arrays begin with `[batch, trees]`. With reuse each tree
    keeps the subtree of the played action, if the outcome that the tree had frozen is what really
    happened, with the outcomes it had frozen below.

    **Arguments:**

    - `planner`: what searches each tree and reads out the mean root.
    - `num_trees`: for one position. `planner.num_simulations` is that of one tree.
    - `unvisited`: `"masked"` or `"zero"`.

    The plan's `stats` add up `nodes`, `reused` and `invalid` over trees; `depth` is a mean.

    Chong, Givan and Chang 2000, "A framework for simulation-based network control via hindsight
    optimization"; Yoon, Fern, Givan and Kambhampati 2008, "Probabilistic planning via
    determinization in hindsight".
    """

    planner: TreeSearch
    num_trees: int
    unvisited: str = "masked"

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_kinds("Hindsight", TreeSearch, planner=self.planner)
        check_count("Hindsight", 1, num_trees=self.num_trees)
        check_option("Hindsight", ("masked", "zero"), unvisited=self.unvisited)
        if self.planner.max_return is not None:
            raise ValueError(
                f"`Hindsight(TreeSearch(max_return={self.planner.max_return}))`: what is proven in "
                "one guess does not hold in the others; leave `max_return` out."
            )
        if self.planner.stop_early and self.num_trees > 1:
            raise ValueError(
                "`Hindsight(TreeSearch(stop_early=True))`: the most visited action of a tree need "
                "not be that of their mean root; leave `stop_early` out."
            )

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """The carry of `planner` for all trees."""
        return self._split(self.planner.init(model, self._repeated(state)))

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Keys,
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry]:
        """Searches `num_trees` trees from every row of `state`; the plan is of their mean root."""
        return self.grow(model, state, carry, key=key, obs=obs)[:2]

    def grow(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Keys,
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry, Tree]:
        """As `plan`, and the trees as well: row `r` has the `num_trees` from `r * num_trees` on."""
        check_kinds("Hindsight.plan", AbstractPriorModel, model=model)
        check_keys(key, batch_size(state))
        own = lambda i: split_rows(folded(key, i), 3)
        root = guesses(model, state, obs, self.num_trees, lambda i: own(i)[0])
        _, search_key, _ = split_rows(_flat(numbered(key, self.num_trees)), 3)
        check_own_carry(carry, SearchCarry)
        found, stats, rows, grown = self.planner.explore(
            model, _flat(root), _flat(carry), key=search_key
        )
        stats = self._split(stats)
        depth = {"depth": _mean(stats.pop("depth"))}
        mean, read_key = self._mean_root(found), own(0)[2]
        stats = depth | {name: jnp.sum(x, axis=1, dtype=x.dtype) for name, x in stats.items()}
        return read_out(self.planner.readout, mean, stats, read_key), self._split(rows), grown

    def advance(self, carry: SearchCarry, action: Ints, last: Bools) -> SearchCarry:
        """Counts the move and follows it in all trees."""
        check_move(carry, SearchCarry, action, last)
        rows = self.planner.advance(_flat(carry), *self._repeated((action, last)))
        return self._split(rows)

    def _split(self, rows: T) -> T:
        """Rows of trees as rows of games with `num_trees` each."""
        split = lambda x: x.reshape(x.shape[0] // self.num_trees, self.num_trees, *x.shape[1:])
        return jax.tree.map(split, rows)

    def _repeated(self, tree: T) -> T:
        """Every row as often as there are trees, so that shares of a batch are shares of trees."""
        return jax.tree.map(lambda x: jnp.repeat(x, self.num_trees, axis=0), tree)

    def _mean_root(self, root: RootStatistics) -> RootStatistics:
        """The mean over trees. An action is legal if it is in every tree."""
        root = self._split(root)
        node, visited = root.node, root.known
        legal = root.logits > -jnp.inf
        counted = legal if self.unvisited == "zero" else visited
        possible = jnp.all(legal, axis=1)
        qvalues = jnp.where(visited, node.qvalues, 0.0)
        visits = lambda x: jnp.where(possible, _mean_count(x), 0.0)
        mean = NodeStatistics(
            prior=_mean(node.prior),
            visits=visits(node.visits),
            qvalues=_mean(qvalues, counted),
            count=_mean_count(node.count),
            value=_mean(node.value),
            raw_value=_mean(node.raw_value),
        )
        return RootStatistics(
            node=mean,
            logits=_mean(root.logits),
            known=jnp.any(counted, axis=1) & possible,
            kept=visits(root.kept),
            started=visits(root.started),
            gumbel=_mean(root.gumbel),
            num_legal=jnp.sum(possible, axis=1, dtype=jnp.int32),
            ply=root.ply[:, 0],
        )


def _flat(tree: T) -> T:
    """The trees of all games one after another."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)


def _mean_count(x: Float[Array, "batch trees ..."]) -> Float[Array, "batch ..."]:
    """Of whole numbers, over the trees: equal where sums are, exact where it is a whole number."""
    total, number = jnp.sum(x.astype(jnp.int32), axis=1, dtype=jnp.int32), x.shape[1]
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
