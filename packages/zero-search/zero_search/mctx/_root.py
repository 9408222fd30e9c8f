"""The root as mctx prepares it: noise, illegal actions, the final draw."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree, Shaped

from ._recurrent import clean, illegal, Node


class Root(eqx.Module):
    """Where a search starts.

    **Attributes:**

    - `embedding`, `value`: the caller's.
    - `logits`: with noise, and the lowest finite number at invalid actions.
    - `invalid`: as in `mctx.Tree.root_invalid_actions`.
    """

    embedding: PyTree[Array]
    value: Float[Array, " batch"]
    logits: Float[Array, "batch actions"]
    invalid: Shaped[Array, "batch actions"]

    @property
    def node(self) -> Node:
        action = jnp.full(self.value.shape, -1, jnp.int32)
        return Node(self.embedding, self.logits, self.value, action)

    @property
    def legal_logits(self) -> Float[Array, "batch actions"]:
        """What selection sees: `-inf` at invalid actions, and the largest logit is 0."""
        masked = jnp.where(self.invalid.astype(bool), -jnp.inf, self.logits.astype(jnp.float32))
        highest = jnp.max(masked, axis=1, keepdims=True)
        return masked - jnp.where(highest > -jnp.inf, highest, 0.0)


def masked_root(
    root: Any,
    logits: Float[Array, "batch actions"],
    invalid_actions: Shaped[Array, "batch actions"] | None,
) -> Root:
    """The caller's `mctx.RootFnOutput` with other logits.

    Invalid is what the caller says and, besides, what the root's own logits leave out.
    """
    logits = clean(logits)
    if invalid_actions is None:
        invalid = jnp.zeros_like(logits)
    else:
        invalid = jnp.asarray(invalid_actions)
        logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    invalid = jnp.where(illegal(root.prior_logits), jnp.ones_like(invalid), invalid)
    logits = jnp.where(invalid.astype(bool), jnp.finfo(logits.dtype).min, logits)
    return Root(root.embedding, root.value, logits, invalid)


def dirichlet(
    logits: Float[Array, "batch actions"], fraction: ArrayLike, alpha: ArrayLike, key: Array
) -> Float[Array, "batch actions"]:
    """Logarithms of `(1 - fraction) p + fraction noise`, over all actions."""
    probs = jax.nn.softmax(clean(logits))
    batch, actions = logits.shape
    noise = jr.dirichlet(key, alpha=jnp.full((actions,), alpha), shape=(batch,))
    mixed = (1 - fraction) * probs.astype(noise.dtype) + fraction * noise
    return jnp.log(jnp.maximum(mixed, jnp.finfo(mixed.dtype).tiny))


def draw(
    visits: Float[Array, "batch actions"], temperature: ArrayLike, key: Array
) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
    """An action with probability proportional to `visits ** (1 / temperature)`, and the visits over
    their sum. An action without visits is never drawn, however hot. A row without any is filler.
    """
    total = jnp.sum(visits, axis=1, keepdims=True)
    weights = jnp.where(total > 0, visits / jnp.maximum(total, 1), 1 / visits.shape[1])
    tiny = jnp.finfo(weights.dtype).tiny
    logits = jnp.log(jnp.maximum(weights, tiny))
    logits = logits - jnp.max(logits, axis=1, keepdims=True)
    logits = logits / jnp.maximum(tiny, temperature)
    return jr.categorical(key, jnp.where(weights > 0, logits, -jnp.inf)), weights
