"""Maximum a posteriori policy optimisation: an E-step as targets, and an M-step within a bound."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._arguments import check_axes
from .._illegal import log_softmax
from ._dual import Dual, kl_penalty
from ._estep import nonparametric_policy, temperature_loss
from ._policy import DecoupledPolicy, Policy


Losses = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]


def weighted_policy_loss(
    log_probs: Float[Array, " actions"], weights: Float[Array, " actions"]
) -> Float[Array, ""]:
    """The policy fitted to weighted actions of one state, `-sum(weights * log_probs)`: the
    cross-entropy of a search's visits, of MPO's and SPO's improved policies.

    **Arguments:**

    - `log_probs`: `log pi(a)` of every candidate action.
    - `weights`: what each is worth, 0 or more, usually with sum 1; no gradient flows into them.
        An action of weight 0 may be impossible: `0 * -inf` counts as 0.

    Raises a `ValueError` for different shapes.
    """
    check_axes(
        "weighted_policy_loss", log_probs=(log_probs, "actions"), weights=(weights, "actions")
    )
    weights = jax.lax.stop_gradient(weights)
    return -jnp.sum(weights * jnp.where(weights > 0, log_probs, 0.0))


def mpo_loss(
    policy: Policy,
    target: Policy,
    actions: Shaped[Array, "actions ..."],
    values: Float[Array, " actions"],
    *,
    temperature: Dual,
    alpha: Dual,
    epsilon: float,
    epsilon_policy: float,
    weights: Float[Array, " actions"] | None = None,
) -> Losses:
    """The loss of one state over sampled actions, with one bound on the policy (MPO, Abdolmaleki
    et al. 2018, https://arxiv.org/abs/1806.06920; discrete SPO, Macfarlane et al. 2024,
    https://arxiv.org/abs/2402.07963).

    `-sum(w * log pi(a))`, the penalty and dual loss of KL(target || pi) and the loss of the
    temperature. One gradient of the sum does for everything: the policy terms move the policy
    alone and every dual loss its own dual alone. Average it over the states that count, and
    the metrics with it.

    **Arguments:**

    - `policy`: what is learned.
    - `target`: the policy that the actions were sampled from and that `policy` must stay close to,
        of slowly moving parameters; no gradient flows into it.
    - `actions`: candidates, one per leading index; they may repeat.
    - `values`: their Q-values or advantages, from the view of the player to move.
    - `temperature`, `alpha`: the duals of the E-step's bound and of the policy's.
    - `epsilon`, `epsilon_policy`: these bounds, in nats.
    - `weights`: what the actions are worth, where a search has found that out (SPO); None for
        [`zero_train.losses.nonparametric_policy`][] of `values` (MPO).

    **Returns:** the loss, and its metrics: those of [`zero_train.losses.temperature_loss`][],
    `policy_loss`, `kl_loss` (the penalty), `alpha_loss`, `temperature_loss`, `alpha` (the mean
    over dimensions), `kl` (nats, summed over dimensions) and `kl_relative` (over its bound: 1 on
    target).

    Raises a `ValueError` for different shapes or a bound that is not positive.
    """
    target = _fixed(target)
    if weights is None:
        weights = jnp.exp(nonparametric_policy(values, temperature))
    policy_loss = _fit(policy, actions, weights)
    losses, metrics = _constrain(target.kl(policy), alpha, epsilon_policy)
    temperature_term, estep = temperature_loss(values, temperature, epsilon)
    return policy_loss + losses + temperature_term, {
        "policy_loss": policy_loss,
        "temperature_loss": temperature_term,
        **metrics,
        **estep,
    }


def mpo_decoupled_loss(
    policy: DecoupledPolicy,
    target: DecoupledPolicy,
    actions: Shaped[Array, "actions ..."],
    values: Float[Array, " actions"],
    *,
    temperature: Dual,
    alpha_mean: Dual,
    alpha_stddev: Dual,
    epsilon: float,
    epsilon_mean: float,
    epsilon_stddev: float,
    weights: Float[Array, " actions"] | None = None,
) -> Losses:
    """[`zero_train.losses.mpo_loss`][] for Gaussian policies, mean and deviation apart: the mean
    is fitted with the target's deviation, the deviation with the target's mean, each within a
    bound of its own (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256, section 4.2.1).
    So the deviation cannot collapse to pay for a better mean. Continuous MPO and SPO.

    **Arguments:** those of [`zero_train.losses.mpo_loss`][], but two duals and bounds. A dual of
    shape `[dims]` holds every action dimension to the bound by itself, a scalar one their sum.

    **Returns:** the loss, and the metrics of `mpo_loss`, where `policy_loss`, `kl_loss`,
    `alpha_loss`, `alpha`, `kl` and `kl_relative` come twice, ending in `_mean` and `_stddev`.

    Raises a `ValueError` for different shapes, a bound that is not positive, or a policy without a
    deviation.
    """
    if not isinstance(policy, DecoupledPolicy):
        raise ValueError(
            f"`mpo_decoupled_loss` was given a `{type(policy).__name__}`, which has no `decouple`: "
            "it takes Gaussian policies; for others use `mpo_loss` (a `TrustRegion`)."
        )
    target = _fixed(target)
    if weights is None:
        weights = jnp.exp(nonparametric_policy(values, temperature))
    loss, metrics = temperature_loss(values, temperature, epsilon)
    metrics = {**metrics, "temperature_loss": loss}
    mean_policy, stddev_policy = policy.decouple(target)
    for part, suffix, alpha, bound in (
        (mean_policy, "_mean", alpha_mean, epsilon_mean),
        (stddev_policy, "_stddev", alpha_stddev, epsilon_stddev),
    ):
        policy_loss = _fit(part, actions, weights)
        losses, terms = _constrain(target.kl(part), alpha, bound)
        loss = loss + policy_loss + losses
        terms = {**terms, "policy_loss": policy_loss}
        metrics = {**metrics, **{name + suffix: x for name, x in terms.items()}}
    return loss, metrics


def mpo_categorical_loss(
    logits: Float[Array, " actions"],
    target_logits: Float[Array, " actions"],
    values: Float[Array, " actions"],
    *,
    temperature: Dual,
    alpha: Dual,
    epsilon: float,
    epsilon_policy: float,
) -> Losses:
    """[`zero_train.losses.mpo_loss`][] with every action as a candidate and its probability as
    the prior: expectations over the target policy are exact.

    **Arguments:** those of [`zero_train.losses.mpo_loss`][], but

    - `logits`, `target_logits`: of both policies, -inf for the same illegal actions. A state
        without any legal action gives finite numbers that mean nothing.
    - `values`: Q-values of all actions; of illegal ones they may be anything.

    **Returns:** the loss, and the metrics of `mpo_loss`, `policy_entropy` (of `logits`) and
    `target_entropy` (of the improved policy), in nats.

    Raises a `ValueError` for different shapes or a bound that is not positive.
    """
    target_logits = jax.lax.stop_gradient(target_logits)
    log_policy, log_prior = log_softmax(logits), log_softmax(target_logits)
    values = jnp.where(jnp.isneginf(target_logits), -jnp.inf, values)
    improved = nonparametric_policy(values, temperature, log_prior=log_prior)
    weights, prior = jnp.exp(improved), jnp.exp(log_prior)
    policy_loss = weighted_policy_loss(log_policy, weights)
    # Not cross-entropy less entropy: near its bound of 1e-3 that would be mostly rounding.
    log_ratio = jnp.where(prior > 0, log_policy, 0.0) - jnp.where(prior > 0, log_prior, 0.0)
    losses, metrics = _constrain(weighted_policy_loss(log_ratio, prior), alpha, epsilon_policy)
    temperature_term, estep = temperature_loss(values, temperature, epsilon, log_prior=log_prior)
    return policy_loss + losses + temperature_term, {
        "policy_loss": policy_loss,
        "temperature_loss": temperature_term,
        "policy_entropy": weighted_policy_loss(log_policy, jnp.exp(log_policy)),
        "target_entropy": weighted_policy_loss(improved, weights),
        **metrics,
        **estep,
    }


def vmpo_loss(
    log_probs: Float[Array, " rows"],
    advantages: Float[Array, " rows"],
    weights: Float[Array, " rows"],
    *,
    temperature: Dual,
    epsilon: float,
    top_fraction: float = 0.5,
) -> Losses:
    """The policy and temperature losses of V-MPO (Song et al. 2020,
    https://arxiv.org/abs/1909.12238) over a batch: on-policy, the actions played in all states
    are the candidates, of which the better half is kept. Add the mean over all states of
    [`zero_train.losses.kl_penalty`][] for its bound on the policy.

    **Arguments:**

    - `log_probs`: `log pi(a)` of the action played in every row.
    - `advantages`: estimates for these actions, from the view of who played them.
    - `weights`: how much each row counts; rows of weight 0, such as final ones, are not among
        those of which the best are kept, and may hold anything. Without any other row all
        losses are 0.
    - `temperature`, `epsilon`: the dual of the E-step and its bound in nats.
    - `top_fraction`: the fraction of the rows to keep: rounded down, at least one, and all that
        are as good as the last.

    **Returns:** the loss, and its metrics: `policy_loss`, `temperature_loss` and those of
    [`zero_train.losses.temperature_loss`][].

    Raises a `ValueError` for different shapes, a bound that is not positive, or a fraction
    outside `(0, 1]`.
    """
    rows = {"log_probs": log_probs, "advantages": advantages, "weights": weights}
    check_axes("vmpo_loss", **{name: (x, "rows") for name, x in rows.items()})
    if not 0 < top_fraction <= 1:
        raise ValueError(f"`vmpo_loss(top_fraction={top_fraction})`: must be in (0, 1].")
    valid = weights > 0
    ranked = jnp.sort(jnp.where(valid, advantages, -jnp.inf), descending=True)
    count = jnp.floor(top_fraction * jnp.sum(valid, dtype=weights.dtype)).astype(jnp.int32)
    kept = valid & (advantages >= ranked[jnp.maximum(count - 1, 0)])
    some = jnp.any(valid)
    prior = jnp.where(kept, weights, 0.0)
    log_prior = jnp.log(prior / jnp.where(some, jnp.sum(prior), 1.0))
    advantages = jnp.where(valid, advantages, 0.0)
    improved = nonparametric_policy(advantages, temperature, log_prior=log_prior)
    policy_loss = weighted_policy_loss(log_probs, jnp.where(some, jnp.exp(improved), 0.0))
    loss, metrics = temperature_loss(advantages, temperature, epsilon, log_prior=log_prior)
    loss = jnp.where(some, loss, 0.0)
    return policy_loss + loss, {"policy_loss": policy_loss, "temperature_loss": loss, **metrics}


def _fixed(target: Any) -> Any:
    return jax.tree.map(
        lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, target
    )


def _fit(policy: Policy, actions: Array, weights: Array) -> Array:
    return weighted_policy_loss(jax.vmap(policy.log_prob)(actions), weights)


def _constrain(kl: Array, alpha: Dual, epsilon: float) -> Losses:
    """Penalty plus dual loss, and what to log of them."""
    penalty, dual_loss = kl_penalty(kl, alpha, epsilon)
    total = jnp.sum(kl)
    return penalty + dual_loss, {
        "kl_loss": penalty,
        "alpha_loss": dual_loss,
        "alpha": jnp.mean(alpha.value),
        "kl": total,
        "kl_relative": total / (epsilon * alpha.value.size),
    }
