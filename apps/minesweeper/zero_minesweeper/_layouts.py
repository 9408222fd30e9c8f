"""Weighted layouts that represent the posterior of a board."""

import functools as ft

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8, PRNGKeyArray

from zero_envs import list_mines, sample_mines


# Compiled, because with concrete values `list_mines` raises an error if there are more layouts.
@ft.partial(jax.jit, static_argnames=("num_mines", "number", "max_states"))
def find_layouts(
    board: Int8[Array, "rows columns"],
    num_mines: int,
    number: int,
    *,
    key: PRNGKeyArray,
    max_states: int,
) -> tuple[Bool[Array, "number rows columns"], Float[Array, " number"]]:
    """Layouts that are consistent with the board, and their weights.

    If there are at most `number` layouts, these are all of them with equal weights. Otherwise they
    are drawn from the posterior, and the weights are `calibrated` to its marginals. The weights add
    up to 1, or are NaN if no layout is known.
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
    layouts: Bool[Array, "layouts cells"], risk: Float[Array, "rows columns"]
) -> Float[Array, " layouts"]:
    """Weights with which the probability of a mine in each cell is `risk`, as far as possible.

    They are the weights of the smallest relative entropy to equal ones (Deming and Stephan 1940,
    "On a least squares adjustment of a sampled frequency table when the expected marginal totals
    are known"; Jaynes 1957, "Information theory and statistical mechanics"). Such weights are
    exponential in the layouts' cells. They are computed by Newton's method on the convex dual.
    """
    x = layouts.astype(jnp.float32) - risk.reshape(1, -1)
    size = x.shape[1]

    def step(_, dual):
        weights = jax.nn.softmax(x @ dual)
        mean = weights @ x
        centred = x - mean[None]
        scatter = (centred * weights[:, None]).T @ centred
        # The scatter matrix is singular if no layout distinguishes some cells. So the step is
        # limited by its effect on the layouts.
        move = jnp.linalg.solve(scatter + 1e-2 * jnp.eye(size, dtype=jnp.float32), mean)
        return dual - move / jnp.maximum(1.0, jnp.max(jnp.abs(centred @ move)))

    dual = jax.lax.fori_loop(0, 30, step, jnp.zeros(size, jnp.float32))
    return jax.nn.softmax(x @ dual)
