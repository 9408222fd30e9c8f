"""`minesweeper play`: a person opens cells in the terminal."""

import dataclasses
import secrets
from collections.abc import Callable

import jax.random as jr
import numpy as np
import tyro
from rich.console import Console

from zero_app import AbstractPlayerCommand, App, Dialogue, Seed

from ._config import Config
from ._game import ending, Game, reasons
from ._scene import draw, legend, name, parse, Picture
from ._table import Table, TableArguments


_OTHERS = (
    ("b3", "open a cell by column and row; also by row and column, 3 2"),
    ("b3 c3 d4", "open several cells one after another"),
    ("b3", "on an open cell with all its flags: open its other neighbours"),
    ("f b3", "add or remove a flag"),
)
_OVER = 'This game is over; "new" starts another'


@dataclasses.dataclass(frozen=True)
class Play(AbstractPlayerCommand):
    """Play in the terminal. Hints and a map of the risks are available."""

    agent: str = "belief"
    """The agent that gives hints; as for eval."""
    seed: Seed | None = None
    """The seed of the boards, which are those of eval; by default a random one, which is shown."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()

    def __call__(self, app: App[Config]) -> None:
        seat = self.table.at(app, self, [self.agent])
        seed = secrets.randbits(32) if self.seed is None else self.seed
        Session(seat, self.agent, Console(), seed=seed).run()


class Session:
    """Games of a person, on the boards of `minesweeper eval` with the same seed.

    The board is drawn in colour if the terminal has colours, otherwise in ASCII.
    """

    def __init__(
        self,
        table: Table,
        agent: str,
        console: Console,
        *,
        seed: int,
        read: Callable[[str], str] = input,
    ):
        """`agent` gives hints; `console` and `read` are those of [`zero_app.Dialogue`][]."""
        self._table, self._agent, self._seed = table, agent, seed
        self._env, self._actor = table.env, table.agent(agent)
        self._console = console
        self._heat = False
        self._number = -1
        self._flags = set[int]()
        self._game: Game
        self._dialogue = Dialogue(
            console,
            read,
            others=_OTHERS,
            answer=self._answer,
            commands={
                "heat": ("show or hide the probability of a mine in each cell", self._toggle_heat),
                "hint, ?": ("show the move of the agent", self._hint),
                "board": ("draw the board again", self._board),
                "new": ("another board", self._new),
            },
        )
        self._say = self._dialogue.say

    def run(self) -> None:
        """Plays until the person leaves. Bad input raises no error."""
        self._say(f"Hints by {self._table.about(self._agent)}, seed {self._seed}.")
        self._say("No cell opens automatically, and the first cell may be a mine.")
        self._say('Type a cell such as b3, or "help".')
        self._say("Compiling the exact solver, which takes a while the first time ...")
        with self._dialogue.leaving():
            self._new()
            while True:
                self._dialogue.turn("> ")

    def _answer(self, line: str) -> None:
        words = line.lower().split()
        if words[0] in ("f", "flag"):
            self._flag(self._cells(words[1:]))
        else:
            self._open(self._cells(words))

    def _cells(self, words: list[str]) -> list[int]:
        cells = parse(" ".join(words), self._env.rows, self._env.columns)
        if self._game.over:
            raise ValueError(_OVER)
        return cells

    # ---- commands

    def _open(self, cells: list[int]) -> None:
        """Opens cells one after another, until one cannot be opened."""
        before = self._game.moves
        try:
            for cell in cells:
                if not self._game.over:
                    self._open_one(cell)
        finally:
            if self._game.moves > before:
                self._board()
                if self._game.over:
                    self._end()

    def _open_one(self, cell: int) -> None:
        where = name(cell, self._env.columns)
        if cell in self._flags:
            raise ValueError(f'{where} has a flag; "f {where}" removes it')
        if self._game.board.flat[cell] < 0:
            self._game.open(cell)
            return
        hidden = self._hidden_near(cell)
        number = int(self._game.board.flat[cell])
        flags = sum(i in self._flags for i in hidden)
        if len(hidden) == flags:
            raise ValueError(f"{where} and all its neighbours without a flag are open")
        if flags != number:
            raise ValueError(f"{where} is open: it shows {number} and has {flags} flags around it")
        self._open_around(cell)

    def _open_around(self, cell: int) -> None:
        """Opens the neighbours without a flag, and those of every 0 among them."""
        todo = [cell]
        while todo:
            for i in self._hidden_near(todo.pop()):
                if i in self._flags:
                    continue
                self._game.open(i)
                if self._game.over:
                    return
                if self._game.board.flat[i] == 0:
                    todo.append(i)

    def _hidden_near(self, cell: int) -> list[int]:
        """The hidden neighbours of a cell."""
        row, column = divmod(cell, self._env.columns)
        near = np.zeros(self._game.board.shape, bool)
        near[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
        return np.flatnonzero(near & (self._game.board < 0)).tolist()

    def _flag(self, cells: list[int]) -> None:
        for cell in cells:
            if self._game.board.flat[cell] >= 0:
                raise ValueError(f"{name(cell, self._env.columns)} is open and cannot have a flag")
        for cell in cells:
            self._flags ^= {cell}
        self._board()

    def _toggle_heat(self) -> None:
        self._heat = not self._heat
        self._board()

    def _hint(self) -> None:
        if self._game.over:
            self._say(f"{_OVER}.")
            return
        self._say(f"{self._agent} is planning ...")
        advice = self._game.ask(self._actor)
        for line in reasons(self._game, advice):
            self._say(line)

    def _new(self) -> None:
        self._number += 1
        self._game = Game(self._env, self._number, key=jr.key(self._seed))
        self._flags.clear()
        _ = self._game.heat  # wait here rather than at the first move
        self._board()

    def _board(self) -> None:
        game = self._game
        heat = game.heat if self._heat and not game.over else None
        flags = frozenset(self._flags)
        picture = Picture(game.board, heat, flags, last=game.last, mines=game.mines)
        self._console.print()
        self._say(draw(picture, width=self._console.width, plain=self._dialogue.plain))
        hidden = int(np.sum(game.board < 0))
        mines = self._env.num_mines
        if game.over:
            self._say(legend(picture))
        else:
            self._say(f"mines {mines}, flags {len(flags)}, cells to open {hidden - mines}")
        if heat is not None and np.isnan(heat).any():
            self._say("The risks are unknown: the posterior of this board needs too many states.")
        self._console.print()

    def _end(self) -> None:
        for line in ending(self._game):
            self._say(line)
        self._say('"new" starts another game.')
