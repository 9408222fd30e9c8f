"""2048 with known chance probabilities; pgx has the same game without afterstates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractChanceEnvironment,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._pgx import PgxEnvironment, PgxState


# The order of cells in which sliding left means sliding left, up, right or down, and its inverse.
_TURNED = np.stack([np.rot90(np.arange(16).reshape(4, 4), k).ravel() for k in range(4)])
_BACK = np.argsort(_TURNED, axis=1)
# pgx's observation has planes for tiles up to 2^30.
_TILES = 31


class Game2048State(eqx.Module):
    """A state of 2048.

    **Attributes:**

    - `board`: the cells row by row: 0 is empty, `k` is the tile `2^k`.
    - `over`: whether the state is final.
    """

    board: Int8[Array, "*axes 16"]
    over: Bool[Array, "*axes"]


class Game2048Afterstate(eqx.Module):
    """The state after the slide and before the new tile.

    **Attributes:**

    - `board`: as in the state.
    - `points`: the reward of the slide.
    - `over`: whether the game was already over.
    - `illegal`: whether the slide moved nothing, which terminates the game.
    """

    board: Int8[Array, "*axes 16"]
    points: Float[Array, "*axes"]
    over: Bool[Array, "*axes"]
    illegal: Bool[Array, "*axes"]


class Game2048(AbstractChanceEnvironment[Game2048State]):
    """pgx's `2048` with known chance probabilities.

    Action 0 slides left, 1 up, 2 right, 3 down. The reward is the sum of the merged tiles. Then a
    new tile appears on a uniformly drawn empty cell: chance outcome `cell` is a 2, with probability
    0.9 over the number of empty cells, and `16 + cell` is a 4, with probability 0.1 over that
    number. The game terminates if no slide is possible. As in pgx, a slide that moves nothing has
    reward -1 and terminates the game. If there is no empty cell then, or if the game was already
    over, outcome 0 has probability 1 and no tile appears.

    `pgx` is needed for `raw` and `render` only.
    """

    num_actions: int = eqx.field(init=False, default=4)
    num_outcomes: int = eqx.field(init=False, default=32)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=False)

    def init(self, *, key: PRNGKeyArray) -> Game2048State:
        """Draws two tiles on an empty board."""
        board, no = jnp.zeros(16, jnp.int8), jnp.zeros((), jnp.bool_)
        for dkey in jr.split(key):
            after = Game2048Afterstate(board, jnp.zeros((), jnp.float32), no, no)
            outcome = jr.categorical(dkey, self.outcome_logits(after))
            board = self.resolve(after, outcome.astype(jnp.int32))[0].board
        return Game2048State(board, no)

    def afterstate(self, state: Game2048State, action: Int[Array, ""]) -> Game2048Afterstate:
        """Slides and merges the tiles."""
        action = checked_action(self, action)
        check_state(self, state.board, 1)
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
        """The log-probabilities of the new tile."""
        empty = (afterstate.board == 0) & ~afterstate.over
        number = jnp.sum(empty, dtype=jnp.int32).astype(jnp.float32)
        shares = jnp.log(jnp.asarray([[0.9], [0.1]], jnp.float32) / jnp.maximum(number, 1.0))
        falls = jnp.where(empty[None], shares, -jnp.inf).reshape(32)
        nothing = jnp.where(jnp.arange(32) == 0, jnp.float32(0), -jnp.inf)
        return jnp.where(number > 0, falls, nothing)

    def resolve(
        self, afterstate: Game2048Afterstate, outcome: Int[Array, ""]
    ) -> tuple[Game2048State, Transition]:
        """Places the new tile."""
        before, over = afterstate.board, afterstate.over
        cell = jnp.arange(16, dtype=jnp.int32) == outcome % 16
        tile = (1 + outcome // 16).astype(jnp.int8)
        board = jnp.where(cell & (before == 0) & ~over, tile, before)
        reward = jnp.where(afterstate.illegal, -1.0, afterstate.points)
        ended = afterstate.illegal | ~jnp.any(_movable(board))
        transition = absorbing_transition(over, reward, terminated=ended)
        return Game2048State(board, transition.last), transition

    def step(
        self, state: Game2048State, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[Game2048State, Transition]:
        """Slides the tiles, and draws the new tile."""
        after = self.afterstate(state, action)
        outcome = jr.categorical(key, self.outcome_logits(after))
        return self.resolve(after, outcome.astype(jnp.int32))

    def observe(self, state: Game2048State) -> Observation:
        """The one-hot tiles, `[4, 4, 31]`. In a final state every action is legal."""
        check_state(self, state.board, 1)
        features = state.board[:, None] == jnp.arange(_TILES, dtype=jnp.int8)[None]
        legal = state.over | _movable(state.board)
        return Observation(features=features.reshape(4, 4, _TILES), legal=legal)

    def raw(self, state: Game2048State) -> Any:
        env = PgxEnvironment("2048")
        position = env.init(key=jr.key(0)).position.replace(
            _board=state.board.astype(jnp.int32),
            legal_action_mask=self.observe(state).legal,
            terminated=state.over,
        )
        return env.raw(PgxState(position))

    def render(self, state: Game2048State, *, scale: float = 1.0) -> str:
        return self.raw(state).to_svg(scale=scale)


def _slide(lines: Int8[Array, "lines 4"]) -> tuple[Int8[Array, "lines 4"], Float[Array, ""]]:
    """Lines after sliding left and merging equal neighbours once, and the points."""
    a, b, c, d = _pack(*jnp.unstack(lines, axis=1))
    zero, points = jnp.zeros_like(a), jnp.zeros((), jnp.float32)
    merged = []
    for _ in range(4):
        # The first two remaining tiles are merged if they are equal; otherwise the first one stays.
        pair = (a > 0) & (a == b)
        tile = jnp.where(pair, a + jnp.int8(1), a)
        # A shift, because XLA's `exp2` of a whole number is no whole number.
        merges = jnp.left_shift(jnp.int32(1), tile.astype(jnp.int32)).astype(jnp.float32)
        points += jnp.sum(jnp.where(pair, merges, 0.0))
        merged.append(tile)
        a, b, c = jnp.where(pair, c, b), jnp.where(pair, d, c), jnp.where(pair, zero, d)
        d = zero
    return jnp.stack(merged, axis=1), points


def _pack(*line: Int8[Array, " lines"]) -> list[Int8[Array, " lines"]]:
    """Moves the empty cells to the end, and keeps the order of the tiles."""
    cells = list(line)
    for last in range(3, 0, -1):
        for i in range(last):
            gap = cells[i] == 0
            moved = jnp.where(gap, cells[i + 1], cells[i])
            cells[i + 1] = jnp.where(gap, cells[i], cells[i + 1])
            cells[i] = moved
    return cells


def _movable(board: Int8[Array, " 16"]) -> Bool[Array, " 4"]:
    """A mask of the slides that change the board: a tile follows a gap or an equal tile."""
    lines = board[jnp.asarray(_TURNED)].reshape(4, 4, 4)
    ahead, tile = lines[..., :-1], lines[..., 1:]
    moves = (tile > 0) & ((ahead == 0) | (ahead == tile))
    return jnp.any(moves, axis=(1, 2))
