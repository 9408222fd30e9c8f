"""2048 as a game that knows its own dice; pgx has the same game without an afterstate."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from ._environment import AbstractChanceEnvironment, Observation, Transition
from ._pgx import PgxEnvironment, PgxState


# Cells in the order that turns sliding left into sliding left, up, right or down, and back.
_TURNED = np.stack([np.rot90(np.arange(16).reshape(4, 4), k).ravel() for k in range(4)])
_BACK = np.argsort(_TURNED, axis=1)
# pgx's observation has room for tiles up to 2^30.
_TILES = 31


class Game2048State(eqx.Module):
    """A board, row by row: 0 is empty, `k` is the tile `2^k`. Final where `over`."""

    board: Int8[Array, "*axes 16"]
    over: Bool[Array, "*axes"]


class Game2048Afterstate(eqx.Module):
    """The board after the slide, before the new tile falls.

    **Attributes:**

    - `board`: as in the state.
    - `points`: what the slide earned.
    - `over`: the game was over before, so nothing happens.
    - `illegal`: the slide moved nothing, which ends the game.
    """

    board: Int8[Array, "*axes 16"]
    points: Float[Array, "*axes"]
    over: Bool[Array, "*axes"]
    illegal: Bool[Array, "*axes"]


class Game2048(AbstractChanceEnvironment[Game2048State]):
    """pgx's `2048` with its dice in the open: same boards, points, ends and observations.

    Action 0 slides left, 1 up, 2 right, 3 down. The reward is the sum of the merged tiles. Then a
    tile falls on an empty cell: outcome `cell` a 2, with probability 0.9 over the number of empty
    cells, and outcome `16 + cell` a 4, with 0.1. The game ends when nothing can be slid. As in
    pgx, a slide that moves nothing costs 1 and ends the game; if no cell is empty then, or the
    game was over before, outcome 0 is certain and no tile falls.

    Planners that use no afterstates play it too: `step` draws the outcome. `pgx` is needed for
    drawing only.
    """

    num_actions: int
    num_outcomes: int
    hidden: bool

    def __init__(self):
        self.num_actions = 4
        self.num_outcomes = 32
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> Game2048State:
        """Two tiles on an empty board."""
        board, no = jnp.zeros(16, jnp.int8), jnp.zeros((), jnp.bool_)
        for dkey in jr.split(key):
            after = Game2048Afterstate(board, jnp.zeros((), jnp.float32), no, no)
            outcome = jr.categorical(dkey, self.outcome_logits(after))
            board = self.resolve(after, outcome.astype(jnp.int32))[0].board
        return Game2048State(board, no)

    def afterstate(self, state: Game2048State, action: Int[Array, ""]) -> Game2048Afterstate:
        """Slides and merges."""
        lines = state.board[jnp.asarray(_TURNED)[action]].reshape(4, 4)
        slid, points = _slide(lines)
        board = slid.reshape(16)[jnp.asarray(_BACK)[action]]
        return Game2048Afterstate(
            board=jnp.where(state.over, state.board, board),
            points=points,
            over=state.over,
            illegal=jnp.all(slid == lines),
        )

    def outcome_logits(self, afterstate: Game2048Afterstate) -> Float[Array, " outcomes"]:
        """Every empty cell alike, a 2 nine times as often as a 4."""
        empty = (afterstate.board == 0) & ~afterstate.over
        number = jnp.sum(empty, dtype=jnp.int32).astype(jnp.float32)
        shares = jnp.log(jnp.asarray([[0.9], [0.1]], jnp.float32) / jnp.maximum(number, 1.0))
        falls = jnp.where(empty[None], shares, -jnp.inf).reshape(32)
        nothing = jnp.where(jnp.arange(32) == 0, jnp.float32(0), -jnp.inf)
        return jnp.where(number > 0, falls, nothing)

    def resolve(
        self, afterstate: Game2048Afterstate, outcome: Int[Array, ""]
    ) -> tuple[Game2048State, Transition]:
        """Lets the tile fall."""
        before, over = afterstate.board, afterstate.over
        cell = jnp.arange(16) == outcome % 16
        tile = (1 + outcome // 16).astype(jnp.int8)
        board = jnp.where(cell & (before == 0) & ~over, tile, before)
        last = over | afterstate.illegal | ~jnp.any(_movable(board))
        reward = jnp.where(afterstate.illegal, -1.0, afterstate.points)
        transition = Transition(
            reward=jnp.where(over, 0.0, reward).astype(jnp.float32),
            discount=jnp.where(last, 0.0, 1.0).astype(jnp.float32),
            last=last,
        )
        return Game2048State(board, last), transition

    def step(
        self, state: Game2048State, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[Game2048State, Transition]:
        """Slides, then draws where and which tile falls."""
        after = self.afterstate(state, action)
        outcome = jr.categorical(key, self.outcome_logits(after))
        return self.resolve(after, outcome.astype(jnp.int32))

    def observe(self, state: Game2048State) -> Observation:
        """Every cell one-hot, `[4, 4, 31]`; in a final position all is legal, as filler."""
        features = state.board[:, None] == jnp.arange(_TILES, dtype=jnp.int8)[None]
        legal = state.over | _movable(state.board)
        return Observation(features=features.reshape(4, 4, _TILES), legal=legal)

    def raw(self, state: Game2048State) -> Any:
        """pgx's own state, for pgx's tools."""
        env = PgxEnvironment("2048")
        position = env.init(key=jr.key(0)).position.replace(
            _board=state.board.astype(jnp.int32),
            legal_action_mask=self.observe(state).legal,
            terminated=state.over,
        )
        return env.raw(PgxState(position))

    def render(self, state: Game2048State, *, scale: float = 1.0) -> str:
        """The position as an SVG image."""
        return self.raw(state).to_svg(scale=scale)


def _slide(
    lines: Int8[Array, "lines 4"],
) -> tuple[Int8[Array, "lines 4"], Float[Array, ""]]:
    """Lines slid to the left, with equal neighbours merged once, and the points of that."""
    a, b, c, d = _pack(*jnp.unstack(lines, axis=1))
    zero, points = jnp.zeros_like(a), jnp.zeros((), jnp.float32)
    merged = []
    for _ in range(4):
        # The first two of what is left: they become one tile, or the first one stays.
        pair = (a > 0) & (a == b)
        tile = jnp.where(pair, a + jnp.int8(1), a)
        points += jnp.sum(jnp.where(pair, jnp.exp2(tile.astype(jnp.float32)), 0.0))
        merged.append(tile)
        a, b, c = jnp.where(pair, c, b), jnp.where(pair, d, c), jnp.where(pair, zero, d)
        d = zero
    return jnp.stack(merged, axis=1), points


def _pack(*line: Int8[Array, " lines"]) -> list[Int8[Array, " lines"]]:
    """Moves the empty cells behind the tiles, which keep their order."""
    cells = list(line)
    for last in range(3, 0, -1):
        for i in range(last):
            gap = cells[i] == 0
            moved = jnp.where(gap, cells[i + 1], cells[i])
            cells[i + 1] = jnp.where(gap, cells[i], cells[i + 1])
            cells[i] = moved
    return cells


def _movable(board: Int8[Array, " 16"]) -> Bool[Array, " 4"]:
    """Which slides change the board: a tile has a gap or its equal before it."""
    lines = board[jnp.asarray(_TURNED)].reshape(4, 4, 4)
    ahead, tile = lines[..., :-1], lines[..., 1:]
    moves = (tile > 0) & ((ahead == 0) | (ahead == tile))
    return jnp.any(moves, axis=(1, 2))
