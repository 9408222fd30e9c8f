"""Torsos: networks that map an observation, a vector or an image, to an embedding."""

import functools as ft
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import (
    as_features,
    check_board,
    check_choice,
    check_each,
    check_function,
    check_sizes,
    subkeys,
)
from ._layers import Conv, linear, maybe_noisy, NoisyLinear, orthogonal, ResidualBlock


class MLP(eqx.Module):
    """A multi-layer perceptron whose layers may differ in width, be normalised, or be noisy. Those
    that are not noisy have orthogonal weights of scale `sqrt(2)`."""

    layers: tuple[eqx.nn.Linear | NoisyLinear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    activate_final: bool = eqx.field(static=True)
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        widths: Sequence[int],
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        activate_final: bool = True,
        norm: str = "none",
        noise: float | None = None,
        key: PRNGKeyArray,
    ):
        """`widths` are those of all layers, of which the last is normalised and activated like the
        others only with `activate_final`. `norm="layer"` normalises the result of a layer, bias
        included: without the bias a first layer could not tell features from a multiple of them."""
        check_sizes(in_size=in_size)
        check_each(widths=widths)
        widths = tuple(map(int, widths))
        check_function(activation=activation)
        check_choice(("none", "layer"), norm=norm)
        activated = widths if activate_final else widths[:-1]
        self.norms = tuple(_norm(width) for width in activated) if norm == "layer" else ()
        sizes = (in_size, *widths)
        self.layers = tuple(
            maybe_noisy(sizes[i], width, noise=noise, key=jr.fold_in(key, i))
            for i, width in enumerate(widths)
        )
        self.activation = activation
        self.activate_final = activate_final
        self.in_size = in_size
        self.out_size = widths[-1]

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        x = as_features(features, (self.in_size,), self.layers[0].weight.dtype)
        last = len(self.layers) - 1
        for i, subkey in enumerate(subkeys(key, len(self.layers))):
            x = self.layers[i](x, key=subkey)
            if i < len(self.norms):
                x = self.norms[i](x)
            if i < last or self.activate_final:
                x = self.activation(x)
        return x


class VectorResNet(eqx.Module):
    """A linear layer, then residual blocks of two linear layers each, then an activation.

    The blocks are pre-activation, `x + linear(act(norm(linear(act(norm(x))))))`
    (https://arxiv.org/abs/1603.05027). The weights of their last layer are initially 0, so every
    block is initially the identity.
    """

    stem: eqx.nn.Linear
    blocks: tuple[tuple[eqx.nn.Linear, eqx.nn.Linear], ...]
    norms: tuple[tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm], ...]
    final_norm: eqx.nn.LayerNorm | None
    activation: Callable[[Array], Array] = eqx.field(static=True)
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        width: int,
        *,
        blocks: int = 2,
        activation: Callable[[Array], Array] = jax.nn.relu,
        norm: str = "none",
        key: PRNGKeyArray,
    ):
        """All layers have the same width. With 0 blocks there is a single activated layer."""
        check_sizes(in_size=in_size, width=width)
        check_function(activation=activation)
        check_choice(("none", "layer"), norm=norm)
        check_sizes(0, blocks=blocks)
        stem_key, tower_key = jr.split(key)
        self.stem = linear(in_size, width, key=stem_key)
        pairs = [jr.split(jr.fold_in(tower_key, i)) for i in range(blocks)]
        self.blocks = tuple(
            (linear(width, width, key=first), linear(width, width, scale=0.0, key=second))
            for first, second in pairs
        )
        layer = norm == "layer"
        self.norms = tuple((_norm(width), _norm(width)) for _ in pairs) if layer else ()
        self.final_norm = _norm(width) if layer else None
        self.activation = activation
        self.in_size = in_size
        self.out_size = width

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        del key
        x = self.stem(as_features(features, (self.in_size,), self.stem.weight.dtype))
        for i, block in enumerate(self.blocks):
            y = x
            for j, layer in enumerate(block):
                y = self.norms[i][j](y) if self.norms else y
                y = layer(self.activation(y))
            x = x + y
        return self.activation(x if self.final_norm is None else self.final_norm(x))


def _norm(shape: int | tuple[int, ...]) -> eqx.nn.LayerNorm:
    shape = shape if isinstance(shape, tuple) else int(shape)
    return eqx.nn.LayerNorm(shape, dtype=jnp.float32)


