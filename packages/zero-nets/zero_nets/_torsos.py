"""Torsos for observations that are vectors."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import as_features, check_choice, check_each, check_sizes, subkeys
from ._layers import linear, maybe_noisy, NoisyLinear


class MLP(eqx.Module):
    """A multi-layer perceptron whose layers may differ in width, be normalised, or be noisy.

    (`equinox.nn.MLP` has one width for all hidden layers and no normalisation.)

    **Attributes:**

    - `in_size`, `out_size`: lengths of the features and of the embedding.
    """

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
        """**Arguments:**

        - `in_size`: length of the features.
        - `widths`: of every layer, the last one included.
        - `activation`: any function of an array, e.g. `jax.nn.silu`.
        - `activate_final`: whether the last layer is normalised and activated like the others;
            if not, its result is linear.
        - `norm`: `"layer"` normalises (https://arxiv.org/abs/1607.06450) what every activation
            gets, in place of the layer's bias; `"none"` does not.
        - `noise`: a number makes every layer a [`zero_nets.NoisyLinear`][] with that initial
            noise. `None` is no noise, and orthogonal weights of scale `sqrt(2)`.
        - `key`: for the initial parameters.
        """
        widths = tuple(widths)
        check_sizes(in_size=in_size)
        check_each(widths=widths)
        check_choice(("none", "layer"), norm=norm)
        activated = widths if activate_final else widths[:-1]
        self.norms = tuple(_norm(width) for width in activated) if norm == "layer" else ()
        sizes = (in_size, *widths)
        self.layers = tuple(
            maybe_noisy(
                sizes[i],
                width,
                use_bias=i >= len(self.norms),
                noise=noise,
                key=jr.fold_in(key, i),
            )
            for i, width in enumerate(widths)
        )
        self.activation = activation
        self.activate_final = activate_final
        self.in_size = in_size
        self.out_size = widths[-1]

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " out_size"]:
        """**Arguments:**

        - `features`: of shape `[in_size]` and any dtype.
        - `key`: for the noise of noisy layers; without it there is none.
        """
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
    (https://arxiv.org/abs/1603.05027), and their last layer starts at zero, so every block starts
    as the identity.

    **Attributes:**

    - `in_size`, `out_size`: lengths of the features and of the embedding.
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
        """**Arguments:**

        - `in_size`: length of the features.
        - `width`: of every layer.
        - `blocks`: how many residual blocks; 0 is a single activated layer.
        - `activation`: any function of an array.
        - `norm`: `"none"`, or `"layer"` to normalise what every activation gets.
        - `key`: for the initial parameters.
        """
        check_sizes(in_size=in_size, width=width)
        check_choice(("none", "layer"), norm=norm)
        if blocks < 0:
            raise ValueError(f"`blocks` is {blocks}; it must be at least 0.")
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
        """**Arguments:**

        - `features`: of shape `[in_size]` and any dtype.
        - `key`: ignored.
        """
        del key
        x = self.stem(as_features(features, (self.in_size,), self.stem.weight.dtype))
        for i, block in enumerate(self.blocks):
            y = x
            for j, layer in enumerate(block):
                y = self.norms[i][j](y) if self.norms else y
                y = layer(self.activation(y))
            x = x + y
        return self.activation(x if self.final_norm is None else self.final_norm(x))


def _norm(width: int) -> eqx.nn.LayerNorm:
    return eqx.nn.LayerNorm(width, dtype=jnp.float32)
