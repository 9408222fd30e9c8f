"""Heads that map an embedding to a distribution over actions."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_each, check_sizes
from ._continuous import bounds, ClippedBeta, EDGE, Gaussian, TanhGaussian
from ._discrete import Categorical, MultiDiscrete
from ._distribution import Deterministic
from ._layers import apply_head, linear


# With a hundredth of an orthogonal matrix the initial policy hardly depends on the embedding.
_SCALE = 0.01


class CategoricalHead(eqx.Module):
    """A categorical distribution over `num_actions` actions. Illegal actions are not masked."""

    linear: eqx.nn.Linear

    def __init__(self, in_size: int, num_actions: int, *, scale: float = _SCALE, key: PRNGKeyArray):
        """**Arguments:**

        - `in_size`: the length of the embedding.
        - `num_actions`: the number of actions.
        - `scale`: the scale of the orthogonal weights.
        - `key`: for the initial weights.
        """
        check_sizes(in_size=in_size, num_actions=num_actions)
        self.linear = linear(in_size, num_actions, scale=scale, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Categorical:
        """`key` is ignored."""
        del key
        return Categorical(apply_head(self.linear, embedding))


class MultiDiscreteHead(eqx.Module):
    """Several independent categorical distributions, which may differ in size."""

    linear: eqx.nn.Linear
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        num_actions: Sequence[int],
        *,
        scale: float = _SCALE,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `num_actions`: the number of actions of each component.
        - `in_size`, `scale`, `key`: see [`zero_nets.CategoricalHead`][].
        """
        self.num_actions = tuple(num_actions)
        check_each(num_actions=self.num_actions)
        self.linear = linear(in_size, sum(self.num_actions), scale=scale, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> MultiDiscrete:
        """`key` is ignored."""
        del key
        return MultiDiscrete(apply_head(self.linear, embedding), self.num_actions)


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
        """**Arguments:**

        - `action_size`: the number of dimensions of an action.
        - `minimum`, `maximum`: bounds of the action, one for all dimensions or one each.
        - `min_scale`: the minimum of the standard deviation before squashing.
        - `in_size`, `scale`, `key`: see [`zero_nets.CategoricalHead`][].
        """
        check_sizes(action_size=action_size)
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.minimum, self.maximum = _bounds(action_size, minimum, maximum, margin=2 * EDGE)
        if min_scale < 0:
            raise ValueError(f"`min_scale` is {min_scale}; it must be at least 0.")
        self.min_scale = min_scale

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> TanhGaussian:
        """`key` is ignored."""
        del key
        loc, spread = jnp.split(apply_head(self.linear, embedding), 2)
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
        """**Arguments:**

        - `action_size`, `minimum`, `maximum`: see [`zero_nets.TanhGaussianHead`][].
        - `in_size`, `scale`, `key`: see [`zero_nets.CategoricalHead`][].
        """
        check_sizes(action_size=action_size)
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.minimum, self.maximum = _bounds(action_size, minimum, maximum)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> ClippedBeta:
        """`key` is ignored."""
        del key
        alpha, beta = jnp.split(jax.nn.softplus(apply_head(self.linear, embedding)) + 1, 2)
        return ClippedBeta(alpha, beta, np.asarray(self.minimum), np.asarray(self.maximum))


class GaussianHead(eqx.Module):
    """An unbounded Gaussian with `scale = init_scale / softplus(0) * softplus(.) + min_scale`."""

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
        """**Arguments:**

        - `action_size`: the number of dimensions of an action.
        - `init_scale`, `min_scale`: the standard deviation is initially about `init_scale`, and
            always greater than `min_scale`.
        - `in_size`, `scale`, `key`: see [`zero_nets.CategoricalHead`][].
        """
        check_sizes(action_size=action_size)
        if init_scale <= 0 or min_scale < 0:
            raise ValueError(
                f"`init_scale` is {init_scale} and `min_scale` {min_scale}; the first must be "
                "positive and the second at least 0."
            )
        self.linear = linear(in_size, 2 * action_size, scale=scale, key=key)
        self.init_scale = init_scale
        self.min_scale = min_scale

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Gaussian:
        """`key` is ignored."""
        del key
        loc, spread = jnp.split(apply_head(self.linear, embedding), 2)
        # softplus(0) = log(2)
        spread = self.init_scale / np.log(2).item() * jax.nn.softplus(spread) + self.min_scale
        return Gaussian(loc, spread)


class DeterministicHead(eqx.Module):
    """A single action, linear in the embedding or, if there are bounds, squashed by a tanh."""

    linear: eqx.nn.Linear
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        action_size: int,
        *,
        minimum: float | Sequence[float] | None = None,
        maximum: float | Sequence[float] | None = None,
        scale: float = _SCALE,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `action_size`: the number of dimensions of an action.
        - `minimum`, `maximum`: bounds of the action, one for all dimensions or one each, or `None`
            for an unbounded action.
        - `in_size`, `scale`, `key`: see [`zero_nets.CategoricalHead`][].
        """
        check_sizes(action_size=action_size)
        self.linear = linear(in_size, action_size, scale=scale, key=key)
        if minimum is None or maximum is None:
            if minimum is not maximum:
                raise ValueError(
                    f"`minimum` is {minimum} and `maximum` {maximum}; give both bounds or neither."
                )
            self.bounds = None
        else:
            self.bounds = _bounds(action_size, minimum, maximum)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Deterministic:
        """`key` is ignored."""
        del key
        action = apply_head(self.linear, embedding)
        if self.bounds is None:
            return Deterministic(action)
        low, high = np.asarray(self.bounds, action.dtype)
        return Deterministic((high + low) / 2 + (high - low) / 2 * jnp.tanh(action))


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
