"""Torsos for observations that are images or boards."""

import functools as ft
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import as_features, check_choice, check_each, check_sizes
from ._conv import Conv, ResidualBlock
from ._layers import linear, orthogonal
from ._torsos import MLP


class CNN(eqx.Module):
    """Convolutions, each activated, then their result as a vector, then an MLP.

    The defaults are the network of Mnih et al. 2015 (https://doi.org/10.1038/nature14236) with
    orthogonal weights of scale `sqrt(2)`.

    **Attributes:**

    - `shape`: of the features as they are given.
    - `out_size`: length of the embedding.
    """

    convs: tuple[Conv, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    mlp: MLP | None
    activation: Callable[[Array], Array] = eqx.field(static=True)
    channels_first: bool = eqx.field(static=True)
    divide: bool = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        channels: Sequence[int] = (32, 64, 64),
        sizes: Sequence[int] = (8, 4, 3),
        strides: Sequence[int] = (4, 2, 1),
        padding: str = "VALID",
        widths: Sequence[int] = (512,),
        activation: Callable[[Array], Array] = jax.nn.relu,
        norm: str = "none",
        channels_first: bool = False,
        divide: bool = False,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `shape`: rows, columns and channels of one observation, in the order it comes in.
        - `channels`, `sizes`, `strides`: one entry for each convolution.
        - `padding`: `"VALID"` or `"SAME"`, as in [`zero_nets.Conv`][].
        - `widths`: of the layers after the convolutions; none leaves the flattened convolutions.
        - `activation`: any function of an array.
        - `norm`: `"layer"` normalises what every activation gets, a convolution's result over
            rows, columns and channels together; `"none"` does not.
        - `channels_first`: whether `shape` is channels, rows and columns. (The features are
            transposed: the convolutions are channels-last in any case.)
        - `divide`: whether to divide the features by 255.
        - `key`: for the initial parameters.
        """
        rows, columns, depth = _board(shape, channels_first)
        channels, sizes, strides = tuple(channels), tuple(sizes), tuple(strides)
        if not len(channels) == len(sizes) == len(strides):
            raise ValueError(
                f"`channels`, `sizes` and `strides` are {channels}, {sizes} and {strides}; each "
                "must have one entry for every convolution."
            )
        check_each(channels=channels, sizes=sizes, strides=strides)
        check_choice(("none", "layer"), norm=norm)
        ckey, mkey = jr.split(key)
        convs, norms = [], []
        for i, (width, size, stride) in enumerate(zip(channels, sizes, strides, strict=True)):
            dkey, wkey = jr.split(jr.fold_in(ckey, i))
            conv = Conv(depth, width, size, stride=stride, padding=padding, key=dkey)
            convs.append(orthogonal(conv, key=wkey))
            rows, columns = (_strided(n, size, stride, padding) for n in (rows, columns))
            depth = width
            if min(rows, columns) < 1:
                raise ValueError(
                    f"`shape` is {shape}: too small for convolution {i}, of size {size}; use "
                    'smaller `sizes` or `strides`, or padding="SAME".'
                )
            if norm == "layer":
                norms.append(eqx.nn.LayerNorm((rows, columns, depth), dtype=jnp.float32))
        flat = rows * columns * depth
        self.convs = tuple(convs)
        self.norms = tuple(norms)
        self.mlp = None
        if widths:
            self.mlp = MLP(flat, widths, activation=activation, norm=norm, key=mkey)
        self.activation = activation
        self.channels_first = channels_first
        self.divide = divide
        self.shape = tuple(shape)
        self.out_size = self.mlp.out_size if self.mlp else flat

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        """**Arguments:**

        - `features`: of shape `shape` and any dtype.
        - `key`: ignored.
        """
        del key
        x = as_features(features, self.shape, self.convs[0].weight.dtype)
        x = _prepare(x, self.channels_first, self.divide)
        for i, conv in enumerate(self.convs):
            x = conv(x)
            x = self.activation(self.norms[i](x) if self.norms else x)
        x = x.reshape(-1)
        return x if self.mlp is None else self.mlp(x)


DOWNSAMPLING = ("max_pool", "average_pool", "conv", "norm_conv")


class VisualResNet(eqx.Module):
    """Groups of residual blocks, each at half the rows and columns of the one before.

    The defaults are the large network of Espeholt et al. 2018 (https://arxiv.org/abs/1802.01561,
    figure 3) without its LSTM, except that every residual block starts as the identity. What
    leaves the last block is activated, flattened, and goes through one activated linear layer.

    **Attributes:**

    - `shape`: of the features as they are given.
    - `out_size`: length of the embedding.
    """

    groups: tuple[tuple["Downsample", tuple[ResidualBlock, ...]], ...]
    final_norm: eqx.nn.LayerNorm | None
    linear: eqx.nn.Linear
    channels_first: bool = eqx.field(static=True)
    divide: bool = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        channels: Sequence[int] = (16, 32, 32),
        blocks: Sequence[int] = (2, 2, 2),
        downsampling: str = "max_pool",
        norm: str = "none",
        width: int = 256,
        channels_first: bool = False,
        divide: bool = False,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `shape`: rows, columns and channels of one observation, in the order it comes in.
        - `channels`, `blocks`: of each group, its channels and number of residual blocks.
        - `downsampling`: how a group begins, see [`zero_nets.Downsample`][].
        - `norm`: `"layer"` normalises every cell over its channels before every convolution of a
            block, and all of it before the linear layer; `"none"` does not.
        - `width`: length of the embedding.
        - `channels_first`: whether `shape` is channels, rows and columns.
        - `divide`: whether to divide the features by 255.
        - `key`: for the initial parameters.
        """
        rows, columns, depth = _board(shape, channels_first)
        channels, blocks = tuple(channels), tuple(blocks)
        check_each(channels=channels)
        check_sizes(width=width)
        if len(blocks) != len(channels) or min(blocks) < 0:
            raise ValueError(
                f"`blocks` is {blocks} for {len(channels)} groups; it must have one number of "
                "residual blocks, at least 0, for every entry of `channels`."
            )
        gkey, lkey = jr.split(key)
        groups = []
        for i, (group_width, num) in enumerate(zip(channels, blocks, strict=True)):
            dkey, bkey = jr.split(jr.fold_in(gkey, i))
            first = Downsample((rows, columns, depth), group_width, downsampling, key=dkey)
            rest = (ResidualBlock(group_width, norm, key=jr.fold_in(bkey, j)) for j in range(num))
            groups.append((first, tuple(rest)))
            rows, columns, depth = -(-rows // 2), -(-columns // 2), group_width
        self.groups = tuple(groups)
        end = (rows, columns, depth)
        self.final_norm = eqx.nn.LayerNorm(end, dtype=jnp.float32) if norm == "layer" else None
        self.linear = linear(rows * columns * depth, width, key=lkey)
        self.channels_first = channels_first
        self.divide = divide
        self.shape = tuple(shape)
        self.out_size = width

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        """**Arguments:**

        - `features`: of shape `shape` and any dtype.
        - `key`: ignored.
        """
        del key
        x = as_features(features, self.shape, self.linear.weight.dtype)
        x = _prepare(x, self.channels_first, self.divide)
        for first, rest in self.groups:
            x = first(x)
            for block in rest:
                x = block(x)
        x = x if self.final_norm is None else self.final_norm(x)
        return jax.nn.relu(self.linear(jax.nn.relu(x).reshape(-1)))


class Downsample(eqx.Module):
    """Halves the rows and columns of an image, rounding up, and changes its channels.

    - `"max_pool"`: a 3x3 convolution, then the maximum of 3x3 cells at stride 2.
    - `"average_pool"`: the same with the average, of those of the 9 cells that exist.
    - `"conv"`: a 3x3 convolution of stride 2.
    - `"norm_conv"`: layer normalisation over the whole image, ReLU, and that convolution.
    """

    conv: Conv
    norm: eqx.nn.LayerNorm | None
    kind: str = eqx.field(static=True)

    def __init__(self, shape: tuple[int, int, int], channels: int, kind: str, *, key: PRNGKeyArray):
        """**Arguments:**

        - `shape`: rows, columns and channels of what comes in.
        - `channels`: of what goes out.
        - `kind`: `"max_pool"`, `"average_pool"`, `"conv"` or `"norm_conv"`.
        - `key`: for the initial parameters.
        """
        check_choice(DOWNSAMPLING, downsampling=kind)
        self.conv = Conv(
            shape[2], channels, stride=2 if kind in ("conv", "norm_conv") else 1, key=key
        )
        self.norm = eqx.nn.LayerNorm(shape, dtype=jnp.float32) if kind == "norm_conv" else None
        self.kind = kind

    def __call__(
        self, x: Float[Array, "rows columns in_channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "half_rows half_columns channels"]:
        """`key` is ignored."""
        del key
        if self.norm is not None:
            x = jax.nn.relu(self.norm(x))
        x = self.conv(x)
        if self.kind == "max_pool":
            return _max_pool(x)
        if self.kind == "average_pool":
            return _sum_pool(x) / _sum_pool(jnp.ones_like(x))
        return x


def _max_pool(
    x: Float[Array, "rows columns channels"],
) -> Float[Array, "half_rows half_columns channels"]:
    # Of three shifted slices, along rows and then along columns: the gradient of a
    # `lax.reduce_window` with `max` takes four times as long or more on a CPU.
    for axis in (0, 1):
        half = (x.shape[axis] + 1) // 2
        width = [(0, 0, 0)] * 3
        width[axis] = (x.shape[axis] % 2, 1, 0)
        x = lax.pad(x, np.asarray(-np.inf, x.dtype), width)
        first, *others = (lax.slice_in_dim(x, i, i + 2 * half - 1, 2, axis) for i in range(3))
        x = ft.reduce(jnp.maximum, others, first)
    return x


def _sum_pool(
    x: Float[Array, "rows columns channels"],
) -> Float[Array, "half_rows half_columns channels"]:
    zero = np.asarray(0, x.dtype)
    return lax.reduce_window(x, zero, lax.add, (3, 3, 1), (2, 2, 1), "SAME")


def _board(shape: tuple[int, ...], channels_first: bool) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"`shape` is {shape}; it must be the rows, columns and channels of one observation "
            "(channels first with `channels_first=True`), each at least 1."
        )
    first, second, third = shape
    return (second, third, first) if channels_first else (first, second, third)


def _prepare(x: Float[Array, "..."], channels_first: bool, divide: bool) -> Float[Array, "..."]:
    x = jnp.moveaxis(x, 0, -1) if channels_first else x
    return x / 255 if divide else x


def _strided(n: int, size: int, stride: int, padding: str) -> int:
    return -(-n // stride) if padding == "SAME" else (n - size) // stride + 1
