"""`zero watch`: a trained player alone, or against itself."""

import dataclasses
import math
import time
from typing import ClassVar

import jax.random as jr

from zero_train.app import AbstractPlayerCommand, App, Bounds, Game, with_simulations

from ._board import Board
from ._config import Config, SIMULATIONS
from ._worlds import build_world


@dataclasses.dataclass(frozen=True)
class Watch(AbstractPlayerCommand):
    """Watch a trained player alone, or against itself.

    Pictures are numbered files in the folder `watch` of the run, where there is no board for a
    terminal.
    """

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    max_moves: int | None = None
    """Moves after which it stops; by default those of the run's configuration."""
    delay: float = 0.5
    """Seconds between two moves."""
    seed: int = 0
    """The seed of the game and of the player's search."""

    bounds: ClassVar[Bounds] = {
        "simulations": SIMULATIONS,
        "max_moves": (1, math.inf),
        "delay": (0, math.inf),
    }

    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        world = build_world(trained.config.env)
        actor = with_simulations(trained.player, self.simulations)
        board = Board(world, self.folder / "watch" / "{:04}.svg")
        game = Game.start(world.env, actor, board, key=jr.key(self.seed))
        moves = trained.config.max_moves if self.max_moves is None else self.max_moves
        print(board.draw(game, plain=True))
        while not game.over and game.num_plies < moves:
            action = int(game.plan.action)
            side = f"{game.mover} " if world.players == 2 else ""
            print(f"{game.num_plies + 1}. {side}{game.name(action)}", flush=True)
            game = game.play(action)
            time.sleep(self.delay)
            print(board.draw(game, plain=True))
        whose = " for X, who moved first" if world.players == 2 else ""
        print(f"return {game.total:g}{whose}")
