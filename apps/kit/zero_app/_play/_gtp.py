"""The Go Text Protocol, version 2, for games of black and white.

Farnebäck, "Specification of the Go Text Protocol, version 2, draft 2", 2002. Analysis is spoken as
Leela Zero and KataGo do: a response of many lines, which ends with the next command.
"""

import collections
import contextlib
import dataclasses
import functools as ft
import io
import itertools
import math
import os
import pathlib
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from zero_search import Plan, SearchTree

from .._command._errors import NonFiniteError, warn
from .._run._disk import read_whole, reason, write_whole
from ._clock import Clock
from ._game import expected, Game
from ._record import write_record
from ._sgf import decode, handicap_points, komi_of, place, Sgf


_COLOURS = {"b": "black", "black": "black", "w": "white", "white": "white"}
#: Characters that are left out of a line, with the byte order mark that some shells send first.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ufeff]")
_SYNTAX = "syntax error"
_OF_FILES = {"loadsgf": "cannot load file", "printsgf": "cannot save file"}
#: Simulations of a search that can be broken off after each so many.
_PART = 16
#: Nodes of an analysis, which ends there.
_ROOM = 8192
#: Seconds between the lines of an analysis, where none are asked for.
_INTERVAL = 1.0
#: Keys that `kata-analyze` may be asked for in addition. Our search knows `rootinfo` alone, and
#: controllers do without the others.
_MORE = frozenset(
    "movesownership movesownershipstdev noresultvalue ownership ownershipstdev pvedgevisits "
    "pvvisits rootinfo".split()
)

_Style = Literal["lz", "kata"]
_Part = tuple[Plan, SearchTree | None, bool]


class _GtpError(Exception):
    """An error response, which is sent after a question mark."""


