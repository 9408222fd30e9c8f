"""Networks with known numbers, and what NumPy says of them."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np


# What runs once is not worth optimising: compiling it so takes a third of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def random(constructor: Callable, *args, **kwargs) -> Any:
    """A network with NumPy's numbers for parameters, which compiles nothing; none is zero."""
    draws = np.random.default_rng(kwargs.pop("seed", 0))
    shapes = eqx.filter_eval_shape(ft.partial(constructor, *args, **kwargs), key=jr.key(0))
    number = lambda x: jnp.asarray((0.5 * draws.normal(size=x.shape)).astype(x.dtype))
    return jax.tree.map(number, shapes)


def build(constructor: Callable, *args, **kwargs) -> Any:
    """A network as it is initialised, compiled at once."""
    key = kwargs.pop("key", None)
    make = ft.partial(constructor, *args, **kwargs)
    return jax.jit(make, compiler_options=QUICK)(key=jr.key(0) if key is None else key)


@eqx.filter_jit
def one(module: Callable, x: Any) -> Any:
    """What a module makes of one example: a program for it, not one for each of its operations."""
    return module(x)


@eqx.filter_jit
def batch(module: Callable, x: Any) -> Any:
    """What a module makes of a batch."""
    return jax.vmap(module)(x)


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def count(constructor: Callable, *args, **kwargs) -> int:
    """How many parameters a network has. All are float32, and nothing else is a leaf."""
    shapes = eqx.filter_eval_shape(ft.partial(constructor, *args, **kwargs), key=jr.key(0))
    leaves = jax.tree.leaves(shapes)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.float32)}
    return sum(leaf.size for leaf in leaves)


def linear(layer, x: np.ndarray) -> np.ndarray:
    """What a linear layer makes of a batch."""
    y = x @ np.asarray(layer.weight).T
    return y if layer.bias is None else y + np.asarray(layer.bias)


def norm(layer, x: np.ndarray) -> np.ndarray:
    """What an `equinox.nn.LayerNorm` makes of a batch."""
    axes = tuple(range(1, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(variance + 1e-5)
    return y * np.asarray(layer.weight) + np.asarray(layer.bias)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def assert_orthogonal(weight, scale: float):
    """`W W^T`, or `W^T W` if that is smaller, is `scale**2` times the identity."""
    w = np.asarray(weight, np.float64)
    w = w if w.shape[0] <= w.shape[1] else w.T
    np.testing.assert_allclose(w @ w.T, scale**2 * np.eye(len(w)), atol=2e-6 * max(1, scale**2))
    # An identity is orthogonal too, but random it is not.
    assert np.count_nonzero(np.abs(w) > 1e-6 * scale) > w.size / 2


def linear_of(weight, x: np.ndarray) -> np.ndarray:
    return np.asarray(weight) @ x


def gru(cell, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The next hidden state of an `equinox.nn.GRUCell`, of one example or a batch."""
    read = np.split(x @ np.asarray(cell.weight_ih).T + np.asarray(cell.bias), 3, axis=-1)
    kept = np.split(h @ np.asarray(cell.weight_hh).T, 3, axis=-1)
    reset, keep = (sigmoid(read[i] + kept[i]) for i in (0, 1))
    new = np.tanh(read[2] + reset * (kept[2] + np.asarray(cell.bias_n)))
    return new + keep * (h - new)
