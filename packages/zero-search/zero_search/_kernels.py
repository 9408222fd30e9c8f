"""A walk down as one kernel, and a walk up with all its scoring as another, for GPUs.

The plain code moves all walks a few levels a turn; a turn is several kernels, and whether another
one follows is asked of the device. Here a program of a kernel follows one walk to its end, whatever
the others do. Pallas compiles the kernels with Triton; on a CPU it interprets them, which is slow
and for tests.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array, Int

from ._forest import Forest, NODE
from ._tree import ACTION, CODE, COLUMNS, COUNT, DISCOUNT, RAW, REWARD, Rules, VALUE
from ._types import Bools, NodeStatistics
from ._walk import Fixed, Notes, rescored, Up, Visits, Walk, with_visit


#: What a rule may be made of besides reductions: all that acts on every number for itself.
_ELEMENTWISE = frozenset(
    "abs acos acosh add and asin asinh atan atan2 atanh bitcast_convert_type broadcast_in_dim "
    "cbrt ceil clamp convert_element_type cos cosh div eq erf_inv exp exp2 expm1 floor ge gt "
    "integer_pow iota is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow "
    "rem reshape rsqrt select_n sign sin sinh sqrt square squeeze stop_gradient sub tan tanh "
    "xor".split()
)


def walk_down(
    fixed: Fixed, forest: Forest, notes: Notes, step: Int[Array, "batch 2"] | None
) -> tuple[Notes, Walk]:
    """As [`zero_search._walk.walk_down`][]."""
    limit, walks = fixed.rules.max_depth, fixed.base.shape[0]

    def kernel(base, alive, record, step, _, __, path, total, *ends):
        walk, (index_at, action_at, code_at, depth_at) = pl.program_id(0), ends
        root = base[walk]
        cached = lambda index: (record[root + index, ACTION], record[root + index, CODE])

        def level(carry):
            index, action, code, _, depth = carry
            path[depth, walk, 0] = index
            path[depth, walk, 1] = action
            depth = depth + 1
            active = code >= 0
            if limit is not None:
                active = active & (depth < limit)
            index = jnp.where(active, code, index)
            return index, *cached(index), active, depth

        zero = jnp.zeros((), jnp.int32)
        first = cached(zero) if step is None else (step[walk, ACTION], step[walk, CODE])
        init = (zero, *first, alive[walk], zero)
        index, action, code, _, depth = jax.lax.while_loop(lambda c: c[3], level, init)
        index_at[walk], action_at[walk] = index, action
        code_at[walk], depth_at[walk] = code, depth
        total[walk] = total[walk] + depth

    given = fixed.base, fixed.alive, forest.record, step, notes.path, notes.depth
    out = _like(notes.path), *[_like(fixed.base)] * 5
    path, total, *end = _run(kernel, walks, given, out, 2, warps=1)
    return dataclasses.replace(notes, path=path, depth=total), Walk(*end)


def back_up(
    fixed: Fixed,
    forest: Forest,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bools | None,
    skip: int,
    mark: int,
) -> tuple[Forest, Notes, Visits, NodeStatistics]:
    """As [`zero_search._walk.back_up`][]."""
    (walks,), (_, planes, actions) = fixed.base.shape, forest.edge.shape
    features, width = forest.prior.shape[1], 1 << (actions - 1).bit_length()
    if features & (features - 1):
        raise _refusal(f"a prior of {features} features, which is no power of two,")
    kernel = ft.partial(
        _climb, _entering(fixed.rules, mark, features, planes, actions, width), skip
    )
    # A warp's 32 threads reduce a row without waiting for others.
    warps = min(max(width // 256, 1), 8)
    edges = jnp.broadcast_to(up.value[:, None, None], (walks, planes, actions))
    out = _like(forest.record), _like(forest.edge), _like(edges), *[_like(up.value)] * 6
    given = fixed.base, walk.depth, real, up, notes.path, forest.prior, forest.child
    changed = forest.record, forest.edge
    record, edge, edges, *root = _run(kernel, walks, (*given, *changed), out, 2, warps)
    row = jnp.where(fixed.alive, fixed.base, forest.nowhere(walks))
    real = jnp.ones_like(fixed.alive) if real is None else real
    roots = Visits(row, notes.path[0, :, 1], real, *root)
    worth = roots.count, roots.value, roots.raw_value
    node = NodeStatistics(fixed.prior, edges[:, 0], edges[:, 1], *worth)
    return dataclasses.replace(forest, record=record, edge=edge), notes, roots, node


def _climb(enter, skip, base, depth, real, up, path, prior, child, _, __, record, edge, *root):
    """The kernel of `back_up`: the levels of one walk from its leaf to the root. What changes at a
    node is written at once, for no walk comes by twice."""
    walk, (root_edge, *root) = pl.program_id(0), root
    (_, planes, actions), features = edge.shape, prior.shape[1]
    width = 1 << (actions - 1).bit_length()
    wide = lambda axis: jax.lax.broadcasted_iota(jnp.int32, (1, features, width), axis)
    column = jax.lax.broadcasted_iota(jnp.int32, (1, width), 1)
    one = lambda x: jnp.full((1,), x)
    counts = one(jnp.asarray(True) if real is None else real[walk])

    def level(i, carry):
        up, _ = carry
        number = depth[walk] - 1 - i
        row = base[walk] + path[number, walk, 0]
        bits = [record[one(row), one(jnp.int32(NODE + x))] for x in range(COLUMNS)]
        numbers = [jax.lax.bitcast_convert_type(x, jnp.float32) for x in bits]
        load = lambda ref, x, column, lacking: triton.load(
            ref.at[row, x, column], mask=column < actions, other=jnp.float32(lacking)
        )
        edges = [load(edge, x, column, 0.0) for x in range(planes)]
        node = NodeStatistics(
            prior=load(prior, wide(1), wide(2), -jnp.inf),
            visits=edges[0],
            qvalues=edges[1],
            count=numbers[COUNT],
            value=numbers[VALUE],
            raw_value=numbers[RAW],
        )
        best, edges, visit = enter(node, edges[2:], one(path[number, walk, 1]), up, counts)
        # Of the first levels nothing is entered but what the caller makes of the roots' visits.
        on = one(number >= skip)
        at_root = (column < actions) & one(number == 0)[:, None]
        # Where the CPU computes a score twice the two may differ, and then no column has the best.
        best = jnp.minimum(best, actions - 1)
        code = child[one(row) * actions + best]
        new = {ACTION: best, CODE: code, NODE + COUNT: visit.count, NODE + VALUE: visit.value}
        for x, numbers_of in new.items():
            bits = jax.lax.bitcast_convert_type(numbers_of, jnp.int32)
            triton.store(record.at[one(row), one(jnp.int32(x))], bits, mask=on)
        for x, plane in enumerate(edges):
            triton.store(edge.at[row, x, column], plane, mask=(column < actions) & on[:, None])
            triton.store(root_edge.at[walk, x, column], plane, mask=at_root)
        noted = visit.value, visit.qvalue, visit.count, visit.raw_value, visit.sample, visit.below
        higher = Up(visit.sample, visit.value, visit.count, numbers[REWARD], numbers[DISCOUNT])
        return higher, noted

    leaf = jax.tree.map(lambda x: one(x[walk]), up)
    init = leaf, tuple(jnp.zeros((1,), jnp.float32) for _ in root)
    _, noted = jax.lax.fori_loop(0, depth[walk], level, init)
    for ref, x in zip(root, noted, strict=True):
        ref[one(walk)] = x


def _entering(
    rules: Rules, mark: int, features: int, planes: int, actions: int, width: int
) -> Callable[..., tuple[Array, list[Array], Visits]]:
    """What a visit makes of a node, as a function that may run in a kernel."""
    if any(map(eqx.is_array, jax.tree.leaves((rules.selection, rules.backup)))):
        raise _refusal("a rule that holds an array, not a number,")

    def entered(node, marks, action, up, real):
        outcome, qvalue = up.reward + up.discount * up.outcome, up.reward + up.discount * up.value
        count, old = node.count + real.astype(jnp.float32), node.value
        visit = Visits(action, action, real, old, qvalue, count, node.raw_value, outcome, up.visits)
        node = with_visit(dataclasses.replace(node, count=count), visit)
        value = jnp.where(real, rules.value(node, None, outcome), old)
        node = dataclasses.replace(node, value=value)
        visit = dataclasses.replace(visit, value=value)
        return *rescored(rules, node, visit, marks[0] if marks else None, mark, None), visit

    shape = lambda *axes: jax.ShapeDtypeStruct(axes, jnp.float32)
    one = shape(1)
    up = jax.eval_shape(Up, one, one, one, one, one)
    action, real = (jax.ShapeDtypeStruct((1,), dtype) for dtype in (jnp.int32, jnp.bool_))

    def node_of(width):
        row = shape(1, width)
        return jax.eval_shape(NodeStatistics, shape(1, features, width), row, row, one, one, one)

    def traced(width):
        given = node_of(width), [shape(1, width)] * (planes - 2), action, up, real
        return jax.make_jaxpr(entered, return_shape=True)(*given)

    score_and_value = lambda node, out: (rules.selection.score(node), rules.value(node, None, out))
    numbers = lambda width: [*_numbers(jax.make_jaxpr(score_and_value)(node_of(width), one).jaxpr)]
    if numbers(actions) != numbers(width):
        raise _refusal("a rule that computes with the number of actions, as their mean does,")
    (narrow, _), (wide, result) = traced(actions), traced(width)
    if wide.consts:
        raise _refusal("a constant array in a rule")

    def enter(*given):
        found = _evaluated(wide.jaxpr, narrow.jaxpr, jax.tree.leaves(given), actions)
        return jax.tree.unflatten(jax.tree.structure(result), found)

    return enter


def _numbers(jaxpr: Jaxpr) -> Iterator[tuple[Any, ...]]:
    """The operations of a traced function in order, each with the numbers that stand in it. Two
    traces differ where a rule asks how wide a row is: a kernel's rows are wider than the actions
    are many."""
    for one in jaxpr.eqns:
        literals = [np.asarray(x.val).tolist() for x in one.invars if isinstance(x, Literal)]
        power, start = one.params.get("y"), one.params.get("start_indices")
        yield one.primitive.name, repr(literals), power, start  # NaN is unequal to itself
        inner = _inner(one)
        if inner is not None:
            yield from _numbers(inner.jaxpr)


def _inner(one: JaxprEqn) -> ClosedJaxpr | None:
    return one.params.get("jaxpr", one.params.get("call_jaxpr"))


def _evaluated(jaxpr: Jaxpr, narrow: Jaxpr, given: Sequence[Any], actions: int) -> list[Any]:
    """What a traced function of rows that are too wide makes of `given`, where only the first
    `actions` columns mean anything: no reduction sees the others. `narrow` is the same function
    traced for rows of `actions`, so an axis has these columns where the two differ in size."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, given, strict=True))
    read = lambda x: x.val if isinstance(x, Literal) else known[x]
    for one, other in zip(jaxpr.eqns, narrow.eqns, strict=True):
        values, name = [read(x) for x in one.invars], one.primitive.name
        inner, within = _inner(one), _inner(other)
        if name in ("jit", "custom_jvp_call") and inner and within and not inner.consts:
            found = _evaluated(inner.jaxpr, within.jaxpr, values, actions)
        elif name in _ELEMENTWISE:
            found = [one.primitive.bind(*values, **one.params)]
        elif name in _REDUCTIONS:
            axes, sizes = one.params["axes"], cast(Any, other.invars[0].aval).shape
            wider = [axis for axis in axes if values[0].shape[axis] > sizes[axis]]
            reduced = ft.partial(_reduced, name, axes=axes, wider=wider, actions=actions)
            found = [_as_integers(reduced, values[0])]
        elif name == "slice":
            found = [_as_integers(ft.partial(_feature, **one.params), values[0])]
        else:
            raise _refusal(f"`{name}` in a rule")
        for x, y in zip(found, other.outvars, strict=True):
            sizes = zip(x.shape, cast(Any, y.aval).shape, strict=True)
            if any(a != b and b != actions for a, b in sizes):
                raise _refusal("an axis of both actions and features in a rule")
        known.update(zip(one.outvars, found, strict=True))
    return [read(x) for x in jaxpr.outvars]


