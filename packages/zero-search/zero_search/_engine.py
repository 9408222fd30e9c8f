"""The search engine: simulations of a batch of trees. Walk down, expand, back up.

One loop serves the whole batch. Games that have nothing to do write out of range, where writes are
dropped; nothing is selected over whole arrays. The walk down follows cached best actions and notes
the nodes it passes. The walk up turns them into new values and lists the visits. Scoring, the part
that costs, is done over that list, so a shallow game does not wait for the deepest of the batch.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._check import check_search
from ._forest import Forest, on_device, put, recorded, take
from ._model import AbstractPriorModel, LARGEST, masked_edge, masked_prediction, predicted, stepped
from ._proof import among, Bounds, sealed
from ._sample import folded, varying
from ._stop import until_decided
from ._tree import DISCOUNT, FINAL, planes, RAW, REWARD, Rules, statistics, Tree, UNSTORED, VALUE
from ._types import Floats, Ints, Keys, NodeStatistics, Number, PerAction
from ._walk import (
    back_up,
    blank,
    enter,
    Fixed,
    KeyPair,
    NO_CHILD,
    NOT_EXPANDED,
    Notes,
    RootChoice,
    Up,
    Visits,
    Walk,
    walk_down,
    with_visit,
)


class SearchStats(eqx.Module):
    """What a search did, by game.

    **Attributes:**

    - `depth`: mean depth of the leaves; 0 for a row whose root has no legal action.
    - `started`: how many simulations have taken each action at the root.
    - `invalid`: evaluations that were not finite, or had a discount beyond -1 or 1, and have been
        replaced.
    """

    started: PerAction
    depth: Floats
    invalid: Ints


class Found(eqx.Module):
    """What the model returned at the ends of the walks."""

    state: PyTree[Array]
    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    final: Bool[Array, "*axes"]
    logits: Float[Array, "*axes actions"]
    value: Float[Array, "*axes"]
    invalid: Bool[Array, "*axes"]  # not finite, or |discount| > 1; replaced
    wrong: Bool[Array, "*axes"]  # the same of reward and discount alone


class Loop(eqx.Module):
    """What one turn of the loop hands to the next."""

    forest: Forest
    notes: Notes
    slot: Int[Array, " leaves"]  # of the nodes whose states are not written yet
    state: list[Array]
    started: PerAction | None
    invalid: Ints

    @property
    def whole(self) -> Forest:
        """The trees with all states."""
        # A simulation that read the parents' states and then wrote new ones would have XLA copy
        # them all, for it cannot tell which comes first. So the next one writes before it reads.
        states = jax.tree.map(lambda x, y: put(x, self.slot, y), self.forest.state, self.state)
        return dataclasses.replace(self.forest, state=states)

    def then(
        self,
        lanes: Fixed,
        forest: Forest,
        notes: Notes,
        slot: Int[Array, " leaves"],
        found: Found,
        started: PerAction | None,
    ) -> "Loop":
        """After a turn that has `found` nodes for these slots."""
        bad = (found.invalid & lanes.alive).reshape(-1, self.invalid.shape[0])
        invalid = self.invalid + jnp.sum(bad, axis=0, dtype=jnp.int32)
        return Loop(forest, notes, slot, forest.layout.join(found.state), started, invalid)


def search(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    num_simulations: int,
    key: Keys | Callable[[Any], KeyPair],
    choose_root: RootChoice | None = None,
    loop: Callable[..., Any] = jax.lax.fori_loop,
    stop_early: bool = False,
) -> tuple[Tree, SearchStats]:
    """Runs `num_simulations` from planted roots, a multiple of `rules.num_leaves`.

    **Arguments:**

    - `tree`: trees whose roots are evaluated ([`zero_search.Tree.plant`][]).
    - `key`: one key a game, or a function from the number of a simulation to the keys of its
        `step` and `predict`.
    - `choose_root`: for roots that are searched by a rule of their own:
        `(simulation, statistics, started, inside) -> action`. `started[batch, actions]` is how
        many simulations of this search have taken each action, those included that wait for their
        leaf; `inside` is the action that `rules.selection` would take.
    - `loop`: has the interface of `lax.fori_loop`.
    - `stop_early`: in place of it a loop that ends once every row's move is certain.
    """
    (batch, max_nodes, _), leaves = tree.child.shape, rules.num_leaves
    wanted = planes(leaves, rules.max_return is not None)
    check_search(num_simulations, leaves, tree.edge.shape[2], wanted, key, batch)
    if choose_root is not None:
        given = choose_root
        choose_root = lambda *known: given(*known).astype(jnp.int32)
    fixed = fixed_for(tree, model, rules, key, choose_root)
    root = rules.decisions(tree.root)
    bounds, within = None, tree.root
    if rules.max_return is not None:
        bounds = Bounds.of(tree.edge[:, 0], rules.max_return)
        within = among(within, bounds.unknown(within.legal))
    first = rules.choose(within, None)
    if choose_root is not None:
        first = choose_root(0, root, jnp.zeros_like(root.visits), first)
    code = tree.child[jnp.arange(batch), 0, first]
    code = code if bounds is None else sealed(code, first, bounds)
    step = tree.step.at[:, 0].set(jnp.stack([first, code], axis=-1))
    tree = eqx.tree_at(lambda t: t.step, tree, step)

    turn = ft.partial(_one_leaf if leaves == 1 else _many_leaves, fixed)
    loop = ft.partial(until_decided, fixed) if stop_early else loop

    def simulated(packed: bool) -> tuple[Tree, Any]:
        forest, notes = Forest.of(tree, packed), blank(batch, max_nodes, rules)
        started = None if leaves == 1 else jnp.zeros_like(fixed.kept)
        none, rows = jnp.zeros((batch,), jnp.int32), jnp.tile(fixed.base, leaves)
        slot, state = forest.nowhere(batch * leaves), [take(x, rows) for x in forest.state]
        init = Loop(forest, notes, slot, state, started, none)
        first, number = np.int32(0), np.int32(num_simulations // leaves)
        end = loop(first, number, turn, varying(init, fixed.base))
        return end.whole.trees(), (end.started, end.notes.depth, end.invalid)

    tree, (started, depth, invalid) = on_device(simulated, rules.kernels)
    if started is None:
        started = rules.decisions(tree.root).visits - fixed.kept
    number = jnp.maximum(jnp.sum(started, axis=1), 1.0)
    return tree, SearchStats(started, depth.astype(jnp.float32) / number, invalid)


def search_in_rounds(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    phases: Sequence[tuple[int, int]],
    scores: Callable[[NodeStatistics, PerAction], PerAction],
    key: Keys,
    fresh: bool,
) -> tuple[Tree, SearchStats]:
    """Sequential halving from planted roots: the subtrees of different root actions do not touch,
    so one simulation of each of them runs beside the others, and all their leaves are evaluated
    together.

    A phase `(width, rounds)` keeps the `width` best of the actions that the phase before has kept,
    and simulates each of them once in every round. A game that has fewer simulates those alone.

    **Arguments:**

    - `scores`: of the roots' actions, `(statistics, started) -> scores`, asked at the start of
        every phase; `-inf` where one is illegal. `started[batch, actions]` is how many simulations
        of this search have taken each action.
    - `fresh`: whether the trees have no nodes but their roots.
    """
    batch, max_nodes = tree.parent.shape
    total = sum(width * rounds for width, rounds in phases)
    check_search(total, rules.num_leaves, tree.edge.shape[2], planes(1, False), key, batch)
    fixed = fixed_for(tree, model, rules, key, None)

    def simulated(packed: bool) -> tuple[Tree, Ints, Ints]:
        forest, before = Forest.of(tree, packed), 0
        left = jnp.ones(fixed.kept.shape, jnp.bool_)
        depth, invalid = jnp.zeros((batch,), jnp.int32), jnp.zeros((batch,), jnp.int32)
        for width, rounds in phases:
            node = rules.decisions(_roots(fixed, forest))
            ranked = jnp.where(left, scores(node, node.visits - fixed.kept), -jnp.inf)
            best, action = jax.lax.top_k(ranked, width)
            real = best > -jnp.inf
            chosen = jax.nn.one_hot(action, left.shape[1], dtype=jnp.bool_)
            left = jnp.any(chosen & real[..., None], axis=1)
            # A walk that has no action of its own goes nowhere; the model is asked what is legal.
            action = jnp.where(real, action, action[:, :1])
            lanes = widened(fixed, width)
            lanes = dataclasses.replace(lanes, alive=lanes.alive & real.T.reshape(-1))
            # Every round adds a level to a subtree at most.
            levels = min(before + rounds, max_nodes) if fresh else max_nodes
            notes = blank(width * batch, levels, rules)
            slot, state = forest.nowhere(width * batch), [take(x, lanes.base) for x in forest.state]
            init = Loop(forest, notes, slot, state, None, invalid)
            turn = ft.partial(_round, fixed, lanes, action.T.reshape(-1))
            first, after = np.int32(before), np.int32(before + rounds)
            end = jax.lax.fori_loop(first, after, turn, varying(init, fixed.base))
            steps = end.notes.depth.reshape(width, batch)
            depth = depth + jnp.sum(steps, axis=0, dtype=jnp.int32)
            forest, invalid, before = end.whole, end.invalid, before + rounds
        return forest.trees(), depth, invalid

    tree, depth, invalid = on_device(simulated, rules.kernels)
    started = rules.decisions(tree.root).visits - fixed.kept
    number = jnp.maximum(jnp.sum(started, axis=1), 1.0)
    return tree, SearchStats(started, depth.astype(jnp.float32) / number, invalid)


def fixed_for(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    key: Keys | Callable[[Any], KeyPair],
    choose_root: RootChoice | None,
) -> Fixed:
    """What stays the same in a search of these trees.

    The model's `step` and `predict` one after the other are jitted: a search is traced for a CPU
    and for other devices (`on_device`), and so the model only once for both.
    """
    batch, max_nodes, width = tree.child.shape
    # Under `shard_map` what the loops carry must vary over devices as the trees do.
    vary = ft.partial(varying, like=(tree, model, key(0) if callable(key) else key))
    alive = vary(jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1))
    base = vary(jnp.arange(batch, dtype=jnp.int32) * max_nodes)
    kept = rules.decisions(tree.root).visits
    params, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def ask(params, node, action, step_key, predict_key):
        model = eqx.combine(params, static)
        after = stepped(model, node, action, step_key)
        return *after, *predicted(model, after[0], predict_key, width)

    keys = key if callable(key) else lambda sim: (folded(key, 2 * sim), folded(key, 2 * sim + 1))
    asked = ft.partial(ask, params)
    return Fixed(asked, rules, keys, choose_root, tree.prior[:, 0], kept, base, alive)


def _one_leaf(fixed: Fixed, sim: Int[Array, ""], loop: Loop) -> Loop:
    """One simulation of every game."""
    forest = loop.whole
    notes, walk = walk_down(fixed, forest, loop.notes, None)
    found = evaluate(fixed, forest, walk, sim)
    forest, up, slot = store(fixed, forest, walk, found)
    forest, notes = enter(fixed, forest, notes, walk, up, None, 0, (sim + 1, None))
    return loop.then(fixed, forest, notes, slot, found, None)


def _many_leaves(fixed: Fixed, group: Int[Array, ""], loop: Loop) -> Loop:
    """`num_leaves` simulations of every game: walk down often, evaluate together, back up in turn.

    A walk marks its edges until its leaf has been evaluated, which drives the next walks elsewhere.
    If two walks end at the same leaf all the same, the second does not count. Leaves are numbered
    walk after walk: all games' first ones, all games' second ones, and so on.
    """
    forest, notes, started = loop.whole, loop.notes, loop.started
    number, batch = fixed.rules.num_leaves, fixed.base.shape[0]
    # A leaf that is no visit: only the marks are entered.
    no = fixed.alive & ~fixed.alive
    zeros = no.astype(jnp.float32)

    def down(i, carry):
        forest, notes, started, paths, walks = carry
        notes, walk = walk_down(fixed, forest, notes, None)
        if started is not None:
            first = jax.nn.one_hot(notes.path[0, :, 1], started.shape[1], dtype=jnp.float32)
            started = started + jnp.where(fixed.alive[:, None], first, 0.0)
        paths = paths.at[i].set(notes.path)
        walks = jax.tree.map(lambda xs, x: xs.at[i].set(x), walks, walk)
        blank = Up(*[zeros] * (5 if fixed.rules.max_return is None else 7))
        following = group * number + i + 1, started
        forest, notes = enter(fixed, forest, notes, walk, blank, no, 1, following)
        return forest, notes, started, paths, walks

    none = jnp.stack([no.astype(jnp.int32)] * number)
    paths = jnp.stack([notes.path] * number)
    init = (forest, notes, started, paths, Walk(none, none, none, none))
    first, end = np.int32(0), np.int32(number)
    forest, notes, started, paths, walks = jax.lax.fori_loop(first, end, down, init)
    ends = jax.tree.map(lambda x: x.reshape(-1), walks)
    lanes = widened(fixed, number)
    found = evaluate(lanes, forest, ends, group)
    each = jax.tree.map(lambda x: x.reshape(number, batch, *x.shape[1:]), found)

    def up(i, carry):
        forest, notes, slots = carry
        walk, leaf = jax.tree.map(lambda x: x[i], (walks, each))
        now = take(forest.child, forest.entry(fixed.base + walk.index, walk.action))
        again = (walk.code == UNSTORED) & (now != UNSTORED)
        walk = eqx.tree_at(lambda w: w.code, walk, jnp.where(again, now, walk.code))
        forest, value, slot = store(fixed, forest, walk, leaf)
        notes = dataclasses.replace(notes, path=paths[i])
        following = ((group + 1) * number, started)
        forest, notes = enter(fixed, forest, notes, walk, value, ~again, -1, following)
        return forest, notes, slots.at[i].set(slot)

    init = (forest, notes, walks.index)
    forest, notes, slots = jax.lax.fori_loop(first, end, up, init)
    return loop.then(lanes, forest, notes, slots.reshape(-1), found, started)


def _round(
    fixed: Fixed, lanes: Fixed, action: Int[Array, " walks"], number: Int[Array, ""], loop: Loop
) -> Loop:
    """One simulation of each of the actions that are left in every game."""
    forest = loop.whole
    code = take(forest.child, forest.entry(lanes.base, action))
    notes, walk = walk_down(lanes, forest, loop.notes, jnp.stack([action, code], axis=1))
    pick = lambda own, x: jnp.where(walk.index == 0, own, x)
    walk = dataclasses.replace(walk, action=pick(action, walk.action), code=pick(code, walk.code))
    found = evaluate(lanes, forest, walk, number)
    forest, up, slot = store(lanes, forest, walk, found)
    forest, notes, visits, _ = back_up(lanes, forest, notes, walk, up, None, 1, 0)
    forest = _at_roots(fixed, forest, dataclasses.replace(visits, real=lanes.alive))
    return loop.then(lanes, forest, notes, slot, found, None)


def _at_roots(fixed: Fixed, forest: Forest, visits: Visits) -> Forest:
    """Enters the visits of the roots, of each game one after another."""
    node, batch = _roots(fixed, forest), fixed.base.shape[0]
    each = jax.tree.map(lambda x: x.reshape(-1, batch), visits)
    for i in range(each.row.shape[0]):
        visit = jax.tree.map(lambda x, i=i: x[i], each)
        node = dataclasses.replace(node, count=node.count + visit.real.astype(jnp.float32))
        after = with_visit(node, visit)
        value = fixed.rules.value(after, None, visit.sample)
        node = dataclasses.replace(after, value=jnp.where(visit.real, value, node.value))
    row = jnp.where(fixed.alive, fixed.base, forest.nowhere(batch))
    numbers = jnp.stack([node.count, node.value], axis=1)
    edge = jnp.stack([node.visits, node.qvalues], axis=1)
    return forest.entered(row, forest.steps(fixed.base), numbers, edge)


def _roots(fixed: Fixed, forest: Forest) -> NodeStatistics:
    return statistics(fixed.prior, take(forest.edge, fixed.base), forest.nodes(fixed.base))


def widened(fixed: Fixed, number: int) -> Fixed:
    """The same for so many leaves of every game, each with keys of its own."""
    leaves = jnp.arange(number, dtype=jnp.int32)
    each_leaf = jax.vmap(folded, in_axes=(None, 0))

    def keys(sim: Any) -> KeyPair:
        step_key, predict_key = fixed.keys(sim)
        return each_leaf(step_key, leaves).reshape(-1), each_leaf(predict_key, leaves).reshape(-1)

    base, alive = jnp.tile(fixed.base, number), jnp.tile(fixed.alive, number)
    prior, kept = jnp.tile(fixed.prior, (number, 1, 1)), jnp.tile(fixed.kept, (number, 1))
    return dataclasses.replace(fixed, keys=keys, prior=prior, kept=kept, base=base, alive=alive)


def evaluate(fixed: Fixed, forest: Forest, walk: Walk, sim: Number) -> Found:
    """Steps the model from the end of every walk, and evaluates what comes."""
    parent = fixed.base + walk.index
    before = forest.states(parent)
    step_key, predict_key = fixed.keys(sim)
    answer = fixed.ask(before, walk.action, step_key, predict_key)
    state, reward, discount, last, logits, value = answer
    logits, value, invalid = masked_prediction(logits, value)
    most = 1.0 if fixed.rules.stop_at_final else LARGEST
    reward, discount, wrong = masked_edge(reward, discount, most)
    if fixed.rules.max_return is not None:
        # Else what follows would prove what a step with a masked reward is worth.
        discount = jnp.where(wrong, 0.0, discount)
    # Nothing follows a final node, nor one without a legal action: revisit, never expand.
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    final, invalid = final & fixed.rules.stop_at_final, invalid | wrong
    return varying(Found(state, reward, discount, final, logits, value, invalid, wrong), fixed.base)


def store(fixed: Fixed, forest: Forest, walk: Walk, found: Found) -> tuple[Forest, Up, Ints]:
    """Adds a node in every row where there is room and something new; the others write nowhere.

    **Returns:** the trees, without the new nodes' states; what to back up; and the slots.
    """
    base, number, rules = fixed.base, walk.depth.shape[0], fixed.rules
    new, child, size = _numbered(forest, fixed.alive & (walk.code == UNSTORED))
    slot = jnp.where(new, base + child, forest.nowhere(number))
    parent = jnp.where(new, base + walk.index, forest.nowhere(number))
    value, zeros, one = found.value, jnp.zeros_like(found.logits), jnp.ones_like(found.value)
    chance = found.state.chance if rules.outcomes is not None else None
    prior = rules.prior(found.logits, chance)
    best = rules.choose(NodeStatistics(prior, zeros, zeros, one, value, raw_value=value), chance)
    numbers = jnp.stack([one, value, found.reward, found.discount, value], axis=-1)
    step = jnp.stack([best, jnp.full_like(best, UNSTORED)], axis=1)
    record = recorded(step, numbers, walk.index, chance)
    link = jnp.where(found.final, FINAL - child, child)
    stored = dataclasses.replace(
        forest,
        record=put(forest.record, slot, record),
        prior=put(forest.prior, slot, prior),
        child=put(forest.child, forest.entry(parent, walk.action), link),
        size=size,
    )
    # Behind an edge to a child that is not expanded its first value counts again.
    revisited = walk.code != UNSTORED
    child = jnp.where(walk.code <= FINAL, FINAL - walk.code, walk.code)
    known = stored.nodes(base + jnp.where(revisited, child, 0))
    pick = lambda column, fresh: jnp.where(revisited, known[:, column], fresh)
    # The value of a final child is its first one, unless a proof has made it exact.
    worth, low, high = pick(RAW, found.value), None, None
    if rules.max_return is not None:
        worth = jnp.where(walk.code <= FINAL, pick(VALUE, found.value), worth)
        over = (pick(DISCOUNT, found.discount) == 0) & ~found.wrong
        low, high = (jnp.where(over, 0.0, x) for x in (-rules.max_return, rules.max_return))
    up = Up(
        outcome=worth,
        value=worth,
        visits=jnp.where(new, one, jnp.where(revisited, NOT_EXPANDED, NO_CHILD)),
        reward=pick(REWARD, found.reward),
        discount=pick(DISCOUNT, found.discount),
        low=low,
        high=high,
    )
    return stored, up, slot


def _numbered(
    forest: Forest, wanted: Bool[Array, " leaves"]
) -> tuple[Bool[Array, " leaves"], Int[Array, " leaves"], Ints]:
    """Which of the leaves there is room for, their numbers, and the new sizes. All trees' first
    leaves come first, then all trees' second ones."""
    room = forest.number // forest.size.shape[0]
    if wanted.shape == forest.size.shape:
        new = wanted & (forest.size < room)
        return new, forest.size, forest.size + new.astype(jnp.int32)
    each = wanted.reshape(-1, forest.size.shape[0])
    rank = jnp.cumsum(each, axis=0, dtype=jnp.int32) - each.astype(jnp.int32)
    number = forest.size[None] + rank
    new = each & (number < room)
    size = forest.size + jnp.sum(new, axis=0, dtype=jnp.int32)
    return new.reshape(-1), number.reshape(-1), size
