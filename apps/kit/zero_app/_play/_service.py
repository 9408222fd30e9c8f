"""Answers questions about games, without keeping any of them."""

import contextlib
import dataclasses
import functools as ft
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.random as jr
import numpy as np
from jaxtyping import Float

from zero_envs import AbstractDiscreteEnvironment
from zero_search import read_tree
from zero_train import AbstractActor

from .._run._evaluation import with_simulations
from ._clock import Clock
from ._game import AbstractBoard, expected, Game
from ._record import read_record, write_record
from ._sgf import Sgf
from ._thinking import Thinker


#: Simulations a move that can be asked for. Each is compiled once, so they are few.
STRENGTHS = (0, 16, 64, 256)
#: Those of a search by the clock at most, by which it is asked for.
MOST = 8192
#: The longest game that is replayed.
MAX_MOVES = 600
#: The largest komi and handicap, of a board of 19 rows.
MAX_POINTS = 361
#: Positions that are kept; more than of the longest game.
MAX_KEPT = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """How the browser shows a game.

    **Attributes:**

    - `title`: what the game is called.
    - `board`: what its moves are called: in lower case all different, and without spaces. Where the
        sides call a move differently, every move passes the turn.
    - `players`: 2, or 1 where a person plays alone and the player only advises. The values of such
        a game are chances to win.
    - `shape`: rows and columns of the cells, of which action `i` is cell `i`, row by row, or column
        `i` where there are as many actions as columns; further actions have no cell. `None` for a
        picture.
    - `style`: how cells look: squares, holes of an upright board, the points of a grid, hexagons,
        pieces on squares or on wood, or a minefield.
    - `names`: what the cells are called, where not as the moves.
    - `cells`: what is on each cell, in words, and `""` for nothing. By default stones of the sides,
        which take turns: the first two planes of the features are those of the player to move and
        those of the opponent.
    - `places`: the cells of an action of the game's side to move, for moves from one cell to
        another.
    - `glyphs`: the signs of what is on a cell. Other words are names of looks.
    - `note`: what else the board shows, such as pieces in hand.
    - `risks`: of every action the chance to lose by it, NaN where it is unknown.
    - `svg`: the picture of a state, for a board without cells.
    """

    title: str
    board: AbstractBoard
    players: Literal[1, 2] = 2
    shape: tuple[int, int] | None = None
    style: Literal["squares", "holes", "points", "hexagons", "pieces", "wood", "mines"] = "squares"
    names: Sequence[str] | None = None
    cells: Callable[[Game], Sequence[str]] | None = None
    places: Callable[[Game, int], Sequence[int]] | None = None
    glyphs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: Callable[[Game], str] | None = None
    risks: Callable[[Game], Float[np.ndarray, " actions"]] | None = None
    svg: Callable[[Any], str] | None = None


@dataclasses.dataclass(frozen=True)
class Question:
    """A position, given by the moves that lead to it, and what is asked about it.

    **Attributes:**

    - `moves`: names of moves, from the start of the game.
    - `simulations`: of the player; one of its strengths.
    - `think`: whether the player's thoughts are asked for.
    - `seed`: of the game's chance.
    - `komi`, `handicap`: those of the game that was loaded; see [`zero_app.Game`][].
    """

    moves: tuple[str, ...] = ()
    simulations: int = 0
    think: bool = False
    seed: int = 0
    komi: float | None = None
    handicap: int = 0

    @property
    def searches(self) -> bool:
        """Whether the answer needs a search. Without simulations the player has thought already,
        when the game was replayed."""
        return self.think and self.simulations > 0