#: The reduction that stands for each, and what a column must hold that should not matter to it.
_REDUCTIONS: dict[str, tuple[Callable[..., Array], float]] = {
    "reduce_max": (jax.lax.reduce_max, -jnp.inf),
    "reduce_min": (jax.lax.reduce_min, jnp.inf),
    "reduce_sum": (jax.lax.reduce_sum, 0),
    "reduce_or": (jax.lax.reduce_max, -jnp.inf),
    "reduce_and": (jax.lax.reduce_min, jnp.inf),
}


def _as_integers(function: Callable[[Array], Array], x: Array) -> Array:
    """`function(x)`, of booleans by way of integers."""
    return function(x.astype(jnp.int32)) > 0 if x.dtype == jnp.bool_ else function(x)


def _reduced(
    name: str, x: Array, *, axes: Sequence[int], wider: Sequence[int], actions: int
) -> Array:
    """A reduction over `axes`, of which no column from `actions` on of those that are `wider`
    counts."""
    reduce, neutral = _REDUCTIONS[name]
    for axis in wider:
        inside = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) < actions
        x = jnp.where(inside, x, _clipped(neutral, x.dtype))
    return reduce(x, axes)


def _feature(x: Array, start_indices: Any, limit_indices: Any, strides: Any) -> Array:
    """A slice of one number of an axis: Triton has no slices, but can mask and reduce."""
    parts = list(zip(start_indices, limit_indices, x.shape, strict=True))
    axes = [i for i, (first, last, size) in enumerate(parts) if (first, last) != (0, size)]
    if strides is not None or any(parts[i][1] - parts[i][0] != 1 for i in axes):
        raise _refusal("a slice of several numbers in a rule")
    for axis in axes:
        chosen = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) == parts[axis][0]
        x = jnp.where(chosen, x, _clipped(-jnp.inf, x.dtype))
        x = jnp.expand_dims(jax.lax.reduce_max(x, (axis,)), axis)
    return x


