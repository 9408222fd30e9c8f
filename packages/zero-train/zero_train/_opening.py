"""Episodes that begin with uniformly random moves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from zero_envs import AbstractEnvironment, Observation

from ._actors import RandomActor
from ._mesh import split_rows


class Opening(eqx.Module):
    """The moves with which the running episodes begin, and which nobody learns from.

    **Attributes:**

    - `plies`: how many of them are still to come, 0 after the opening.
    - `side`: who moves at random in them: 1 whoever moves first, -1 the other side, 0 both. A side
        that does not is played by the actor.
    """

    plies: Int[Array, " envs"]
    side: Float[Array, " envs"]

    @property
    def runs(self) -> Bool[Array, " envs"]:
        """The next move belongs to the opening."""
        return self.plies > 0


def drawn(env: AbstractEnvironment, keys: Key[Array, " envs"], opening_plies: int) -> Opening:
    """An opening a key, of 0 to `opening_plies` moves, in which either side or both move at random,
    each equally often."""
    nkeys, skeys = split_rows(keys, 2)
    plies = jax.vmap(lambda key: jr.randint(key, (), 0, opening_plies + 1, jnp.int32))(nkeys)
    most = getattr(env, "num_players", 2) - 1  # one player alone is both sides
    side = jax.vmap(lambda key: jr.randint(key, (), -most, most + 1, jnp.int32))(skeys)
    return Opening(plies, side.astype(jnp.float32))


def strayed(
    opening: Opening,
    sign: Float[Array, " envs"],
    state: PyTree[Array],
    obs: Observation,
    action: Int[Array, " envs"],
    keys: Key[Array, " envs"],
) -> Int[Array, " envs"]:
    """The actions, but random ones where the opening has the side to move, `sign`, move so."""
    stray, _, _ = RandomActor().act(state, obs, None, key=keys)
    here = opening.runs & ((opening.side == 0) | (opening.side == sign))
    return jnp.where(here, stray, action)
