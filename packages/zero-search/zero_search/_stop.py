"""A search that ends before its last simulation, once its moves are certain."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ._forest import take
from ._proof import Bounds
from ._walk import Fixed


def until_decided(
    fixed: Fixed, first: Any, number: Any, turn: Callable[..., Any], init: Any
) -> Any:
    """`lax.fori_loop(first, number, turn, init)` over what has a `forest`, ended once no simulation
    that is left can make another action the most visited, the lowest index among equals, in any
    row; where proofs are kept, once the returns of all roots are proven, since what is most visited
    may still be proven to be worse. Each row has at least one simulation."""
    leaves, most = fixed.rules.num_leaves, fixed.rules.max_return

    def going_on(carry: tuple[Int[Array, ""], Any]) -> Bool[Array, ""]:
        edge, legal = take(carry[1].forest.edge, fixed.base), fixed.prior[:, 0] > -jnp.inf
        visits = jnp.where(legal, edge[:, 0], -1.0)
        best, leader = jnp.max(visits, axis=1, keepdims=True), jnp.argmax(visits, axis=1)[:, None]
        if most is None:
            index = jnp.arange(visits.shape[1], dtype=jnp.int32)[None]
            left = leaves * (number - carry[0]).astype(jnp.float32)
            reach = visits + jnp.where((visits < 0) | (index == leader), -jnp.inf, left)
            overtakes = jnp.where(index < leader, reach >= best, reach > best)
            going = jnp.any(overtakes, axis=1)
        else:
            going = ~Bounds.of(edge, most).proven(legal)
        return (carry[0] < number) & jnp.any(fixed.alive & (going | (best[:, 0] < 1)))

    after = lambda carry: (carry[0] + 1, turn(*carry))
    return jax.lax.while_loop(going_on, after, (first, init))[1]
