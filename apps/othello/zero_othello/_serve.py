"""`othello serve`: a game against a trained player in the browser."""

import dataclasses
from typing import Any

from zero_train.app import AbstractServe, App, Page, Service

from ._board import Board, SIZE
from ._config import Config


PAGE = Page("Othello", Board(), shape=(SIZE, SIZE))


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def services(self, app: App[Config]) -> list[Service]:
        trained = self.load(app)
        env: Any = trained.loop.env  # whose actions are discrete
        return [Service.of_search(env, trained.player, PAGE)]
