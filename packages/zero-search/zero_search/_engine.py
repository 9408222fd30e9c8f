"""The search engine: simulations of a batch of trees. Walk down, expand, back up.

One loop serves the whole batch. Games that have nothing to do write out of range, where writes are
dropped; nothing is selected over whole arrays. The walk down follows cached best actions and notes
the nodes it passes. The walk up turns them into new values and lists the visits. Scoring, the part
that costs, is done over that list, so a shallow game does not wait for the deepest of the batch.
"""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._check import check_search
from ._forest import Forest, on_device, put, recorded, take
from ._model import AbstractPriorModel, masked_edge, masked_prediction, predicted, stepped
from ._sample import folded, varying
from ._tree import ACTION, DISCOUNT, FINAL, RAW, REWARD, Rules, Tree, UNSTORED
from ._types import Bools, Floats, Ints, Keys, NodeStatistics, PerAction
from ._walk import (
    ascend,
    blank,
    descend,
    Fixed,
    KeyPair,
    NO_CHILD,
    NOT_EXPANDED,
    Notes,
    rescored,
    RootChoice,
    Up,
    visited,
    VISITS,
    Visits,
    Walk,
)


# The next simulation, and how many have started with each action, if that is counted.
Following = tuple[Int[Array, ""], PerAction | None]


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


