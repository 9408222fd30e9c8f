"""`zero gtp`: the Go Text Protocol for Go."""

import dataclasses
import importlib.metadata
from typing import ClassVar

import jax.random as jr

from zero_train.app import (
    AbstractPlayerCommand,
    App,
    Bounds,
    Game,
    serve_gtp,
    UsageError,
    with_simulations,
)

from ._board import Board
from ._config import Config, SIMULATIONS
from ._worlds import world_of_two


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractPlayerCommand):
    """Serve a player of Go over the Go Text Protocol, version 2, on stdin and stdout."""

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        world = world_of_two(trained.config.env, self.run)
        board = Board(world, self.folder / "play.svg")
        if board.stones is None:
            raise UsageError(
                f"GTP is for Go and Othello; `zero play {self.run}` plays {world.name}."
            )
        actor = with_simulations(trained.player, self.simulations)
        start = Game.start(world.env, actor, board, key=jr.key(0))
        serve_gtp(start, "zero", importlib.metadata.version("zero-cli"))
