"""The Go Text Protocol, version 2, for Othello.

Farnebäck, "Specification of the Go Text Protocol, version 2, draft 2", 2002. Unlike in Go, boards
are 8 by 8, A1 is the upper left corner, a pass is legal only for a side without a move, and
`final_score` counts discs.
"""

import dataclasses
import importlib.metadata
import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, runtime_checkable

import tyro

from zero_train.app import AbstractCommand, App, Bounds

from ._board import Colour, draw, name, parse, PASS, SIZE
from ._config import SIMULATIONS
from ._player import load_player, Player


_COLOURS: dict[str, Colour] = {"b": "black", "black": "black", "w": "white", "white": "white"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SYNTAX = "syntax error"


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractCommand):
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App) -> None:
        player = load_player(app, self.run, self.simulations, 0)
        # Controllers wait longer for the first answer than for a move.
        player.warm_up()
        serve(GtpEngine(player), sys.stdin, sys.stdout)


@runtime_checkable
class Output(Protocol):
    """A text stream for responses."""

    def write(self, text: str, /) -> Any: ...

    def flush(self) -> Any: ...


class _GtpError(Exception):
    """An error response, which is sent after a question mark."""


class GtpEngine:
    """Answers GTP commands about one game.

    A controller may leave out a forced pass: if the side to move can only pass, the engine accepts
    a move of the other colour, plays the pass before it, and `undo` takes both back. Other moves of
    the wrong colour are refused. After the end of the game a pass is accepted and has no effect.
    """

    def __init__(self, player: Player, *, name: str = "zero-othello", version: str | None = None):
        """**Arguments:**

        - `player`: the game.
        - `name`, `version`: the answers to the commands of these names. The default version is that
            of this package.
        """
        self._player = player
        version = version or importlib.metadata.version("zero-othello")
        self._identity = {"name": name, "version": version}
        self._plies: list[int] = []  # plies of each GTP move: an implicit pass makes two
        self._running = True
        self._commands: dict[str, Callable[[list[str]], str]] = {
            "boardsize": self._boardsize,
            "clear_board": self._clear_board,
            "final_score": self._final_score,
            "genmove": self._genmove,
            "known_command": self._known_command,
            "komi": self._komi,
            "list_commands": self._list_commands,
            "name": self._name,
            "play": self._play,
            "protocol_version": self._protocol_version,
            "quit": self._quit,
            "reg_genmove": self._reg_genmove,
            "showboard": self._showboard,
            "time_left": self._time_left,
            "time_settings": self._time_settings,
            "undo": self._undo,
            "version": self._version,
        }

    @property
    def running(self) -> bool:
        """Whether there was no `quit` command so far."""
        return self._running

    def respond(self, line: str) -> str | None:
        """The response to a line, including the empty line at its end; `None` if the line has no
        command."""
        text = _CONTROL.sub("", line.partition("\n")[0]).replace("\t", " ").partition("#")[0]
        words = text.split()
        if not words:
            return None
        identity = words.pop(0) if words[0].isascii() and words[0].isdigit() else ""
        command, arguments = (words[0], words[1:]) if words else ("", [])
        try:
            if command not in self._commands:
                raise _GtpError("unknown command")
            answer = self._commands[command](arguments)
        except _GtpError as error:
            return f"?{identity} {error}\n\n"
        return f"={identity} {answer}".rstrip() + "\n\n"

    # ---- administrative commands

    def _protocol_version(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        return "2"

    def _name(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        return self._identity["name"]

    def _version(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        return self._identity["version"]

    def _known_command(self, arguments: list[str]) -> str:
        _count(arguments, 1)
        return "true" if arguments[0] in self._commands else "false"

    def _list_commands(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        return "\n".join(sorted(self._commands))

    def _quit(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        self._running = False
        return ""

    # ---- setting up

    def _boardsize(self, arguments: list[str]) -> str:
        _count(arguments, 1)
        if _integer(arguments[0]) != SIZE:
            raise _GtpError("unacceptable size")
        return ""

    def _clear_board(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        self._player.new()
        self._plies = []
        return ""

    def _komi(self, arguments: list[str]) -> str:
        _count(arguments, 1)
        try:
            float(arguments[0])
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        return ""

    def _time_settings(self, arguments: list[str]) -> str:
        _count(arguments, 3)
        if any(_integer(argument) < 0 for argument in arguments):
            raise _GtpError(_SYNTAX)
        return ""

    def _time_left(self, arguments: list[str]) -> str:
        _count(arguments, 3)
        _colour(arguments[0])
        if any(_integer(argument) < 0 for argument in arguments[1:]):
            raise _GtpError(_SYNTAX)
        return ""

    # ---- the game

    def _play(self, arguments: list[str]) -> str:
        _count(arguments, 2)
        colour = _colour(arguments[0])
        try:
            action = parse(arguments[1])
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        before = self._player.num_plies
        self._turn_to(colour, "illegal move")
        # A pass after the end has no effect: some controllers send a pass for both sides.
        if action != PASS or not self._player.position.over:
            try:
                self._player.play(action)
            except ValueError:
                self._rewind(before)
                raise _GtpError("illegal move") from None
        self._plies.append(self._player.num_plies - before)
        return ""

    def _genmove(self, arguments: list[str]) -> str:
        _count(arguments, 1)
        before = self._player.num_plies
        action = self._choose(_colour(arguments[0]))
        if not self._player.position.over:
            self._player.play(action)
        self._plies.append(self._player.num_plies - before)
        return name(action)

    def _reg_genmove(self, arguments: list[str]) -> str:
        _count(arguments, 1)
        before = self._player.num_plies
        action = self._choose(_colour(arguments[0]))
        self._rewind(before)
        return name(action)

    def _undo(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        if not self._plies:
            raise _GtpError("cannot undo")
        self._rewind(self._player.num_plies - self._plies.pop())
        return ""

    def _final_score(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        margin = self._player.position.margin
        return f"{'B' if margin > 0 else 'W'}+{abs(margin)}" if margin else "0"

    def _showboard(self, arguments: list[str]) -> str:
        _count(arguments, 0)
        return "\n" + draw(self._player.position, self._player.last_action)

    # ---- whose turn it is

    def _choose(self, colour: Colour) -> int:
        """A move for `colour`, which becomes the side to move."""
        self._turn_to(colour, f"{self._player.position.colour} is to move")
        position = self._player.position
        return PASS if position.over or position.must_pass else self._player.think().action

    def _turn_to(self, colour: Colour, refusal: str) -> None:
        """Makes `colour` the side to move. If the other side must pass, it passes."""
        position = self._player.position
        if position.over or position.colour == colour:
            return
        if not position.must_pass:
            raise _GtpError(refusal)
        self._player.play(PASS)

    def _rewind(self, num_plies: int) -> None:
        while self._player.num_plies > num_plies:
            self._player.undo()


def serve(engine: GtpEngine, stdin: Iterable[str], stdout: Output) -> None:
    """Answers each line immediately, until `quit`, the end of the input or a closed output."""
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="replace")  # an invalid byte is a syntax error only
    for line in stdin:
        response = engine.respond(line)
        try:
            if response is not None:
                stdout.write(response)
                stdout.flush()
        except BrokenPipeError:
            return
        if not engine.running:
            return


def _count(arguments: list[str], number: int) -> None:
    if len(arguments) != number:
        raise _GtpError(_SYNTAX)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _GtpError(_SYNTAX) from None


def _colour(text: str) -> Colour:
    if text.lower() not in _COLOURS:
        raise _GtpError(_SYNTAX)
    return _COLOURS[text.lower()]
