"""Games that begin with uniformly random moves."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PyTree

from zero_envs import AbstractEnvironment, Observation

from ._actors import RandomActor
from ._mesh import select_rows, split_rows


def begin(env: AbstractEnvironment, keys: Key[Array, " rows"], opening_plies: int) -> PyTree[Array]:
    """Fresh states, one a key, each after a number of random moves drawn from 0 to
    `opening_plies`."""
    if opening_plies == 0:
        return jax.vmap(env.init)(key=keys)
    nkeys, okeys = split_rows(keys, 2)
    plies = jax.vmap(lambda key: jr.randint(key, (), 0, opening_plies + 1))(nkeys)
    return opened(env, okeys, plies, opening_plies)[0]


def opened(
    env: AbstractEnvironment,
    keys: Key[Array, " rows"],
    plies: Int[Array, " rows"],
    most_plies: int,
) -> tuple[PyTree[Array], Bool[Array, " rows"]]:
    """Fresh states, each after its own number of random moves, `plies`, at most `most_plies`.

    **Returns:** the states, none of them final, and which openings were cut short, each before a
    move that would have ended the episode.
    """
    ikeys, pkeys = split_rows(keys, 2)

    def ply(i: Array, loop: tuple) -> tuple:
        state, ended = loop
        akeys, skeys = split_rows(jax.vmap(jr.fold_in, (0, None))(pkeys, i), 2)
        obs: Observation = jax.vmap(env.observe)(state)
        action, _, _ = RandomActor().act(state, obs, None, key=akeys)
        next_state, transition = jax.vmap(env.step)(state, action, key=skeys)
        ended = ended | (transition.last & (i < plies))
        return select_rows(ended | (i >= plies), state, next_state), ended

    state = jax.vmap(env.init)(key=ikeys)
    return jax.lax.fori_loop(0, most_plies, ply, (state, jnp.zeros(keys.shape, bool)))
