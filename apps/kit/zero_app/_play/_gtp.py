"""The Go Text Protocol, version 2, for games of black and white.

Farnebäck, "Specification of the Go Text Protocol, version 2, draft 2", 2002. Analysis is spoken as
Leela Zero and KataGo do: a response of many lines, which ends with the next command.
"""

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

from zero_search import Plan, Tree

from .._command._errors import NonFiniteError, warn
from .._run._disk import read_whole, reason, write_whole
from ._clock import Clock
from ._game import Game
from ._gtp_words import Analysis, colour, GtpError, number, refusing, seconds, shown, SYNTAX
from ._record import write_record
from ._sgf import decode, handicap_points, komi_of, place, Sgf
from ._thinking import Thinker


#: Characters that are left out of a line, with the byte order mark that some shells send first.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ufeff]")
_OF_FILES = {"loadsgf": "cannot load file", "printsgf": "cannot save file"}


class GtpEngine:
    """Answers GTP commands about one game.

    A controller may leave out a pass: where the side to move may pass, the engine accepts a move of
    the other colour, plays the pass before it, and `undo` takes both back. So stones of a handicap
    may be sent as moves in a row. Where that pass would be illegal, or would end the game, a move
    of the wrong colour is refused. After the end of the game a pass is accepted and has no effect.

    The komi counts in `final_score` and in records. The player was trained with that of the
    environment, and plays for that one.

    A search has the simulations of the player, or with a clock its share of the time. Its tree is
    kept from command to command.
    """

    def __init__(
        self,
        start: Game,
        name: str,
        version: str,
        *,
        pending: Callable[[], bool] = lambda: True,
        thinker: Thinker | None = None,
        clock: Clock | None = None,
    ):
        """`start` is a new game, whose games are written in SGF. `pending` says whether a further
        command is waiting, which ends an analysis; `thinker` searches, by default the player of
        `start`; each side has the `clock` until a controller says another, or that there is none.
        """
        assert isinstance(start.board.record, Sgf)
        self.running = True  # until the command `quit`
        self._record, self._board = start.board.record, start.board
        self._games = [start]  # after each move
        self._pass = self._record.size**2
        self._pending = pending
        self._thinker = thinker or Thinker(start.actor)
        self._clock = clock
        self._given: Clock | None = None  # that of each side at the start, by the controller
        self._clocks: dict[str, Clock | None] = dict.fromkeys(self._board.sides, clock)
        self._own: str | None = None  # the side whose move it chose last
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
            "reg_genmove": ((1, 1), lambda side: self._name(self._choose(colour(side))[1])),
            "showboard": ((0, 0), lambda: f"\n{self._board.draw(self._games[-1], plain=True)}"),
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
                raise GtpError("unknown command")
            (least, most), answer = self._commands[command]
            # Control characters are left out, which would make another name of a file.
            as_given = line.partition("#")[0].strip("\r\n\ufeff")
            if command in _OF_FILES and _CONTROL.search(as_given):
                raise GtpError(_OF_FILES[command])
            if not least <= len(arguments) <= most:
                raise GtpError(SYNTAX)
            said = answer(*arguments)
            if said is None or isinstance(said, str):
                yield f"={identity} {said or ''}".rstrip() + "\n\n"
                return
            yield f"={identity}\n"
            yield from (f"{line}\n" for line in said)
            yield "\n"
        except (GtpError, NonFiniteError) as error:
            yield f"?{identity} {error}\n\n"

    def _quit(self) -> None:
        self.running = False

    # ---- setting up

    def _boardsize(self, size: str) -> None:
        if number(int, size) != self._record.size:
            raise GtpError("unacceptable size")

    def _clear_board(self) -> None:
        self._games = [dataclasses.replace(self._games[0], handicap=0)]
        self._clocks = dict.fromkeys(self._board.sides, self._given or self._clock)
        self._own = None

    def _komi(self, komi: str) -> None:
        with refusing():
            said = komi_of(komi, self._record.size)
        self._games = [dataclasses.replace(game, komi=said) for game in self._games]
        known = self._record.komi
        if known not in (None, said):
            warn(f"The komi of {said:g} counts in the score, and the player plays for {known:g}.")

    def _fixed_handicap(self, said: str) -> str:
        stones = int(number(int, said))
        points = handicap_points(self._record.size, stones)
        if len(points) < 2:
            raise GtpError("invalid number of stones")
        return self._place(points)

    def _place_free_handicap(self, said: str) -> str:
        stones = int(number(int, said))
        if not 2 <= stones < self._pass:
            raise GtpError("invalid number of stones")
        return self._fixed_handicap(str(min(stones, 9)))  # a program may place fewer

    def _set_free_handicap(self, *names: str) -> None:
        with refusing():
            points = [self._board.action(name) for name in names]
        if self._pass in points or len({*points}) < len(points):
            raise GtpError("bad vertex list")
        self._place(points)

    def _place(self, points: list[int]) -> str:
        """Places the stones of a handicap, which one `undo` takes back, and names them."""
        if len(self._games) > 1:
            raise GtpError("board not empty")
        with refusing("bad vertex list"):  # some would have no liberty
            game = place(self._games[0], points)
        self._games.append(dataclasses.replace(game, handicap=len(points)))
        return " ".join(map(self._name, points))

    def _loadsgf(self, path: str, move: str | None = None) -> None:
        before = None if move is None else max(1, int(number(int, move)))
        try:
            text = "" if path == "-" else decode(read_whole(path))  # the input has the commands
            if (read := self._record.read(self._games[0], text, before)) is None:
                raise ValueError("there is no game in it")
            games = [read[0]]
            for ply, name in enumerate(read[1]):
                games.append(games[-1].play(self._board.action(name, ply % 2 == 0)))
        except (OSError, ValueError) as e:
            warn(f"{ascii(path)[1:-1]} cannot be loaded: {reason(e)}.")
            raise GtpError(_OF_FILES["loadsgf"]) from e
        self._games = games

    def _printsgf(self, path: str | None = None) -> str | None:
        text = write_record(self._games)
        if path in (None, "-"):
            return text
        try:
            there = os.path.lexists(path)
            write_whole(pathlib.Path(path), f"{text}\n")
        except (OSError, ValueError) as e:  # the latter of a name that no file can have
            warn(f"{ascii(path)[1:-1]} cannot be saved: {reason(e)}.")
            raise GtpError(_OF_FILES["printsgf"]) from e
        if there:  # a response would be something else than controllers expect
            warn(f"{path} was there, and has been written anew.")
        return None

    # ---- the clock

    def _time_settings(self, *times: str) -> None:
        main, byo_yomi, stones = (seconds(time) for time in times)
        self._given = Clock.start(main, byo_yomi, int(stones))
        self._clocks = dict.fromkeys(self._board.sides, self._given or self._clock)

    def _kgs_time_settings(self, system: str, *times: str) -> None:
        counts = {"none": 0, "absolute": 1, "byoyomi": 3, "canadian": 3}
        if counts.get(system) != len(times):
            raise GtpError(SYNTAX)
        main, byo_yomi, stones = (*times, "0", "0", "0")[:3]
        if system == "byoyomi":
            seconds(stones)  # periods, each of one move
            stones = "1"
        self._time_settings(main, byo_yomi, stones)

    def _time_left(self, side: str, time: str, stones: str) -> None:
        mover, left, moves = colour(side), seconds(time), int(seconds(stones))
        clock = self._clocks[mover]
        if self._given is None and clock == self._clock:
            clock = None  # none of the controller's, whose periods may differ
        # Without a limit some say that nothing is left.
        if left > 0 or moves > 0 or clock is not None:
            self._clocks[mover] = (clock or Clock(left)).told(left, moves)

    # ---- the game

    def _play(self, side: str, move: str) -> None:
        mover = colour(side)
        with refusing():
            action = self._board.action(move, mover == "black")
        game = self._turned_to(mover, "illegal move")
        if action == self._pass and game is not self._games[-1]:
            # After the one that was left out it would end a game that nobody has given up.
            raise GtpError("illegal move")
        # A pass after the end has no effect: some controllers send a pass for both sides.
        if not (game.over and self._name(action) == "pass"):
            with refusing("illegal move"):
                game = game.play(action)
        self._games.append(game)

    def _genmove(self, side: str) -> str:
        began = time.monotonic()
        game, action = self._choose(colour(side))
        return self._move(game, action, began)

    def _move(self, game: Game, action: int, began: float) -> str:
        """Plays a move that was found since then, and names it."""
        self._own = game.mover
        if clock := self._clocks[game.mover]:
            # For controllers that do not say what is left.
            self._clocks[game.mover] = clock.took(time.monotonic() - began)
        self._games.append(game if game.over else game.play(action))
        return self._name(action)

    def _undo(self) -> None:
        if len(self._games) == 1:
            raise GtpError("cannot undo")
        self._games.pop()

    # ---- analysis

    def _analyze(
        self, style: Literal["lz", "kata"], words: tuple[str, ...], plays: bool = False
    ) -> Iterator[str]:
        """Lines about the moves, until another command comes; and the move that was chosen, where
        it `plays`."""
        asked = Analysis.read(style, words)
        mover = asked.colour or self._games[-1].mover
        game = self._turned_to(mover, f"{self._games[-1].mover} is to move")
        if game.over:
            self._games += [game] * plays
            return iter(["play pass"] * plays)
        began = time.monotonic()
        think = (
            self._thinker.think(game, self._clocks[mover]) if plays else self._thinker.grow(game)
        )
        # Here, where what goes wrong is still an error response.
        parts = itertools.chain([next(think)], think)
        return self._lines(game, parts, asked, began, plays)

    def _lines(
        self,
        game: Game,
        parts: Iterator[tuple[Plan, Tree | None]],
        asked: Analysis,
        began: float,
        plays: bool,
    ) -> Iterator[str]:
        told, untold, plan, tree = -math.inf, False, None, None
        for plan, tree in parts:
            ends = not plays and self._pending()
            untold = not ends and time.monotonic() - told < asked.interval
            if not untold:
                told = time.monotonic()
                yield asked.line(game, plan, tree)
            if ends:
                return
        assert plan is not None
        if untold:
            yield asked.line(game, plan, tree)
        if plays:
            yield f"play {self._move(game, int(plan.action), began)}"
        while not plays and not self._pending():
            time.sleep(0.02)  # all that will be found is found

    def ponder(self) -> None:
        """Thinks in the time of the other side, until a command comes."""
        game = self._games[-1]
        if self._own is not None and not game.over and game.mover != self._own:
            with contextlib.suppress(NonFiniteError):  # which an analysis will say
                for _ in self._thinker.grow(game):
                    if self._pending():
                        return

    # ---- whose turn it is

    def _choose(self, mover: str) -> tuple[Game, int]:
        """The game in which a side is to move, and its move."""
        game = self._turned_to(mover, f"{self._games[-1].mover} is to move")
        if game.over:
            return game, self._pass
        if game.must_pass:
            return game, game.legal[0]
        return game, int(self._thinker.thought(game, self._clocks[mover]).plan.action)

    def _turned_to(self, mover: str, refusal: str) -> Game:
        """The game in which a side is to move. If the other one may pass, it passes."""
        game = self._games[-1]
        if game.over or game.mover == mover:
            return game
        passed = game.play(self._pass) if self._pass in game.legal else game
        if passed.over or passed.mover != mover:
            raise GtpError(refusal)
        return passed

    def _name(self, action: int) -> str:
        return shown(self._board.name(action))


