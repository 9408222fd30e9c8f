"""A search that ends before its last simulation, once its moves are certain."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._forest import take
from ._proof import Bounds
from ._types import Mask, PerAction
from ._walk import Fixed


def until_decided(
    fixed: Fixed, first: Any, number: Any, turn: Callable[..., Any], init: Any
) -> Any:
    """`lax.fori_loop(first, number, turn, init)` over what has a `forest`, ended once the most
    visited action of every row is certain and was visited. Where proofs are kept it ends once the
    returns of all roots are proven, since what is most visited may still be proven to be worse."""
    leaves, most = fixed.rules.num_leaves, fixed.rules.max_return
    legal = fixed.prior[:, 0] > -jnp.inf

    def going_on(carry: tuple[Int[Array, ""], Any]) -> Bool[Array, ""]:
        simulation, loop = carry
        edge = take(loop.forest.edge, fixed.base)
        if most is None:
            left = leaves * (number - simulation).astype(jnp.float32)
            done = certain(edge[:, 0], legal, left)
        else:
            done = Bounds.of(edge, most).proven(legal)
        return (simulation < number) & jnp.any(fixed.alive & ~done)

    after = lambda carry: (carry[0] + 1, turn(*carry))
    return jax.lax.while_loop(going_on, after, (first, init))[1]


def certain(visits: PerAction, legal: Mask, left: Float[Array, ""]) -> Bool[Array, " batch"]:
    """Whether the most visited legal action, of equals the first one, stays so whatever the visits
    that are `left` go to, and has a visit."""
    visits = jnp.where(legal, visits, -1.0)
    best = jnp.max(visits, axis=1, keepdims=True)
    leader = jnp.argmax(visits, axis=1)[:, None].astype(jnp.int32)
    index = jnp.arange(visits.shape[1], dtype=jnp.int32)[None]
    reach = jnp.where(legal & (index != leader), visits + left, -1.0)
    overtakes = jnp.where(index < leader, reach >= best, reach > best)
    return (best[:, 0] > 0) & ~jnp.any(overtakes, axis=1)
