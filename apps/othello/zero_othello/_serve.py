"""`othello serve`: a game against a trained player in the browser."""

import dataclasses
from typing import Any

from jaxtyping import Array

from zero_envs import OthelloState, PgxState
from zero_train.app import AbstractServe, Game, Trained

from ._board import name, PASS, SIZE
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def game(self, trained: Trained[Config]) -> Game:
        env: Any = trained.loop.env  # whose actions are discrete
        player: Any = trained.player  # which plans
        return Game(
            title="Othello",
            env=env,
            player=player,
            names=[name(action).lower() for action in range(PASS + 1)],
            sides=("black", "white"),
            shape=(SIZE, SIZE),
            viewer=_viewer,
        )


def _viewer(state: OthelloState | PgxState) -> Array:
    if isinstance(state, OthelloState):
        return state.white
    return state.position.current_player
