"""Priorities with two levels of sums, so that no draw or update reads all of them."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key


class Priorities(eqx.Module):
    """The priority of every window of every environment, in blocks with a sum each.

    An update adds up the sums of its blocks anew, so rounding errors do not accumulate, and the
    sum of zeros is 0. (flashbax's tree adds differences: after 2000 updates of priorities between
    1e-10 and 1e10 its root was below 0, and one window got every draw.)

    **Attributes:**

    - `leaves`: the priorities; 0 where no window is complete.
    - `sums`: the sum of each block.
    - `highest`: the highest priority so far, which new windows get.
    """

    leaves: Float[Array, "shards envs blocks block"]
    sums: Float[Array, "shards envs blocks"]
    highest: Float[Array, " shards"]


def no_priorities(num_shards: int, num_envs: int, num_windows: int) -> Priorities:
    """Priorities of 0 for `num_windows` of each of a shard's `num_envs` environments."""
    block = math.isqrt(num_windows - 1) + 1
    axes = (num_shards, num_envs, -(-num_windows // block))
    return Priorities(
        leaves=jnp.zeros((*axes, block), jnp.float32),
        sums=jnp.zeros(axes, jnp.float32),
        highest=jnp.ones((num_shards,), jnp.float32),
    )


def totals(tree: Priorities) -> Float[Array, " shards"]:
    """The sum of the priorities of each shard."""
    return jnp.sum(tree.sums, axis=(1, 2))


def set_everywhere(
    tree: Priorities,
    first: Int[Array, " shards"],
    value: Float[Array, "shards windows"],
    mask: Bool[Array, "shards windows"],
    num_windows: int,
) -> Priorities:
    """Sets the priorities of consecutive windows where `mask` is true, in all environments.

    The windows are counted from `first` on, round the ring of `num_windows`.
    """
    num_blocks, block = tree.leaves.shape[2:]
    span = value.shape[1]
    window = (first[:, None] + jnp.arange(span, dtype=jnp.int32)[None]) % num_windows
    place = jnp.where(mask, window // block, num_blocks)

    # The windows lie in blocks that follow each other. Both ends may lie in the middle of one,
    # and the last one of the ring may be short.
    touched = min(num_blocks, (span - 1) // block + 3)
    first_block = window[:, 0] // block
    blocks = (first_block[:, None] + jnp.arange(touched, dtype=jnp.int32)[None]) % num_blocks

    def one_shard(leaves, sums, place, inside, value, blocks):
        leaves = leaves.at[:, place, inside].set(value[None], mode="drop", unique_indices=True)
        new = jnp.sum(leaves[:, blocks], axis=2)
        return leaves, sums.at[:, blocks].set(new, unique_indices=True)

    leaves, sums = jax.vmap(one_shard)(tree.leaves, tree.sums, place, window % block, value, blocks)
    return Priorities(leaves, sums, tree.highest)


def set_some(
    tree: Priorities,
    shard: Int[Array, " some"],
    env: Int[Array, " some"],
    window: Int[Array, " some"],
    value: Float[Array, " some"],
) -> Priorities:
    """Sets the priorities of single windows. Windows of unknown shards are dropped.

    Where a window comes twice, the higher value counts. Values are bounded so that no sum
    overflows and the reciprocal of none underflows.
    """
    num_windows, block = math.prod(tree.leaves.shape[1:]), tree.leaves.shape[3]
    value = jnp.minimum(value, 2.0**125 / num_windows)
    at = shard, env, window // block, window % block
    leaves = tree.leaves.at[at].set(0.0, mode="drop").at[at].max(value, mode="drop")
    new = jnp.sum(leaves.at[at[:3]].get(mode="fill", fill_value=0.0), axis=1)
    return Priorities(
        leaves=leaves,
        sums=tree.sums.at[at[:3]].set(new, mode="drop"),
        highest=tree.highest.at[shard].max(value, mode="drop"),
    )


def draw(
    tree: Priorities, num_draws: int, *, keys: Key[Array, " shards"]
) -> tuple[Int[Array, "shards draws"], Int[Array, "shards draws"], Float[Array, "shards draws"]]:
    """Draws windows with probability proportional to their priority, with a key for each shard.

    The environments of a shard's draws are stratified: its total is cut into `num_draws` equal
    parts, and each part gives one draw its environment. Within an environment windows are drawn
    independently, where those of Schaul et al. 2016, appendix B.2.1, are stratified too. A window
    of priority 0 is only drawn where all are 0.

    **Returns:** environments (of the shard), windows and their probabilities.
    """

    def one_shard(leaves: Array, sums: Array, key: Key[Array, ""]):
        ekey, bkey, wkey = jr.split(key, 3)
        part = jnp.arange(num_draws, dtype=jnp.float32)
        uniform = (part + jr.uniform(ekey, (num_draws,), jnp.float32)) / num_draws
        env = jax.vmap(_pick, (None, 0))(jnp.sum(sums, axis=1), uniform)
        # Every level has a random number of its own: the digits of one are too few for all.
        block = jax.vmap(_pick)(sums[env], jr.uniform(bkey, (num_draws,), jnp.float32))
        # The row is read once. With two reads, XLA copies all priorities before an update.
        row = leaves[env, block]
        inside = jax.vmap(_pick)(row, jr.uniform(wkey, (num_draws,), jnp.float32))
        priority = jnp.take_along_axis(row, inside[:, None], axis=1)[:, 0]
        total = jnp.sum(sums)
        probability = priority / jnp.where(total > 0, total, 1.0)
        return env, block * leaves.shape[2] + inside, probability

    return jax.vmap(one_shard)(tree.leaves, tree.sums, keys)


def _pick(weights: Float[Array, " n"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Picks one of the `weights` by inversion of their cumulative sum, never one that is 0."""
    # Each prefix sum has a rounding error of its own. Here it rises at positive weights only, so
    # the first prefix sum above a number is not at a weight of 0.
    reach = jax.lax.cummax(jnp.where(weights > 0, jnp.cumsum(weights), 0.0))
    below_one = jnp.minimum(uniform, 1 - float(jnp.finfo(jnp.float32).epsneg))
    index = jnp.searchsorted(reach, below_one * reach[-1], side="right")
    return jnp.minimum(index, weights.shape[0] - 1).astype(jnp.int32)