def search(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    num_simulations: int,
    key: Keys | Callable[[Any], KeyPair],
    choose_root: RootChoice | None = None,
    loop: Callable[..., Any] = jax.lax.fori_loop,
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
    """
    (batch, max_nodes, _), leaves = tree.child.shape, rules.num_leaves
    check_search(num_simulations, leaves, tree.edge.shape[2], key, batch)
    fixed, vary = begin(tree, model, rules, key, choose_root)
    root = rules.decisions(tree.root)
    first = rules.choose(tree.root, None)
    if choose_root is not None:
        first = choose_root(0, root, jnp.zeros_like(root.visits), first)
    code = tree.child[jnp.arange(batch), 0, first]
    step = tree.step.at[:, 0].set(jnp.stack([first, code], axis=-1))
    tree = eqx.tree_at(lambda t: t.step, tree, step)

    turn = ft.partial(_one_leaf if leaves == 1 else _many_leaves, fixed)

    def simulated(packed: bool) -> tuple[Tree, Any]:
        forest, notes = Forest.of(tree, packed), blank(batch, max_nodes)
        slot = forest.nowhere(leaves * batch)
        state = [take(x, jnp.tile(fixed.base, leaves)) for x in forest.state]
        started = None if leaves == 1 else jnp.zeros_like(fixed.kept)
        init = Loop(forest, notes, slot, state, started, jnp.zeros((batch,), jnp.int32))
        end = loop(np.int32(0), np.int32(num_simulations // leaves), turn, vary(init))
        return end.whole.trees(), (end.started, end.notes.depth, end.invalid)

    tree, (started, depth, invalid) = on_device(simulated, rules.kernels)
    if started is None:
        started = rules.decisions(tree.root).visits - fixed.kept
    depth = depth.astype(jnp.float32) / num_simulations
    return tree, SearchStats(started, depth, invalid)


def begin(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    key: Keys | Callable[[Any], KeyPair],
    choose_root: RootChoice | None,
) -> tuple[Fixed, Callable[[Loop], Loop]]:
    """What stays the same, and a function for what the loops carry.

    Under `shard_map` what the loops carry must vary over devices as the trees do.
    """
    batch, max_nodes = tree.parent.shape
    vary = ft.partial(varying, like=(tree, model, key(0) if callable(key) else key))
    alive = vary(jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1))
    base = vary(jnp.arange(batch, dtype=jnp.int32) * max_nodes)
    kept = rules.decisions(tree.root).visits
    ask = _asked(model, tree.edge.shape[-1])
    return Fixed(ask, rules, key, choose_root, tree.prior[:, 0], kept, base, alive), vary


def _asked(model: AbstractPriorModel, width: int) -> Callable[..., Any]:
    """The model's `step` and `predict` one after the other, jitted: a search is traced for a CPU
    and for other devices (`on_device`), and so the model only once for both."""
    params, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def ask(params, node, action, step_key, predict_key):
        model = eqx.combine(params, static)
        after = stepped(model, node, action, step_key)
        return *after, *predicted(model, after[0], predict_key, width)

    return ft.partial(ask, params)


def _one_leaf(fixed: Fixed, sim: Int[Array, ""], loop: Loop) -> Loop:
    """One simulation of every game."""
    forest = loop.whole
    notes, walk = walk_down(fixed, forest, loop.notes, None)
    found = evaluate(fixed, forest, walk, sim)
    forest, up, slot = store(fixed, forest, walk, found)
    forest, notes = enter(fixed, forest, notes, walk, up, None, 0, (sim + 1, None))
    state = forest.layout.join(found.state)
    return Loop(forest, notes, slot, state, None, counted(fixed, loop, found))


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
        blank, following = Up(zeros, zeros, zeros, zeros, zeros), group * number + i + 1
        forest, notes = enter(fixed, forest, notes, walk, blank, no, 1, (following, started))
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
        walk = eqx.tree_at(lambda w: w.code, walk, now)
        forest, value, slot = store(fixed, forest, walk, leaf)
        notes = dataclasses.replace(notes, path=paths[i])
        following = ((group + 1) * number, started)
        forest, notes = enter(fixed, forest, notes, walk, value, ~again, -1, following)
        return forest, notes, slots.at[i].set(slot)

    init = (forest, notes, walks.index)
    forest, notes, slots = jax.lax.fori_loop(first, end, up, init)
    slot, state = slots.reshape(-1), forest.layout.join(found.state)
    return Loop(forest, notes, slot, state, started, counted(lanes, loop, found))


def counted(fixed: Fixed, loop: Loop, found: Found) -> Ints:
    """The invalid evaluations of all turns, with those of this one."""
    bad = (found.invalid & fixed.alive).reshape(-1, loop.invalid.shape[0])
    return loop.invalid + jnp.sum(bad, axis=0, dtype=jnp.int32)


def widened(fixed: Fixed, number: int) -> Fixed:
    """The same for so many leaves of every game, each with keys of its own."""
    leaves = jnp.arange(number, dtype=jnp.int32)
    each_leaf = jax.vmap(folded, in_axes=(None, 0))

    def keys(sim: Any) -> KeyPair:
        step_key, predict_key = fixed.keys(sim)
        return each_leaf(step_key, leaves).reshape(-1), each_leaf(predict_key, leaves).reshape(-1)

    base, alive = jnp.tile(fixed.base, number), jnp.tile(fixed.alive, number)
    prior, kept = jnp.tile(fixed.prior, (number, 1, 1)), jnp.tile(fixed.kept, (number, 1))
    return dataclasses.replace(fixed, key=keys, prior=prior, kept=kept, base=base, alive=alive)


def evaluate(fixed: Fixed, forest: Forest, walk: Walk, sim: int | Int[Array, ""]) -> Found:
    """Steps the model from the end of every walk, and evaluates what comes."""
    parent = fixed.base + walk.index
    before = forest.states(parent)
    step_key, predict_key = fixed.keys(sim)
    answer = fixed.ask(before, walk.action, step_key, predict_key)
    state, reward, discount, last, logits, value = answer
    logits, value, invalid = masked_prediction(logits, value)
    reward, discount, wrong = masked_edge(reward, discount)
    # Nothing follows a final node, nor one without a legal action: revisit, never expand.
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    found = Found(
        state=state,
        reward=reward,
        discount=discount,
        final=final & fixed.rules.stop_at_final,
        logits=logits,
        value=value,
        invalid=invalid | wrong,
    )
    return varying(found, fixed.base)


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
    worth = pick(RAW, found.value)
    up = Up(
        outcome=worth,
        value=worth,
        visits=jnp.where(new, one, jnp.where(revisited, NOT_EXPANDED, NO_CHILD)),
        reward=pick(REWARD, found.reward),
        discount=pick(DISCOUNT, found.discount),
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


def enter(
    fixed: Fixed,
    forest: Forest,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bools | None,
    mark: int,
    following: Following,
) -> tuple[Forest, Notes]:
    """Backs up along every walk, and finds the best action of every visited node anew.

    `real` says which of the walks count, or is `None`. `mark` is added to the number of walks that
    wait at each edge for their leaf.
    """
    # A kernel scores the roots as it comes by; a list of visits would be longer by all roots.
    skip = 0 if fixed.choose_root is None or fixed.rules.kernels == "pallas" else 1
    forest, notes, roots, node = back_up(fixed, forest, notes, walk, up, real, skip, mark)
    if skip:
        forest = write(fixed, forest, roots, mark, following)
    elif fixed.choose_root is not None and node is not None:
        best = chosen(fixed, node, forest.steps(fixed.base)[:, ACTION], following)
        step = forest.leading(fixed.base, best)
        forest = dataclasses.replace(forest, record=put(forest.record, roots.row, step))
    return forest, notes


def walk_down(
    fixed: Fixed, forest: Forest, notes: Notes, step: Int[Array, "batch 2"] | None
) -> tuple[Notes, Walk]:
    """Walks to the leaves: from the roots by `step`, or by what is cached there."""
    if fixed.rules.kernels == "pallas":
        # Pallas takes half a second to import.
        from . import _kernels

        return _kernels.descend(fixed, forest, notes, step)
    return descend(fixed, forest, notes, forest.steps(fixed.base) if step is None else step)


def back_up(
    fixed: Fixed,
    forest: Forest,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bools | None,
    skip: int,
    mark: int,
) -> tuple[Forest, Notes, Visits, NodeStatistics | None]:
    """Backs up along every walk, and enters the visits of all levels but the first `skip`.

    `real` says which of the walks count; `None`, that all do.

    **Returns:** the trees, the notes, the roots' visits, and what a kernel knows of the roots after
    them. Without a kernel and with `skip` 0 the visits mean nothing.
    """
    if fixed.rules.kernels == "pallas":
        from . import _kernels

        forest, roots, node = _kernels.back_up(fixed, forest, notes, walk, up, real, skip, mark)
        return forest, notes, roots, node
    real = jnp.ones_like(fixed.alive) if real is None else real
    notes, roots, total = ascend(fixed, forest, notes, walk, up, real, skip)
    start = fixed.base.shape[0] if skip else 0
    return score(fixed, forest, notes, start, total, mark), notes, roots, None


def score(
    fixed: Fixed, forest: Forest, notes: Notes, start: int, total: Int[Array, ""], mark: int
) -> Forest:
    """Enters `total` visits of the list, from the number `start` on."""
    number = max(fixed.base.shape[0], VISITS)

    # From the end of the list: a count from 0 would be a constant, which a loop copies first. The
    # states are not carried: JAX would keep those of them that nothing else reads.
    def body(carry):
        first, record, edge = carry[0] - number, *carry[1:]
        at = jnp.maximum(first, 0) + start
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, at, number, 0)
        row, action, real = jnp.unstack(part(notes.visit), axis=-1)
        there = jnp.arange(-number, 0, dtype=jnp.int32) < first
        row = jnp.where(there, row, forest.nowhere(number))
        visits = Visits(row, action, real > 0, *jnp.unstack(part(notes.value), axis=-1))
        now = dataclasses.replace(forest, record=record, edge=edge)
        now = write(fixed, now, visits, mark, None)
        return first, now.record, now.edge

    init = total, forest.record, forest.edge
    _, record, edge = jax.lax.while_loop(lambda carry: carry[0] > 0, body, init)
    return dataclasses.replace(forest, record=record, edge=edge)


def write(
    fixed: Fixed, forest: Forest, visits: Visits, mark: int, following: Following | None
) -> Forest:
    """Enters visits in the trees, with what comes next there; `following` is for the roots."""
    rules, node = fixed.rules, visited(forest, visits)
    marks = take(forest.edge, visits.row)[:, 2] if rules.num_leaves > 1 else None
    best, edge = rescored(rules, node, visits, marks, mark, forest.chance(visits.row))
    if following is not None:
        best = chosen(fixed, node, best, following)
    numbers = jnp.stack([visits.count, visits.value], axis=1)
    step = forest.leading(visits.row, best)
    return forest.entered(visits.row, step, numbers, jnp.stack(edge, axis=1))


def chosen(fixed: Fixed, root: NodeStatistics, inside: Ints, following: Following) -> Ints:
    """The actions at the roots, where the rule inside would take `inside`."""
    assert fixed.choose_root is not None
    (sim, started), root = following, fixed.rules.decisions(root)
    started = root.visits - fixed.kept if started is None else started
    return fixed.choose_root(sim, root, started, inside)
