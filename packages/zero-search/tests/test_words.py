"""Leaves of every kind lie side by side and come back bit for bit."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search._forest import Layout

from .helpers import quick_jit


ROWS = 5


@functools.cache
def leaves() -> dict:
    given = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    given[0, :2] = np.nan, -0.0
    return quick_jit(every_kind)(given)


def every_kind(floats) -> dict:
    return {
        "floats": floats,
        "scalars": floats[:, 0],
        "halves": floats.astype(jnp.bfloat16),
        "quarters": floats.astype(jnp.float8_e4m3fn),
        "flags": floats > 0,
        "bytes": jnp.arange(-15, 15, dtype=jnp.int8).reshape(ROWS, 2, 3),
        "nibbles": jnp.full((ROWS, 3), -3, jnp.int4),
        "shorts": jnp.full((ROWS, 3), 2**16 - 1, jnp.uint16),
        "words": jnp.full((ROWS, 2), 2**32 - 1, jnp.uint32),
        "complex": jax.lax.complex(floats, -floats),
        "nothing": jnp.zeros((ROWS, 0, 3)),
        "no flags": jnp.zeros((ROWS, 0), jnp.bool_),
        "keys": jr.split(jr.key(0), ROWS),
        "other keys": jr.split(jr.key(0, impl="rbg"), (ROWS, 2)),
    }


def equal(x: jax.Array, y: jax.Array) -> bool:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        same = jr.key_impl(x) == jr.key_impl(y)
        return same and np.array_equal(jr.key_data(x), jr.key_data(y))
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def there_and_back(layout, tree):
    """The rows of leaves, and the leaves of the rows."""

    def run(tree):
        rows = layout.join(tree)
        return rows, layout.split(rows)

    return quick_jit(run)(tree)


@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_leaf_comes_back_bit_for_bit(packed):
    tree = leaves()
    layout = Layout.of(tree, packed)
    rows, back = there_and_back(layout, tree)
    assert [x.dtype for x in rows] == (
        [jnp.int32] if packed else [x.dtype for x in jax.tree.leaves(tree)]
    )
    assert len(rows) == (1 if packed else len(tree))
    assert all(x.shape[0] == ROWS for x in rows)
    assert {name for name in tree if not equal(tree[name], back[name])} == set()


def test_a_part_of_the_rows_comes_back_alone():
    tree = leaves()
    layout = Layout.of(tree, packed=True)
    rows, _ = there_and_back(layout, tree)
    part = quick_jit(layout.split)([np.asarray(x)[1:3] for x in rows])
    assert {name for name in tree if not equal(tree[name][1:3], part[name])} == set()


def test_numbers_of_eight_bytes_come_back(float64):
    tree = [jnp.asarray([[2**40 + 1], [-1]]), jnp.asarray([1e-300, jnp.pi])]
    layout = Layout.of(tree, packed=True)
    rows, back = there_and_back(layout, tree)
    assert [x.shape for x in rows] == [(2, 4)]
    assert all(map(equal, tree, back))


def test_no_leaves_have_no_rows():
    layout = Layout.of({}, packed=True)
    assert layout.join({}) == [] and layout.split([]) == {}


@pytest.mark.parametrize("name", ["flags", "floats"])
def test_a_layout_is_known_by_shapes_and_dtypes_alone(name):
    tree = leaves()
    zeros = jnp.asarray(np.zeros(tree[name].shape, tree[name].dtype))
    assert Layout.of(tree[name], True) == Layout.of(zeros, True)
    assert hash(Layout.of(tree[name], True)) == hash(Layout.of(zeros, True))
    assert Layout.of(tree[name], True) != Layout.of(tree["bytes"], True)
