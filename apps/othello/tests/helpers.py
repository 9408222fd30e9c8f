"""A game with a player without a network, shared by the tests so that it compiles once."""

import functools as ft

import jax.numpy as jnp
import jax.random as jr

from zero_app import Game
from zero_envs import AbstractDiscreteEnvironment, Othello
from zero_othello._board import Board
from zero_search import TreeSearch
from zero_train import AbstractActor, EnvironmentModel, PlanningActor


name, parse = Board().name, Board().action

#: How often the evaluator below was traced: a planner that compiles twice shows here.
TRACES: list[None] = []


def by_discs(obs):
    """Prefers low squares; a position is worth what the discs on the board say."""
    TRACES.append(None)
    own, opponent = obs.features[..., 0], obs.features[..., 1]
    margin = jnp.sum(own, dtype=jnp.float32) - jnp.sum(opponent, dtype=jnp.float32)
    return jnp.linspace(1.0, 0.0, 65, dtype=jnp.float32), margin / 64.0


@ft.cache
def othello() -> Othello:
    return Othello()


def new_game(
    actor: AbstractActor | None = None, env: AbstractDiscreteEnvironment | None = None
) -> Game:
    """A fresh game; all of them share one compilation."""
    env = env or othello()
    planner = TreeSearch(num_simulations=12, max_nodes=48, reuse=True)
    actor = actor or PlanningActor(planner, EnvironmentModel(env, by_discs))
    return Game.start(env, actor, Board(), key=jr.key(0))


#: Black wipes white out in nine moves.
WIPE_OUT = "e6 f4 e3 f6 g5 d6 e7 f5 c5".split()

#: After these, black to move has no square to play.
BEFORE_PASS = "c4 c3 e6 b4 a4 a5 c2 a3".split()
