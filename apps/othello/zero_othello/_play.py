"""`othello play`: a person against a trained player, in the terminal."""

import dataclasses
from typing import Any, ClassVar

import jax.random as jr
from rich.console import Console

from zero_train.app import (
    AbstractPlayerCommand,
    App,
    Bounds,
    Game,
    Session,
    Trained,
    with_simulations,
)

from ._board import Board, Colour
from ._config import Config, SIMULATIONS


@dataclasses.dataclass(frozen=True)
class Play(AbstractPlayerCommand):
    """Play against a trained player in the terminal."""

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    colour: Colour = "black"
    """Your colour; black moves first."""
    seed: int = 0
    """The seed of the player's search."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        start = new_game(self.load(app), self.simulations, self.seed)
        Session(start, Console(), first=self.colour == "black").run()


def new_game(trained: Trained[Config], simulations: int | None, seed: int) -> Game:
    """A game with a trained player.

    **Arguments:**

    - `simulations`: simulations a move, 0 for the network without a search; by default those of the
        run's configuration.
    """
    actor: Any = with_simulations(trained.player, simulations)
    return Game.start(trained.loop.env, actor, Board(), key=jr.key(seed))
