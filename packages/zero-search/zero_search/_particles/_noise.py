"""The first actions of the particles: drawn from the policy, or from something wider."""

import functools as ft
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from .._check import check_range
from .._model import LARGEST, Proposal
from .._noise import AbstractRootNoise
from .._root import PriorRoot
from ._model import Categorical, Prospect


class GaussianNoise(eqx.Module):
    """Adds Gaussian noise to continuous actions and reflects them at their bounds.

    Thus the step from an action `a` to a noisy `b` is as likely as that from `b` to `a`, and with
    the weight `pi(b) / pi(a)` noisy actions stand for the policy as its own would: exactly, in
    expectation, although nobody knows the density of `b`.

    **Attributes:**

    - `scale`: standard deviation of the noise, in units of the action.
    - `minimum`, `maximum`: bounds of every dimension; `-inf` and `inf` for none.
    """

    scale: float
    minimum: float = -1.0
    maximum: float = 1.0

    def __check_init__(self):
        check_range("GaussianNoise", 0, scale=self.scale)
        low, high = self.minimum, self.maximum
        bounded = math.isfinite(low) and math.isfinite(high) and low < high
        if not bounded and (low, high) != (-math.inf, math.inf):
            raise ValueError(
                f"`GaussianNoise(minimum={low}, maximum={high})`: must be finite and in this "
                "order, or -inf and inf."
            )

    def __call__(
        self, policy: Proposal, *, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], Float[Array, ""]]:
        """An action for ONE state, and the log of what it must be weighed by."""
        akey, nkey = jr.split(key)
        action = policy.sample(key=akey)
        kinds = {x.dtype for x in jax.tree.leaves(action)}
        if not all(jnp.issubdtype(kind, jnp.floating) for kind in kinds):
            raise ValueError(
                f"`GaussianNoise` got actions of {', '.join(sorted(map(str, kinds)))}: give it "
                "floating ones only, or leave `noise` out."
            )
        flat, unravel = ravel_pytree(action)
        flat = flat + self.scale * jr.normal(nkey, flat.shape, flat.dtype)
        if math.isfinite(self.minimum):
            span = self.maximum - self.minimum
            flat = self.maximum - jnp.abs((flat - self.minimum) % (2 * span) - span)
        noisy = unravel(flat)
        return noisy, policy.log_prob(noisy) - policy.log_prob(action)


def first_actions(
    noise: AbstractRootNoise | GaussianNoise | None,
    prospect: Prospect,
    noise_key: Key[Array, " batch"],
    key: Key[Array, "batch particles"],
) -> tuple[PyTree[Array], Float[Array, "batch particles"], Bool[Array, "batch particles"]]:
    """An action for every particle, the log-ratio of the policy to what it was drawn from, and
    where an action was not finite."""
    policy = prospect.policy
    if isinstance(noise, GaussianNoise):
        if isinstance(policy, Categorical):
            raise ValueError(
                "`ParticleSearch(noise=GaussianNoise(...))` got a model of discrete actions: give "
                "it a `DirichletNoise`, or leave `noise` out."
            )
        action, ratio = _each(lambda p, k: noise(p, key=k), policy, key)
        action, invalid = _finite(action)
    elif noise is None:
        action, invalid = draw(policy, key)
        ratio = jnp.zeros(key.shape, jnp.float32)
    elif isinstance(policy, Categorical):
        wide = Categorical(PriorRoot(noise).prior(policy.logits, key=noise_key)[0])
        action, invalid = draw(wide, key)
        log_prob = lambda p, a: p.log_prob(a)
        ratio = _each(log_prob, policy, action) - _each(log_prob, wide, action)
    else:
        raise ValueError(
            f"`ParticleSearch(noise={type(noise).__name__}(...))` got a model without logits: "
            "give it a `GaussianNoise`, or leave `noise` out."
        )
    ratio = jnp.clip(ratio.astype(jnp.float32), -LARGEST, LARGEST)
    # An action that was made up gets no weight while there is any other.
    invalid = invalid | jnp.isnan(ratio)
    return action, jnp.where(invalid, -LARGEST, ratio), invalid


def draw(
    policy: Proposal, key: Key[Array, "batch particles"], axis: int | None = None
) -> tuple[PyTree[Array], Bool[Array, "batch particles"]]:
    """An action for every particle, of its row's policy or, along `axis`, of its own; 0 where it
    is not finite."""
    return _finite(_each(lambda p, k: p.sample(key=k), policy, key, axis))


def _finite(
    action: PyTree[Array],
) -> tuple[PyTree[Array], Bool[Array, "batch particles"]]:
    leaves = jax.tree.leaves(action)
    each = [jnp.all(jnp.isfinite(x), axis=tuple(range(2, x.ndim))) for x in leaves]
    known = ft.reduce(jnp.logical_and, each)
    finite = lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))
    return jax.tree.map(finite, action), ~known


def _each(
    function: Any, policy: Proposal, by_particle: PyTree[Array], axis: int | None = None
) -> Any:
    """Of a policy, by default that of the row, and each of the row's particles."""
    policies = None if axis is None else eqx.if_array(axis)
    inner = eqx.filter_vmap(function, in_axes=(policies, eqx.if_array(0)))
    return eqx.filter_vmap(inner)(policy, by_particle)