class GtpEngine:
    """Answers GTP commands about one game.

    A controller may leave out a pass: where the side to move may pass, the engine accepts a move of
    the other colour, plays the pass before it, and `undo` takes both back. So stones of a handicap
    may be sent as moves in a row. Where that pass would be illegal, or would end the game, a move
    of the wrong colour is refused. After the end of the game a pass is accepted and has no effect.

    The komi counts in `final_score` and in records. The player was trained with that of the
    environment, and plays for that one.

    Without clocks a move is the plan of the player. With them its search ends early where a move
    would take more than its share of the time.
    """

    def __init__(
        self, start: Game, name: str, version: str, *, pending: Callable[[], bool] = lambda: True
    ):
        """**Arguments:**

        - `start`: a new game, whose games are written in SGF.
        - `name`, `version`: of the program.
        - `pending`: whether a further command is waiting, which ends an analysis.
        """
        assert isinstance(start.board.record, Sgf)
        self.running = True  # until the command `quit`
        self._record, self._board = start.board.record, start.board
        self._games = [start]  # after each move
        self._pass = self._record.size**2
        self._pending = pending
        self._clocks: dict[str, Clock] = {}
        several = (0, 99)
        # By name: the least and the greatest number of arguments, and the function that answers.
        self._commands: dict[str, tuple[tuple[int, int], Callable[..., Any]]] = {
            "boardsize": ((1, 1), self._boardsize),
            "clear_board": ((0, 0), self._clear_board),
            "final_score": ((0, 0), lambda: self._record.score(self._games[-1])),
            "genmove": ((1, 1), self._genmove),
            "kata-analyze": (several, lambda *words: self._analyze("kata", words)),
            "kata-genmove_analyze": (several, lambda *words: self._analyze("kata", words, True)),
            "kgs-time_settings": ((1, 4), self._kgs_time_settings),
            "known_command": ((1, 1), lambda word: "true" if word in self._commands else "false"),
            "komi": ((1, 1), self._komi),
            "list_commands": ((0, 0), lambda: "\n".join(sorted(self._commands))),
            "loadsgf": ((1, 2), self._loadsgf),
            "lz-analyze": (several, lambda *words: self._analyze("lz", words)),
            "lz-genmove_analyze": (several, lambda *words: self._analyze("lz", words, True)),
            "name": ((0, 0), lambda: name),
            "play": ((2, 2), self._play),
            "printsgf": ((0, 1), self._printsgf),
            "protocol_version": ((0, 0), lambda: "2"),
            "quit": ((0, 0), self._quit),
            "reg_genmove": ((1, 1), lambda colour: self._name(self._choose(_colour(colour))[1])),
            "showboard": ((0, 0), self._showboard),
            "time_left": ((3, 3), self._time_left),
            "time_settings": ((3, 3), self._time_settings),
            "undo": ((0, 0), self._undo),
            "version": ((0, 0), lambda: version),
        }
        if self._pass in start.legal:
            self._commands |= {
                "fixed_handicap": ((1, 1), self._fixed_handicap),
                "place_free_handicap": ((1, 1), self._place_free_handicap),
                "set_free_handicap": ((2, self._pass), self._set_free_handicap),
            }

    def respond(self, line: str) -> Iterator[str]:
        """The parts of the response to a line, the last of which ends with an empty line. There are
        none to a line without a command, and several to an analysis."""
        text = _CONTROL.sub("", line.partition("\n")[0]).replace("\t", " ").partition("#")[0]
        words = text.split()
        if not words:
            return
        identity = words.pop(0) if words[0].isascii() and words[0].isdigit() else ""
        command, *arguments = words or [""]
        try:
            if command not in self._commands:
                raise _GtpError("unknown command")
            (least, most), answer = self._commands[command]
            # Control characters are left out, which would make another name of a file.
            as_given = line.partition("#")[0].strip("\r\n\ufeff")
            if command in _OF_FILES and _CONTROL.search(as_given):
                raise _GtpError(_OF_FILES[command])
            if not least <= len(arguments) <= most:
                raise _GtpError(_SYNTAX)
            said = answer(*arguments)
            if isinstance(said, str):
                yield f"={identity} {said}".rstrip() + "\n\n"
                return
            yield f"={identity}\n"
            yield from (f"{line}\n" for line in said)
            yield "\n"
        except (_GtpError, NonFiniteError) as error:
            yield f"?{identity} {error}\n\n"

    def _quit(self) -> str:
        self.running = False
        return ""

    # ---- setting up

    def _boardsize(self, size: str) -> str:
        if _number(int, size) != self._record.size:
            raise _GtpError("unacceptable size")
        return ""

    def _clear_board(self) -> str:
        self._games = [dataclasses.replace(self._games[0], handicap=0)]
        return ""

    def _komi(self, komi: str) -> str:
        try:
            said = komi_of(komi, self._record.size)
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        self._games = [dataclasses.replace(game, komi=said) for game in self._games]
        return ""

    def _fixed_handicap(self, number: str) -> str:
        stones = int(_number(int, number))
        points = handicap_points(self._record.size, stones)
        if len(points) < 2:
            raise _GtpError("invalid number of stones")
        return self._place(points)

    def _place_free_handicap(self, number: str) -> str:
        stones = int(_number(int, number))
        if not 2 <= stones < self._pass:
            raise _GtpError("invalid number of stones")
        return self._fixed_handicap(str(min(stones, 9)))  # a program may place fewer

    def _set_free_handicap(self, *names: str) -> str:
        try:
            points = [self._board.action(name) for name in names]
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        if self._pass in points or len({*points}) < len(points):
            raise _GtpError("bad vertex list")
        self._place(points)
        return ""

    def _place(self, points: list[int]) -> str:
        """Places the stones of a handicap, which one `undo` takes back, and names them."""
        if len(self._games) > 1:
            raise _GtpError("board not empty")
        try:
            game = place(self._games[0], points)
        except ValueError:  # some would have no liberty
            raise _GtpError("bad vertex list") from None
        self._games.append(dataclasses.replace(game, handicap=len(points)))
        return " ".join(map(self._name, points))

    def _loadsgf(self, path: str, move: str | None = None) -> str:
        before = None if move is None else max(1, int(_number(int, move)))
        try:
            text = "" if path == "-" else decode(read_whole(path))  # the input has the commands
            if (read := self._record.read(self._games[0], text, before)) is None:
                raise ValueError("there is no game in it")
            games = [read[0]]
            for ply, name in enumerate(read[1]):
                games.append(games[-1].play(self._board.action(name, ply % 2 == 0)))
        except (OSError, ValueError) as e:
            warn(f"{ascii(path)[1:-1]} cannot be loaded: {reason(e)}.")
            raise _GtpError(_OF_FILES["loadsgf"]) from e
        self._games = games
        return ""

    def _printsgf(self, path: str | None = None) -> str:
        text = write_record(self._games)
        if path in (None, "-"):
            return text
        try:
            there = os.path.lexists(path)
            write_whole(pathlib.Path(path), f"{text}\n")
        except (OSError, ValueError) as e:  # the latter of a name that no file can have
            warn(f"{ascii(path)[1:-1]} cannot be saved: {reason(e)}.")
            raise _GtpError(_OF_FILES["printsgf"]) from e
        if there:  # a response would be something else than controllers expect
            warn(f"{path} was there, and has been written anew.")
        return ""

    # ---- the clock

    def _time_settings(self, *times: str) -> str:
        main, byo_yomi, stones = (_seconds(time) for time in times)
        clock = Clock.start(main, byo_yomi, int(stones))
        self._clocks = {} if clock is None else {"black": clock, "white": clock}
        return ""

    def _kgs_time_settings(self, system: str, *times: str) -> str:
        counts = {"none": 0, "absolute": 1, "byoyomi": 3, "canadian": 3}
        if counts.get(system) != len(times):
            raise _GtpError(_SYNTAX)
        main, byo_yomi, stones = (*times, "0", "0", "0")[:3]
        if system == "byoyomi":
            _seconds(stones)  # periods, each of one move
            stones = "1"
        return self._time_settings(main, byo_yomi, stones)

    def _time_left(self, colour: str, seconds: str, stones: str) -> str:
        mover, left, moves = _colour(colour), _seconds(seconds), int(_seconds(stones))
        self._clocks[mover] = self._clocks.get(mover, Clock(left)).told(left, moves)
        return ""

    # ---- the game

    def _play(self, colour: str, move: str) -> str:
        mover = _colour(colour)
        try:
            action = self._board.action(move, mover == "black")
        except ValueError:
            raise _GtpError(_SYNTAX) from None
        game = self._turned_to(mover, "illegal move")
        if action == self._pass and game is not self._games[-1]:
            # After the one that was left out it would end a game that nobody has given up.
            raise _GtpError("illegal move")
        # A pass after the end has no effect: some controllers send a pass for both sides.
        if not (game.over and self._name(action) == "pass"):
            try:
                game = game.play(action)
            except ValueError:
                raise _GtpError("illegal move") from None
        self._games.append(game)
        return ""

    def _genmove(self, colour: str) -> str:
        began = time.monotonic()
        game, action = self._choose(_colour(colour))
        return self._move(game, action, began)

    def _move(self, game: Game, action: int, began: float) -> str:
        """Plays a move that was found since then, and names it."""
        if clock := self._clocks.get(game.mover):
            # For controllers that do not say what is left.
            self._clocks[game.mover] = clock.took(time.monotonic() - began)
        self._games.append(game if game.over else game.play(action))
        return self._name(action)

    def _undo(self) -> str:
        if len(self._games) == 1:
            raise _GtpError("cannot undo")
        self._games.pop()
        return ""

    def _showboard(self) -> str:
        game = self._games[-1]
        return f"\n{game.board.draw(game, plain=True)}"

    # ---- analysis

    def _analyze(self, style: _Style, words: tuple[str, ...], plays: bool = False) -> Iterator[str]:
        """Lines about the moves, until another command comes; and the move that was chosen, where
        it `plays`."""
        colour, interval, asked = self._asked(style, words)
        game = self._turned_to(colour, f"{self._games[-1].mover} is to move")
        if game.over:
            self._games += [game] * plays
            return iter(["play pass"] * plays)
        began = time.monotonic()
        parts = self._parts(game, None if plays else self._pending)
        # Here, where what goes wrong is still an error response.
        parts = itertools.chain([next(parts)], parts)
        info = ft.partial(_info, game, style=style, asked=asked)
        return self._lines(game, parts, info, began, interval, plays)

    def _lines(
        self,
        game: Game,
        parts: Iterable[_Part],
        info: Callable[[Plan, SearchTree | None], str],
        began: float,
        interval: float,
        plays: bool,
    ) -> Iterator[str]:
        told, plan, done = -math.inf, None, False
        for plan, tree, done in parts:
            if done or time.monotonic() - told >= interval:
                told = time.monotonic()
                yield info(plan, tree)
        while not plays and not done and not self._pending():
            time.sleep(0.02)  # all that will be found is found
        if plays:
            assert plan is not None
            yield f"play {self._move(game, int(plan.action), began)}"

    def _asked(
        self, style: _Style, words: tuple[str, ...]
    ) -> tuple[str, float, dict[str, int | bool]]:
        """Whose moves are asked for, the seconds between lines, and what they should have: how many
        moves at least and at most, and what of `_MORE`."""
        colour, interval, asked = self._games[-1].mover, _INTERVAL, {}
        left = [word.lower() for word in words]
        if left and left[0] in _COLOURS:
            colour = _COLOURS[left.pop(0)]
        if left and left[0].isdigit():
            interval = _seconds(left.pop(0)) / 100
        for name, value in zip(left[::2], [*left[1::2], ""], strict=False):
            if name in ("allow", "avoid"):
                raise _GtpError(f"unsupported: {name}; every legal move is searched")
            elif name == "interval":
                interval = _seconds(value) / 100
            elif name in ("minmoves", "maxmoves"):
                asked[name] = int(_seconds(value))
            elif style == "kata" and name in _MORE and value in ("true", "false"):
                asked[name] = value == "true"
            else:
                raise _GtpError(_SYNTAX)
        return colour, interval, asked

    # ---- whose turn it is

    def _choose(self, colour: str) -> tuple[Game, int]:
        """The game in which `colour` is to move, and its move."""
        game = self._turned_to(colour, f"{self._games[-1].mover} is to move")
        if game.over:
            return game, self._pass
        if game.must_pass:
            return game, game.legal[0]
        if colour not in self._clocks or game.scores:
            return game, game.choice
        ((plan, _, _),) = collections.deque(self._parts(game), maxlen=1)
        return game, int(plan.action)

    def _parts(self, game: Game, ends: Callable[[], bool] | None = None) -> Iterator[_Part]:
        """The plan and the tree after each part of a search, and whether it is the last: where the
        search `ends`, or else is as long as the player's own or may take no longer."""
        began, clock, own = time.monotonic(), self._clocks.get(game.mover), game.num_simulations
        for plan, tree in game.grow(_PART, _ROOM):
            seconds, visits = time.monotonic() - began, float(plan.visits.sum())
            # The seconds that a further part would take.
            part = seconds * _PART / max(visits, _PART)
            late = clock is not None and seconds + part > clock.share()
            done = visits >= own or late if ends is None else ends()
            yield plan, tree, done
            if done or (ends is not None and visits >= _ROOM):
                return

    def _turned_to(self, colour: str, refusal: str) -> Game:
        """The game in which `colour` is to move. If the other side may pass, it passes."""
        game = self._games[-1]
        if game.over or game.mover == colour:
            return game
        passed = game.play(self._pass) if self._pass in game.legal else game
        if passed.over or passed.mover != colour:
            raise _GtpError(refusal)
        return passed

    def _name(self, action: int) -> str:
        return _shown(self._board.name(action))


