"""Heads that map an embedding to numbers or to a distribution over actions."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import as_features, check_each, check_function, check_number, check_sizes, subkeys
from ._continuous import bounds, ClippedBeta, EDGE, Gaussian, TanhGaussian
from ._discrete import Categorical, MultiDiscrete
from ._layers import linear, maybe_noisy, NoisyLinear
from ._precision import widen
from ._torsos import MLP


class LinearHead(eqx.Module):
    """An array of any shape that is linear in the embedding; by default a scalar value.

    `shape=(num_actions,)` and `scale=0.01` give the logits of a policy.
    """

    linear: eqx.nn.Linear | NoisyLinear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        shape: tuple[int, ...] = (),
        *,
        scale: float = 1.0,
        noise: float | None = None,
        key: PRNGKeyArray,
    ):
        """The result has the `shape` `()` for a scalar, `(actions,)` for the value of every action,
        `(actions, atoms)` for a distribution or the quantiles of each."""
        if not isinstance(shape, tuple | list) or shape:
            check_each(shape=shape)
        self.shape = tuple(shape)
        self.linear = maybe_noisy(in_size, math.prod(shape), scale=scale, noise=noise, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*shape"]:
        return _apply(self.linear, embedding, key=key).reshape(self.shape)


class Dueling(eqx.Module):
    """The values of all actions as `V + A - mean A`, where `V` and `A` have separate streams.

    Wang et al. 2016 (https://arxiv.org/abs/1511.06581, equation 9). With the shape
    `(actions, atoms)` the mean over actions is taken for each atom, as in Rainbow
    (https://arxiv.org/abs/1710.02298).
    """

    hidden: tuple[MLP, MLP] | None
    value: LinearHead
    advantage: LinearHead

    def __init__(
        self,
        in_size: int,
        shape: tuple[int, ...],
        *,
        widths: Sequence[int] = (),
        activation: Callable[[Array], Array] = jax.nn.relu,
        noise: float | None = None,
        scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `shape`: `(actions,)` or `(actions, atoms)`.
        - `widths`: the widths of the hidden layers of each stream.
        - `scale`: that of the last layers.
        """
        check_each(shape=shape)
        check_function(activation=activation)
        vkey, akey, hkey = jr.split(key, 3)
        self.hidden = None
        if len(widths):
            first, second = (
                MLP(in_size, widths, activation=activation, noise=noise, key=subkey)
                for subkey in jr.split(hkey)
            )
            self.hidden = (first, second)
            in_size = first.out_size
        self.value = LinearHead(in_size, (1, *shape[1:]), scale=scale, noise=noise, key=vkey)
        self.advantage = LinearHead(in_size, tuple(shape), scale=scale, noise=noise, key=akey)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*shape"]:
        vkey, akey, first_key, second_key = subkeys(key, 4)
        first = second = embedding
        if self.hidden is not None:
            first = self.hidden[0](embedding, key=first_key)
            second = self.hidden[1](embedding, key=second_key)
        value = self.value(first, key=vkey)
        advantage = self.advantage(second, key=akey)
        return value + advantage - jnp.mean(advantage, axis=0, keepdims=True)


# With a hundredth of an orthogonal matrix the initial policy hardly depends on the embedding.
_SCALE = 0.01


class CategoricalHead(eqx.Module):
    """A categorical distribution over `num_actions` actions. Illegal actions are not masked."""

    linear: eqx.nn.Linear

    def __init__(self, in_size: int, num_actions: int, *, scale: float = _SCALE, key: PRNGKeyArray):
        check_sizes(in_size=in_size, num_actions=num_actions)
        self.linear = linear(in_size, num_actions, scale=scale, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Categorical:
        del key
        return Categorical(_apply(self.linear, embedding))


class MultiDiscreteHead(eqx.Module):
    """Several independent categorical distributions, which may differ in size: one for each of
    `num_actions`."""

    linear: eqx.nn.Linear
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, in_size: int, num_actions: Sequence[int], *, scale: float = _SCALE, key: PRNGKeyArray
    ):
        check_each(num_actions=num_actions)
        self.num_actions = tuple(num_actions)
        self.linear = linear(in_size, sum(self.num_actions), scale=scale, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> MultiDiscrete:
        del key
        return MultiDiscrete(_apply(self.linear, embedding), self.num_actions)


class TanhGaussianHead(eqx.Module):
    """A squashed Gaussian with `scale = softplus(.) + min_scale`, initially about 0.69."""

    linear: eqx.nn.Linear
    minimum: tuple[float, ...] = eqx.field(static=True)
    maximum: tuple[float, ...] = eqx.field(static=True)
    min_scale: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        action_size: int,
        *,
        minimum: float | Sequence[float] = -1.0,
        maximum: float | Sequence[float] = 1.0,
        min_scale: float = 1e-3,
        scale: float = _SCALE,
        key: PRNGKeyArray,
    ):
        check_sizes(action_size=action_size)
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.minimum, self.maximum = _bounds(action_size, minimum, maximum, margin=2 * EDGE)
        check_number(0, min_scale=min_scale)
        self.min_scale = min_scale

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> TanhGaussian:
        del key
        loc, spread = jnp.split(_apply(self.linear, embedding), 2)
        spread = jax.nn.softplus(spread) + self.min_scale
        return TanhGaussian(loc, spread, np.asarray(self.minimum), np.asarray(self.maximum))


class BetaHead(eqx.Module):
    """A Beta distribution stretched to bounds. Both of its parameters are `softplus(.) + 1`, so it
    has one peak."""

    linear: eqx.nn.Linear
    minimum: tuple[float, ...] = eqx.field(static=True)
    maximum: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        action_size: int,
        *,
        minimum: float | Sequence[float] = -1.0,
        maximum: float | Sequence[float] = 1.0,
        scale: float = _SCALE,
        key: PRNGKeyArray,
    ):
        check_sizes(action_size=action_size)
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.minimum, self.maximum = _bounds(action_size, minimum, maximum)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> ClippedBeta:
        del key
        alpha, beta = jnp.split(jax.nn.softplus(_apply(self.linear, embedding)) + 1, 2)
        return ClippedBeta(alpha, beta, np.asarray(self.minimum), np.asarray(self.maximum))


class GaussianHead(eqx.Module):
    """An unbounded Gaussian with `scale = init_scale / softplus(0) * softplus(.) + min_scale`. The
    deviation is initially about `init_scale`, and always greater than `min_scale`."""

    linear: eqx.nn.Linear
    init_scale: float = eqx.field(static=True)
    min_scale: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        action_size: int,
        *,
        init_scale: float = 0.3,
        min_scale: float = 1e-3,
        scale: float = _SCALE,
        key: PRNGKeyArray,
    ):
        check_sizes(action_size=action_size)
        check_number(0, above=True, init_scale=init_scale)
        check_number(0, min_scale=min_scale)
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.init_scale = init_scale
        self.min_scale = min_scale

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Gaussian:
        del key
        loc, spread = jnp.split(_apply(self.linear, embedding), 2)
        # softplus(0) = log(2)
        spread = self.init_scale / np.log(2).item() * jax.nn.softplus(spread) + self.min_scale
        return Gaussian(loc, spread)


def _bounds(
    action_size: int,
    minimum: float | Sequence[float],
    maximum: float | Sequence[float],
    *,
    margin: float = 0.0,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The bounds of every dimension as tuples, which are hashable and thus can be static."""
    like = np.zeros(action_size)
    low, high = bounds(np.asarray(minimum), np.asarray(maximum), like, margin=margin)
    return tuple(low.tolist()), tuple(high.tolist())


def _apply(
    layer: eqx.nn.Linear | NoisyLinear,
    embedding: Float[Array, "..."],
    *,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " size"]:
    """The layer's output in at least float32: heads compute nothing in half precision."""
    x = as_features(embedding, (layer.weight.shape[1],), layer.weight.dtype)
    return widen(layer(x, key=key))
