"""Rows of a batch: one key each, and choosing between batches row by row."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree


Tree = TypeVar("Tree", bound=PyTree)


def row_keys(key: PRNGKeyArray, rows: Int[Array, " rows"]) -> Key[Array, " rows"]:
    """One key a row, folded from the row's global index: splitting rows over devices changes
    nothing."""
    return jax.vmap(jr.fold_in, in_axes=(None, 0))(key, rows)


def split_rows(keys: Key[Array, " rows"], num: int) -> tuple[Key[Array, " rows"], ...]:
    """Splits every row's key into `num` consumers' keys."""
    split = jax.vmap(lambda key: jr.split(key, num))(keys)
    return tuple(split[:, i] for i in range(num))


def select_rows(mask: Bool[Array, "*rows"], on_true: Tree, on_false: Tree) -> Tree:
    """`on_true` in the rows where `mask` holds, `on_false` in the others, leaf by leaf."""

    def select(x: Array, y: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)

    return jax.tree.map(select, on_true, on_false)
