"""A person against a player, in the terminal."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import rich.box
import tyro
from rich.console import Console
from rich.table import Table

from zero_train.app import AbstractCommand, App, Bounds, Thought

from ._board import Colour, draw, draw_rich, name, parse, PASS, result
from ._config import SIMULATIONS
from ._player import load_player, Player


_HELP = """\
  d3        play on that square (column A-H, row 1-8 from the top)
  hint, ?   show the plan for your move
  why       show the plan of the player's last move
  undo      take back your last move and the reply
  board     draw the board again
  help      this list
  quit      leave"""


@dataclasses.dataclass(frozen=True)
class Play(AbstractCommand):
    """Play against a trained player in the terminal."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    colour: Colour = "black"
    """Your colour; black moves first."""
    seed: int = 0
    """The seed of the player's search."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App) -> None:
        player = load_player(app, self.run, self.simulations, self.seed)
        Session(player, Console(), colour=self.colour).run()


class _Leave(Exception):
    """Ends the session."""


class Session:
    """One game between a person and a `Player`.

    The board is drawn in colour if the terminal has colours and Unicode, otherwise in ASCII.
    """

    def __init__(
        self,
        player: Player,
        console: Console,
        *,
        read: Callable[[str], str] = input,
        colour: Colour = "black",
        num_hints: int = 5,
    ):
        """**Arguments:**

        - `player`: the opponent, which also keeps the board.
        - `console`: the output.
        - `read`: shows its argument and returns a line. `EOFError` or `KeyboardInterrupt` ends the
            session.
        - `colour`: the colour of the person; black begins.
        - `num_hints`: the number of moves that `hint` and `why` list.
        """
        self._player = player
        self._console = console
        self._read = read
        self._colour: Colour = colour
        self._num_hints = num_hints
        self._moves: list[int] = []  # the number of plies before each move of the person
        self._reason: Thought | None = None
        self._commands: dict[str, Callable[[], None]] = {
            "?": self._hint,
            "hint": self._hint,
            "why": self._why,
            "undo": self._undo,
            "board": self._board,
            "help": self._help,
            "quit": self._quit,
            "exit": self._quit,
        }
        self._plain = console.color_system is None or console.options.ascii_only

    def run(self) -> None:
        """Plays a game until its end or until the person leaves. Bad input raises no error."""
        try:
            self._play()
        except (_Leave, EOFError, KeyboardInterrupt):
            self._say("\nYou left the game.")

    def _play(self) -> None:
        player = self._player
        player.new()
        self._say(f'You play {self._colour}. Type a move such as d3, or "help".')
        self._board()
        while not player.position.over:
            mine = player.position.colour == self._colour
            if player.position.must_pass:
                self._say(f"{'You have' if mine else 'I have'} no move and must pass.")
                player.play(PASS)
            elif mine:
                self._turn()
            else:
                self._reply()
        self._end()

    def _turn(self) -> None:
        text = self._read(f"{self._colour}> ").strip()
        command = self._commands.get(text.lower())
        if command is not None:
            command()
        elif text:
            self._move(text)

    def _move(self, text: str) -> None:
        before = self._player.num_plies
        try:
            self._player.play(parse(text))
        except ValueError as error:
            self._say(f'{error}. Type "help" for the commands.')
            return
        self._moves.append(before)
        self._board()

    def _reply(self) -> None:
        self._say("Thinking ...")
        self._reason = self._player.think()
        self._player.play(self._reason.action)
        self._say(f"I play {name(self._reason.action).lower()}.")
        self._board()

    def _end(self) -> None:
        margin = self._player.position.margin
        won = (margin > 0) == (self._colour == "black")
        verdict = "" if margin == 0 else ", you win" if won else ", you lose"
        self._say(f"The game is over: {result(self._player.position)}{verdict}.")

    # ---- commands

    def _hint(self) -> None:
        self._table("Your moves", self._player.think())

    def _why(self) -> None:
        if self._reason is None:
            self._say("I have not moved yet.")
        else:
            self._table(f"Why I played {name(self._reason.action).lower()}", self._reason)

    def _undo(self) -> None:
        if not self._moves:
            self._say("You have no move to take back.")
            return
        before = self._moves.pop()
        while self._player.num_plies > before:
            self._player.undo()
        self._reason = None
        self._board()

    def _help(self) -> None:
        self._say(_HELP)

    def _quit(self) -> None:
        raise _Leave

    def _board(self) -> None:
        position, last = self._player.position, self._player.last_action
        self._console.print()
        if self._plain:
            self._say(draw(position, last))
        else:
            self._console.print(draw_rich(position, last))
        self._console.print()

    def _table(self, title: str, thought: Thought) -> None:
        box = rich.box.ASCII if self._plain else rich.box.SIMPLE
        table = Table(title=title, title_justify="left", box=box)
        table.add_column("move")
        visits = ("visits",) if thought.visits.any() else ()
        for column in (*visits, "share", "value", "prior"):
            table.add_column(column, justify="right")
        order = np.lexsort((-thought.prior, -thought.weights))[: self._num_hints]
        for action in order:
            if thought.prior[action] > 0 or thought.weights[action] > 0:
                table.add_row(
                    name(int(action)).lower(),
                    *((str(thought.visits[action]),) if visits else ()),
                    f"{thought.weights[action]:.1%}",
                    f"{thought.qvalues[action]:+.2f}",
                    f"{thought.prior[action]:.1%}",
                )
        self._console.print(table)
        self._say(
            f"The value for the player to move is {thought.value:+.2f} (1 is a win, -1 a loss)."
        )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)
