"""Temporal-difference losses of values, Q-values and distributions of returns."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._arrays import at_action, check_axes, finite
from .._checks import check_positive, check_range


@check_axes
def td_learning_loss(
    value: Float[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_value: Float[Array, ""],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """One-step TD learning (Sutton & Barto 2018, equation 6.2) with the target `r + d * V'`.

    `V'` is usually that of a target network. Without `huber` (`optax.losses.huber_loss`) the loss
    is half the squared error.
    """
    return regression("td_learning_loss", value, reward + discount * next_value, huber)


@check_axes
def clipped_value_loss(
    value: Float[Array, ""],
    old_value: Float[Array, ""],
    target: Float[Array, ""],
    *,
    epsilon: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The value loss of most implementations of PPO (Engstrom et al. 2020,
    https://arxiv.org/abs/2005.12729, section 3):
    `max((V - G)^2, (clip(V, V_old - epsilon, V_old + epsilon) - G)^2) / 2`.

    `V_old` is the value when the data were collected, `G` a target such as that of
    [`zero_train.returns.truncated_gae`][], and `epsilon` how far an update may move the value, in
    its unit.
    """
    check_positive("clipped_value_loss", epsilon=epsilon)
    old_value, target = jax.lax.stop_gradient((old_value, target))
    clipped = old_value + jnp.clip(value - old_value, -epsilon, epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))


def regression(owner: str, prediction: Array, target: Array, huber: float | None) -> Array:
    """Half the squared error from a constant target, or the Huber loss."""
    error = prediction - jax.lax.stop_gradient(target)
    return optax.losses.l2_loss(error) if huber is None else _huber(owner, error, huber)


def _huber(owner: str, error: Array, huber: float) -> Array:
    check_range(owner, 0, huber=huber)
    check_positive(owner, huber=huber)
    return optax.losses.huber_loss(error, delta=huber)


@check_axes
def q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_qvalues: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Q-learning (Watkins & Dayan 1992; Mnih et al. 2015) with the target `r + d * max(Q')`.

    Only the Q-value of `action` is learned. A final next state may have no legal action. The loss
    is as in [`zero_train.losses.td_learning_loss`][].
    """
    target = reward + discount * _greedy(next_qvalues, next_qvalues)
    return regression("q_learning_loss", at_action(finite(qvalues), action), target, huber)


@check_axes
def double_q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_qvalues: Float[Array, " actions"],
    selector: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Double Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4)
    with the target `r + d * Q'[argmax(selector)]`. See [`zero_train.losses.q_learning_loss`][].
    """
    owner = "double_q_learning_loss"
    target = reward + discount * _greedy(next_qvalues, selector)
    return regression(owner, at_action(finite(qvalues), action), target, huber)


