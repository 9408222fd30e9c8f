"""Uniform draws without replacement whose cost does not grow with the population."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray


def distinct_ranks(
    population: Int[Array, ""], num_draws: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, " draws"], Bool[Array, " draws"]]:
    """Draws `num_draws` distinct integers below `population`, every sequence equally likely.

    Work and memory are O(`num_draws` log `num_draws`), whatever the (traced) population.

    - From a population of at least `2 * num_draws` values are drawn with replacement. Those equal
      to the value of an earlier position are drawn again, until all differ. By symmetry every
      sequence of distinct values is equally likely, and fewer than half of the redrawn values
      collide again.
    - A smaller population is shuffled, by sorting `2 * num_draws` values by random numbers.

    **Returns:** the integers, and which of them are distinct draws: all, or the first `population`
    when there are fewer than `num_draws`. The rest repeat them (they are 0 if the population is
    empty).
    """
    dkey, pkey = jr.split(key)
    large = population >= 2 * num_draws

    def redraw(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        round, ranks, unsettled = carry
        draw = jr.randint(jr.fold_in(dkey, round), (num_draws,), 0, population, dtype=jnp.int32)
        ranks = jnp.where(unsettled, draw, ranks)
        return round + 1, ranks, _repeats(ranks)

    def shuffle(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        round, _ = carry
        value = jnp.arange(2 * num_draws, dtype=jnp.int32)
        outside = value >= population
        bits = jr.bits(jr.fold_in(pkey, round), (2, 2 * num_draws), jnp.uint32)
        *_, order = jax.lax.sort((outside, bits[0], bits[1], value), num_keys=3)
        return round + 1, order[:num_draws]

    none, blank = jnp.zeros((), jnp.int32), jnp.zeros((num_draws,), jnp.int32)
    _, sparse, _ = jax.lax.while_loop(
        lambda carry: large & jnp.any(carry[2]), redraw, (none, blank, jnp.ones((num_draws,), bool))
    )
    # A loop of at most one round. Unlike a `cond`, it is skipped under vmap if no row needs it.
    _, dense = jax.lax.while_loop(lambda carry: ~large & (carry[0] == 0), shuffle, (none, blank))
    # Positions past the population hold values outside it: they repeat the others in turn.
    position = jnp.arange(num_draws, dtype=jnp.int32)
    dense = dense[position % jnp.clip(population, 1, num_draws)]
    dense = jnp.where(population > 0, dense, 0)

    return jnp.where(large, sparse, dense), position < population


def _repeats(ranks: Int[Array, " draws"]) -> Bool[Array, " draws"]:
    """Which positions hold a value that an earlier position holds."""
    # Sorting the values alone takes a sixth of the time of sorting positions by them.
    place = jnp.searchsorted(jnp.sort(ranks), ranks)
    position = jnp.arange(ranks.shape[0], dtype=jnp.int32)
    first = jnp.full(ranks.shape, ranks.shape[0], jnp.int32).at[place].min(position)
    return first[place] < position