def _info(
    game: Game, plan: Plan, tree: SearchTree | None, *, style: _Style, asked: dict[str, int | bool]
) -> str:
    """The analysis of the moves, the best first, in one line."""
    shown = lambda x: str(round(1e4 * x)) if style == "lz" else f"{x:.4f}"

    def figures(visits: float, value: float) -> str:
        utility = value / game.max_value
        more = "" if style == "lz" else f" utility {utility:.4f}"
        return f"visits {visits:.0f}{more} winrate {shown((1 + utility) / 2)}"

    order = [int(a) for a in np.lexsort((-game.prior, -plan.visits, -plan.weights))]
    legal = [action for action in order if action in game.legal]
    tried = sum(1 for action in legal if plan.visits[action] > 0)
    least, most = asked.get("minmoves", 0), asked.get("maxmoves", len(legal))
    said = []
    for rank, action in enumerate(legal[: max(1, min(most, max(least, tried)))]):
        visits = int(plan.visits[action])
        line = " ".join(_shown(name) for name in expected(game, tree, action))
        said.append(
            f"info move {_shown(game.name(action))} "
            f"{figures(visits, float(plan.qvalues[action] if visits else plan.value))} "
            f"prior {shown(float(game.prior[action]))} order {rank} pv {line}"
        )
    if asked.get("rootinfo"):
        said.append(f"rootInfo {figures(float(plan.visits.sum()), float(plan.value))}")
    return " ".join(said)


