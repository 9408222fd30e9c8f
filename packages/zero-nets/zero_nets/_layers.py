"""Layers that Equinox does not have, and the initial weights of those it has."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_sizes
from ._conv import Conv


Layer = TypeVar("Layer", bound=eqx.nn.Linear | eqx.nn.Conv | Conv)


def orthogonal(layer: Layer, scale: float = 2**0.5, *, key: PRNGKeyArray) -> Layer:
    """The same layer with orthogonal weights (https://arxiv.org/abs/1312.6120) and no bias.

    With the weights as a matrix `W` of outputs by everything else, `W @ W.T` is `scale**2` times
    the identity, or `W.T @ W` if there are more outputs than inputs.

    **Arguments:**

    - `layer`: an `equinox.nn.Linear`, a [`zero_nets.Conv`][] or an `equinox.nn.Conv`.
    - `scale`: the square root of 2 keeps the variance through a ReLU; 0.01 is usual for policies
        and 1 for values.
    - `key`: for the weights.
    """
    initialiser = jax.nn.initializers.orthogonal(scale, -1 if isinstance(layer, Conv) else 0)
    weight = initialiser(key, layer.weight.shape, layer.weight.dtype)
    layer = eqx.tree_at(lambda layer: layer.weight, layer, weight)
    if layer.bias is None:
        return layer
    return eqx.tree_at(lambda layer: layer.bias, layer, jnp.zeros_like(layer.bias))


class NoisyLinear(eqx.Module):
    """A linear layer with learned, factorised Gaussian noise on its parameters.

    Fortunato et al. 2018 (https://arxiv.org/abs/1706.10295, equations 9 to 11): weights
    `weight + weight_noise * outer(f(e_out), f(e_in))` and biases `bias + bias_noise * f(e_out)`,
    `f(e) = sign(e) * sqrt(abs(e))`, with fresh normal `e` for every key. No key, no noise.

    The noisy weights are never formed, so under `jax.vmap` a key for each example costs no more
    than two matrix products.
    """

    weight: Float[Array, "out_size in_size"]
    bias: Float[Array, " out_size"]
    weight_noise: Float[Array, "out_size in_size"]
    bias_noise: Float[Array, " out_size"]

    def __init__(self, in_size: int, out_size: int, *, noise: float = 0.5, key: PRNGKeyArray):
        """**Arguments:**

        - `in_size`, `out_size`: lengths of what comes in and of what goes out.
        - `noise`: the paper's `sigma_0`; the noise parameters start at `noise / sqrt(in_size)`,
            the others uniform within `1 / sqrt(in_size)` of zero (section 3.2).
        - `key`: for the initial parameters.
        """
        check_sizes(in_size=in_size, out_size=out_size)
        if noise < 0:
            raise ValueError(f"`noise` is {noise}; it must be at least 0.")
        wkey, bkey = jr.split(key)
        bound = in_size**-0.5
        shape = (out_size, in_size)
        self.weight = jr.uniform(wkey, shape, jnp.float32, -bound, bound)
        self.bias = jr.uniform(bkey, (out_size,), jnp.float32, -bound, bound)
        self.weight_noise = jnp.full(shape, noise * bound, jnp.float32)
        self.bias_noise = jnp.full((out_size,), noise * bound, jnp.float32)

    def __call__(
        self, x: Float[Array, " in_size"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        y = self.weight @ x + self.bias
        if key is None:
            return y
        ikey, okey = jr.split(key)
        noisy = self.weight_noise @ (_factor(ikey, x) * x) + self.bias_noise
        return y + _factor(okey, y) * noisy


def _factor(key: PRNGKeyArray, like: Float[Array, " size"]) -> Float[Array, " size"]:
    draw = jr.normal(key, like.shape, jnp.float32)
    return (jnp.sign(draw) * jnp.sqrt(jnp.abs(draw))).astype(like.dtype)


def linear(
    in_size: int, out_size: int, *, scale: float = 2**0.5, use_bias: bool = True, key: PRNGKeyArray
) -> eqx.nn.Linear:
    """A linear layer with orthogonal weights."""
    check_sizes(in_size=in_size, out_size=out_size)
    lkey, wkey = jr.split(key)
    layer = eqx.nn.Linear(in_size, out_size, use_bias, jnp.float32, key=lkey)
    return orthogonal(layer, scale, key=wkey)


def maybe_noisy(
    in_size: int,
    out_size: int,
    *,
    noise: float | None,
    scale: float = 2**0.5,
    use_bias: bool = True,
    key: PRNGKeyArray,
) -> eqx.nn.Linear | NoisyLinear:
    """A noisy linear layer if `noise` is a number, else an orthogonal one."""
    if noise is None:
        return linear(in_size, out_size, scale=scale, use_bias=use_bias, key=key)
    return NoisyLinear(in_size, out_size, noise=noise, key=key)
