"""Tree search over any model, put together from parts."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._chance import chance_nodes, DrawnOutcomes, is_chance, OUTCOMES, Widening
from ._check import (
    batch_size,
    check_carry,
    check_keys,
    check_kinds,
    check_leaves,
    check_limits,
    check_move,
    check_option,
    check_own_carry,
    check_range,
    check_result,
    plain_numbers,
)
from ._engine import search, search_in_rounds, SearchStats
from ._forest import kernels_of
from ._model import AbstractChanceModel, AbstractPriorModel, masked_prediction, predicted
from ._planner import AbstractPlanner, Plan
from ._proof import Bounds, check_provable
from ._root import (
    AbstractReadout,
    AbstractRootNoise,
    AbstractRootRule,
    ImprovedPolicy,
    PriorRoot,
    read_out,
    root_scores,
    SequentialHalving,
    VisitCounts,
)
from ._rules import (
    AbstractBackup,
    AbstractQTransform,
    AbstractSelection,
    CompletedByMixedValue,
    ImprovedPolicySelection,
    MeanBackup,
    PUCT,
    UCB1,
)
from ._sample import folded, split_rows, Temperature, varying
from ._tree import check_rules, follow, keep, Rules, Tree
from ._types import Bools, Ints, Keys, RootStatistics


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
    """Monte-Carlo tree search with a prior. The model says what kind of world is searched.

    A simulation walks down by the selection rule to an action without a stored child, evaluates
    what lies behind it and backs up `reward + discount * value`, so single-player games,
    alternating players and players who move twice are all the same. Final nodes are revisited,
    not expanded; a truncated one counts with its predicted value. Illegal actions (logit `-inf`)
    are never visited. A row whose root has no legal action is filler: its weights are 0.

    Searches that are known by a name are put together by [`zero_search.TreeSearch.alphazero`][],
    `muzero`, `gumbel` and `uct`. Their `**parts` are arguments of this class; a `selection`, `root`
    or `readout` among them replaces the search's own, with what was given for it.

    **Chance.** Over an [`zero_search.AbstractChanceModel`][] an action leads to an afterstate,
    whose visits are shared out among the outcomes, so that values are expectations: with enough
    simulations, those of expectimax. A simulation adds one node, an afterstate or a decision, and
    evaluates once. An afterstate without a value of its own gets that of the node behind one
    outcome, which then counts as that outcome's first visit. Antonoglou et al. 2022, "Planning in
    stochastic environments with a learned model", section 4.

    **Unknown odds.** Over a model that says that its `step` draws (`random`) but not with which
    odds, and with `outcomes="drawn"` over any, an action keeps several drawn outcomes:
    [`zero_search.Widening`][]. Over any other model, and with `outcomes="frozen"`, an action's
    outcome is drawn once, when it is expanded, and then taken for certain.

    **Full trees.** Once `max_nodes` are stored, new leaves are still evaluated, counted and backed
    up, but not stored; an action of unknown odds then has one outcome. The default makes room for
    the root and every simulation, with reuse for twice as many.

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
    position fast. Until its leaf is evaluated, a walk counts as a visit of each of its edges, and
    `virtual_loss` results as bad as the worst one known at the node enter the edge's mean; with 0
    only the number of visits changes. Two walks to the same new leaf count once, so there may be
    fewer visits than simulations (in a full tree and at `max_depth` both count). The same number
    of simulations is worth a little less than one by one.

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
        `p`. The tree is then broader and less deep, which is better where leaves are evaluated
        well, as by a trained network, and worse where they are not. `"drawn"` uses no odds, as
        above. `"frozen"` has no chance nodes.
    - `widening`: how many outcomes are drawn.
    - `evaluate_outcomes`: whether a new afterstate is worth the mean of all its outcomes,
        `sum(p * (reward + discount * value))`, whatever the model says of it. One visit is then
        exactly one step of expectimax, for as many evaluations, in one batch, as there are
        outcomes.
    - `max_nodes`: room for nodes in each tree.
    - `max_depth`: nothing deeper than so many moves is expanded (an outcome counts as a move); a
        leaf there is revisited with the value it was first given.
    - `reuse`, `num_leaves`, `virtual_loss`: as above.
    - `max_return`: the greatest return that a position can have, either way, such as 1 in a game
        that is won or lost; it must not be less than any, and the model must be deterministic. With
        it the tree keeps what finished games prove (MCTS-Solver): each action has a least and a
        greatest return, and values stay between them. An action whose return is known, or that is
        not better than another one for sure, is not searched again, except by the halving at a root
        of Gumbel's. The plan never takes an action whose return is known, or estimated, to be below
        another's that is known. `Plan.stats["proven"]` says whether the root's value is proven.
        There may be no chance nodes, nothing hidden, no `in_rounds` and no `kernels="pallas"`;
        `"auto"` is `"plain"`.
    - `stop_early`: ends the search of a batch once no simulation that is left could make another
        action the most visited in any row, or with `max_return` once all roots are proven. From the
        same trees the action is that of all simulations, with `max_return` an equally good one;
        weights and values are those of fewer, and depend on the other rows. It needs roots that are
        searched as all nodes are (`PriorRoot`) and a readout that takes the most visited action
        (`VisitCounts`). Under `jax.shard_map` devices end at different times, so a model may have
        no collectives.
    - `kernels`: `"pallas"` walks down in one kernel of a GPU and up in another, instead of the
        loops of several kernels a turn that XLA makes of `"plain"`. The trees are the same up to
        rounding, and grow 1.3 to 3.5 times as fast on an H200. On a CPU it is interpreted, which is
        slow; for other devices than NVIDIA's it does not compile. There may be no chance nodes, and
        `selection` and `backup`, which are traced with the actions rounded up to a power of two,
        may only act on every number for itself, take maxima, minima and sums of the actions, and
        take one feature of the prior. One that computes with the number of actions, such as a
        mean over them, is refused unless that is a power of two. All rules here do no more.
        `"auto"` is `"pallas"` where JAX's first device is an NVIDIA GPU that Triton compiles for
        and there are no chance nodes, and else `"plain"`.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    num_simulations: int
    selection: AbstractSelection = PUCT()
    root: AbstractRootRule = PriorRoot()
    readout: AbstractReadout = VisitCounts()
    backup: AbstractBackup = MeanBackup()
    outcomes: str = "proportional"
    evaluate_outcomes: bool = False
    widening: Widening = Widening()
    max_nodes: int | None = None
    max_depth: int | None = None
    reuse: bool = False
    num_leaves: int = 1
    virtual_loss: float = 1.0
    max_return: float | None = None
    stop_early: bool = False
    kernels: str = "plain"

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_rules("TreeSearch", self)
        check_kinds("TreeSearch", AbstractRootRule, root=self.root)
        check_kinds("TreeSearch", AbstractReadout, readout=self.readout)
        check_option("TreeSearch", OUTCOMES, outcomes=self.outcomes)
        check_kinds("TreeSearch", Widening, widening=self.widening)
        if self.outcomes == "drawn":
            self.widening.check(self.num_simulations)
        check_limits("TreeSearch", max_nodes=self.max_nodes)
        check_range("TreeSearch", 0, virtual_loss=self.virtual_loss)
        check_leaves("TreeSearch", self.num_simulations, self.num_leaves)
        in_rounds = isinstance(self.root, SequentialHalving) and self.root.in_rounds
        if in_rounds and self.num_leaves > 1:
            raise ValueError(
                f"`TreeSearch(num_leaves={self.num_leaves})` with `in_rounds=True`: rounds "
                "evaluate the leaves of all actions together already; leave one of the two out."
            )
        if in_rounds and self.max_return is not None:
            raise ValueError(
                f"`TreeSearch(max_return={self.max_return})` with `in_rounds=True`: rounds prove "
                "nothing; leave one of the two out."
            )
        if self.stop_early and not self.can_stop_early:
            raise ValueError(
                "`TreeSearch(stop_early=True)`: only the most visited action is certain before the "
                "last simulation; give root=PriorRoot(...) and readout=VisitCounts(0.0), or leave "
                "it out."
            )
        if self.outcomes == "frozen" and self.evaluate_outcomes:
            raise ValueError(
                '`TreeSearch(outcomes="frozen", evaluate_outcomes=True)`: without chance nodes '
                "there are no afterstates to evaluate; leave one of the two out."
            )

    @property
    def can_stop_early(self) -> bool:
        """Whether `stop_early` may be set: the most visited action is played."""
        takes_most = isinstance(self.readout, VisitCounts) and self.readout.temperature == 0
        return takes_most and isinstance(self.root, PriorRoot)

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
        own = dict[str, Any](selection=PUCT(c), root=root, readout=readout)
        return cls(num_simulations, **(own | parts))

    @classmethod
    def muzero(
        cls,
        num_simulations: int,
        *,
        c: float = 1.25,
        c_base: float = 19652.0,
        noise: AbstractRootNoise | None = None,
        temperature: float | Temperature = 0.0,
        **parts: Any,
    ) -> "TreeSearch":
        """MuZero's search: that of AlphaZero with [`zero_search.PUCT`][]'s `c_base`."""
        own = dict[str, Any](selection=PUCT(c, c_base=c_base), noise=noise, temperature=temperature)
        return cls.alphazero(num_simulations, **(own | parts))

    @classmethod
    def gumbel(
        cls,
        num_simulations: int,
        *,
        max_num_considered_actions: int = 16,
        gumbel_scale: float = 1.0,
        qtransform: AbstractQTransform = _COMPLETED,
        in_rounds: bool = False,
        **parts: Any,
    ) -> "TreeSearch":
        """Full Gumbel MuZero: a policy improvement with any number of simulations.

        Sequential halving at the root: the `max_num_considered_actions` best actions by
        `gumbel + logits` get the same number of simulations each, then the better half of them by
        `gumbel + logits + transformed Q`, and so on. Inside, the action whose share of the visits
        lags most behind the improved policy `softmax(logits + transformed Q)`. The plan's weights
        are the improved policy, its action the best of those that most simulations took.

        `gumbel_scale` multiplies the noise; 0 plays at full strength. With `in_rounds` all actions
        that are left are simulated side by side, their leaves in one call of the model; the
        survivors are chosen at the start of each phase, and a game with fewer legal actions than
        are considered runs fewer simulations.

        Danihelka et al. 2022, "Policy improvement by planning with Gumbel".
        """
        root = SequentialHalving(max_num_considered_actions, gumbel_scale, qtransform, in_rounds)
        selection, readout = ImprovedPolicySelection(qtransform), ImprovedPolicy(qtransform)
        own = dict[str, Any](selection=selection, root=root, readout=readout)
        return cls(num_simulations, **(own | parts))

    @classmethod
    def uct(cls, num_simulations: int, *, c: float = math.sqrt(2.0), **parts: Any) -> "TreeSearch":
        """UCT: [`zero_search.UCB1`][] with constant `c`, the most visited action."""
        return cls(num_simulations, **(dict[str, Any](selection=UCB1(c)) | parts))

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        ply = jnp.zeros((batch_size(state),), jnp.int32)
        if not self.reuse:
            return SearchCarry(varying(ply, state), None, None)

        keys = jr.split(jr.key(0), ply.shape[0])
        try:
            node = jax.eval_shape(lambda x: model.root(x, None, key=keys), state)
        except Exception as error:
            raise ValueError(
                "`TreeSearch(reuse=True)` must know the nodes before the first observation, but "
                f"`{type(model).__name__}.root(state, None, ...)` raised {type(error).__name__}: "
                f"{error}. Leave `reuse` out over a model whose root needs the observation: no "
                "tree of a learned model can be kept."
            ) from error

        def shapes(node):
            logits = predicted(model, node, keys)[0].astype(jnp.float32)
            _, node, rules = self._world(model, node, logits.shape[1], keys)
            return node, rules.prior(logits)

        zeros = lambda x: jnp.zeros(x.shape, x.dtype)
        tree = self._room(*jax.tree.map(zeros, jax.eval_shape(shapes, node)))
        reached = jnp.zeros(tree.parent.shape, jnp.bool_)
        return varying(SearchCarry(ply, tree, reached), state)

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Keys,
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`."""
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
        """As `plan`, and the trees as well, for [`zero_search.read_tree`][]."""
        check_kinds("TreeSearch.plan", AbstractPriorModel, model=model)
        check_keys(key, batch_size(state))
        root_key, search_key, read_key = split_rows(key, 3)
        node = model.root(state, obs, key=root_key)
        root, stats, carry, tree = self.explore(model, node, carry, key=search_key)
        return read_out(self.readout, root, stats, read_key), carry, tree

    def explore(
        self, model: AbstractPriorModel, node: PyTree[Array], carry: SearchCarry, *, key: Keys
    ) -> tuple[RootStatistics, dict[str, Array], SearchCarry, Tree]:
        """Searches from nodes that `model.root` returned, and leaves the decision to the caller.

        **Returns:** what is known of the roots, numbers for `Plan.stats`, the carry, the trees.
        """
        batch = batch_size(node)
        check_own_carry(carry, SearchCarry)
        check_keys(key, batch)
        predict_key, noise_key, search_key = split_rows(key, 3)
        seed_key = folded(search_key, 2**31 - 1)  # of no simulation: they are numbered from 0
        seen = predicted(model, node, predict_key)
        logits, value, invalid = masked_prediction(*seen)
        prior, gumbel = self.root.prior(logits, key=noise_key)
        for x in (prior, gumbel):
            each = "logits and noise, one for every action of every row"
            check_result(self.root, "prior", x, logits.shape, each)
        world, node, rules = self._world(model, node, logits.shape[1], seed_key)
        features = rules.prior(prior)
        tree = self._room(node, features)
        if carry.tree is None or carry.reached is None:
            check_carry(carry.ply, None, None, batch)
        else:
            check_carry(carry.ply, carry.tree, jax.eval_shape(lambda: tree), batch)
            tree = keep(carry.tree, carry.reached, node)
        planted = tree.plant(node, features, value)
        visits = rules.decisions(planted.root).visits
        num_legal = jnp.sum(prior > -jnp.inf, axis=1, dtype=jnp.int32)

        def known(node, started) -> RootStatistics:
            fixed = prior, node.visits > 0, visits, started, gumbel, num_legal, carry.ply
            return RootStatistics(node, *fixed)

        grown, found = self._grown(planted, world, rules, known, search_key, carry.tree is None)
        root = known(rules.decisions(grown.root), found.started)
        proof = {}
        if self.max_return is not None:
            bounds, legal = Bounds.of(grown.edge[:, 0], self.max_return), logits > -jnp.inf
            value = jnp.clip(root.node.value, *bounds.of_node(legal))
            node = dataclasses.replace(root.node, value=value)
            sound = bounds.playable(legal, node.qvalues, node.visits)
            root = dataclasses.replace(root, node=node, sound=sound)
            proof["proven"] = bounds.proven(legal)
        stats = proof | {
            "depth": found.depth,
            "nodes": grown.size,
            "reused": jnp.sum(visits, axis=1),
            "invalid": found.invalid + invalid.astype(jnp.int32),
        }
        if not self.reuse:
            return root, stats, SearchCarry(carry.ply, None, None), grown
        first = jnp.arange(grown.parent.shape[1], dtype=jnp.int32) == 0
        reached = jnp.broadcast_to(first[None], grown.parent.shape)
        return root, stats, SearchCarry(carry.ply, grown, reached), grown

    def advance(self, carry: SearchCarry, action: Ints, last: Bools) -> SearchCarry:
        """Counts the move and follows it in the trees."""
        check_move(carry, SearchCarry, action, last)
        ply, tree, reached = jnp.where(last, 0, carry.ply + 1), carry.tree, carry.reached
        if tree is not None and reached is not None:
            # JAX cuts the number of actions to the bits of the action, 300 to 44.
            action = action if action.dtype.itemsize >= 4 else action.astype(jnp.int32)
            possible = (action >= 0) & (action < tree.child.shape[-1]) & ~last
            reached = follow(tree, reached, action, is_chance(tree.state)) & possible[:, None]
        return SearchCarry(ply, tree, reached)

    def _grown(
        self,
        tree: Tree,
        model: AbstractPriorModel,
        rules: Rules,
        known: Callable[..., RootStatistics],
        key: Keys,
        fresh: bool,
    ) -> tuple[Tree, SearchStats]:
        """Searches from planted roots, of which `known(statistics, started)` is known. `fresh`
        trees have no other nodes."""
        number, batch = self.num_simulations, tree.size.shape[0]
        if isinstance(self.root, SequentialHalving) and self.root.in_rounds:
            phases = self.root.phases(number, rules.decisions(tree.root).visits.shape[1])
            qtransform = self.root.qtransform
            scores = lambda node, started: root_scores(known(node, started), qtransform)
            return search_in_rounds(
                tree, model, rules, phases=phases, scores=scores, key=key, fresh=fresh
            )

        def choose(simulation, node, started, inside):
            action = self.root.choose(simulation, number, known(node, started), inside)
            each = "one action for every row"
            check_result(self.root, "choose", action, (batch,), each, "int")
            return action

        # `PriorRoot` takes what the rule inside takes, so the root needs no scores of its own.
        chosen = None if isinstance(self.root, PriorRoot) else choose
        return search(
            tree,
            model,
            rules,
            num_simulations=number,
            key=key,
            choose_root=chosen,
            stop_early=self.stop_early,
        )

    def _world(
        self, model: AbstractPriorModel, node: PyTree[Array], num_actions: int, key: Keys
    ) -> tuple[AbstractPriorModel, PyTree[Array], Rules]:
        """The model as the engine steps it, its nodes, and the rules."""
        world, outcomes, rule = model, None, self.outcomes
        check_provable(model, self.max_return)
        if rule == "drawn" or (rule != "frozen" and getattr(model, "random", False)):
            rule = "drawn"
            self.widening.check(self.num_simulations)
            world = DrawnOutcomes(model, self.widening.most(self._num_nodes - 1))
            node = world.seeded(node, key)
        if rule != "frozen" and isinstance(world, AbstractChanceModel) and world.num_outcomes > 0:
            world, outcomes = chance_nodes(
                world, node, num_actions, rule, self.evaluate_outcomes, self.widening
            )
            node = world.decision(node)
        rules = Rules(
            self.selection,
            self.backup,
            outcomes,
            self.max_depth,
            num_leaves=self.num_leaves,
            virtual_loss=self.virtual_loss,
            kernels=kernels_of(self.kernels, outcomes is not None or self.max_return is not None),
            max_return=self.max_return,
        )
        return world, node, rules

    def _room(self, node: PyTree[Array], prior: Float[Array, "batch features columns"]) -> Tree:
        """Empty trees."""
        bounded = self.max_return is not None
        return Tree.empty(node, prior, self._num_nodes, self.num_leaves, bounded=bounded)

    @property
    def _num_nodes(self) -> int:
        return self.max_nodes or (2 if self.reuse else 1) * self.num_simulations + 1
