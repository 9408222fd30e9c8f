"""Answers questions about games of two players, without keeping any of them."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from zero_envs import AbstractDiscreteEnvironment, Observation

from ... import PlanningActor
from .._thought import think, Thought


#: Simulations a move that can be asked for. Each is compiled once, so they are few.
STRENGTHS = (0, 16, 64, 256)
#: The longest game that is replayed.
MAX_MOVES = 600
#: The largest seed.
MAX_SEED = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """A game of two and its trained player, and how the page shows it.

    **Attributes:**

    - `title`: what the game is called.
    - `env`: the environment.
    - `player`: the player at full strength.
    - `names`: what each action is called when who moved first makes it; all different, without
        spaces, in lower case.
    - `other_names`: what they are called when the other one does; by default the same. Where they
        differ, every move passes the turn.
    - `sides`: what the player who moves first is called, and the other one.
    - `shape`: rows and columns of a board of stones. The first two planes of the features are then
        the stones of the player to move and those of the opponent, and action `i` is cell `i`, row
        by row, or column `i` where there are as many actions as columns; further actions have no
        cell. `None` for a board that is drawn.
    - `style`: how cells look: squares, holes of an upright board, the points of a grid, hexagons.
    - `draw`: the SVG of a state without a batch axis, for a board that is not of stones.
    - `viewer`: a number for the player from whose view a state is observed. By default it is the
        one to move, which at the end of a game is the one who moved last.
    - `chance`: whether the seed decides what happens in a game.
    """

    title: str
    env: AbstractDiscreteEnvironment
    player: PlanningActor
    names: Sequence[str]
    other_names: Sequence[str] | None = None
    sides: tuple[str, str] = ("X", "O")
    shape: tuple[int, int] | None = None
    style: Literal["squares", "holes", "points", "hexagons"] = "squares"
    draw: Callable[[Any], str | None] | None = None
    viewer: Callable[[Any], Array] | None = None
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


@dataclasses.dataclass(frozen=True, eq=False)
class _Position:
    """The end of a list of moves; all arrays have a batch of one."""

    state: PyTree[Array]
    obs: Observation
    plies: Int[Array, ""]
    first: Bool[Array, ""]  # whether who moved first is to move
    seen_first: Bool[Array, ""]  # whether the observation is from that player's view
    total: Float[Array, ""]  # the rewards, for that player
    over: Bool[Array, ""]


class Service:
    """Replays games and thinks about their ends. It keeps nothing but compiled programs, and may be
    asked by several threads."""

    def __init__(self, game: Game):
        self.game = game
        self._names = game.names, game.other_names or game.names
        self._actions = [{name: i for i, name in enumerate(names)} for names in self._names]
        self._compiled: set[int] = set()
        self._compiling = threading.Lock()

    def about(self) -> dict[str, Any]:
        """What the page must know of the game before it shows a position."""
        game = self.game
        rows, columns = game.shape or (0, 0)
        return {
            "title": game.title,
            "sides": game.sides,
            "rows": rows,
            "columns": columns,
            "style": game.style if game.shape else "picture",
            "places": {name: self._cells(action) for action, name in enumerate(game.names)}
            if game.shape
            else {},
            "strengths": STRENGTHS,
            "max_moves": MAX_MOVES,
            "max_value": float(getattr(game.env, "max_return", 1.0)),
            "chance": game.chance,
        }

    def answer(self, question: Question) -> dict[str, Any]:
        """The position that is asked about, and if asked for the player's thoughts.

        **Raises:** `Refusal` where a move is unknown or illegal, or follows the end of the game.
        """
        position = self._replay(question)
        over, first = bool(position.over), bool(position.first)
        assert position.obs.legal is not None
        legal = [] if over else np.flatnonzero(position.obs.legal[0]).tolist()
        total = float(position.total)
        side, thought = 0 if first else 1, None
        if question.think and not over:
            thought = self._said(self._think(position, question), legal, side)
        return {
            "side": side,
            "legal": [self._names[side][action] for action in legal],
            "over": over,
            "winner": None if not over or total == 0 else 0 if total > 0 else 1,
            "compiled": question.simulations in self._compiled,
            "thought": thought,
            **self._board(position, question.moves),
        }

    def _replay(self, question: Question) -> _Position:
        # What a name means depends on whose move it is, which only the replay knows.
        moves, count = np.zeros((MAX_MOVES, 2), np.int32), len(question.moves)
        for i, name in enumerate(question.moves):
            moves[i] = [actions.get(name, -1) for actions in self._actions]
            if max(moves[i]) < 0:
                raise Refusal(422, f"move {i + 1}, {ascii(name)}, is no move of this game.")
        numbers = map(jnp.asarray, (moves, np.int32(count), np.int32(question.seed)))
        found = _Position(*_replay(self.game.env, self.game.viewer, *numbers))
        plies = int(found.plies)
        if plies < count:
            name = question.moves[plies]
            if bool(found.over):
                raise Refusal(422, f"the game was over before move {plies + 1}, {ascii(name)}.")
            raise Refusal(422, f"move {plies + 1}, {ascii(name)}, is not legal there.")
        return found

    def _think(self, position: _Position, question: Question) -> Thought:
        known = question.simulations in self._compiled
        # Two requests must not compile the same at a time.
        with contextlib.nullcontext() if known else self._compiling:
            key = jr.key(question.seed)
            try:
                thought = think(
                    self.game.player, question.simulations, position.state, position.obs, key=key
                )
            except ValueError as e:
                raise Refusal(422, f"{e}; train another player.") from e
        self._compiled.add(question.simulations)
        return thought

    def _said(self, thought: Thought, legal: list[int], side: int) -> dict[str, Any]:
        names, searched = self._names[side], bool(thought.visits.any())
        return {
            "move": names[thought.action],
            "value": _number(thought.value),
            "line": [self._names[(side + i) % 2][a] for i, a in enumerate(thought.line)],
            "moves": [
                {
                    "name": names[action],
                    "visits": int(thought.visits[action]),
                    "weight": _number(thought.weights[action]),
                    "value": _number(thought.qvalues[action])
                    if searched and thought.visits[action]
                    else None,
                    "prior": _number(thought.prior[action]),
                }
                for action in legal
            ],
        }

    def _board(self, position: _Position, moves: Sequence[str]) -> Mapping[str, Any]:
        """The cells, 1 where who moved first has a stone and 2 where the other one has, and that of
        the last move; or a picture."""
        if self.game.shape is None:
            state = jax.tree.map(lambda x: x[0], position.state)
            return {"svg": self.game.draw(state) if self.game.draw else None}
        own, other = (np.asarray(position.obs.features[0, ..., i]).ravel() > 0 for i in range(2))
        first, second = (own, other) if bool(position.seen_first) else (other, own)
        cells = (first + 2 * second).tolist()
        # Of a column the upper stone is the last one.
        last = self._cells(self._actions[0][moves[-1]]) if moves else []
        return {"cells": cells, "last": next((cell for cell in last if cells[cell]), None)}

    def _cells(self, action: int) -> list[int]:
        """The cells that stand for a move, from top to bottom."""
        assert self.game.shape is not None
        rows, columns = self.game.shape
        if len(self.game.names) == columns:
            return [columns * row + action for row in range(rows)]
        return [action] if action < rows * columns else []


def _number(value: Any) -> float:
    """As short as is read, and no NumPy number."""
    return round(float(value), 4)


@eqx.filter_jit
def _replay(
    env: AbstractDiscreteEnvironment,
    viewer: Callable[[Any], Array] | None,
    moves: Int[Array, "most sides"],
    count: Int[Array, ""],
    seed: Int[Array, ""],
) -> tuple[Any, ...]:
    """The fields of a `_Position` after the first `count` moves, or before the first one that
    cannot be made. A move is two actions: the first side's of this name, and the other's; -1 is
    none."""
    key = jr.key(seed)
    start = env.init(key=jr.fold_in(key, 0))

    def chosen(ply: Any, first: Any) -> Int[Array, ""]:
        return jnp.where(first, moves[ply, 0], moves[ply, 1])

    def possible(carry: Any) -> Bool[Array, ""]:
        ply, state, first, _, over = carry
        legal, action = env.observe(state).legal, chosen(ply, first)
        assert legal is not None
        return (ply < count) & ~over & (action >= 0) & legal[action]

    def move(carry: Any) -> Any:
        ply, state, first, total, _ = carry
        state, transition = env.step(state, chosen(ply, first), key=jr.fold_in(key, ply + 1))
        total = total + jnp.where(first, transition.reward, -transition.reward)
        first = first ^ (transition.discount < 0)
        return ply + 1, state, first, total, transition.last

    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_)
    begun = zero, start, ~no, jnp.zeros((), jnp.float32), no
    ply, state, first, total, over = jax.lax.while_loop(possible, move, begun)
    seen_first = first if viewer is None else viewer(state) == viewer(start)
    one = lambda tree: jax.tree.map(lambda x: x[None], tree)
    return one(state), one(env.observe(state)), ply, first, seen_first, total, over
