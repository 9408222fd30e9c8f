"""Weights that make drawn layouts say what all layouts say."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from zero_envs import MinePosterior


def weigh(
    layouts: Bool[Array, "layouts rows columns"], posterior: MinePosterior
) -> Float[Array, " layouts"]:
    """Weights, summing to 1, for layouts that were drawn from the posterior.

    Where they are all that there are, each counts once, whatever the number of its draws: that is
    the posterior itself. Otherwise they are `calibrated` to its marginals.
    """
    flat = layouts.reshape(layouts.shape[0], -1)
    first = _first_of_its_kind(flat).astype(jnp.float32)
    different = jnp.sum(first)
    # The count is rounded, but by far less than a half where so few layouts are all.
    complete = different > posterior.count - 0.5
    return jnp.where(complete, first / different, calibrated(flat, posterior.probability))


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


def _first_of_its_kind(layouts: Bool[Array, "layouts cells"]) -> Bool[Array, " layouts"]:
    """Of equal layouts, one."""
    words = _packed(layouts)
    order = jnp.lexsort(tuple(words.T))
    ordered = words[order]
    new = jnp.any(ordered[1:] != ordered[:-1], axis=1)
    return jnp.ones(layouts.shape[0], jnp.bool_).at[order[1:]].set(new)


def _packed(layouts: Bool[Array, "layouts cells"]) -> UInt32[Array, "layouts words"]:
    number, cells = layouts.shape
    bits = jnp.pad(layouts, ((0, 0), (0, -cells % 32))).reshape(number, -1, 32)
    powers = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    return jnp.sum(jnp.where(bits, powers[None, None], jnp.uint32(0)), axis=2, dtype=jnp.uint32)
