"""`zero serve`: a game against a trained player in the browser."""

import dataclasses
from typing import Any

from zero_envs import PgxEnvironment
from zero_train.app import AbstractServe, Game, Trained, UsageError

from ._board import Board
from ._config import Config
from ._worlds import world_of_two


#: What the sides of games are called whose stones have colours, and how their cells look.
_LOOKS: dict[str, dict[str, Any]] = {
    "pgx/tic_tac_toe": {},
    "pgx/connect_four": {"sides": ("red", "yellow"), "style": "holes"},
    "pgx/hex": {"sides": ("red", "blue"), "style": "hexagons"},
    "pgx/go_9x9": {"sides": ("black", "white"), "style": "points"},
    "pgx/go_19x19": {"sides": ("black", "white"), "style": "points"},
    "pgx/chess": {"sides": ("white", "black")},
    "pgx/gardner_chess": {"sides": ("white", "black")},
}


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def game(self, trained: Trained[Config]) -> Game:
        world = world_of_two(trained.config.env, self.run)
        board = Board.of(world)
        # Who plays a game of two searches a tree.
        player: Any = trained.player
        if board.shape is None and not hasattr(world.env, "render"):
            raise UsageError(f"{world.name} cannot be drawn; `zero play {self.run}` may do.")
        env: Any = world.env
        return Game(
            title=world.name.removeprefix("pgx/").replace("_", " ").capitalize(),
            env=env,
            player=player,
            names=[board.name(action) for action in range(board.num_actions)],
            other_names=[board.name(action, False) for action in range(board.num_actions)],
            shape=board.shape,
            draw=board.svg,
            viewer=_viewer if isinstance(env, PgxEnvironment) else None,
            chance=world.name == "pgx/backgammon",
            **_LOOKS.get(world.name, {"sides": ("first", "second")}),
        )


def _viewer(state: Any) -> Any:
    return state.position.current_player
