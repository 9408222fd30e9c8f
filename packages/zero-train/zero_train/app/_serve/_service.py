"""Answers questions about games of two players, without keeping any of them."""

import contextlib
import dataclasses
import functools as ft
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast, Literal

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from zero_envs import AbstractDiscreteEnvironment, Observation
from zero_search import Plan, read_tree, Tree, TreeSearch

from ... import PlanningActor
from .._evaluation import with_simulations
from .._game import AbstractBoard, Game


#: Simulations a move that can be asked for. Each is compiled once, so they are few.
STRENGTHS = (0, 16, 64, 256)
#: The longest game that is replayed.
MAX_MOVES = 600
#: Positions that are kept; more than of the longest game.
MAX_KEPT = 1000
#: The largest seed.
MAX_SEED = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """How the browser shows a game.

    **Attributes:**

    - `title`: what the game is called.
    - `board`: what its moves are called: in lower case all different, and without spaces. Where the
        sides call a move differently, every move passes the turn.
    - `sides`: what whoever moves first is called, and the other one; by default as the board says.
    - `shape`: rows and columns of a board of stones, on which the sides take turns. The first two
        planes of the features are then the stones of the player to move and those of the opponent,
        and action `i` is cell `i`, row by row, or column `i` where there are as many actions as
        columns; further actions have no cell. `None` for a board that is drawn.
    - `style`: how cells look: squares, holes of an upright board, the points of a grid, hexagons.
    - `svg`: the picture of a state, for a board that is not of stones.
    - `chance`: whether the seed decides what happens in a game.
    """

    title: str
    board: AbstractBoard
    sides: tuple[str, str] | None = None
    shape: tuple[int, int] | None = None
    style: Literal["squares", "holes", "points", "hexagons"] = "squares"
    svg: Callable[[Any], str] | None = None
    chance: bool = False


@dataclasses.dataclass(frozen=True)
class Question:
    """A position, given by the moves that lead to it, and what is asked about it.

    **Attributes:**

    - `moves`: names of moves, from the start of the game.
    - `simulations`: 0, 16, 64 or 256 a move.
    - `think`: whether the player's thoughts are asked for.
    - `seed`: of the game's chance.
    """

    moves: tuple[str, ...] = ()
    simulations: int = 0
    think: bool = False
    seed: int = 0


