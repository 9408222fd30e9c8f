"""Targets and losses: the policy, the probability of a win, and the probability of mines."""

import equinox as eqx
import jax.numpy as jnp
import optax
from jax.scipy.special import entr
from jaxtyping import Array, Float

from zero_search import Plan
from zero_train import Experience


class Record(eqx.Module):
    """The part of a plan that is kept for learning: the policy target, and the probability of a
    mine in each cell, NaN if unknown."""

    weights: Float[Array, "*axes cells"]
    probability: Float[Array, "*axes rows columns"]


def record(plan: Plan) -> Record:
    """The record of a plan of [`SolverSearch`][zero_minesweeper._planner.SolverSearch]."""
    return Record(plan.weights, plan.extra.probability)


def mine_loss(logits: Float[Array, "rows columns"], row: Experience) -> Float[Array, ""]:
    """The mean divergence of the predicted probabilities of a mine from the exact ones over hidden
    cells, in nats.

    The exact posterior depends on the visible board only, so the target reveals no mines.
    """
    exact = row.record.probability
    known = (row.obs.features["board"] < 0) & jnp.isfinite(exact)
    exact = jnp.where(known, exact, 0.0)
    least = entr(exact) + entr(1.0 - exact)
    loss = optax.sigmoid_binary_cross_entropy(logits, exact) - least
    number = jnp.sum(known, dtype=jnp.float32)
    return jnp.sum(jnp.where(known, loss, 0.0)) / jnp.maximum(number, 1.0)


def rewards_without_luck(window: Experience) -> Float[Array, " time"]:
    """Rewards of the rows `[time]` of a window that do not depend on the actual mines.

    The reward of a move is minus its exact probability of a mine, and the end of the game adds 1.
    The return of a game is therefore 1 minus the sum of its risks. It has the same mean as the
    reward for a win, and a much smaller variance.
    """
    probability = window.record.probability.reshape(window.action.shape[0], -1)
    risk = jnp.take_along_axis(probability, window.action[:, None], axis=1)[:, 0]
    ends = (window.discount == 0) & ~window.last
    reward = jnp.where(ends, 1.0, 0.0) - jnp.where(window.last, 0.0, risk)
    # If the risk is unknown, the reward of the environment is used.
    return jnp.where(jnp.isfinite(risk), reward, window.reward)
