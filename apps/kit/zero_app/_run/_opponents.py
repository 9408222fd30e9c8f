"""Opponents that never learn, of any game."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Int32, Key, PyTree, UInt32

from zero_envs import AbstractDiscreteEnvironment, Observation
from zero_search import PlayoutModel, TreeSearch
from zero_train import AbstractReflexActor, EnvironmentModel, indifferent, PlanningActor

from ._evaluation import MOST_MOVES


class HostActor(AbstractReflexActor):
    """A player on the host, such as one that is [`zero_app.compiled`][]: one position after the
    other. Its record is `None`.

    **Attributes:**

    - `choose`: `(features, seed) -> action`, a legal action for the features of one observation, as
        NumPy arrays. All random choices follow from the seed, below `2**32`. Where the game is over
        it may give any number.
    - `fewest_plies`: before so many a move takes long, and `eval` asks for longer openings.
    """

    choose: Callable[[Any, int], int] = eqx.field(static=True)
    fewest_plies: int = eqx.field(static=True, default=0)

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], None, None]:
        del state, carry
        seeds = jax.vmap(jr.bits)(key)
        shape = jax.ShapeDtypeStruct(seeds.shape, jnp.int32)
        return jax.pure_callback(self._chosen, shape, obs.features, seeds), None, None

    def _chosen(
        self, features: PyTree[Any], seeds: UInt32[Any, " batch"]
    ) -> Int32[np.ndarray, " batch"]:
        features, seeds = jax.tree.map(np.asarray, (features, seeds))
        row = lambda i: jax.tree.map(lambda x: x[i], features)
        return np.array([self.choose(row(i), int(x)) for i, x in enumerate(seeds)], np.int32)


def uct(env: AbstractDiscreteEnvironment, *, num_playouts: int = 200) -> PlanningActor:
    """UCT (Kocsis and Szepesvari, "Bandit based Monte-Carlo planning", 2006) with c = sqrt(2) for
    win rates and `num_playouts` uniformly random playouts per move. It plays the most visited move,
    and keeps no tree between moves."""
    model = PlayoutModel(EnvironmentModel(env, indifferent), num_steps=MOST_MOVES)
    return PlanningActor(TreeSearch.uct(num_playouts), model)
