"""Leaves of every kind lie side by side and come back bit for bit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search._words import Layout


ROWS = 5


def leaves() -> dict:
    floats = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 3)), jnp.float32)
    floats = floats.at[0, 0].set(jnp.nan).at[0, 1].set(-0.0)
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


@pytest.mark.parametrize("one", [False, True])
def test_every_kind_of_leaf_comes_back_bit_for_bit(one):
    tree = leaves()
    layout = Layout.of(tree, one)
    rows = layout.join(tree)
    dtypes = {4: "int32"} if one else {1: "uint8", 2: "uint16", 4: "int32"}
    assert {size: x.dtype for size, x in rows.items()} == dtypes
    assert all(x.shape[0] == ROWS for x in rows.values())
    back = layout.split(rows)
    assert {name for name in tree if not equal(tree[name], back[name])} == set()


def test_a_part_of_the_rows_comes_back_alone():
    tree = leaves()
    layout = Layout.of(tree)
    part = layout.split({size: x[1:3] for size, x in layout.join(tree).items()})
    assert {name for name in tree if not equal(tree[name][1:3], part[name])} == set()


def test_numbers_of_eight_bytes_come_back(float64):
    tree = [jnp.asarray([[2**40 + 1], [-1]]), jnp.asarray([1e-300, jnp.pi])]
    layout = Layout.of(tree)
    rows = layout.join(tree)
    assert {size: x.shape for size, x in rows.items()} == {4: (2, 4)}
    assert all(map(equal, tree, layout.split(rows)))


def test_no_leaves_have_no_rows():
    layout = Layout.of({})
    assert layout.join({}) == {} and layout.split({}) == {}


@pytest.mark.parametrize("name", ["flags", "floats"])
def test_a_layout_is_known_by_shapes_and_dtypes_alone(name):
    tree = leaves()
    assert Layout.of(tree[name]) == Layout.of(jnp.zeros_like(tree[name]))
    assert hash(Layout.of(tree[name])) == hash(Layout.of(jnp.zeros_like(tree[name])))
    assert Layout.of(tree[name]) != Layout.of(tree["bytes"])
