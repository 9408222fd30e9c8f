"""Arithmetic that is counted by hand."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

from zero_train import matrix_flops


LEFT, RIGHT = jnp.ones((3, 4)), jnp.ones((4, 5))
SQUARE = jnp.ones((6, 6))
PRODUCT = 2 * 3 * 4 * 5  # a multiplication and an addition each
POWER = 2 * 6**3


def _scanned(times, body):
    step = lambda carry, _: (body(carry), None)
    return lambda x: jax.lax.scan(step, x, None, length=times)[0]


def _times(x):
    return x @ x


def _convolution(x, kernel, groups):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", feature_group_count=groups)


def _while(x):
    return jax.lax.while_loop(lambda c: jnp.sum(c) < 1e6, _times, x)


CASES: dict[str, tuple[Any, tuple, int]] = {
    "product": (jnp.matmul, (LEFT, RIGHT), PRODUCT),
    "vector": (jnp.matmul, (LEFT, RIGHT[:, 0]), 2 * 3 * 4),
    "additions are none": (jnp.add, (LEFT, LEFT), 0),
    "batched": (
        lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
        (jnp.ones((7, 3, 4)), jnp.ones((7, 4, 5))),
        7 * PRODUCT,
    ),
    "vmap": (jax.vmap(jnp.matmul, in_axes=(0, None)), (jnp.ones((7, 3, 4)), RIGHT), 7 * PRODUCT),
    "jit": (jax.jit(jnp.matmul), (LEFT, RIGHT), PRODUCT),
    "scan": (_scanned(5, _times), (SQUARE,), 5 * POWER),
    "nested scan": (_scanned(5, _scanned(3, _times)), (SQUARE,), 15 * POWER),
    "the larger branch": (
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ y @ y, lambda y: y @ y, x),
        (SQUARE,),
        2 * POWER,
    ),
    "a while loop once": (_while, (SQUARE,), POWER),
    "checkpoint": (jax.checkpoint(_times), (SQUARE,), POWER),
    "convolution": (
        ft.partial(_convolution, groups=1),
        (jnp.ones((2, 3, 8, 8)), jnp.ones((4, 3, 5, 5))),
        2 * (2 * 4 * 8 * 8) * (3 * 5 * 5),
    ),
    "each channel by itself": (
        ft.partial(_convolution, groups=3),
        (jnp.ones((2, 3, 8, 8)), jnp.ones((6, 1, 5, 5))),
        2 * (2 * 6 * 8 * 8) * (5 * 5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_count_by_hand(name):
    function, arguments, flops = CASES[name]
    assert matrix_flops(function, *arguments) == flops


def test_shapes_will_do():
    shape = jax.ShapeDtypeStruct((6, 6), jnp.float32)
    assert matrix_flops(_times, shape) == POWER


def test_a_gradient_is_two_more_products():
    loss = lambda x, w: jnp.sum(jnp.square(x @ w))
    assert matrix_flops(jax.grad(loss, argnums=(0, 1)), LEFT, RIGHT) == 3 * PRODUCT


def test_all_devices_count():
    """Rows over two devices are as many products as on one."""
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("data",))
    rows = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=(P("data"), P()), out_specs=P("data"))
    assert matrix_flops(rows, jnp.ones((8, 4)), RIGHT) == 2 * 8 * 4 * 5
