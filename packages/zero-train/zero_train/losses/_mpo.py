"""The losses of MPO and V-MPO: dual variables, the E-step and the M-step."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._arrays import check_axes, finite, log_softmax, taken
from .._checks import check_kind, check_positive, check_range, within
from ._policy import DecoupledPolicy, Policy


_OFFSET = 1e-8
_MIN_RHO = -18.0
_MIN_VALUE = math.log1p(math.exp(_MIN_RHO)) + _OFFSET


class Dual(eqx.Module):
    """The dual variable of a KL constraint, `softplus(rho) + 1e-8`: a Lagrange multiplier, or the
    temperature of MPO's E-step (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256). The
    gradient acts on `rho`, which is finite and at least -18.

    Papers give either the initial `rho`, as `Dual(rho)` does, or the initial multiplier, as
    [`zero_train.losses.Dual.from_value`][] does. Give it its own optimiser, and call `clipped`
    after every step of that.
    """

    rho: Float[Array, "*dims"]

    def __init__(self, rho: float, shape: tuple[int, ...] = ()):
        """The shape is `()` for one constraint, `(dims,)` for one per action dimension."""
        if not within(rho, lambda x: (x >= _MIN_RHO) & (x < math.inf)) or jnp.ndim(rho):
            raise ValueError(
                f"`Dual(rho={rho!r})`: must be finite and at least {_MIN_RHO:g}, where softplus "
                "has hardly any gradient left."
            )
        # With a dtype: a weakly typed parameter would make the training step compile twice.
        self.rho = jnp.full(shape, rho, jnp.float32)

    @classmethod
    def from_value(cls, value: float, shape: tuple[int, ...] = ()) -> "Dual":
        """The dual whose `value` is this number, which is finite and at least 2.6e-8."""
        if not within(value, lambda x: (x >= _MIN_VALUE) & (x < math.inf)):
            raise ValueError(
                f"`Dual.from_value({value})`: a multiplier or temperature must be finite and at "
                f"least {_MIN_VALUE:.3g}; for the parameter of the softplus use `Dual(rho)`."
            )
        target = value - _OFFSET
        # log(expm1(target)), without overflow for a large one.
        rho = target + math.log(-math.expm1(-target))
        return cls(max(rho, _MIN_RHO), shape)

    @property
    def value(self) -> Float[Array, "*dims"]:
        """The multiplier, `softplus(rho) + 1e-8`."""
        return jax.nn.softplus(self.rho) + _OFFSET

    def clipped(self) -> "Dual":
        """The dual with `rho` at least -18. While a constraint is slack its multiplier falls, and
        without a limit the gradient of softplus would vanish."""
        return eqx.tree_at(lambda dual: dual.rho, self, jnp.maximum(self.rho, _MIN_RHO))


def kl_penalty(
    kl: Float[Array, "*dims"], dual: Dual, epsilon: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The Lagrangian of the constraint `KL <= epsilon`, for one state (Abdolmaleki et al. 2018,
    https://arxiv.org/abs/1812.02256, section 4.2): the policy minimises the penalty, the
    multiplier rises while the KL is above `epsilon` and falls while it is below.

    Both are linear in the KL, so the mean over states constrains the mean KL.

    The `kl` is that of the policy from the one it must stay close to, per action dimension. The
    `dual` is the multiplier `alpha`: a scalar bounds the sum of `kl` over dimensions, one of the
    shape of `kl` every dimension separately.

    **Returns:** the penalty `stop_gradient(alpha) * kl`, whose gradient is the policy's, and the
    dual loss `alpha * (epsilon - stop_gradient(kl))`, whose gradient is that of `rho`. Both are
    summed over dimensions.
    """
    check_positive("kl_penalty", epsilon=epsilon)
    check_kind("kl_penalty", Dual, "a Dual", dual=dual)
    alpha, kl = dual.value, taken("`kl_penalty(kl=)`", kl)
    if alpha.ndim == 0:
        kl = jnp.sum(kl)
    elif alpha.shape != kl.shape:
        raise ValueError(
            f"`kl_penalty` was given kl{list(kl.shape)}, dual{list(alpha.shape)}: the dual must be "
            "a scalar or have one number for each dimension of the KL."
        )
    penalty = jnp.sum(jax.lax.stop_gradient(alpha) * kl)
    dual_loss = jnp.sum(alpha * (epsilon - jax.lax.stop_gradient(kl)))
    return penalty, dual_loss


