"""The action to play, of the candidates and their weights."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from .._sample import sample_action
from ._step import pick


READOUTS = ("sampled", "argmax", "mean")


def read_out(
    readout: str,
    candidates: PyTree[Array],
    weights: Float[Array, "batch particles"],
    key: Key[Array, " batch"],
) -> PyTree[Array]:
    """One action a row, as [`zero_search.ParticleSearch`][] explains them."""
    if readout == "mean":
        return jax.tree.map(lambda x: _mean(x, weights), candidates)
    if readout == "sampled":
        index = sample_action(weights, 1.0, key=key)
    else:
        index = jnp.argmax(_together(candidates, weights), axis=1)
    return pick(candidates, index)


def _mean(x: Array, weights: Float[Array, "batch particles"]) -> Float[Array, "batch ..."]:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f'`ParticleSearch(readout="mean")` got actions of {x.dtype}, which have no mean: use '
            '"sampled" or "argmax".'
        )
    return jnp.einsum("bn...,bn->b...", x, weights.astype(x.dtype))


def _together(
    candidates: PyTree[Array], weights: Float[Array, "batch particles"]
) -> Float[Array, "batch particles"]:
    """The weight of every candidate and all equal to it."""
    flat = [x.reshape(*weights.shape, -1) for x in jax.tree.leaves(candidates)]
    pairs = [jnp.all(x[:, :, None] == x[:, None], axis=-1) for x in flat]
    same = jnp.all(jnp.stack(pairs), axis=0)
    return jnp.sum(jnp.where(same, weights[:, None], 0.0), axis=2)