class Refusal(Exception):
    """A question that is not answered, with a status code of HTTP. Its message is one line."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Service:
    """Replays games and thinks about their ends. An answer depends on its question alone, or on the
    time of a search by the clock; the last positions are kept so that it comes soon. Several
    threads may ask."""

    def __init__(
        self,
        env: AbstractDiscreteEnvironment,
        players: Mapping[int, AbstractActor],
        page: Page,
        seconds: float | None = None,
    ):
        """**Arguments:**

        - `env`: a game of one or two.
        - `players`: the player at each strength, by its simulations, of which 0 is one.
        - `page`: how the game is shown.
        - `seconds`: those of a search of `MOST` simulations, by which it may end before.
        """
        self.page, self._seconds = page, seconds
        self._env, self._players = env, players
        self._after = ft.lru_cache(MAX_KEPT)(self._moved)
        self._compiled: set[int] = set()
        self._compiling = threading.Lock()

    @classmethod
    def of_search(
        cls,
        env: AbstractDiscreteEnvironment,
        player: AbstractActor,
        page: Page,
        seconds: float | None = None,
    ) -> "Service":
        """The service of a player by tree search, and of its network alone; with `seconds` also of
        a search that may take so long."""
        players = {n: with_simulations(player, n) for n in STRENGTHS}
        return cls(env, players | ({MOST: player} if seconds else {}), page, seconds)

    def about(self) -> dict[str, Any]:
        """The facts that the browser needs of the game before it shows a position."""
        page = self.page
        rows, columns = page.shape or (0, 0)
        alone, most = page.players == 1, float(getattr(self._env, "max_return", 1.0))
        return {
            "title": page.title,
            "players": page.players,
            "sides": page.board.sides,
            "rows": rows,
            "columns": columns,
            "style": page.style if page.shape else "picture",
            "names": self._names(rows, columns),
            "glyphs": dict(page.glyphs),
            "strengths": list(self._players),
            "seconds": self._seconds,
            "max_moves": MAX_MOVES,
            "min_value": 0.0 if alone else -most,
            "max_value": most,
            "points": not alone and most != 1,
            "chance": page.board.chance,
            "notation": page.board.record and page.board.record.notation,
        }

    def _names(self, rows: int, columns: int) -> list[str]:
        if self.page.names is not None:
            return list(self.page.names)
        falls = self._env.num_actions == columns
        name = self.page.board.name
        return [name(cell % columns if falls else cell).lower() for cell in range(rows * columns)]

    def read(self, text: str) -> dict[str, Any]:
        """The moves and the seed of a game that was saved, and its komi and handicap where it says
        them.

        **Raises:** `Refusal` where it is no such game, or too long.
        """
        if not text.strip():
            raise Refusal(422, "there is no game in an empty text.")
        try:
            start, moves, seed = read_record(self._after(Question())[0], text)
        except ValueError as e:
            raise Refusal(422, f"{e}.") from e
        if len(moves) > MAX_MOVES:
            raise Refusal(
                422, f"the game has {len(moves)} moves; at most {MAX_MOVES} are replayed."
            )
        said = {"komi": start.komi} if start.komi is not None else {}
        said |= {"handicap": start.handicap} if start.handicap else {}
        return {"moves": moves, "seed": seed, **said}

    def answer(self, question: Question) -> dict[str, Any]:
        """The position that is asked about, and if asked for the player's thoughts.

        **Raises:** `Refusal` where a move is unknown or illegal, or follows the end of the game,
        and for another strength.
        """
        if question.simulations not in self._players:
            allowed = ", ".join(map(str, self._players))
            raise Refusal(400, f"simulations is {question.simulations}; give one of {allowed}.")
        # All positions from the start on: a question mostly has one move more than one before it.
        # They are kept without what is asked of them, so that all strengths share them.
        plain = dataclasses.replace(question, simulations=0, think=False)
        past = [
            self._after(dataclasses.replace(plain, moves=question.moves[:count]))
            for count in range(len(question.moves) + 1)
        ]
        game, touched = past[-1]
        record = self.page.board.record
        lead = record.lead(game) if isinstance(record, Sgf) and game.over else game.total
        won = lead > 0 if self.page.players == 2 else lead >= game.max_value
        drawn = lead == 0 and self.page.players == 2
        thought = self._think(game, question) if question.think and not game.over else None
        return {
            "side": 0 if game.first_moves else 1,
            "legal": {game.name(a).lower(): self._cells(game, a) for a in game.legal},
            "over": game.over,
            "winner": None if not game.over or drawn else 0 if won else 1,
            "total": game.total,
            "result": self.page.board.result(game) if game.over else None,
            "compiled": question.simulations in self._compiled,
            "thought": thought,
            "text": write_record([game for game, _ in past], question.seed),
            **self._shown(game, touched),
        }

    def _moved(self, at: Question) -> tuple[Game, Sequence[int]]:
        """The game at a position, and the cells of its last move."""
        moves = at.moves
        if not moves:
            game = Game.start(self._env, self._players[0], self.page.board, key=jr.key(at.seed))
            return dataclasses.replace(game, komi=at.komi, handicap=at.handicap), ()
        (game, _), name = self._after(dataclasses.replace(at, moves=moves[:-1])), moves[-1]
        said = f"move {len(moves)}, {ascii(name)}"
        try:
            action = self.page.board.action(name, game.first_moves)
        except ValueError as e:
            raise Refusal(422, f"{said}, is no move of this game.") from e
        if game.over:
            raise Refusal(422, f"the game was over before {said}.")
        if action not in game.legal:
            raise Refusal(422, f"{said}, is not legal there.")
        return game.play(action), self._cells(game, action)

    def _think(self, game: Game, question: Question) -> dict[str, Any]:
        known = question.simulations in self._compiled
        searches = question.searches and game.scores is None
        # Two requests must not compile the same at a time.
        with self._compiling if searches and not known else contextlib.nullcontext():
            try:
                # The replayed game is that of the player without a search.
                found = self._search(game, question, known) if searches else game
                plan, prior = found.plan, game.own.weights
            except ValueError as e:
                raise Refusal(422, str(e)) from e
        if game.scores is None:
            self._compiled.add(question.simulations)
        risks = None if self.page.risks is None else self.page.risks(game)
        best = int(plan.action)
        valued = self.page.players == 2 or question.simulations > 0
        return {
            "move": game.name(best).lower(),
            "value": _number(plan.value) if valued else None,
            "score": game.scores[best] if game.scores else None,
            "line": found.line() if searches else [],
            "moves": [
                {
                    "name": game.name(action).lower(),
                    "visits": round(float(plan.visits[action])),
                    "weight": _number(plan.weights[action]),
                    "value": _number(plan.qvalues[action]) if plan.visits[action] > 0 else None,
                    "prior": _number(prior[action]),
                    "risk": None if risks is None else _number(risks[action]),
                }
                for action in game.legal
            ],
        }

    def _search(self, game: Game, question: Question, known: bool) -> Game:
        """The game with the plan of a search."""
        actor: Any = self._players[question.simulations]
        if self._seconds is not None and question.simulations == MOST:
            thinker = Thinker(actor, most=MOST)
            if not known:
                thinker.ready(game)
            return thinker.thought(game, Clock.start(0.0, self._seconds, 1))
        plan, _, tree = game.searched(actor)
        line = [] if tree is None else expected(game, read_tree(tree), int(plan.action))
        return dataclasses.replace(game, found=(plan, line))

    def _shown(self, game: Game, touched: Sequence[int]) -> Mapping[str, Any]:
        """The contents of the cells and the cell of the last move, or a picture."""
        page = self.page
        if page.shape is None:
            return {"svg": page.svg(game.state) if page.svg else None}
        cells = list(page.cells(game)) if page.cells else _owners(game)
        # The last stone of a column is the upper one; the last cell of a move is where it leads.
        last = next((cell for cell in touched if cells[cell]), None)
        return {"cells": cells, "last": last, "note": page.note(game) if page.note else None}

    def _cells(self, game: Game, action: int) -> list[int]:
        """The cells that stand for a move, from top to bottom, or from the first to the last."""
        if self.page.shape is None:
            return []
        if self.page.places is not None:
            return list(self.page.places(game, action))
        rows, columns = self.page.shape
        if self._env.num_actions == columns:
            return [columns * row + action for row in range(rows)]
        return [action] if action < rows * columns else []


def _owners(game: Game) -> list[str]:
    """The side that has the stone on each cell."""
    words = {0: "", 1: game.board.sides[0], -1: game.board.sides[1]}
    return [words[stone] for stone in game.stones.ravel().tolist()]


def _number(value: Any) -> float | None:
    """As short as is read, and no NumPy number; nothing for NaN, which JSON does not have."""
    return round(float(value), 4) if np.isfinite(value) else None
