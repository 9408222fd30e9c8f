"""What is learned from a plan: a policy, the probability of winning, and where the mines are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.scipy.special import entr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from zero_nets import BoardSymmetries
from zero_search import Plan
from zero_train import Experience


class Record(eqx.Module):
    """What is kept of a plan.

    **Attributes:**

    - `weights`: the policy target.
    - `probability`: of a mine in each cell, NaN where it is not known.
    """

    weights: Float[Array, "*axes cells"]
    probability: Float[Array, "*axes rows columns"]


def record(plan: Plan) -> Record:
    """What is learned from a [`SolverSearch`][zero_minesweeper._planner.SolverSearch]'s plan."""
    return Record(plan.weights, plan.extra.probability)


def mine_loss(logits: Float[Array, "rows columns"], row: Experience) -> Float[Array, ""]:
    """The divergence of the probabilities of a mine from the exact ones, mean over hidden cells.

    In nats. It says nothing that the player did not see: the posterior is that of the board.
    """
    exact = row.record.probability
    known = (row.obs.features["board"] < 0) & jnp.isfinite(exact)
    exact = jnp.where(known, exact, 0.0)
    least = entr(exact) + entr(1.0 - exact)
    loss = optax.sigmoid_binary_cross_entropy(logits, exact) - least
    number = jnp.sum(known, dtype=jnp.float32)
    return jnp.sum(jnp.where(known, loss, 0.0)) / jnp.maximum(number, 1.0)


def rewards_without_luck(window: Experience) -> Float[Array, " time"]:
    """Rewards of the rows `[time]` of a window, for what was risked and not for what came of it.

    A move costs its exact probability of a mine, and the end pays 1, so that a whole game is worth
    1 less its risks. That has the mean of a win and far less variance: where the mines really are
    does not count, only where they may have been.
    """
    probability = window.record.probability.reshape(window.action.shape[0], -1)
    risk = jnp.take_along_axis(probability, window.action[:, None], axis=1)[:, 0]
    ends = (window.discount == 0) & ~window.last
    reward = jnp.where(ends, 1.0, 0.0) - jnp.where(window.last, 0.0, risk)
    # Where the risk is not known, what came of it must do.
    return jnp.where(jnp.isfinite(risk), reward, window.reward)


def random_symmetry(window: Experience, *, key: PRNGKeyArray) -> Experience:
    """The rows `[time]` of a window, all in the same symmetry of the board, drawn uniformly."""
    rows, columns = window.record.probability.shape[1:]
    index = jr.randint(key, (), 0, BoardSymmetries(rows, columns, rows * columns).size)
    return turned(window, index)


def turned(window: Experience, index: Int[Array, ""] | int) -> Experience:
    """The rows `[time]` of a window in symmetry `index` of [`zero_nets.BoardSymmetries`][]."""
    rows, columns = window.record.probability.shape[1:]
    board = BoardSymmetries(rows, columns, rows * columns)
    boards = jax.vmap(lambda x: board.features(x, index))
    cells = jax.vmap(lambda x: board.actions(x, index))
    return eqx.tree_at(
        lambda w: (
            w.obs.features["board"],
            w.obs.legal,
            w.action,
            w.record.weights,
            w.record.probability,
        ),
        window,
        (
            boards(window.obs.features["board"]),
            cells(window.obs.legal),
            jax.vmap(lambda x: board.action(x, index))(window.action),
            cells(window.record.weights),
            boards(window.record.probability),
        ),
    )