@check_axes
def nonparametric_policy(
    values: Float[Array, " actions"],
    temperature: Dual,
    *,
    log_prior: Float[Array, " actions"] | None = None,
) -> Float[Array, " actions"]:
    """The E-step's improved policy for one state, `q(a) = prior(a) * exp(values(a) / eta) / Z`
    (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256, section 4.1).

    **Arguments:**

    - `values`: Q-values or advantages of the candidate actions. Adding a constant to all changes
        nothing.
    - `temperature`: `eta`, a scalar dual, in the unit of `values`.
    - `log_prior`: normalised log-probabilities of the candidates under the policy to improve.
        `None` if they were sampled from it: each has the probability `1 / actions`. An action
        whose log-prior or value is -inf is illegal.

    **Returns:** `log q`, without gradient, and -inf for illegal actions. Its `exp` are weights for
    [`zero_train.losses.weighted_policy_loss`][].
    """
    log_policy, _, _ = _tilt(values, temperature, log_prior)
    return jax.lax.stop_gradient(log_policy)


@check_axes
def temperature_loss(
    values: Float[Array, " actions"],
    temperature: Dual,
    epsilon: float,
    *,
    log_prior: Float[Array, " actions"] | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The dual function of the E-step's bound for one state, `eta * (epsilon + log Z)` with
    `Z = sum_a prior(a) * exp(values(a) / eta)` (Abdolmaleki et al. 2018,
    https://arxiv.org/abs/1812.02256, section 4.1; SPO, Macfarlane et al. 2024,
    https://arxiv.org/abs/2402.07963).

    Its mean over states is convex in `eta`, with slope `epsilon - KL(q || prior)`: at the minimum
    the mean KL is `epsilon`. Only the temperature has a gradient. The loss is accurate for all
    values and all temperatures of a dual.

    The arguments are those of [`zero_train.losses.nonparametric_policy`][], and the bound `epsilon`
    on `KL(q || prior)`.

    **Returns:** the loss, and of this state

    - `temperature`: `eta`, in the unit of `values`.
    - `kl_nonparametric`: KL(q || prior).
    - `kl_nonparametric_relative`: the same divided by `epsilon`. A mean of 1 meets the bound.
    - `effective_sample_size`: `1 / sum(q^2)`, between 1 and the number of candidates.
    """
    check_positive("temperature_loss", epsilon=epsilon)
    log_policy, log_ratio, free_value = _tilt(values, temperature, log_prior)
    loss = temperature.value * epsilon + free_value
    policy = jnp.exp(log_policy)
    kl = jnp.sum(policy * log_ratio)
    return loss, {
        "temperature": temperature.value,
        "kl_nonparametric": kl,
        "kl_nonparametric_relative": kl / epsilon,
        "effective_sample_size": 1 / jnp.sum(jnp.square(policy)),
    }


def _tilt(values: Array, temperature: Dual, log_prior: Array | None) -> tuple[Array, Array, Array]:
    """`log q`, `log(q / prior)`, finite also where illegal, and `eta * log Z`."""
    check_kind("loss", Dual, "a Dual", temperature=temperature)
    eta = temperature.value
    if eta.ndim:
        raise ValueError(f"`temperature` has shape {list(eta.shape)}: give a scalar `Dual`.")
    if log_prior is None:
        log_prior = jnp.full_like(values, -math.log(values.size))
    values, log_prior = jax.lax.stop_gradient((values, log_prior))
    illegal = jnp.isneginf(log_prior) | jnp.isneginf(values)
    # A state without a legal action, as after the last move, is one where all are worth 0.
    log_prior = jnp.where(illegal, jnp.where(jnp.all(illegal), 0.0, -jnp.inf), log_prior)
    best = finite(jnp.max(jnp.where(illegal, -jnp.inf, values)))
    # Less the best value before the division: log Z and its slope would otherwise be differences
    # of numbers of the size of values / eta.
    scaled = jnp.where(illegal, 0.0, values - best) / eta
    log_z = jax.nn.logsumexp(scaled + log_prior)
    return scaled + log_prior - log_z, scaled - log_z, best + eta * log_z


Losses = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]


@check_axes
def weighted_policy_loss(
    log_probs: Float[Array, " actions"], weights: Float[Array, " actions"]
) -> Float[Array, ""]:
    """The cross-entropy of weighted actions of one state, `-sum(weights * log_probs)`: the loss of
    a policy that imitates the visits of a search, or the improved policy of MPO or SPO.

    The weights are at least 0, usually with sum 1. An action of weight 0 may have the
    log-probability -inf: `0 * -inf` counts as 0.
    """
    weights = jax.lax.stop_gradient(weights)
    return -jnp.sum(weights * jnp.where(weights > 0, log_probs, 0.0))


@check_axes
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
    log_prior: Float[Array, " actions"] | None = None,
) -> Losses:
    """The loss of one state over sampled actions, with one bound on the policy (MPO, Abdolmaleki
    et al. 2018, https://arxiv.org/abs/1806.06920; discrete SPO, Macfarlane et al. 2024,
    https://arxiv.org/abs/2402.07963).

    It is the sum of `-sum(w * log pi(a))`, the penalty and dual loss of KL(target || pi), and the
    temperature loss. One gradient step serves the policy and the duals, because every dual loss
    has a gradient for its own dual only. Average it and the metrics over states.

    **Arguments:**

    - `target`: the policy that the actions were sampled from, and that `policy` stays close to,
        usually of a target network. A constant.
    - `actions`: candidates, one per leading index. They may repeat.
    - `values`: their Q-values or advantages.
    - `temperature`, `alpha`: the duals of the bounds `epsilon` on the E-step and `epsilon_policy`
        on the policy.
    - `weights`: the weights of the actions in a search (SPO); `None` for the
        [`zero_train.losses.nonparametric_policy`][] of `values` (MPO).
    - `log_prior`: as there, where the actions were drawn from another policy than the one to
        improve, such as a noisy one.

    **Returns:** the loss and its metrics: those of [`zero_train.losses.temperature_loss`][],
    `policy_loss`, `kl_loss` (the penalty), `alpha_loss`, `temperature_loss`, `alpha` (the mean
    over dimensions), `kl` (the sum over dimensions) and `kl_relative` (divided by its bound).
    """
    check_kind("mpo_loss", Policy, "a distribution of actions", policy=policy, target=target)
    target = fixed(target)
    if weights is None:
        weights = jnp.exp(nonparametric_policy(values, temperature, log_prior=log_prior))
    policy_loss = weighted_policy_loss(jax.vmap(policy.log_prob)(actions), weights)
    losses, metrics = constrain(target.kl(policy), alpha, epsilon_policy)
    given = values, temperature, epsilon
    temperature_term, estep = temperature_loss(*given, log_prior=log_prior)
    return policy_loss + losses + temperature_term, {
        "policy_loss": policy_loss,
        "temperature_loss": temperature_term,
        **metrics,
        **estep,
    }


def check_decoupled(owner: str, policy: Any) -> None:
    """Raises where a policy has no mean and deviation to bound apart."""
    if not isinstance(policy, DecoupledPolicy):
        raise ValueError(
            f"`{owner}` was given a `{type(policy).__name__}`, which has no `decouple`: it takes "
            "Gaussian policies; for others use `mpo_loss` (a `TrustRegion`)."
        )


@check_axes
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
    log_prior: Float[Array, " actions"] | None = None,
) -> Losses:
    """[`zero_train.losses.mpo_loss`][] for Gaussian policies. The mean is fitted with the target's
    deviation and the deviation with the target's mean, each within its own bound, which prevents
    a collapse of the deviation (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256, section
    4.2.1). It is the loss of continuous MPO and SPO.

    The arguments are those of `mpo_loss`, with two duals and bounds of the policy. A dual of shape
    `[dims]` bounds every action dimension, a scalar one their sum.

    **Returns:** the loss, and the metrics of `mpo_loss`, where `policy_loss`, `kl_loss`,
    `alpha_loss`, `alpha`, `kl` and `kl_relative` come twice, ending in `_mean` and `_stddev`.
    """
    check_decoupled("mpo_decoupled_loss", policy)
    target = fixed(target)
    if weights is None:
        weights = jnp.exp(nonparametric_policy(values, temperature, log_prior=log_prior))
    loss, metrics = temperature_loss(values, temperature, epsilon, log_prior=log_prior)
    metrics = {**metrics, "temperature_loss": loss}
    mean_policy, stddev_policy = policy.decouple(target)
    for part, suffix, alpha, bound in (
        (mean_policy, "_mean", alpha_mean, epsilon_mean),
        (stddev_policy, "_stddev", alpha_stddev, epsilon_stddev),
    ):
        policy_loss = weighted_policy_loss(jax.vmap(part.log_prob)(actions), weights)
        losses, terms = constrain(target.kl(part), alpha, bound, suffix=suffix)
        loss = loss + policy_loss + losses
        metrics = {**metrics, **terms, "policy_loss" + suffix: policy_loss}
    return loss, metrics


@check_axes
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
    """[`zero_train.losses.mpo_loss`][] with exact expectations over the target policy: every action
    is a candidate, and its probability is the prior. The same actions are illegal in both `logits`,
    and their `values` are not used.

    **Returns:** the loss, and the metrics of `mpo_loss`, `policy_entropy` (of `logits`) and
    `target_entropy` (of the improved policy).
    """
    target_logits = jax.lax.stop_gradient(target_logits)
    log_policy, log_prior = log_softmax(logits), log_softmax(target_logits)
    values = jnp.where(jnp.isneginf(target_logits), -jnp.inf, values)
    improved = nonparametric_policy(values, temperature, log_prior=log_prior)
    weights = jnp.exp(improved)
    policy_loss = weighted_policy_loss(log_policy, weights)
    losses, metrics = constrain(_kl(log_prior, log_policy), alpha, epsilon_policy)
    temperature_term, estep = temperature_loss(values, temperature, epsilon, log_prior=log_prior)
    return policy_loss + losses + temperature_term, {
        "policy_loss": policy_loss,
        "temperature_loss": temperature_term,
        "policy_entropy": weighted_policy_loss(log_policy, jnp.exp(log_policy)),
        "target_entropy": weighted_policy_loss(improved, weights),
        **metrics,
        **estep,
    }


@check_axes
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
    https://arxiv.org/abs/1909.12238) over a batch. The candidates are the actions played on policy
    in all states; the better half is kept. Add the mean of [`zero_train.losses.kl_penalty`][] over
    all states for the bound on the policy.

    **Arguments:**

    - `log_probs`, `advantages`: of the action played in every row.
    - `weights`: how much each row counts. Rows of weight 0, such as final ones, are left out and
        may hold anything. If all are, the losses are 0.
    - `temperature`, `epsilon`: the dual of the E-step and its bound.
    - `top_fraction`: the fraction of the rows to keep, rounded down. At least one is kept, and all
        rows that equal the last one kept.

    **Returns:** the loss, and its metrics: `policy_loss`, `temperature_loss` and those of
    [`zero_train.losses.temperature_loss`][].
    """
    check_positive("vmpo_loss", top_fraction=top_fraction)
    check_range("vmpo_loss", 0, 1, top_fraction=top_fraction)
    valid = weights > 0
    ranked = jnp.sort(jnp.where(valid, advantages, -jnp.inf), descending=True)
    # A little is added because float32 may round the product down.
    count = jnp.floor(top_fraction * jnp.sum(valid, dtype=weights.dtype) + 1e-3).astype(jnp.int32)
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


def fixed(target: Any) -> Any:
    return jax.tree.map(
        lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, target
    )


def _kl(log_p: Array, log_q: Array) -> Array:
    """KL(p || q) of log-probabilities that are -inf for the same actions, to 1e-3 of its value
    also where that is far below the rounding of a log-probability."""
    possible = ~jnp.isneginf(log_p)
    log_ratio = jnp.where(possible, log_q, 0.0) - finite(log_p)
    p, q = jnp.exp(log_p), jnp.exp(log_q)
    # Adding sum(q - p) = 0 makes each term p * (exp(x) - 1 - x), which is never negative: rounding
    # of the log-ratio x then has no effect of the first order.
    small = jnp.clip(log_ratio, -1.0, 1.0)
    return jnp.sum(
        jnp.where(small == log_ratio, p * (jnp.expm1(small) - small), q - p - p * log_ratio)
    )


def constrain(kl: Array, alpha: Dual, epsilon: float, *, suffix: str = "") -> Losses:
    """The penalty plus the dual loss, and their metrics, whose names end in `suffix`."""
    penalty, dual_loss = kl_penalty(kl, alpha, epsilon)
    total = jnp.sum(kl)
    metrics = {
        "kl_loss": penalty,
        "alpha_loss": dual_loss,
        "alpha": jnp.mean(alpha.value),
        "kl": total,
        "kl_relative": total / (epsilon * alpha.value.size),
    }
    return penalty + dual_loss, {name + suffix: x for name, x in metrics.items()}
