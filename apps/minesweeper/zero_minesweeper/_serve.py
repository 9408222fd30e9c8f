"""`minesweeper serve`: boards in the browser, with the exact risks of their cells."""

import contextlib
import dataclasses

import numpy as np
import tyro

from zero_app import AbstractBoard, AbstractServe, App, Game, Page, Service, UsageError
from zero_envs import Minesweeper
from zero_train import AbstractActor

from ._agents import build_agent
from ._config import Config
from ._game import heat
from ._scene import draw, name, parse, Picture
from ._table import network_of, Table, TableArguments


#: Rows, columns and mines of the boards that are offered beside the one that was asked for, and the
#: states that their posterior may need.
_BOARDS = ((9, 9, 10, 512), (16, 16, 40, 1024), (16, 30, 99, 4096))
#: Simulations of searches that are offered, with the player's own number.
_SIMULATIONS = 64


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play in the browser, with the probability of a mine in each cell if you want it."""

    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()

    def services(self, app: App[Config]) -> list[Service]:
        usual = self.table.at(app, self, ["belief"])
        env = usual.env
        boards = {(env.rows, env.columns, env.num_mines): env.max_states}
        for rows, columns, mines, max_states in _BOARDS:
            boards.setdefault((rows, columns, mines), max_states)
        asked, *others = (
            Minesweeper(*board, pays="win", max_states=most) for board, most in boards.items()
        )
        services = [service(usual, asked)]
        for other in others:
            with contextlib.suppress(UsageError):  # its beliefs take more memory than there is
                services.append(service(usual, other))
        return services


def service(table: Table, env: Minesweeper) -> Service:
    """The answers about boards of an environment that pays for wins, with the agents of a table."""
    players: dict[int, AbstractActor] = {0: build_agent("tiebreak", env)}
    if table.trained is not None:
        network = network_of(table.trained.player)
        for number in sorted({_SIMULATIONS, table.config.player_simulations}):
            config = dataclasses.replace(table.config, player_simulations=number)
            players[number] = build_agent("belief", env, config=config, evaluate=network)
    board = Board(env.rows, env.columns)
    page = Page(
        title=f"Minesweeper {env.rows} x {env.columns}, {env.num_mines} mines",
        board=board,
        players=1,
        shape=(env.rows, env.columns),
        style="mines",
        cells=_cells,
        note=lambda game: _left(env, game),
        risks=lambda game: heat(env, game.state).ravel(),
    )
    return Service(env, players, page)


class Board(AbstractBoard):
    """What cells are called, and how a board looks in a terminal."""

    sides = ("you", "nobody")
    example = "b3"
    about = "open that cell"
    chance = True

    def __init__(self, rows: int, columns: int):
        self._rows, self._columns = rows, columns

    def name(self, action: int, first: bool = True) -> str:
        return name(action, self._columns)

    def action(self, name: str, first: bool = True) -> int:
        cells = parse(name, self._rows, self._columns)
        if len(cells) != 1:
            raise ValueError(f'"{name}" is more than one cell')
        return cells[0]

    def draw(self, game: Game, *, plain: bool):
        mines = np.asarray(game.state.mines) if game.over else None
        picture = Picture(game.features["board"], last=game.action, mines=mines)
        return draw(picture, width=80, plain=plain)

    def result(self, game: Game) -> str:
        assert game.action is not None
        if game.total > 0:
            return "all cells without a mine are open"
        return f"{self.name(game.action)} was a mine"


def _cells(game: Game) -> list[str]:
    """What is on the cells: `""` on a covered one, a number, and at the end the mines."""
    board = game.features["board"].ravel()
    words = ["" if number < 0 else str(number) for number in board.tolist()]
    if game.over:
        for cell in np.flatnonzero(game.state.mines).tolist():
            words[cell] = "mine" if board[cell] < 0 else "opened mine"
    return words


def _left(env: Minesweeper, game: Game) -> str:
    covered = game.features["board"] < 0  # after a loss but for the mine that was opened
    left = int(np.sum(covered & ~np.asarray(game.state.mines)))
    return f"{env.num_mines} mines, {left} cells to open"