class Refusal(Exception):
    """A question that is not answered. Its message is one line.

    **Attributes:**

    - `status`: the status code of HTTP.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Service:
    """Replays games and thinks about their ends. An answer depends on its question alone; the last
    positions are kept so that it comes soon. Several threads may ask."""

    def __init__(self, env: AbstractDiscreteEnvironment, player: PlanningActor, page: Page):
        """**Arguments:**

        - `env`: a game of two.
        - `player`: a player that searches.
        - `page`: how the game is shown.
        """
        self.page = page
        self._env, self._player = env, player
        self._alone = with_simulations(player, 0)
        self._after = ft.lru_cache(MAX_KEPT)(self._moved)
        self._compiled: set[int] = set()
        self._compiling = threading.Lock()

    def about(self) -> dict[str, Any]:
        """What the browser must know of the game before it shows a position."""
        page = self.page
        rows, columns = page.shape or (0, 0)
        actions = range(self._env.num_actions if page.shape else 0)
        return {
            "title": page.title,
            "sides": page.sides or page.board.sides,
            "rows": rows,
            "columns": columns,
            "style": page.style if page.shape else "picture",
            "places": {page.board.name(i).lower(): self._cells(i) for i in actions},
            "strengths": STRENGTHS,
            "max_moves": MAX_MOVES,
            "max_value": float(getattr(self._env, "max_return", 1.0)),
            "chance": page.chance,
        }

    def answer(self, question: Question) -> dict[str, Any]:
        """The position that is asked about, and if asked for the player's thoughts.

        **Raises:** `Refusal` where a move is unknown or illegal, or follows the end of the game.
        """
        game = self._replay(question)
        winner = None if not game.over or game.total == 0 else 0 if game.total > 0 else 1
        thought = self._think(game, question) if question.think and not game.over else None
        return {
            "side": 0 if game.first_moves else 1,
            "legal": [game.name(action).lower() for action in game.legal],
            "over": game.over,
            "winner": winner,
            "compiled": question.simulations in self._compiled,
            "thought": thought,
            **self._shown(game),
        }

    def _replay(self, question: Question) -> Game:
        moves = question.moves
        # From the start on, as a question mostly has one move more than one before it.
        for count in range(len(moves)):
            self._after(question.seed, moves[:count])
        return self._after(question.seed, moves)

    def _moved(self, seed: int, moves: tuple[str, ...]) -> Game:
        if not moves:
            return Game.start(self._env, self._alone, self.page.board, key=jr.key(seed))
        game, name = self._after(seed, moves[:-1]), moves[-1]
        said = f"move {len(moves)}, {ascii(name)}"
        try:
            action = self.page.board.action(name, game.first_moves)
        except ValueError as e:
            raise Refusal(422, f"{said}, is no move of this game.") from e
        if game.over:
            raise Refusal(422, f"the game was over before {said}.")
        if action not in game.legal:
            raise Refusal(422, f"{said}, is not legal there.")
        return game.play(action)

    def _think(self, game: Game, question: Question) -> dict[str, Any]:
        known = question.simulations in self._compiled
        # Two requests must not compile the same at a time.
        with contextlib.nullcontext() if known else self._compiling:
            try:
                # The replayed game is the network's alone.
                alone, tree = game.plan, None
                plan = alone
                if question.simulations:
                    plan, tree = self._search(game, question)
            except ValueError as e:
                raise Refusal(422, str(e)) from e
        self._compiled.add(question.simulations)
        if plan.stats["invalid"] > 0:
            raise Refusal(422, "the player's network returned NaN or infinity; train another one.")
        line = [] if tree is None else _line(plan, tree)
        name, side = self.page.board.name, game.first_moves
        return {
            "move": game.name(int(plan.action)).lower(),
            "value": _number(plan.value),
            "line": [name(a, side == (i % 2 == 0)).lower() for i, a in enumerate(line)],
            "moves": [
                {
                    "name": game.name(action).lower(),
                    "visits": round(float(plan.visits[action])),
                    "weight": _number(plan.weights[action]),
                    "value": _number(plan.qvalues[action]) if plan.visits[action] > 0 else None,
                    "prior": _number(alone.weights[action]),
                }
                for action in game.legal
            ],
        }

    def _search(self, game: Game, question: Question) -> tuple[Plan, Tree | None]:
        actor: Any = with_simulations(self._player, question.simulations)
        state, obs = jax.tree.map(lambda x: x[None], (game.state, game.obs))
        plan, tree = _grow(actor, state, obs, jr.key(question.seed)[None])
        return jax.tree.map(lambda x: np.asarray(x)[0], plan), tree

    def _shown(self, game: Game) -> Mapping[str, Any]:
        """The cells, 1 where who moved first has a stone and 2 where the other one has, and that of
        the last move; or a picture."""
        if self.page.shape is None:
            return {"svg": self.page.svg(game.state) if self.page.svg else None}
        planes = [game.features[..., i].ravel() > 0 for i in range(2)]
        # Of pgx the observation changes sides at the end of a game too, where `first_moves` stays.
        first, second = planes if game.num_plies % 2 == 0 else planes[::-1]
        cells = (first + 2 * second).tolist()
        # Of a column the upper stone is the last one.
        last = [] if game.action is None else self._cells(game.action)
        return {"cells": cells, "last": next((cell for cell in last if cells[cell]), None)}

    def _cells(self, action: int) -> list[int]:
        """The cells that stand for a move, from top to bottom."""
        assert self.page.shape is not None
        rows, columns = self.page.shape
        if self._env.num_actions == columns:
            return [columns * row + action for row in range(rows)]
        return [action] if action < rows * columns else []


def _number(value: Any) -> float:
    """As short as is read, and no NumPy number."""
    return round(float(value), 4)


def _line(plan: Plan, tree: Tree) -> list[int]:
    """The principal variation, which begins with the planned action."""
    line = [edge.action for edge in read_tree(tree).principal_variation()]
    # The move that is played need not be the most visited one.
    best = int(plan.action)
    return line if line[:1] == [best] else [best]


@eqx.filter_jit
def _grow(
    actor: PlanningActor, state: PyTree[Array], obs: Observation, keys: Key[Array, " batch"]
) -> tuple[Plan, Tree | None]:
    """The plan of a player that sees the state for the first time, and its tree."""
    planner, model = actor.planner, cast(Any, actor.model)  # the planner's kind
    carry = planner.init(model, state)
    if isinstance(planner, TreeSearch):
        plan, _, tree = planner.grow(model, state, carry, key=keys, obs=obs)
        return plan, tree
    return planner.plan(model, state, carry, key=keys, obs=obs)[0], None