def _shown(name: str) -> str:
    return name if name == "pass" else name.upper()


def serve_gtp(start: Game, name: str, version: str) -> None:
    """Answers GTP commands on stdin about a game, until `quit`; see `GtpEngine`."""
    # Compiles everything: controllers wait longer for the first answer than for a move.
    next(start.grow(_PART, _ROOM))
    start.play(int(start.plan.action))
    serve_lines(start, name, version, sys.stdin, ft.partial(print, end="", flush=True))


def serve_lines(
    start: Game, name: str, version: str, stdin: Iterable[str], say: Callable[[str], None]
) -> None:
    """Answers each line immediately, until `quit`, the end of the input or a closed output."""
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="replace")  # an invalid byte is a syntax error only
    lines = queue.Queue[str | None]()

    def read() -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone
            for line in stdin:
                lines.put(line)
        lines.put(None)

    # It only waits for input, so it may be left behind.
    threading.Thread(target=read, daemon=True).start()
    engine = GtpEngine(start, name, version, pending=lambda: not lines.empty())
    while engine.running and (line := lines.get()) is not None:
        try:
            for part in engine.respond(line):
                say(part)
        except BrokenPipeError:
            return


def _number(kind: type[int] | type[float], text: str) -> float:
    if not text.isascii() or "_" in text:  # which Python reads
        raise _GtpError(_SYNTAX)
    try:
        return kind(text)
    except ValueError:
        raise _GtpError(_SYNTAX) from None


def _seconds(text: str) -> float:
    """A number that is not negative, as clocks and counts are."""
    number = _number(float, text)
    if not 0 <= number < 1e9:
        raise _GtpError(_SYNTAX)
    return number


def _colour(text: str) -> str:
    if text.lower() not in _COLOURS:
        raise _GtpError(_SYNTAX)
    return _COLOURS[text.lower()]