@check_axes
def munchausen_q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    target_qvalues: Float[Array, " actions"],
    next_qvalues: Float[Array, " actions"],
    *,
    temperature: float | Float[Array, ""] = 0.03,
    scale: float | Float[Array, ""] = 0.9,
    minimum: float | Float[Array, ""] = -1.0,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Munchausen Q-learning (Vieillard et al. 2020, https://arxiv.org/abs/2007.14430) with the
    target

    `r + scale * clip(tau * log pi[a], minimum, 0) + d * tau * logsumexp(Q' / tau)`

    with `pi = softmax(target_qvalues / tau)`. The last term is `sum(pi' * (Q' - tau * log pi'))`
    with `pi' = softmax(Q' / tau)`. The `target_qvalues` are of the state before the step, by the
    target network, and `tau` is the `temperature`. A `scale` of 0 gives soft Q-learning. See
    [`zero_train.losses.q_learning_loss`][].
    """
    owner = "munchausen_q_learning_loss"
    check_positive(owner, temperature=temperature)
    log_policy = at_action(target_qvalues, action) - _soft_maximum(target_qvalues, temperature)
    bonus = scale * jnp.clip(log_policy, minimum, 0.0)
    target = reward + bonus + discount * _soft_maximum(next_qvalues, temperature)
    return regression(owner, at_action(finite(qvalues), action), target, huber)


def _greedy(qvalues: Array, selector: Array) -> Array:
    legal_selector = jnp.where(jnp.isneginf(qvalues), -jnp.inf, selector)
    return finite(qvalues)[jnp.argmax(legal_selector)]


def _soft_maximum(qvalues: Array, temperature: float | Array) -> Array:
    return finite(temperature * jax.nn.logsumexp(qvalues / temperature))


@check_axes
def categorical_projection(
    values: Float[Array, " samples"],
    probs: Float[Array, " samples"],
    atoms: Float[Array | np.ndarray, " atoms"],
) -> Float[Array, " atoms"]:
    """The distribution on `atoms` nearest in Cramér distance to the given one (Bellemare et al.
    2017, https://arxiv.org/abs/1707.06887, equation 7; Rowland et al. 2018). The probability of
    each value is divided between the two atoms next to it by linear interpolation, which keeps the
    mean. Values outside the range of the atoms are clipped to it. They may be in any order, which a
    negative discount reverses; the atoms are two or more in increasing order, at any distances.
    """
    _check_atoms("categorical_projection", atoms)
    atoms = jnp.asarray(atoms)
    values = jnp.clip(values, atoms[0], atoms[-1])
    # A search and a scatter: a table of all atoms by all values takes 70 times as long for 601.
    low = jnp.searchsorted(atoms, values, side="right") - 1
    low = jnp.clip(low, 0, atoms.size - 2)
    share = (values - atoms[low]) / (atoms[low + 1] - atoms[low])
    nothing = jnp.zeros(atoms.shape, probs.dtype)
    return nothing.at[low].add(probs * (1 - share)).at[low + 1].add(probs * share)


@check_axes
def categorical_td_loss(
    logits: Float[Array, " atoms"],
    atoms: Float[Array | np.ndarray, " atoms"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_logits: Float[Array, " atoms"],
) -> Float[Array, ""]:
    """TD learning of a distribution (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887,
    algorithm 1): the cross-entropy with the projection of `r + d * Z'` onto the atoms, which are as
    [`zero_train.losses.categorical_projection`][] takes them.
    """
    _check_atoms("categorical_td_loss", atoms)
    values = reward + discount * jnp.asarray(atoms)
    target = categorical_projection(values, jax.nn.softmax(next_logits), atoms)
    return optax.losses.safe_softmax_cross_entropy(logits, jax.lax.stop_gradient(target))


@check_axes
def categorical_double_q_learning_loss(
    logits: Float[Array, "actions atoms"],
    atoms: Float[Array | np.ndarray, " atoms"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_logits: Float[Array, "actions atoms"],
    selector: Float[Array, " actions"],
) -> Float[Array, ""]:
    """Double Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461) of
    distributions: [`zero_train.losses.categorical_td_loss`][] of `action`, with the next action
    `argmax(selector)`; `jax.nn.softmax(next_logits) @ atoms` selects as the Q-learning of C51.
    """
    chosen = next_logits[jnp.argmax(selector)]
    chosen = jnp.where(jnp.all(jnp.isneginf(chosen)), 0.0, chosen)
    return categorical_td_loss(at_action(logits, action), atoms, reward, discount, chosen)


def _check_atoms(owner: str, atoms: Array | np.ndarray) -> None:
    if atoms.size < 2:
        raise ValueError(f"`{owner}` was given {atoms.size} atom; it needs 2 or more.")
    if isinstance(atoms, Tracer):
        return
    check_range(owner, -math.inf, atoms=jnp.asarray(atoms))
    steps = np.diff(np.asarray(atoms, np.float64))
    if not np.all(steps > 0):
        i = int(np.argmin(steps > 0))
        raise ValueError(
            f"`{owner}` was given atoms out of order: atoms[{i}] = {atoms[i]:g} and "
            f"atoms[{i + 1}] = {atoms[i + 1]:g}. Sort them, each once."
        )


@check_axes
def quantile_regression_loss(
    quantiles: Float[Array, " quantiles"],
    fractions: Float[Array | np.ndarray, " quantiles"],
    target: Float[Array, " samples"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """The sum over `i` of the mean over `j` of `|tau[i] - (delta < 0)| * L(delta)` with
    `delta = target[j] - quantiles[i]` (Dabney et al. 2018, https://arxiv.org/abs/1710.10044,
    equation 10).

    The `fractions` are `tau`, such as `(i + 1/2) / N`, and the `target` is equally likely samples
    or quantiles. `L` is the Huber loss, not divided by `huber`, or without one the absolute value.
    """
    owner = "quantile_regression_loss"
    check_range(owner, 0, 1, fractions=jnp.asarray(fractions))
    error = jax.lax.stop_gradient(target)[None, :] - quantiles[:, None]
    weight = jnp.abs(jnp.asarray(fractions)[:, None] - (error < 0).astype(error.dtype))
    loss = jnp.abs(error) if huber is None else _huber(owner, error, huber)
    return jnp.sum(jnp.mean(weight * loss, axis=1))


@check_axes
def quantile_q_learning_loss(
    quantiles: Float[Array, "actions quantiles"],
    fractions: Float[Array | np.ndarray, " quantiles"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_quantiles: Float[Array, "actions samples"],
    selector: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Q-learning of quantiles (Dabney et al. 2018, https://arxiv.org/abs/1710.10044,
    algorithm 1): [`zero_train.losses.quantile_regression_loss`][] with the target
    `r + d * next_quantiles[argmax(selector)]`. The selector is `next_quantiles.mean(1)`, or for
    double Q-learning the Q-values of the learning network.
    """
    target = reward + discount * finite(next_quantiles[jnp.argmax(selector)])
    return quantile_regression_loss(
        at_action(finite(quantiles), action), fractions, target, huber=huber
    )