def _clipped(x: float, dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(x, dtype)
    info = jnp.iinfo(dtype)
    return jnp.asarray(min(max(x, info.min), info.max), dtype)


def _run(
    kernel: Callable[..., None],
    programs: int,
    given: tuple[Any, ...],
    out: tuple[jax.ShapeDtypeStruct, ...],
    changed: int,
    warps: int,
) -> Sequence[Array]:
    """Runs so many programs of a kernel. Its first results are the last `changed` arrays given."""
    first = len(jax.tree.leaves(given)) - changed
    same = {first + i: i for i in range(changed)}
    call = ft.partial(
        pl.pallas_call, kernel, out_shape=out, grid=(programs,), input_output_aliases=same
    )
    how = triton.CompilerParams(num_warps=warps, num_stages=1)
    compiled = lambda *x: call(compiler_params=how)(*x)
    interpreted = lambda *x: call(interpret=True)(*x)
    return jax.lax.platform_dependent(*given, cpu=interpreted, cuda=compiled)


def _like(x: Array) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an array, and over which devices of a `shard_map` it varies."""
    return jax.eval_shape(lambda x: x, x)


def _refusal(what: str) -> ValueError:
    return ValueError(
        f'`TreeSearch(kernels="pallas")`: {what} cannot stand in a kernel. There rules may act on '
        "every number for itself, take maxima, minima and sums of the actions, and take one "
        "feature of the prior. Leave `kernels` out."
    )
