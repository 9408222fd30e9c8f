"""Commands that play a game with a trained player, move by move."""

import dataclasses
from typing import Any

import jax.random as jr

from .._command._config import Simulations
from .._run._app import Trained
from .._run._evaluation import with_simulations
from .._run._players import AbstractPlayerCommand
from ._game import AbstractBoard, Game


@dataclasses.dataclass(frozen=True)
class AbstractGameCommand(AbstractPlayerCommand):
    """A command that plays a game with a trained player, move by move."""

    simulations: Simulations | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    def start(self, trained: Trained[Any], board: AbstractBoard, seed: int) -> Game:
        """A new game, in which the player has so many simulations."""
        actor = with_simulations(trained.player, self.simulations)
        return Game.start(trained.loop.env, actor, board, key=jr.key(seed))
