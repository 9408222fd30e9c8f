"""Tic-tac-toe over HTTP, against a player that prefers low cells."""

import jax.numpy as jnp
import pytest

from zero_app import AbstractBoard, Page, Service
from zero_envs import PgxEnvironment
from zero_search import TreeSearch
from zero_train import EnvironmentModel, PlanningActor


TRACES: list[None] = []
#: X wins with its fifth move, in the upper row.
WON = "a1 a2 b1 b2 c1".split()
DRAWN = "a1 b1 c1 a2 c2 b2 a3 c3 b3".split()
URL = "http://127.0.0.1:8000"
JSON = {"content-type": "application/json"}


def prefers_low_cells(obs):
    TRACES.append(None)
    return jnp.linspace(1.0, 0.0, 9, dtype=jnp.float32), jnp.zeros((), jnp.float32)


class Cells(AbstractBoard):
    sides = ("X", "O")
    example, about = "b2", "play there"

    def name(self, action, first=True):
        return f"{'abc'[action % 3]}{action // 3 + 1}"

    def action(self, name, first=True):
        return [self.name(action) for action in range(9)].index(name)

    def draw(self, game, *, plain) -> str:
        pytest.fail("the browser draws the board")

    def result(self, game):
        return "a draw" if game.total == 0 else f"{self.sides[game.total < 0]} wins"


def service_of(evaluate):
    env = PgxEnvironment("tic_tac_toe")
    player = PlanningActor(TreeSearch.alphazero(8), EnvironmentModel(env, evaluate))
    return Service.of_search(env, player, Page("Tic tac toe", Cells(), shape=(3, 3)))


def asked(client, moves=(), **more):
    return client.post("/api/0/position", json={"moves": list(moves), **more})
