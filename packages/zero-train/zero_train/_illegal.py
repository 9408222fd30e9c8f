"""Illegal is -inf, in logits, log-probabilities and Q-values: numbers that stay numbers there.

Filler rows and final states may have no legal action at all. A weight or discount of 0 makes such a
row count for nothing, but 0 times infinity is NaN, in the value or in the gradient.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def finite(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """0 for -inf, without a gradient."""
    return jnp.where(jnp.isneginf(x), 0.0, x)


def log_softmax(logits: Float[Array, "*axes actions"]) -> Float[Array, "*axes actions"]:
    """Log-probabilities; the uniform ones where nothing is legal."""
    some = jnp.any(~jnp.isneginf(logits), axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(some, logits, 0.0), axis=-1)
