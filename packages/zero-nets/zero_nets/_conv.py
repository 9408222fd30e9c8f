"""Channels-last convolution for one example."""

import equinox as eqx
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


class Conv(eqx.Module):
    """A square two-dimensional convolution, stride 1, same size out as in, channels last.

    One example at a time. Under `jax.vmap` with unmapped weights the batch becomes the
    convolution's own batch axis, in the gradient too, so nothing is lost by it.
    """

    weight: Float[Array, "size size in_channels out_channels"]
    bias: Float[Array, " out_channels"]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int = 3,
        *,
        scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_channels`, `out_channels`: channels of what comes in and of what goes out.
        - `size`: height and width of the kernel.
        - `scale`: multiplies the initial weights, which are otherwise He et al.'s
            (https://arxiv.org/abs/1502.01852, equation 10); 0 starts with an output of zeros.
        - `key`: for the initial weights.
        """
        deviation = scale * (2 / (size * size * in_channels)) ** 0.5
        shape = (size, size, in_channels, out_channels)
        self.weight = deviation * jr.normal(key, shape, jnp.float32)
        self.bias = jnp.zeros((out_channels,), jnp.float32)

    def __call__(
        self, x: Float[Array, "rows columns in_channels"]
    ) -> Float[Array, "rows columns out_channels"]:
        y = lax.conv_general_dilated(
            x[None], self.weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y[0] + self.bias[None, None, :]
