"""`othello gtp`: the Go Text Protocol for Othello.

Unlike in Go, boards are 8 by 8, A1 is the upper left corner, a pass is legal only for a side
without a move, and `final_score` counts discs.
"""

import dataclasses
import importlib.metadata
from typing import ClassVar

from zero_train.app import AbstractPlayerCommand, App, Bounds, serve_gtp

from ._config import Config, SIMULATIONS
from ._play import new_game


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractPlayerCommand):
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        start = new_game(self.load(app), self.simulations, 0)
        serve_gtp(start, "zero-othello", importlib.metadata.version("zero-othello"))
