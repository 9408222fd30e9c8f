"""States that random play comes to, shared by the tests."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_envs import Monsters, MonstersState


def played(env: Monsters, games: int, steps: int, seed: int = 0) -> MonstersState:
    """`games * steps` states `[states]`, in some of which the game is over."""

    def game(key):
        def step(state, i):
            akey, skey = jr.split(jr.fold_in(key, i))
            legal = env.observe(state).legal
            assert legal is not None
            action = jr.categorical(akey, jnp.where(legal, 0.0, -jnp.inf)).astype(jnp.int32)
            return env.step(state, action, key=skey)[0], state

        start = env.init(key=jr.fold_in(key, steps))
        return jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))[1]

    states = jax.jit(jax.vmap(game))(jr.split(jr.key(seed), games))
    return jax.tree.map(lambda x: np.asarray(x).reshape(games * steps, *x.shape[2:]), states)
