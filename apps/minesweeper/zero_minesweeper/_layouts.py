"""Layouts that say what all layouts say."""

import functools as ft

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8, PRNGKeyArray

from zero_envs import list_mines, sample_mines


# Compiled, for a list that is too short is an error where values are at hand.
@ft.partial(jax.jit, static_argnames=("num_mines", "number", "max_states"))
def find_layouts(
    board: Int8[Array, "rows columns"],
    num_mines: int,
    number: int,
    *,
    key: PRNGKeyArray,
    max_states: int,
) -> tuple[Bool[Array, "number rows columns"], Float[Array, " number"]]:
    """Layouts that show the board, and their weights.

    All layouts, equally likely, if there are no more than `number`: the posterior itself. Otherwise
    they are drawn from it, and `calibrated` to its marginals. Weights sum to 1, or are NaN where no
    layout is known.
    """
    every, listed, posterior = list_mines(board, num_mines, number, max_states=max_states)
    some, _ = sample_mines(board, num_mines, number, key=key, max_states=max_states)
    weights = calibrated(some.reshape(number, -1), posterior.probability)
    complete = jnp.any(listed)
    equal = listed.astype(jnp.float32)
    return (
        jnp.where(complete, every, some),
        jnp.where(complete, equal / jnp.maximum(jnp.sum(equal), 1.0), weights),
    )


def calibrated(
    layouts: Bool[Array, "layouts cells"],
    risk: Float[Array, "rows columns"],
    *,
    steps: int = 30,
) -> Float[Array, " layouts"]:
    """Weights by which each cell is a mine as often as `risk` says, as far as layouts allow.

    Of all such weights those that differ least from equal ones, in relative entropy: they are
    exponential in the layouts' cells (Deming and Stephan 1940, "On a least squares adjustment of a
    sampled frequency table when the expected marginal totals are known"; Jaynes 1957, "Information
    theory and statistical mechanics"), found by Newton's method on the dual, which is convex.
    """
    x = layouts.astype(jnp.float32) - risk.reshape(1, -1)
    size = x.shape[1]

    def step(_, dual):
        weights = jax.nn.softmax(x @ dual)
        mean = weights @ x
        centred = x - mean[None]
        scatter = (centred * weights[:, None]).T @ centred
        # What no layout tells apart has no direction of its own, and may go anywhere: so the step
        # is limited in what it does to the layouts.
        move = jnp.linalg.solve(scatter + 1e-2 * jnp.eye(size, dtype=jnp.float32), mean)
        return dual - move / jnp.maximum(1.0, jnp.max(jnp.abs(centred @ move)))

    dual = jax.lax.fori_loop(0, steps, step, jnp.zeros(size, jnp.float32))
    return jax.nn.softmax(x @ dual)
