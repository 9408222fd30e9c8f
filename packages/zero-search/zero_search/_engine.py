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
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import check_prediction, check_search, check_step
from ._model import AbstractPriorModel, LARGEST, masked_prediction
from ._statistics import NodeStatistics
from ._tree import (
    ACTION,
    chance_at,
    CODE,
    COUNT,
    DISCOUNT,
    entry,
    FINAL,
    in_one_row,
    in_rows,
    NO_CHILD,
    NOT_EXPANDED,
    Notes,
    nowhere,
    put,
    RAW,
    REWARD,
    Rules,
    take,
    taken_at,
    Tree,
    UNSTORED,
    Up,
    VALUE,
    visited,
    Visits,
    Walk,
    with_losses,
)


# Levels handled by one turn of the loops: a turn costs more than a level.
LEVELS = 4
# Visits scored at once, if there are fewer games than this.
VISITS = 16

# Every row's keys for `step` and `predict`.
KeyPair = tuple[Key[Array, " batch"], Key[Array, " batch"]]
# `(simulation, statistics, started, inside) -> action`; see `search`.
RootChoice = Callable[..., Int[Array, " batch"]]


class Fixed(eqx.Module):
    """What stays the same from one simulation to the next."""

    model: AbstractPriorModel
    rules: Rules
    key: Key[Array, " batch"] | Callable[[Any], KeyPair]
    choose_root: RootChoice | None
    kept: Float[Array, "batch columns"]  # visits of the roots' actions before this search
    base: Int[Array, " batch"]  # the roots' rows
    alive: Bool[Array, " batch"]  # whether the root has a legal action

    def keys(self, sim: int | Int[Array, ""]) -> KeyPair:
        if callable(self.key):
            return self.key(sim)
        fold = jax.vmap(jr.fold_in, in_axes=(0, None))
        return fold(self.key, 2 * sim), fold(self.key, 2 * sim + 1)


class SearchStats(eqx.Module):
    """What a search did, by game.

    **Attributes:**

    - `depth`: mean depth of the leaves; 0 for a row whose root has no legal action.
    - `started`: how many simulations have taken each action at the root.
    - `invalid`: evaluations that were not finite and have been replaced.
    """

    started: Float[Array, "batch actions"]
    depth: Float[Array, " batch"]
    invalid: Int[Array, " batch"]


class _Found(eqx.Module):
    """What the model returned at the ends of the walks."""

    state: PyTree[Array]
    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    final: Bool[Array, "*axes"]
    logits: Float[Array, "*axes actions"]
    value: Float[Array, "*axes"]
    invalid: Bool[Array, "*axes"]  # something was not finite and has been replaced


class _Loop(eqx.Module):
    """What one turn of the loop hands to the next."""

    tree: Tree
    notes: Notes
    slot: Int[Array, " leaves"]  # of the nodes whose states are not written yet
    state: PyTree[Array]
    started: Float[Array, "batch actions"] | None
    depth: Float[Array, " batch"]
    invalid: Int[Array, " batch"]

    @property
    def whole(self) -> Tree:
        """The trees with all states."""
        # A simulation that read the parents' states and then wrote new ones would have XLA copy
        # them all, for it cannot tell which comes first. So the next one writes before it reads.
        states = jax.tree.map(lambda x, y: put(x, self.slot, y), self.tree.state, self.state)
        return eqx.tree_at(lambda t: t.state, self.tree, states)


