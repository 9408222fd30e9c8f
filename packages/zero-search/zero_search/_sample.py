"""Rows of arrays and keys: drawing actions by weight, softmax, selection, splitting."""

import functools as ft
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.sharding import AxisType
from jaxtyping import Array, Bool, Float, Key, UInt32

from ._check import check_count, check_range
from ._types import Floats, Ints, Keys, Number, PerAction


T = TypeVar("T")


class Temperature(eqx.Module):
    """A temperature by move number: `first` for the first `moves` moves, `then` afterwards.

    Moves of both players count, from 0 at the first one that the planner is asked for.
    """

    first: float = 1.0
    then: float = 0.0
    moves: int = 30

    def __check_init__(self):
        check_range("Temperature", 0, first=self.first, then=self.then)
        check_count("Temperature", 0, moves=self.moves)

    def __call__(self, ply: Ints) -> Floats:
        """The temperature of each row."""
        return jnp.where(ply < self.moves, jnp.float32(self.first), jnp.float32(self.then))


def sample_action(
    weights: PerAction, temperature: float | Float[Array, ""] | Floats, *, key: Keys
) -> Ints:
    """Draws an action with probability proportional to `weights ** (1 / temperature)`.

    Temperature 0 takes the largest weight, the lowest index among equals. An action of weight 0
    is never drawn; a row without any weight returns 0, and one with a weight that is NaN or
    negative -1, which is no action.
    """
    batch, num_actions = weights.shape
    heat = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), (batch,))[:, None]
    logits = jnp.log(weights / jnp.maximum(jnp.max(weights, axis=1, keepdims=True), 1e-30))
    noise = jax.vmap(lambda k: jr.gumbel(k, (num_actions,), jnp.float32))(key)
    # The largest weight has logit 0, so no temperature overflows it. `-inf` over an infinite one
    # would be NaN.
    warm = logits / jnp.where(heat > 0, heat, 1.0) + noise
    scores = jnp.where((heat > 0) & (logits > -jnp.inf), warm, logits)
    action = jnp.argmax(scores, axis=1).astype(jnp.int32)
    return jnp.where(jnp.all(weights >= 0, axis=1), action, -1)


def safe_softmax(logits: PerAction, temperature: float | Array = 1.0) -> PerAction:
    """Softmax that gives 0 to `-inf` and zeros to a row of nothing else."""
    highest = jnp.max(logits, axis=1, keepdims=True)
    weights = jnp.exp((logits - jnp.where(highest > -jnp.inf, highest, 0.0)) / temperature)
    total = jnp.sum(weights, axis=1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1.0)


def split_rows(key: Keys, number: int) -> tuple[Keys, ...]:
    """Splits every row's key into `number` keys."""
    return jax.vmap(lambda k: tuple(jr.split(k, number)))(key)


def folded(key: Key[Array, "*axes"], number: Number) -> Key[Array, "*axes"]:
    """`jax.random.fold_in` of every key."""
    return jax.vmap(jr.fold_in, in_axes=(0, None))(key.reshape(-1), number).reshape(key.shape)


def numbered(key: Keys, number: int) -> Key[Array, "batch {number}"]:
    """So many keys for every row's key: those that its numbers from 0 on are folded into."""
    each = jnp.arange(number, dtype=jnp.int32)
    return jax.vmap(lambda k: jax.vmap(lambda i: jr.fold_in(k, i))(each))(key)


def uniform(key: Keys, *shape: int) -> Float[Array, "batch ..."]:
    """Numbers from 0 to below 1, of every row's key."""
    return jax.vmap(lambda k: jr.uniform(k, shape, jnp.float32))(key)


def seeds(key: Keys) -> UInt32[Array, " batch"]:
    """32 random bits of every row's key."""
    return jax.vmap(lambda k: jr.bits(k, (), jnp.uint32))(key)


def inverted(weights: Float[Array, "batch entries"], share: Floats) -> Ints:
    """An entry a row, drawn by weight: the first with a weight at which the running sum of the
    weights exceeds `share`, a number of `[0, 1)`, of the whole. An entry without weight is not
    drawn if any has one, though rounding lets a running sum fall.
    """
    below = jnp.cumsum(jnp.maximum(weights, 0.0), axis=1)
    passed = below > (share * below[:, -1])[:, None]
    rank = jnp.where(weights > 0, 1 + passed.astype(jnp.int32), 0)
    return jnp.argmax(rank, axis=1).astype(jnp.int32)


def varying(tree: T, like: Any) -> T:
    """`tree`, which under `jax.shard_map` varies over devices as anything in `like` does.

    A loop or a branch must carry arrays that vary alike from beginning to end, and a constant
    varies over none. Elsewhere this does nothing.
    """
    if AxisType.Manual not in jax.sharding.get_abstract_mesh().axis_types:
        return tree
    # JAX's check of key reuse would take a choice between equal keys for a second use.
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    bits = lambda x: jr.key_data(x) if is_key(x) else x
    wrap = lambda x, like: jr.wrap_key_data(x, impl=jr.key_impl(like)) if is_key(like) else x
    first = [bits(x).ravel()[0] for x in jax.tree.leaves(like) if eqx.is_array(x) and x.size]
    # XLA drops a choice between equals, and with it the condition.
    mark = ft.reduce(jnp.logical_or, [x == x for x in first])
    cast = lambda x: wrap(jnp.where(mark, bits(x), bits(x)), x) if eqx.is_array(x) else x
    return jax.tree.map(cast, tree)


def where_rows(mask: Bool[Array, "*axes"], x: T, y: T) -> T:
    """`jnp.where` over two pytrees whose arrays begin with the axes of `mask`."""
    pick = lambda x, y: jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)
    return jax.tree.map(pick, x, y)


def equal_rows(x: T, y: T, num_axes: int) -> Bool[Array, "..."]:
    """Where two pytrees are equal in every leaf, by their first `num_axes` axes; NaN equals NaN."""

    def same(x: Array, y: Array) -> Array:
        match = x == y
        if jnp.issubdtype(x.dtype, jnp.floating):
            match = match | (jnp.isnan(x) & jnp.isnan(y))
        return jnp.all(match.reshape(*match.shape[:num_axes], -1), axis=-1)

    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(same, x, y))), axis=0)
