"""The E-step of MPO and SPO: the best policy within a KL bound, and the temperature it needs."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arguments import check_axes, check_positive
from .._illegal import finite
from ._dual import Dual


def nonparametric_policy(
    values: Float[Array, " actions"],
    temperature: Dual,
    *,
    log_prior: Float[Array, " actions"] | None = None,
) -> Float[Array, " actions"]:
    """The E-step's improved policy for one state, `q(a) = prior(a) * exp(values(a) / eta) / Z`
    (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256, section 4.1).

    **Arguments:**

    - `values`: Q-values or advantages of the candidate actions, from the view of the player to
        move; a constant added to all changes nothing.
    - `temperature`: `eta`, a scalar dual, in the unit of `values`.
    - `log_prior`: log-probability of every candidate under the policy to improve on, normalised.
        None where the candidates were sampled from it, so that each stands for `1 / actions`.
        An action of log-prior or value -inf is illegal, whatever its other number is. A state
        without a legal one gives finite numbers that mean nothing.

    **Returns:** `log q`, without gradient: targets for
    [`zero_train.losses.weighted_policy_loss`][] are its `exp`. -inf for an illegal action.

    Raises a `ValueError` for different shapes, or a temperature that is no scalar.
    """
    log_policy, _, _ = _tilt("nonparametric_policy", values, temperature, log_prior)
    return jax.lax.stop_gradient(log_policy)


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

    Averaged over states it is convex in `eta`, with slope `epsilon - KL(q || prior)`: at its
    minimum the improved policies are `epsilon` nats from the old ones on average. It moves the
    temperature alone. Accurate for any temperature a dual can have, however large the values.

    **Arguments:** those of [`zero_train.losses.nonparametric_policy`][], and

    - `epsilon`: how far the improved policy may be from the old one, in nats; positive.

    **Returns:** the loss, and of this state

    - `temperature`: `eta`, in the unit of `values`.
    - `kl_nonparametric`: KL(q || prior) in nats.
    - `kl_nonparametric_relative`: the same over `epsilon`: its mean is 1 on target.
    - `effective_sample_size`: `1 / sum(q^2)`: between 1 and the number of candidates.

    Raises a `ValueError` for different shapes, a temperature that is no scalar, or an `epsilon`
    that is not positive.
    """
    check_positive("temperature_loss", epsilon=epsilon)
    log_policy, log_ratio, free_value = _tilt("temperature_loss", values, temperature, log_prior)
    loss = temperature.value * epsilon + free_value
    policy = jnp.exp(log_policy)
    kl = jnp.sum(policy * log_ratio)
    return loss, {
        "temperature": temperature.value,
        "kl_nonparametric": kl,
        "kl_nonparametric_relative": kl / epsilon,
        "effective_sample_size": 1 / jnp.sum(jnp.square(policy)),
    }


def _tilt(
    caller: str, values: Array, temperature: Dual, log_prior: Array | None
) -> tuple[Array, Array, Array]:
    """`log q`, `log(q / prior)`, finite also where illegal, and `eta * log Z`."""
    eta = temperature.value
    prior = values if log_prior is None else log_prior
    check_axes(
        caller, values=(values, "actions"), log_prior=(prior, "actions"), temperature=(eta, "")
    )
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
