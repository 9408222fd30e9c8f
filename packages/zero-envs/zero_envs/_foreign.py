"""What every adapter to somebody else's environments needs."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray


_Tree = TypeVar("_Tree")


@contextlib.contextmanager
def default_numerics() -> Iterator[None]:
    """Others mix dtypes and ranks freely, so they are traced under JAX's default rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def raw_key(key: PRNGKeyArray) -> Array:
    """The raw key that others are written for.

    They pass keys through `lax.cond`, which under `vmap` selects between two copies of a typed
    key, and `jax_debug_key_reuse` takes that for reuse. A raw key is always of JAX's default kind.
    """
    default = jax.eval_shape(jax.random.key, 0).dtype
    return jax.random.key_data(key) if key.dtype == default else key


def strongly_typed(tree: _Tree) -> _Tree:
    """Gives every leaf a dtype of its own.

    Others start with Python numbers, which are weakly typed and would make the second step trace
    again.
    """
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def unknown(call: str, name: str, allowed: Iterable[str]) -> ValueError:
    """There is nothing of that name; says what comes near, and what there is."""
    allowed = sorted(allowed)
    folded = {known.lower(): known for known in allowed}
    near = [folded[known] for known in difflib.get_close_matches(name.lower(), folded, 3, 0.5)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return ValueError(
        f'{call}("{name}"): no such environment.{meant} Allowed: {", ".join(allowed)}.'
    )