def serve_gtp(
    start: Game,
    name: str,
    version: str,
    *,
    seconds: float | None = None,
    most: int | None = None,
    ponder: bool = False,
) -> None:
    """Answers GTP commands on stdin about a game, until `quit`; see `GtpEngine`.

    **Arguments:**

    - `seconds`: for each move, where the controller has no clock.
    - `most`: the simulations of a move by the clock, where they are limited.
    - `ponder`: whether to think in the time of the other side too.
    """
    thinker = Thinker(start.actor, most=most)
    thinker.ready(start)  # controllers wait longer for the first answer than for a move
    clock = None if seconds is None else Clock.start(0.0, seconds, 1)
    say = ft.partial(print, end="", flush=True)
    serve_lines(start, name, version, sys.stdin, say, ponder=ponder, thinker=thinker, clock=clock)


def serve_lines(
    start: Game,
    name: str,
    version: str,
    stdin: Iterable[str],
    say: Callable[[str], None],
    *,
    ponder: bool = False,
    **options: Any,
) -> None:
    """Answers each line immediately, until `quit`, the end of the input or a closed output. The
    `options` are those of the engine."""
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
    engine = GtpEngine(start, name, version, pending=lambda: not lines.empty(), **options)
    while engine.running and (line := lines.get()) is not None:
        try:
            for part in engine.respond(line):
                say(part)
            if ponder and engine.running:
                engine.ponder()
        except BrokenPipeError:
            return
