"""The parts of a particle search: policies, noise on first actions, resampling."""

import functools as ft
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ._check import check_proposal, check_range, unpacked
from ._model import (
    AbstractModel,
    AbstractPriorModel,
    AbstractProposalModel,
    LARGEST,
    masked_prediction,
    predicted,
    Proposal,
)
from ._root import AbstractRootNoise, PriorRoot
from ._sample import uniform
from ._types import Bools, Floats, Keys


class Categorical(eqx.Module):
    """The policy of some logits; `-inf` is illegal. Where nothing is legal it draws action 0."""

    logits: Float[Array, "*axes actions"]

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return jr.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        # A softmax of nothing legal would be NaN.
        playable = jnp.any(self.logits > -jnp.inf)
        return jax.nn.log_softmax(jnp.where(playable, self.logits, 0.0))[action]


class Prospect(eqx.Module):
    """What the evaluator says of some states."""

    policy: Proposal  # one a row
    value: Floats  # for the player to move
    playable: Bools  # whether there is a legal action
    invalid: Bools  # whether something was not finite and has been replaced


def judge(model: AbstractModel, state: PyTree[Array], key: Keys) -> Prospect:
    """Asks the evaluator of either kind of model."""
    if isinstance(model, AbstractPriorModel):
        logits, value, invalid = masked_prediction(*predicted(model, state, key))
        return Prospect(Categorical(logits), value, jnp.any(logits > -jnp.inf, axis=1), invalid)
    if not isinstance(model, AbstractProposalModel):
        raise ValueError(
            f"The search got a `{type(model).__name__}`, which has no policy: give it an "
            "`AbstractPriorModel` (logits) or an `AbstractProposalModel` (any actions)."
        )
    seen = model.propose(state, key=key)
    policy, value = unpacked("model.propose", seen, "policy, value")
    check_proposal(policy, value, key.shape[0])
    value = value.astype(jnp.float32)
    known = jnp.abs(value) <= LARGEST
    return Prospect(policy, jnp.where(known, value, 0.0), jnp.ones_like(known), ~known)


class GaussianNoise(eqx.Module):
    """Adds Gaussian noise to continuous actions and reflects them at their bounds.

    A step from an action `a` to a noisy `b` is then as likely as one from `b` to `a`. So noisy
    actions that are weighted by `pi(b) / pi(a)` represent the policy without bias, although the
    density of `b` is not known.

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
        for name, bound in (("minimum", low), ("maximum", high)):
            if isinstance(bound, str) or not math.isinf(bound):
                check_range("GaussianNoise", -math.inf, **{name: bound})
        bounded = math.isfinite(low) and math.isfinite(high) and low < high
        if not bounded and (low, high) != (-math.inf, math.inf):
            raise ValueError(
                f"`GaussianNoise(minimum={low}, maximum={high})`: must be finite and in this "
                "order, or -inf and inf."
            )

    def __call__(
        self, policy: Proposal, *, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], Float[Array, ""]]:
        """An action for ONE state, and the logarithm of its weight."""
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
    noise_key: Keys,
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


def alike(candidates: PyTree[Array]) -> Bool[Array, "batch candidates candidates"]:
    """Which candidates of a row are equal, in all leaves."""
    flat = [x.reshape(*x.shape[:2], -1) for x in jax.tree.leaves(candidates)]
    pairs = [jnp.all(x[:, :, None] == x[:, None], axis=-1) for x in flat]
    return jnp.all(jnp.stack(pairs), axis=0)


def _finite(action: PyTree[Array]) -> tuple[PyTree[Array], Bool[Array, "batch particles"]]:
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


def resampled(
    weights: Float[Array, "batch particles"], how: str, key: Keys
) -> Int[Array, "batch particles"]:
    """The numbers of as many particles, each drawn `N w` times on average.

    The weights of a row sum to 1. `"multinomial"` draws each independently; `"systematic"` draws
    once for all, so that `N w` is rounded up or down.
    """
    number = weights.shape[1]
    if how == "multinomial":
        share = uniform(key, number)
    else:
        comb = jnp.arange(number, dtype=jnp.float32)
        share = (comb[None] + uniform(key)[:, None]) / number
    total = jnp.cumsum(weights, axis=1)
    # Rounding may leave a sum of less than 1, or a share of 1: neither may lead to a particle
    # without weight at the end of a row.
    below = jnp.minimum(share, 1 - float(jnp.finfo(jnp.float32).eps)) * total[:, -1:]
    find = lambda t, u: jnp.searchsorted(t, u, side="right")
    return jax.vmap(find)(total, below).astype(jnp.int32)
