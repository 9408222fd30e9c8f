"""Tree search over any model, put together from parts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._backup import AbstractBackup, MeanBackup
from ._chance import chance_nodes, ChanceNode
from ._check import (
    batch_size,
    check_carry,
    check_choice,
    check_count,
    check_keys,
    check_kinds,
    check_limits,
    check_move,
    check_prediction,
    check_range,
    check_result,
)
from ._engine import search
from ._model import AbstractChanceModel, AbstractPriorModel, masked_prediction
from ._noise import AbstractRootNoise
from ._planner import AbstractPlanner, make_plan, Plan
from ._qtransform import AbstractQTransform, CompletedByMixedValue
from ._readout import AbstractReadout, ImprovedPolicy, read_out, VisitCounts
from ._root import AbstractRootRule, PriorRoot, SequentialHalving
from ._rules import RULES, Rules
from ._sample import split_rows, Temperature
from ._select import AbstractSelection, ImprovedPolicySelection, MuZeroPUCT, PUCT, UCB1
from ._statistics import RootStatistics
from ._tree import COUNT, empty, follow, match, plant, statistics, subtree, Tree


_COMPLETED = CompletedByMixedValue()


class SearchCarry(eqx.Module):
    """What a tree search keeps between moves.

    **Attributes:**

    - `ply`: moves played in the episode so far.
    - `tree`: the trees of the last plan, or `None` without reuse.
    - `reached`: the nodes to which the moves played since may have led.
    """

    ply: Int[Array, "*axes"]
    tree: Tree | None
    reached: Bool[Array, "*axes nodes"] | None


class TreeSearch(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """Monte-Carlo tree search with a prior. What kind of world it searches, the model says.

    A simulation walks down by the selection rule to an action without a stored child, evaluates
    what lies behind it and backs up `reward + discount * value`, so single-player games,
    alternating players and players who move twice are all the same. Final nodes are revisited,
    not expanded; a truncated one counts with its predicted value. Illegal actions (logit `-inf`)
    are never visited. A row whose root has no legal action is filler: its weights are 0.

    Searches that are known by a name are put together by [`zero_search.TreeSearch.alphazero`][],
    `muzero`, `gumbel` and `uct`.

    **Chance.** Over an [`zero_search.AbstractChanceModel`][] an action leads to an afterstate,
    whose visits are shared out among the outcomes, so that values are expectations: with enough
    simulations, those of expectimax. A simulation adds one node, an afterstate or a decision, and
    evaluates once. An afterstate without a value of its own gets that of the node behind one
    outcome, which then counts as that outcome's first visit. Any other model's `step` is taken for
    certain: an action's outcome is drawn once, when it is expanded. Antonoglou et al. 2022,
    "Planning in stochastic environments with a learned model", section 4.

    **Full trees.** Once `max_nodes` are stored, new leaves are still evaluated, counted and
    backed up, but not stored. The default makes room for the root and every simulation, with
    reuse for twice as many.

    **Reuse.** With `reuse=True` a plan starts from the nodes below the moves played since the last
    one, with their visits and values, provided that the stored node equals the new root in every
    leaf. So a subtree grown from another outcome or guess is dropped, and nothing is reused over
    latent states or over beliefs that are drawn anew. `init` then asks `model.root` for shapes with
    `obs=None`. The root is evaluated anew, with fresh noise on its own prior; all other priors in
    the tree are without noise. `num_simulations` new visits are added to the kept ones. Kept priors
    and values are those of the model that found them: after an update of its network they are a
    little old, until `last` or a fresh `init`.

    **Several leaves at a time.** With `num_leaves` above 1 every game walks down so many times
    before all these leaves are evaluated in one call of the model, which is what makes a single
    position fast. Until its leaf is evaluated a walk counts on each of its edges as a visit, and
    with `virtual_loss` as so many visits that ended as badly as anything known at that node; a
    loss of 0 marks the number of visits alone. Two walks to the same leaf count once where it is
    newly stored (not in a full tree, nor at `max_depth`), so there may be fewer visits than
    simulations. The same number of simulations is worth a little less than one by one.

    **Arguments:**

    - `num_simulations`: of every plan.
    - `selection`: which action to try next inside the tree. It never sees an outcome.
    - `root`: which action to try next at the root, and the noise there.
    - `readout`: how the root becomes an action and targets.
    - `backup`: what a node's value becomes after a simulation.
    - `outcomes`: how chance nodes are searched. `"proportional"` takes the outcome that lags most
        behind its probability `p`, the largest `p / (visits + 1)`, and an afterstate is worth the
        mean of its visits; `"sampled"` draws from the probabilities instead. `"weighted"` takes
        each outcome once, the likeliest first, before any comes twice, and weighs their values by
        `p`. It is broad where the others are deep: better with values as good as those of a
        trained network, worse with none.
    - `max_nodes`: room for nodes in each tree.
    - `max_depth`: nothing deeper than so many moves is expanded (an outcome counts as a move); a
        leaf there is revisited with the value it was first given.
    - `reuse`, `num_leaves`, `virtual_loss`: as above.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    num_simulations: int
    selection: AbstractSelection = PUCT()
    root: AbstractRootRule = PriorRoot()
    readout: AbstractReadout = VisitCounts()
    backup: AbstractBackup = MeanBackup()
    outcomes: str = "proportional"
    max_nodes: int | None = None
    max_depth: int | None = None
    reuse: bool = False
    num_leaves: int = 1
    virtual_loss: float = 1.0

    def __check_init__(self):
        check_count("TreeSearch", 1, num_simulations=self.num_simulations)
        check_kinds("TreeSearch", AbstractSelection, selection=self.selection)
        check_kinds("TreeSearch", AbstractRootRule, root=self.root)
        check_kinds("TreeSearch", AbstractReadout, readout=self.readout)
        check_kinds("TreeSearch", AbstractBackup, backup=self.backup)
        if self.outcomes not in RULES:
            raise ValueError(
                f"`TreeSearch(outcomes={self.outcomes!r})`: must be one of "
                f"{', '.join(map(repr, RULES))}."
            )
        check_limits("TreeSearch", self.max_nodes, self.max_depth)
        check_count("TreeSearch", 1, num_leaves=self.num_leaves)
        check_range("TreeSearch", 0, virtual_loss=self.virtual_loss)
        if self.num_simulations % self.num_leaves:
            raise ValueError(
                f"`TreeSearch(num_simulations={self.num_simulations}, "
                f"num_leaves={self.num_leaves})`: num_simulations must be a multiple of num_leaves."
            )

    @classmethod
    def alphazero(
        cls,
        num_simulations: int,
        *,
        c: float = 1.0,
        noise: AbstractRootNoise | None = None,
        temperature: float | Temperature = 0.0,
        **parts: Any,
    ) -> "TreeSearch":
        """AlphaZero's search: [`zero_search.PUCT`][] with constant `c`, visit counts."""
        root, readout = PriorRoot(noise), VisitCounts(temperature)
        return cls(num_simulations, PUCT(c), root, readout, **parts)

    @classmethod
    def muzero(
        cls,
        num_simulations: int,
        *,
        noise: AbstractRootNoise | None = None,
        temperature: float | Temperature = 0.0,
        **parts: Any,
    ) -> "TreeSearch":
        """MuZero's search: [`zero_search.MuZeroPUCT`][], visit counts."""
        root, readout = PriorRoot(noise), VisitCounts(temperature)
        return cls(num_simulations, MuZeroPUCT(), root, readout, **parts)

    @classmethod
    def gumbel(
        cls,
        num_simulations: int,
        *,
        max_num_considered_actions: int = 16,
        gumbel_scale: float = 1.0,
        qtransform: AbstractQTransform = _COMPLETED,
        **parts: Any,
    ) -> "TreeSearch":
        """Full Gumbel MuZero: a policy improvement with any number of simulations.

        Sequential halving at the root, deterministic selection inside, the improved policy read
        out. Danihelka et al. 2022, "Policy improvement by planning with Gumbel".
        """
        root = SequentialHalving(max_num_considered_actions, gumbel_scale, qtransform)
        inside, readout = ImprovedPolicySelection(qtransform), ImprovedPolicy(qtransform)
        return cls(num_simulations, inside, root, readout, **parts)

    @classmethod
    def uct(cls, num_simulations: int, **parts: Any) -> "TreeSearch":
        """UCT: [`zero_search.UCB1`][], the most visited action."""
        return cls(num_simulations, UCB1(), **parts)

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        ply = jnp.zeros((batch_size(state),), jnp.int32)
        if not self.reuse:
            return SearchCarry(ply, None, None)

        def shapes(state):
            root_key, predict_key = jr.split(jr.key(0), (2, ply.shape[0]))
            node = model.root(state, None, key=root_key)
            return node, model.predict(node, key=predict_key)[0]

        node, logits = eqx.filter_eval_shape(shapes, state)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), node)
        tree = self._world(model, zeros, logits.shape[1])[3]
        return SearchCarry(ply, tree, jnp.zeros(tree.parent.shape, jnp.bool_))

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`.

        **Returns:** the plan and the carry for `advance`.

        Raises a `ValueError` when traced with keys, or a model's results, of wrong shape or dtype.
        """
        return self.grow(model, state, carry, key=key, obs=obs)[:2]

    def grow(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry, Tree]:
        """As `plan`, and the trees as well, for [`zero_search.read_tree`][]."""
        check_keys(key, batch_size(state))
        root_key, search_key, read_key = split_rows(key, 3)
        node = model.root(state, obs, key=root_key)
        root, stats, carry, tree = self.explore(model, node, carry, key=search_key)
        action, weights, value = read_out(self.readout, root, read_key)
        return make_plan(root, action, weights, value, stats), carry, tree

    def explore(
        self,
        model: AbstractPriorModel,
        node: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[RootStatistics, dict[str, Array], SearchCarry, Tree]:
        """Searches from nodes that `model.root` returned, without a decision.

        **Returns:** what is known of the roots, numbers for `Plan.stats`, the carry, the trees.
        """
        batch = batch_size(node)
        check_keys(key, batch)
        predict_key, noise_key, search_key = split_rows(key, 3)
        logits, value = model.predict(node, key=predict_key)
        check_prediction(logits, value, batch, None)
        logits, value, invalid = masked_prediction(logits, value)
        prior, gumbel = self.root.prior(logits, key=noise_key)
        for x in (prior, gumbel):
            each = "logits and noise, one for every action of every row"
            check_result(self.root, "prior", x, logits.shape, each)
        world, node, rules, tree = self._world(model, node, logits.shape[1])
        if carry.tree is None or carry.reached is None:
            check_carry(carry.ply, None, None, batch)
        else:
            check_carry(carry.ply, carry.tree, jax.eval_shape(lambda: tree), batch)
            tree = _kept(carry.tree, carry.reached, node)
        planted = plant(tree, node, rules.prior(_padded(prior, tree), _no_chance(node)), value)
        kept = rules.decisions(statistics(planted)).visits

        def known(node, started) -> RootStatistics:
            return RootStatistics(node, prior, node.visits > 0, kept, started, gumbel, carry.ply)

        def choose(simulation, node, started, inside):
            number, root = self.num_simulations, known(node, started)
            action = self.root.choose(simulation, number, root, started, inside)
            check_choice(self.root, "choose", action, batch)
            return action

        # A rule that returns `inside` itself needs no scores of its own at the root. It is traced
        # to find that out, so that nothing can depend on the number of the simulation.
        at_first, same = rules.decisions(statistics(planted)), []

        def probe(simulation, inside):
            action = choose(simulation, at_first, jnp.zeros_like(kept), inside)
            same.append(action is inside)
            return action

        jax.eval_shape(probe, jnp.zeros((), jnp.int32), jnp.zeros_like(carry.ply))
        grown, found = search(
            planted,
            world,
            rules,
            num_simulations=self.num_simulations,
            key=search_key,
            choose_root=None if same[0] else choose,
        )
        root = known(rules.decisions(statistics(grown)), found.started)
        stats = {
            "depth": found.depth,
            "nodes": grown.size,
            "reused": jnp.sum(kept, axis=1),
            "invalid": found.invalid + invalid.astype(jnp.int32),
        }
        if not self.reuse:
            return root, stats, SearchCarry(carry.ply, None, None), grown
        first = jnp.arange(grown.parent.shape[1], dtype=jnp.int32) == 0
        reached = jnp.broadcast_to(first[None], grown.parent.shape)
        return root, stats, SearchCarry(carry.ply, grown, reached), grown

    def advance(
        self, carry: SearchCarry, action: Int[Array, " batch"], last: Bool[Array, " batch"]
    ) -> SearchCarry:
        """Counts the move and follows it in the trees."""
        check_move(carry.ply.shape[0], action, last)
        ply, tree, reached = jnp.where(last, 0, carry.ply + 1), carry.tree, carry.reached
        if tree is not None and reached is not None:
            chance = tree.state.chance > 0 if isinstance(tree.state, ChanceNode) else None
            possible = (action >= 0) & (action < tree.child.shape[-1]) & ~last
            reached = follow(tree, reached, action, chance) & possible[:, None]
        return SearchCarry(ply, tree, reached)

    def _world(
        self, model: AbstractPriorModel, node: PyTree[Array], num_actions: int
    ) -> tuple[AbstractPriorModel, PyTree[Array], Rules, Tree]:
        """The model as the engine steps it, its nodes, the rules, and empty trees."""
        world, outcomes, width = model, None, num_actions
        if isinstance(model, AbstractChanceModel) and model.num_outcomes > 0:
            world, outcomes = chance_nodes(model, node, num_actions, self.outcomes)
            node, width = world.decision(node), world.width
        rules = Rules(
            self.selection,
            self.backup,
            outcomes,
            self.max_depth,
            num_leaves=self.num_leaves,
            virtual_loss=self.virtual_loss,
        )
        logits = jax.ShapeDtypeStruct((1, width), jnp.float32)
        features = jax.eval_shape(lambda x: rules.prior(x, jnp.zeros((1,), jnp.float32)), logits)
        room = (2 if self.reuse else 1) * self.num_simulations + 1
        room = room if self.max_nodes is None else self.max_nodes
        planes = 2 if self.num_leaves == 1 else 3
        return world, node, rules, empty(node, room, width, features.shape[1], planes)


def _kept(tree: Tree, reached: Bool[Array, "batch nodes"], node: PyTree[Array]) -> Tree:
    """What still holds of the trees where the new roots are `node`."""
    if isinstance(node, ChanceNode):
        # Several outcomes may have led to the same state: the most visited of them counts.
        equal = match(tree.state.node, reached, node.node)
        index = jnp.argmax(jnp.where(equal, tree.node[..., COUNT], -1.0), axis=1)
        return subtree(tree, index, jnp.any(equal, axis=1))
    index = jnp.argmax(reached, axis=1)
    at = lambda x: x[jnp.arange(index.shape[0]), index][:, None]
    stored, reached = jax.tree.map(at, tree.state), jnp.any(reached, axis=1, keepdims=True)
    return subtree(tree, index, match(stored, reached, node)[:, 0])


def _padded(logits: Float[Array, "batch actions"], tree: Tree) -> Float[Array, "batch columns"]:
    wide = ((0, 0), (0, tree.child.shape[2] - logits.shape[1]))
    return jnp.pad(logits, wide, constant_values=-jnp.inf)


def _no_chance(node: PyTree[Array]) -> Float[Array, " batch"] | None:
    return node.chance if isinstance(node, ChanceNode) else None
