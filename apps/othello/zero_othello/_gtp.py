"""The Go Text Protocol, version 2, for Othello.

Farnebäck, "Specification of the Go Text Protocol, version 2, draft 2", 2002. Unlike in Go, boards
are 8 by 8, A1 is the upper left corner, a pass is legal only for a side without a move, and
`final_score` counts discs.
"""

import dataclasses
import functools as ft
import importlib.metadata
import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import ClassVar

from zero_train import NonFiniteError
from zero_train.app import AbstractPlayerCommand, App, Bounds, Game

from ._board import Board, Colour, draw, PASS, position_of, SIZE
from ._config import Config, SIMULATIONS
from ._play import new_game


_BOARD = Board()
_COLOURS: dict[str, Colour] = {"b": "black", "black": "black", "w": "white", "white": "white"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SYNTAX = "syntax error"


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractPlayerCommand):
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        start = new_game(self.load(app), self.simulations, 0)
        # Compiles everything: controllers wait longer for the first answer than for a move.
        start.play(int(start.plan.action))
        serve(GtpEngine(start), sys.stdin, ft.partial(print, end="", flush=True))


class _GtpError(Exception):
    """An error response, which is sent after a question mark."""


class GtpEngine:
    """Answers GTP commands about one game.

    A controller may leave out a forced pass: if the side to move can only pass, the engine accepts
    a move of the other colour, plays the pass before it, and `undo` takes both back. Other moves of
    the wrong colour are refused. After the end of the game a pass is accepted and has no effect.
    """

    def __init__(self, start: Game):
        """**Arguments:**

        - `start`: a new game.
        """
        self.running = True  # until the command `quit`
        self._games = [start]  # after each move
        version = importlib.metadata.version("zero-othello")
        # By name: the number of arguments, and what answers them.
        self._commands: dict[str, tuple[int, Callable[..., str]]] = {
            "boardsize": (1, self._boardsize),
            "clear_board": (0, self._clear_board),
            "final_score": (0, self._final_score),
            "genmove": (1, self._genmove),
            "known_command": (1, lambda word: "true" if word in self._commands else "false"),
            "komi": (1, self._komi),
            "list_commands": (0, lambda: "\n".join(self._commands)),
            "name": (0, lambda: "zero-othello"),
            "play": (2, self._play),
            "protocol_version": (0, lambda: "2"),
            "quit": (0, self._quit),
            "reg_genmove": (1, lambda colour: _BOARD.name(self._choose(_colour(colour))[1])),
            "showboard": (0, self._showboard),
            "time_left": (3, self._time_left),
            "time_settings": (3, self._time_settings),
            "undo": (0, self._undo),
            "version": (0, lambda: version),
        }

    def respond(self, line: str) -> str | None:
        """The response to a line, including the empty line at its end; `None` if the line has no
        command."""
        text = _CONTROL.sub("", line.partition("\n")[0]).replace("\t", " ").partition("#")[0]
        words = text.split()
        if not words:
            return None
        identity = words.pop(0) if words[0].isascii() and words[0].isdigit() else ""
        command, *arguments = words or [""]
        try:
            if command not in self._commands:
                raise _GtpError("unknown command")
            number, answer = self._commands[command]
            if len(arguments) != number:
                raise _GtpError(_SYNTAX)
            return f"={identity} {answer(*arguments)}".rstrip() + "\n\n"
        except (_GtpError, NonFiniteError) as error:
            return f"?{identity} {error}\n\n"

    def _quit(self) -> str:
        self.running = False
        return ""

    # ---- setting up

    def _boardsize(self, size: str) -> str:
        if _number(int, size) != SIZE:
            raise _GtpError("unacceptable size")
        return ""

    def _clear_board(self) -> str:
        del self._games[1:]
        return ""

    def _komi(self, komi: str) -> str:
        _number(float, komi)
        return ""

    def _time_settings(self, *times: str) -> str:
        if any(_number(int, time) < 0 for time in times):
            raise _GtpError(_SYNTAX)
        return ""

    def _time_left(self, colour: str, *left: str) -> str:
        _colour(colour)
        return self._time_settings(*left)

    # ---- the game

    def _play(self, colour: str, move: str) -> str:
        mover = _colour(colour)
        try:
            action = _BOARD.action(move)
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        game = self._turned_to(mover, "illegal move")
        # A pass after the end has no effect: some controllers send a pass for both sides.
        if action != PASS or not game.over:
            try:
                game = game.play(action)
            except ValueError:
                raise _GtpError("illegal move") from None
        self._games.append(game)
        return ""

    def _genmove(self, colour: str) -> str:
        game, action = self._choose(_colour(colour))
        self._games.append(game if game.over else game.play(action))
        return _BOARD.name(action)

    def _undo(self) -> str:
        if len(self._games) == 1:
            raise _GtpError("cannot undo")
        self._games.pop()
        return ""

    def _final_score(self) -> str:
        margin = position_of(self._games[-1]).margin
        return f"{'B' if margin > 0 else 'W'}+{abs(margin)}" if margin else "0"

    def _showboard(self) -> str:
        game = self._games[-1]
        return "\n" + draw(position_of(game), game.action)

    # ---- whose turn it is

    def _choose(self, colour: Colour) -> tuple[Game, int]:
        """The game in which `colour` is to move, and its move."""
        game = self._turned_to(colour, f"{position_of(self._games[-1]).colour} is to move")
        return game, PASS if game.over or game.must_pass else int(game.plan.action)

    def _turned_to(self, colour: Colour, refusal: str) -> Game:
        """The game in which `colour` is to move. If the other side must pass, it passes."""
        game = self._games[-1]
        if game.over or position_of(game).colour == colour:
            return game
        if not game.must_pass:
            raise _GtpError(refusal)
        return game.play(PASS)


def serve(engine: GtpEngine, stdin: Iterable[str], say: Callable[[str], None]) -> None:
    """Answers each line immediately, until `quit`, the end of the input or a closed output."""
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="replace")  # an invalid byte is a syntax error only
    for line in stdin:
        response = engine.respond(line)
        try:
            if response is not None:
                say(response)
        except BrokenPipeError:
            return
        if not engine.running:
            return


def _number(kind: type[int] | type[float], text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise _GtpError(_SYNTAX) from None


def _colour(text: str) -> Colour:
    if text.lower() not in _COLOURS:
        raise _GtpError(_SYNTAX)
    return _COLOURS[text.lower()]
