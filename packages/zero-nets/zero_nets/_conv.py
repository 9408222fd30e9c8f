"""Layers of images and boards, channels last, for one example."""

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_choice, check_sizes
from ._precision import wide


class Conv(eqx.Module):
    """A square two-dimensional convolution, channels last; by default same size out as in.

    One example at a time. Under `jax.vmap` with unmapped weights the batch becomes the
    convolution's own batch axis, in the gradient too, so nothing is lost by it.
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

        - `in_channels`, `out_channels`: channels of what comes in and of what goes out.
        - `size`: height and width of the kernel.
        - `stride`: rows and columns from one placement of the kernel to the next.
        - `padding`: `"SAME"` pads with zeros, for `ceil(rows / stride)` rows out; `"VALID"` does
            not, for `(rows - size) // stride + 1`.
        - `scale`: multiplies the initial weights, which are otherwise He et al.'s
            (https://arxiv.org/abs/1502.01852, equation 10); 0 starts with an output of zeros.
        - `key`: for the initial weights.
        """
        check_sizes(in_channels=in_channels, out_channels=out_channels, size=size, stride=stride)
        check_choice(("SAME", "VALID"), padding=padding)
        deviation = scale * (2 / (size * size * in_channels)) ** 0.5
        shape = (size, size, in_channels, out_channels)
        self.weight = deviation * jr.normal(key, shape, jnp.float32)
        self.bias = jnp.zeros((out_channels,), jnp.float32)
        self.stride = stride
        self.padding = padding

    def __call__(
        self, x: Float[Array, "rows columns in_channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "out_rows out_columns out_channels"]:
        """`key` is ignored; it is there for chains of layers that need one."""
        del key
        y = lax.conv_general_dilated(
            x[None],
            self.weight,
            (self.stride, self.stride),
            self.padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y[0] + self.bias[None, None, :]


class ChannelNorm(eqx.Module):
    """Layer normalisation (https://arxiv.org/abs/1607.06450) of every board cell by itself.

    Statistics are over the channels of one cell, in at least float32 whatever comes in.
    """

    scale: Float[Array, " channels"]
    offset: Float[Array, " channels"]

    def __init__(self, channels: int):
        self.scale = jnp.ones((channels,), jnp.float32)
        self.offset = jnp.zeros((channels,), jnp.float32)

    def __call__(
        self, x: Float[Array, "rows columns channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "rows columns channels"]:
        """`key` is ignored."""
        del key
        y = x.astype(wide(x.dtype))
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
        return y.astype(x.dtype) * self.scale[None, None, :] + self.offset[None, None, :]


class ResidualBlock(eqx.Module):
    """`x + conv(relu(norm(conv(relu(norm(x))))))` (https://arxiv.org/abs/1603.05027, figure 1b).

    The last convolution starts at zero, so every block starts as the identity.
    """

    norms: tuple[ChannelNorm, ChannelNorm] | None
    convs: tuple[Conv, Conv]

    def __init__(self, channels: int, norm: str, *, key: PRNGKeyArray):
        check_sizes(channels=channels)
        check_choice(("none", "layer"), norm=norm)
        layer = norm == "layer"
        self.norms = (ChannelNorm(channels), ChannelNorm(channels)) if layer else None
        first_key, last_key = jr.split(key)
        self.convs = (
            Conv(channels, channels, key=first_key),
            Conv(channels, channels, scale=0.0, key=last_key),
        )

    def __call__(
        self, x: Float[Array, "rows columns channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "rows columns channels"]:
        """`key` is ignored."""
        del key
        y = x
        for i, conv in enumerate(self.convs):
            if self.norms is not None:
                y = self.norms[i](y)
            y = conv(jax.nn.relu(y))
        return x + y