class CNN(eqx.Module):
    """Activated convolutions, whose flattened result is the input of an MLP.

    The defaults are the network of Mnih et al. 2015 (https://doi.org/10.1038/nature14236) with
    orthogonal weights of scale `sqrt(2)`.
    """

    convs: tuple[Conv, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    mlp: MLP | None
    activation: Callable[[Array], Array] = eqx.field(static=True)
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
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `channels`, `sizes`, `strides`: one entry for each convolution.
        - `padding`: `"VALID"` or `"SAME"`, as in [`zero_nets.Conv`][].
        - `widths`: the widths of the layers after the convolutions; if it is empty, the embedding
            is the flattened result of the convolutions.
        - `norm`: `"layer"` normalises the result of a convolution over rows, columns and channels
            together.
        """
        check_board("shape", shape)
        rows, columns, depth = shape
        check_each(channels=channels, sizes=sizes, strides=strides)
        channels, sizes, strides = tuple(channels), tuple(sizes), tuple(strides)
        if not len(channels) == len(sizes) == len(strides):
            raise ValueError(
                f"`channels`, `sizes` and `strides` are {channels}, {sizes} and {strides}; each "
                "must have one entry for every convolution."
            )
        check_function(activation=activation)
        check_choice(("none", "layer"), norm=norm)
        ckey, mkey = jr.split(key)
        convs, norms = [], []
        for i, (width, size, stride) in enumerate(zip(channels, sizes, strides, strict=True)):
            dkey, wkey = jr.split(jr.fold_in(ckey, i))
            conv = Conv(depth, width, size, stride=stride, padding=padding, key=dkey)
            convs.append(orthogonal(conv, key=wkey))
            image = jax.ShapeDtypeStruct((rows, columns, depth), jnp.float32)
            rows, columns, depth = jax.eval_shape(conv, image).shape
            if min(rows, columns) < 1:
                raise ValueError(
                    f"`shape` is {shape}: too small for convolution {i}, of size {size}; use "
                    'smaller `sizes` or `strides`, or padding="SAME".'
                )
            if norm == "layer":
                norms.append(_norm((rows, columns, depth)))
        flat = rows * columns * depth
        self.convs = tuple(convs)
        self.norms = tuple(norms)
        self.mlp = None
        if len(widths):
            self.mlp = MLP(flat, widths, activation=activation, norm=norm, key=mkey)
        self.activation = activation
        self.shape = tuple(shape)
        self.out_size = self.mlp.out_size if self.mlp else flat

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        del key
        x = as_features(features, self.shape, self.convs[0].weight.dtype)
        for i, conv in enumerate(self.convs):
            x = conv(x)
            x = self.activation(self.norms[i](x) if self.norms else x)
        x = x.reshape(-1)
        return x if self.mlp is None else self.mlp(x)


class VisualResNet(eqx.Module):
    """Groups of residual blocks, each at half the rows and columns of the group before.

    The defaults are the large network of Espeholt et al. 2018 (https://arxiv.org/abs/1802.01561,
    figure 3) without its LSTM, except that every residual block is initially the identity. The
    result of the last block is activated, flattened, and passed through an activated linear layer.
    """

    groups: tuple[tuple["_Downsample", tuple[ResidualBlock, ...]], ...]
    final_norm: eqx.nn.LayerNorm | None
    linear: eqx.nn.Linear
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
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `channels`, `blocks`: the channels and the number of residual blocks of each group.
        - `downsampling`: how each group first halves the rows and columns, rounding up.
            `"max_pool"`: a 3x3 convolution, then the maximum over 3x3 cells at stride 2.
            `"average_pool"`: the same with the average, ignoring cells beyond the edge.
            `"conv"`: a 3x3 convolution of stride 2.
        - `norm`: `"layer"` normalises every cell over its channels before each convolution of a
            block, and the whole image before the linear layer.
        - `width`: the length of the embedding.
        """
        check_board("shape", shape)
        rows, columns, depth = shape
        channels, blocks = tuple(channels), tuple(blocks)
        check_each(channels=channels)
        check_sizes(width=width)
        check_choice(("max_pool", "average_pool", "conv"), downsampling=downsampling)
        if len(blocks) != len(channels) or min(blocks) < 0:
            raise ValueError(
                f"`blocks` is {blocks} for {len(channels)} groups; it must have one number of "
                "residual blocks, at least 0, for every entry of `channels`."
            )
        gkey, lkey = jr.split(key)
        groups = []
        for i, (group_width, num) in enumerate(zip(channels, blocks, strict=True)):
            dkey, bkey = jr.split(jr.fold_in(gkey, i))
            first = _Downsample(depth, group_width, downsampling, key=dkey)
            rest = (ResidualBlock(group_width, norm, key=jr.fold_in(bkey, j)) for j in range(num))
            groups.append((first, tuple(rest)))
            rows, columns, depth = -(-rows // 2), -(-columns // 2), group_width
        self.groups = tuple(groups)
        self.final_norm = _norm((rows, columns, depth)) if norm == "layer" else None
        self.linear = linear(rows * columns * depth, width, key=lkey)
        self.shape = tuple(shape)
        self.out_size = width

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        del key
        x = as_features(features, self.shape, self.linear.weight.dtype)
        for first, rest in self.groups:
            x = first(x)
            for block in rest:
                x = block(x)
        x = x if self.final_norm is None else self.final_norm(x)
        return jax.nn.relu(self.linear(jax.nn.relu(x).reshape(-1)))


class _Downsample(eqx.Module):
    """Halves the rows and columns of an image, rounding up, and changes its channels."""

    conv: Conv
    kind: str = eqx.field(static=True)

    def __init__(self, in_channels: int, out_channels: int, kind: str, *, key: PRNGKeyArray):
        self.conv = Conv(in_channels, out_channels, stride=2 if kind == "conv" else 1, key=key)
        self.kind = kind

    def __call__(
        self, x: Float[Array, "rows columns in_channels"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "half_rows half_columns channels"]:
        del key
        x = self.conv(x)
        if self.kind == "max_pool":
            return _max_pool(x)
        if self.kind == "average_pool":
            return _sum_pool(x) / _sum_pool(jnp.ones_like(x))
        return x


def _max_pool(
    x: Float[Array, "rows columns channels"],
) -> Float[Array, "half_rows half_columns channels"]:
    # The maximum of three shifted slices, along rows and then along columns. On a CPU the gradient
    # of `lax.reduce_window` with `max` takes at least four times as long.
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
