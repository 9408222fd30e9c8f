"""Layers that Equinox does not have, channels-last convolutions, and initial weights."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import as_cells, check_choice, check_number, check_shape, check_sizes, numbers
from ._precision import wide


class Conv(eqx.Module):
    """A two-dimensional convolution with a square kernel, in channels-last layout.

    It takes one example. Under `jax.vmap` with unmapped weights the batch becomes the batch axis of
    the convolution, in the gradient too, so this is as fast as a batched layer.
    """

    weight: Float[Array, "size size in_channels out_channels"]
    bias: Float[Array, " out_channels"]
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int = 3,
        *,
        stride: int = 1,
        padding: str = "SAME",
        scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `size`: the height and width of the kernel.
        - `stride`: the step of the kernel in rows and columns.
        - `padding`: `"SAME"` pads with zeros, so the output has `ceil(rows / stride)` rows;
            `"VALID"` does not pad, so it has `(rows - size) // stride + 1`.
        - `scale`: multiplies the initial weights of He et al. (https://arxiv.org/abs/1502.01852,
            equation 10). With 0 the layer's initial output is 0.
        """
        check_sizes(in_channels=in_channels, out_channels=out_channels, size=size, stride=stride)
        check_choice(("SAME", "VALID"), padding=padding)
        check_number(scale=scale)
        deviation = scale * (2 / (size * size * in_channels)) ** 0.5
        shape = (size, size, in_channels, out_channels)
        self.weight = deviation * jr.normal(key, shape, jnp.float32)
        self.bias = jnp.zeros((out_channels,), jnp.float32)
        self.stride = stride
        self.padding = padding

    def __call__(
        self, x: Shaped[Array, "rows columns in_channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "out_rows out_columns out_channels"]:
        del key
        x = as_cells(x, self.weight.shape[2]).astype(self.weight.dtype)
        y = lax.conv_general_dilated(
            x[None],
            self.weight,
            (self.stride, self.stride),
            self.padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y[0] + self.bias[None, None, :]


class ChannelNorm(eqx.Module):
    """Layer normalisation (https://arxiv.org/abs/1607.06450) over the channels of each cell.

    The statistics are computed in at least float32, whatever the dtype of the input.
    """

    scale: Float[Array, " channels"]
    offset: Float[Array, " channels"]

    def __init__(self, channels: int):
        check_sizes(channels=channels)
        self.scale = jnp.ones((channels,), jnp.float32)
        self.offset = jnp.zeros((channels,), jnp.float32)

    def __call__(
        self, x: Float[Array, "rows columns channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "rows columns channels"]:
        del key
        x = as_cells(x, self.scale.size)
        y = x.astype(wide(x.dtype))
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
        return y.astype(x.dtype) * self.scale[None, None, :] + self.offset[None, None, :]


class ResidualBlock(eqx.Module):
    """`x + conv(relu(norm(conv(relu(norm(x))))))` (https://arxiv.org/abs/1603.05027, figure 1b).

    The weights of the last convolution are initially 0, so the block is initially the identity.
    """

    norms: tuple[ChannelNorm, ChannelNorm] | None
    convs: tuple[Conv, Conv]

    def __init__(self, channels: int, norm: str, *, key: PRNGKeyArray):
        check_sizes(channels=channels)
        check_choice(("none", "layer"), norm=norm)
        self.norms = (ChannelNorm(channels), ChannelNorm(channels)) if norm == "layer" else None
        first_key, last_key = jr.split(key)
        self.convs = (
            Conv(channels, channels, key=first_key),
            Conv(channels, channels, scale=0.0, key=last_key),
        )

    def __call__(
        self, x: Float[Array, "rows columns channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "rows columns channels"]:
        del key
        x = as_cells(x, self.convs[0].weight.shape[2])
        y = x
        for i, conv in enumerate(self.convs):
            if self.norms is not None:
                y = self.norms[i](y)
            y = conv(jax.nn.relu(y))
        return x + y


_Layer = TypeVar("_Layer", bound=eqx.nn.Linear | eqx.nn.Conv | Conv)


def orthogonal(layer: _Layer, scale: float = 2**0.5, *, key: PRNGKeyArray) -> _Layer:
    """The same layer with orthogonal weights (https://arxiv.org/abs/1312.6120) and a bias of 0.

    If `W` is the matrix of the weights, with one row for each output, `W @ W.T` is `scale**2` times
    the identity, or `W.T @ W` is if there are more outputs than inputs.

    **Arguments:**

    - `layer`: an `equinox.nn.Linear`, a [`zero_nets.Conv`][] or an `equinox.nn.Conv`.
    - `scale`: the square root of 2 preserves the variance through a ReLU; 0.01 is usual for
        policies and 1 for values.
    """
    check_number(scale=scale)
    if not isinstance(layer, eqx.nn.Linear | eqx.nn.Conv | Conv):
        raise ValueError(
            f"`layer` is a {type(layer).__name__}; it must be a Linear or a Conv of Equinox, or a "
            "Conv of zero_nets."
        )
    initialiser = jax.nn.initializers.orthogonal(scale, -1 if isinstance(layer, Conv) else 0)
    weight = initialiser(key, layer.weight.shape, layer.weight.dtype)
    layer = eqx.tree_at(lambda layer: layer.weight, layer, weight)
    if layer.bias is None:
        return layer
    return eqx.tree_at(lambda layer: layer.bias, layer, jnp.zeros_like(layer.bias))


class NoisyLinear(eqx.Module):
    """A linear layer with learned, factorised Gaussian noise on its parameters.

    Fortunato et al. 2018 (https://arxiv.org/abs/1706.10295, equations 9 to 11): weights
    `weight + weight_noise * outer(f(e_out), f(e_in))` and biases `bias + bias_noise * f(e_out)`
    with `f(e) = sign(e) * sqrt(abs(e))` and standard normal `e` drawn from the key of each call.
    Without a key there is no noise.

    The noisy weights are never formed, so under `jax.vmap` a separate key for each example costs
    two matrix products only.
    """

    weight: Float[Array, "out_size in_size"]
    bias: Float[Array, " out_size"]
    weight_noise: Float[Array, "out_size in_size"]
    bias_noise: Float[Array, " out_size"]

    def __init__(self, in_size: int, out_size: int, *, noise: float = 0.5, key: PRNGKeyArray):
        """`noise` is the paper's `sigma_0`. The noise parameters are initially
        `noise / sqrt(in_size)`, the others uniform within `1 / sqrt(in_size)` of 0 (section
        3.2)."""
        check_sizes(in_size=in_size, out_size=out_size)
        check_number(0, noise=noise)
        wkey, bkey = jr.split(key)
        bound = in_size**-0.5
        shape = (out_size, in_size)
        self.weight = jr.uniform(wkey, shape, jnp.float32, -bound, bound)
        self.bias = jr.uniform(bkey, (out_size,), jnp.float32, -bound, bound)
        self.weight_noise = jnp.full(shape, noise * bound, jnp.float32)
        self.bias_noise = jnp.full((out_size,), noise * bound, jnp.float32)

    def __call__(
        self, x: Shaped[Array, " in_size"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        check_shape("x", x, self.weight.shape[1:])
        x = numbers(x).astype(self.weight.dtype)
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
    in_size: int, out_size: int, *, scale: float = 2**0.5, key: PRNGKeyArray
) -> eqx.nn.Linear:
    """A linear layer with orthogonal weights."""
    check_sizes(in_size=in_size, out_size=out_size)
    lkey, wkey = jr.split(key)
    layer = eqx.nn.Linear(in_size, out_size, dtype=jnp.float32, key=lkey)
    return orthogonal(layer, scale, key=wkey)


def maybe_noisy(
    in_size: int,
    out_size: int,
    *,
    noise: float | None,
    scale: float | None = None,
    key: PRNGKeyArray,
) -> eqx.nn.Linear | NoisyLinear:
    """A noisy linear layer if `noise` is a number, else an orthogonal one. `scale` multiplies the
    initial weights; by default it is 1 for a noisy layer and sqrt 2 for an orthogonal one."""
    if noise is None:
        return linear(in_size, out_size, scale=2**0.5 if scale is None else scale, key=key)
    layer = NoisyLinear(in_size, out_size, noise=noise, key=key)
    if scale is None:
        return layer
    check_number(scale=scale)
    parts = (scale * layer.weight, scale * layer.bias)
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, parts)