def search(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    num_simulations: int,
    key: Key[Array, " batch"] | Callable[[Any], KeyPair],
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
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)
    # Under `shard_map` what the loops carry must vary over devices as the trees do.
    vary = lambda x: jnp.where(alive[0], x, x)
    root = tree.root
    kept = rules.decisions(root).visits
    fixed = Fixed(model, rules, key, choose_root, kept, vary(base), alive)
    first = rules.choose(root, None)
    if choose_root is not None:
        first = choose_root(0, rules.decisions(root), jnp.zeros_like(kept), first)
    code = tree.child[jnp.arange(batch), 0, first]
    step = tree.step.at[:, 0].set(jnp.stack([first, code], axis=-1))
    tree = eqx.tree_at(lambda t: t.step, tree, step)

    state = jax.tree.map(lambda x: jnp.concatenate([x[:, 0]] * leaves), tree.state)
    tree = in_one_row(tree)
    levels = max_nodes + LEVELS
    visits = levels * batch + max(batch, VISITS)
    notes = Notes(
        path=jnp.zeros((levels, batch, 2), jnp.int32),
        visit=jnp.zeros((visits, 3), jnp.int32),
        value=jnp.zeros((visits, 6), jnp.float32),
    )
    zeros = jnp.zeros((batch,), jnp.int32)
    slot, started = nowhere(tree, leaves * batch), None if leaves == 1 else jnp.zeros_like(kept)
    init = _Loop(tree, notes, slot, state, started, zeros.astype(jnp.float32), zeros)
    turn = ft.partial(_one_leaf if leaves == 1 else _many_leaves, fixed)
    end = loop(0, num_simulations // leaves, turn, jax.tree.map(vary, init))
    tree = in_rows(end.whole)
    started = rules.decisions(tree.root).visits - kept if end.started is None else end.started
    return tree, SearchStats(started, end.depth / num_simulations, end.invalid)


def _one_leaf(fixed: Fixed, sim: Int[Array, ""], loop: _Loop) -> _Loop:
    """One simulation of every game."""
    tree = loop.whole
    notes, walk = descend(fixed, tree, loop.notes)
    found = _evaluate(fixed, tree, walk, sim)
    tree, up, slot = _store(fixed, tree, walk, found)
    real = jnp.ones_like(fixed.alive)
    tree, notes = _enter(fixed, tree, notes, walk, up, real, 0, (sim + 1, None))
    return _Loop(tree, notes, slot, found.state, None, *_counted(fixed, loop, walk, found))


def _many_leaves(fixed: Fixed, group: Int[Array, ""], loop: _Loop) -> _Loop:
    """`num_leaves` simulations of every game: walk down often, evaluate together, back up in turn.

    A walk marks its edges until its leaf has been evaluated, which drives the next walks elsewhere.
    If two walks end at the same leaf all the same, the second does not count. Leaves are numbered
    walk after walk: all games' first ones, all games' second ones, and so on.
    """
    tree, notes, started = loop.whole, loop.notes, loop.started
    number, batch = fixed.rules.num_leaves, fixed.base.shape[0]
    # A leaf that is no visit: only the marks are entered.
    no = fixed.alive & ~fixed.alive
    zeros = no.astype(jnp.float32)

    def down(i, carry):
        tree, notes, started, paths, walks = carry
        notes, walk = descend(fixed, tree, notes)
        if started is not None:
            first = jax.nn.one_hot(notes.path[0, :, 1], started.shape[1], dtype=jnp.float32)
            started = started + jnp.where(fixed.alive[:, None], first, 0.0)
        paths = paths.at[i].set(notes.path)
        walks = jax.tree.map(lambda xs, x: xs.at[i].set(x), walks, walk)
        blank, following = Up(zeros, zeros, zeros, zeros, zeros), group * number + i + 1
        tree, notes = _enter(fixed, tree, notes, walk, blank, no, 1, (following, started))
        return tree, notes, started, paths, walks

    none = jnp.stack([no.astype(jnp.int32)] * number)
    paths = jnp.stack([notes.path] * number)
    init = (tree, notes, started, paths, Walk(none, none, none, none))
    tree, notes, started, paths, walks = jax.lax.fori_loop(0, number, down, init)
    ends = jax.tree.map(lambda x: x.reshape(-1), walks)
    found = _evaluate(_widened(fixed), tree, ends, group)
    each = jax.tree.map(lambda x: x.reshape(number, batch, *x.shape[1:]), found)

    def up(i, carry):
        tree, notes, slots = carry
        walk, leaf = jax.tree.map(lambda x: x[i], (walks, each))
        now = take(tree.child, entry(tree, fixed.base + walk.index, walk.action))
        again = (walk.code == UNSTORED) & (now != UNSTORED)
        walk = eqx.tree_at(lambda w: w.code, walk, now)
        tree, value, slot = _store(fixed, tree, walk, leaf)
        notes = Notes(paths[i], notes.visit, notes.value)
        following = ((group + 1) * number, started)
        tree, notes = _enter(fixed, tree, notes, walk, value, ~again, -1, following)
        return tree, notes, slots.at[i].set(slot)

    tree, notes, slots = jax.lax.fori_loop(0, number, up, (tree, notes, walks.index))
    counted = _counted(fixed, loop, ends, found)
    return _Loop(tree, notes, slots.reshape(-1), found.state, started, *counted)


def descend(fixed: Fixed, tree: Tree, notes: Notes) -> tuple[Notes, Walk]:
    """Follows the cached actions from the roots, noting the nodes it passes."""
    limit = fixed.rules.max_depth

    def body(carry):
        path, index, step, active, depth, level = carry
        block = []
        for _ in range(LEVELS):
            block.append(jnp.stack([index, step[:, ACTION]], axis=-1))
            depth = depth + active.astype(jnp.int32)
            active = active & (step[:, CODE] >= 0)
            if limit is not None:
                active = active & (depth < limit)
            index = jnp.where(active, step[:, CODE], index)
            step = take(tree.step, fixed.base + index)
        path = jax.lax.dynamic_update_slice_in_dim(path, jnp.stack(block), level, 0)
        return path, index, step, active, depth, level + LEVELS

    zeros, step = jnp.zeros_like(fixed.base), take(tree.step, fixed.base)
    init = (notes.path, zeros, step, fixed.alive, zeros, jnp.zeros((), jnp.int32))
    path, index, step, _, depth, _ = jax.lax.while_loop(lambda c: jnp.any(c[3]), body, init)
    walk = Walk(index, step[:, ACTION], step[:, CODE], depth)
    return Notes(path, notes.visit, notes.value), walk


def ascend(
    fixed: Fixed,
    tree: Tree,
    notes: Notes,
    walk: Walk,
    up: Up,
    leaf_real: Bool[Array, " batch"],
    skip: int,
) -> tuple[Notes, Visits, Int[Array, ""]]:
    """Values from the leaves to the roots: `r + d v` along every walk.

    **Returns:** the visits of all levels but the first `skip` as a list, game after game; the
    roots' visits; and the length of the list, which is followed by visits of no node.
    """
    base, batch = fixed.base, fixed.base.shape[0]
    count = jnp.maximum(walk.depth - skip, 0)
    start = jnp.cumsum(count) - count
    real = jnp.broadcast_to(leaf_real.astype(jnp.int32)[None], (LEVELS, batch))

    def level(up, row, action, node):
        """The visits of one node a game, as a row of `Notes.value`, and what goes on up."""
        outcome, qvalue = up.reward + up.discount * up.outcome, up.reward + up.discount * up.value
        count, raw_value = node[:, COUNT] + leaf_real.astype(jnp.float32), node[:, RAW]
        old = node[:, VALUE]
        visits = Visits(row, action, leaf_real, old, qvalue, count, raw_value, outcome, up.visits)
        chance = chance_at(fixed.rules, tree, row)
        value = fixed.rules.value(visited(tree, visits), chance, outcome)
        value = jnp.where(leaf_real, value, old)
        found = jnp.stack([value, qvalue, count, raw_value, outcome, up.visits], axis=-1)
        return found, Up(outcome, value, count, node[:, REWARD], node[:, DISCOUNT])

    def body(carry):
        block, visit, value, up, _ = carry
        levels = block * LEVELS + jnp.arange(LEVELS, dtype=jnp.int32)[:, None]
        path = jax.lax.dynamic_slice_in_dim(notes.path, block * LEVELS, LEVELS, 0)
        row, action = base[None] + path[..., 0], path[..., 1]
        node = take(tree.node, row.reshape(-1)).reshape(*row.shape, -1)
        on = levels < walk.depth[None]
        new = []
        for i in reversed(range(LEVELS)):
            found, higher = level(up, row[i], action[i], node[i])
            up = jax.tree.map(lambda x, y, on=on[i]: jnp.where(on, x, y), higher, up)
            new.append(found)
        off = visit.shape[0] + jnp.arange(row.size, dtype=jnp.int32).reshape(row.shape)
        to = jnp.where(on & (levels >= skip), start[None] + levels - skip, off).reshape(-1)
        visit = put(visit, to, jnp.stack([row, action, real], axis=-1).reshape(-1, 3))
        value = put(value, to, jnp.stack(new[::-1]).reshape(-1, 6))
        return block - 1, visit, value, up, new[-1]

    blocks = (jnp.max(walk.depth) - 1) // LEVELS
    init = (blocks, notes.visit, notes.value, up, jnp.stack([up.value] * 6, axis=-1))
    _, visit, value, _, root = jax.lax.while_loop(lambda c: c[0] >= 0, body, init)
    end, total = nowhere(tree, max(batch, VISITS)), start[-1] + count[-1]
    end = jnp.stack([end, jnp.zeros_like(end), jnp.zeros_like(end)], axis=-1)
    visit = jax.lax.dynamic_update_slice_in_dim(visit, end, total, 0)
    row = jnp.where(fixed.alive, base, nowhere(tree, batch))
    roots = Visits(row, notes.path[0, :, 1], leaf_real, *jnp.unstack(root, axis=-1))
    return Notes(notes.path, visit, value), roots, total


def _counted(
    fixed: Fixed, loop: _Loop, walk: Walk, found: _Found
) -> tuple[Float[Array, " batch"], Int[Array, " batch"]]:
    """The depths and the invalid evaluations of all turns, with those of this one."""
    shape = (fixed.rules.num_leaves, fixed.base.shape[0])
    bad = found.invalid.reshape(shape) & fixed.alive[None]
    depth = jnp.sum(walk.depth.reshape(shape), axis=0, dtype=jnp.float32)
    return loop.depth + depth, loop.invalid + jnp.sum(bad, axis=0, dtype=jnp.int32)


def _widened(fixed: Fixed) -> Fixed:
    """The same for one row a leaf, each with keys of its own."""
    number = fixed.rules.num_leaves
    leaves = jnp.arange(number, dtype=jnp.int32)
    each_row = jax.vmap(jr.fold_in, in_axes=(0, None))
    each_leaf = jax.vmap(each_row, in_axes=(None, 0))

    def keys(sim: Any) -> KeyPair:
        step_key, predict_key = fixed.keys(sim)
        return each_leaf(step_key, leaves).reshape(-1), each_leaf(predict_key, leaves).reshape(-1)

    base, alive = jnp.tile(fixed.base, number), jnp.tile(fixed.alive, number)
    kept = jnp.tile(fixed.kept, (number, 1))
    return dataclasses.replace(fixed, key=keys, kept=kept, base=base, alive=alive)


def _evaluate(fixed: Fixed, tree: Tree, walk: Walk, sim: int | Int[Array, ""]) -> _Found:
    """Steps the model from the end of every walk, and evaluates what comes."""
    parent = fixed.base + walk.index
    before = jax.tree.map(lambda x: take(x, parent), tree.state)
    step_key, predict_key = fixed.keys(sim)
    state, reward, discount, last = fixed.model.step(before, walk.action, key=step_key)
    check_step(before, state, reward, discount, last)
    logits, value = fixed.model.predict(state, key=predict_key)
    check_prediction(logits, value, parent.shape[0], tree.edge.shape[-1])
    logits, value, invalid = masked_prediction(logits, value)
    edge = jnp.stack([reward.astype(jnp.float32), discount.astype(jnp.float32)])
    known = jnp.abs(edge) <= LARGEST
    reward, discount = jnp.unstack(jnp.where(known, edge, 0.0))
    # Nothing follows a final node, nor one without a legal action: revisit, never expand.
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    return _Found(
        state=state,
        reward=reward,
        discount=discount,
        final=final & fixed.rules.stop_at_final,
        logits=logits,
        value=value,
        invalid=invalid | ~jnp.all(known, axis=0),
    )


def _store(
    fixed: Fixed, tree: Tree, walk: Walk, found: _Found
) -> tuple[Tree, Up, Int[Array, " batch"]]:
    """Adds a node in every row where there is room and something new; the others write nowhere.

    **Returns:** the tree, without the new nodes' states; what to back up; and the slots.
    """
    base, batch, rules = fixed.base, walk.depth.shape[0], fixed.rules
    new = fixed.alive & (walk.code == UNSTORED) & (tree.size < tree.parent.shape[0] // batch)
    slot = jnp.where(new, base + tree.size, nowhere(tree, batch))
    edge = entry(tree, jnp.where(new, base + walk.index, nowhere(tree, batch)), walk.action)
    value, zeros, one = found.value, jnp.zeros_like(found.logits), jnp.ones_like(found.value)
    chance = found.state.chance if rules.outcomes is not None else None
    prior = rules.prior(found.logits, chance)
    best = rules.choose(NodeStatistics(prior, zeros, zeros, one, value, raw_value=value), chance)
    row = jnp.stack([one, value, found.reward, found.discount, value], axis=-1)
    link = jnp.where(found.final, FINAL - tree.size, tree.size)
    tree = Tree(
        step=put(tree.step, slot, jnp.stack([best, jnp.full_like(best, UNSTORED)], axis=-1)),
        node=put(tree.node, slot, row),
        edge=tree.edge,
        child=put(tree.child, edge, link),
        prior=put(tree.prior, slot, prior),
        parent=put(tree.parent, slot, walk.index),
        state=tree.state,
        size=tree.size + new.astype(jnp.int32),
    )
    # Behind an edge to a child that is not expanded its first value counts again.
    revisited = walk.code != UNSTORED
    child = jnp.where(walk.code <= FINAL, FINAL - walk.code, walk.code)
    known = take(tree.node, base + jnp.where(revisited, child, 0))
    pick = lambda column, fresh: jnp.where(revisited, known[:, column], fresh)
    worth = pick(RAW, found.value)
    up = Up(
        outcome=worth,
        value=worth,
        visits=jnp.where(new, 1.0, jnp.where(revisited, NOT_EXPANDED, NO_CHILD)),
        reward=pick(REWARD, found.reward),
        discount=pick(DISCOUNT, found.discount),
    )
    return tree, up, slot


def _enter(
    fixed: Fixed,
    tree: Tree,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bool[Array, " batch"],
    mark: int,
    following: tuple[Int[Array, ""], Float[Array, "batch actions"] | None],
) -> tuple[Tree, Notes]:
    """Backs up along every walk, and finds the best action of every visited node anew.

    `mark` is added to the number of walks that wait at each edge for their leaf; `following` is
    the next simulation and how many have started with each action, if that is counted.
    """
    skip = 0 if fixed.choose_root is None else 1
    notes, roots, total = ascend(fixed, tree, notes, walk, up, real, skip)
    if fixed.choose_root is not None:
        tree = _write(fixed, tree, roots, mark, following)
    number = max(fixed.base.shape[0], VISITS)

    def body(carry):
        first, *scored = carry
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, first, number, 0)
        row, action, real = jnp.unstack(part(notes.visit), axis=-1)
        visits = Visits(row, action, real > 0, *jnp.unstack(part(notes.value), axis=-1))
        current = eqx.tree_at(_scored, tree, tuple(scored))
        return first + number, *_scored(_write(fixed, current, visits, mark, None))

    init = (jnp.zeros((), jnp.int32), *_scored(tree))
    _, *scored = jax.lax.while_loop(lambda carry: carry[0] < total, body, init)
    return eqx.tree_at(_scored, tree, tuple(scored)), notes


def _write(
    fixed: Fixed,
    tree: Tree,
    visits: Visits,
    mark: int,
    following: tuple[Int[Array, ""], Float[Array, "batch actions"] | None] | None,
) -> Tree:
    """Enters visits in the tree, with what comes next there; `following` is for the roots."""
    rules = fixed.rules
    node = root = visited(tree, visits)
    edge = [node.visits, node.qvalues]
    if rules.num_leaves > 1:
        taken = taken_at(tree, visits).astype(jnp.float32)
        marked = take(tree.edge, visits.row)[:, 2] + mark * taken
        edge.append(marked)
        node = with_losses(node, marked, rules.virtual_loss)
    best = rules.choose(node, chance_at(rules, tree, visits.row))
    if following is not None and fixed.choose_root is not None:
        sim, started = following
        root = rules.decisions(root)
        started = root.visits - fixed.kept if started is None else started
        best = fixed.choose_root(sim, root, started, best)
    code = take(tree.child, entry(tree, visits.row, best))
    scored = (
        put(tree.step, visits.row, jnp.stack([best, code], axis=-1)),
        put(tree.node, visits.row, jnp.stack([visits.count, visits.value], axis=-1)),
        put(tree.edge, visits.row, jnp.stack(edge, axis=1)),
    )
    return eqx.tree_at(_scored, tree, scored)


def _scored(tree: Tree) -> tuple[Any, Any, Any]:
    """What scoring changes of a tree."""
    return tree.step, tree.node, tree.edge
