"""Othello as sets of bits: pgx's game, several times as fast."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Int32, PRNGKeyArray, UInt32

from ._environment import (
    absorbing_transition,
    AbstractDiscreteEnvironment,
    check_number,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._pgx import PgxEnvironment, PgxState


_PASS = 64
_NONE, _ONE, _ALL = np.uint32(0), np.uint32(1), np.uint32(2**32 - 1)
# The distance to the next square to the right, to the lower left, below and to the lower right. The
# other four directions have the same distances backwards.
_STRIDES = np.array([1, 7, 8, 9], np.uint32)
# The discs that can be flipped in each direction: a line must not go on at the other side of the
# board, and no disc of the outer columns is between two others of its row or diagonal.
_FLIPPABLE = np.array([0x7E7E7E7E, 0x7E7E7E7E, 0xFFFFFFFF, 0x7E7E7E7E], np.uint32)
# Black has 28 and 35, white has 27 and 36, and black may play 19, 26, 37 and 44.
_START = np.array(
    [[1 << 28, 1 << 3], [1 << 27, 1 << 4], [1 << 19 | 1 << 26, 1 << 5 | 1 << 12], [0, 0]], np.uint32
)


class OthelloState(eqx.Module):
    """A state of Othello, in one array.

    **Attributes:**

    - `words`: the discs of the player to move, those of the opponent, and the legal squares, or all
        squares if the state is final. Each is two words: bit `i` of word `w` is square `32 * w +
        i`. The last two words are 1 if white is to move, and 1 if the last action was a pass.
    """

    words: UInt32[Array, "*axes 4 2"]

    @property
    def over(self) -> Bool[Array, "*axes"]:
        """Whether the state is final."""
        return (self.words[..., 2, 0] & self.words[..., 2, 1]) == _ALL

    @property
    def white(self) -> Bool[Array, "*axes"]:
        """Whether white is to move. The last step of a game changes this too."""
        return self.words[..., 3, 0] == _ONE


class Othello(AbstractDiscreteEnvironment[OthelloState]):
    """pgx's `othello` with sets of bits for boards.

    Black moves first. Action `8 * row + column` places a disc, and action 64 passes, which is legal
    if nothing else is. The game terminates after two passes, when the board is full, and when the
    player to move has no disc. Then the player who just acted has reward 1 with more discs than the
    opponent, -1 with fewer and 0 with as many; all other rewards are 0. As in pgx, an illegal
    action has reward -1, or `-max_return`, and terminates the game.

    `pgx` is needed for `raw` and `render` only.

    **Arguments:**

    - `disc_weight`: adds `disc_weight * discs / 64` to the reward of the winner and takes as much
        from that of the loser, so that players also care by how many discs they win. `discs` is the
        winner's lead, where the squares that stay empty are the winner's, as in tournaments. pgx
        has no such reward; 0 is pgx's game. A number from 0 on.
    """

    #: Planners need not trace a step to know it.
    random: ClassVar[bool] = False

    disc_weight: float = eqx.field(static=True, default=0.0)
    num_actions: int = eqx.field(init=False, default=_PASS + 1)
    num_players: int = eqx.field(init=False, default=2)
    hidden: bool = eqx.field(init=False, default=False)

    def __check_init__(self):
        check_number("Othello", 0, math.inf, disc_weight=self.disc_weight)

    @property
    def max_return(self) -> float:
        """The largest return of a game, that of a win by all 64 squares; the smallest is
        `-max_return`."""
        return float(np.float32(1) + np.float32(self.disc_weight))  # as rewards are rounded

    def init(self, *, key: PRNGKeyArray) -> OthelloState:
        """The start of the game; `key` is ignored."""
        del key
        return OthelloState(jnp.asarray(_START))

    def step(
        self, state: OthelloState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[OthelloState, Transition]:
        """Places a disc or passes; `key` is ignored."""
        del key
        action = checked_action(self, action)
        check_state(self, state.words, 2)
        own, theirs, legal = (_Squares(*jnp.unstack(words)) for words in state.words[:3])
        white, passed = jnp.unstack(state.words[3])
        square, passes = _square(action), action == _PASS
        allowed = jnp.where(passes, ~legal.any(), (legal & square).any())
        flipped = _flips(square, own, theirs)
        # As in pgx, an illegal action takes effect: it may place a disc where there is one.
        own, theirs = own ^ (square | flipped), theirs & ~flipped
        empty = ~(own | theirs)
        lead = own.count() - theirs.count()
        outcome = jnp.sign(lead).astype(jnp.float32)
        if self.disc_weight:
            discs = (jnp.abs(lead) + empty.count()).astype(jnp.float32)
            outcome *= 1 + self.disc_weight / 64 * discs
        ended = ~empty.any() | ~theirs.any() | (passes & (passed == _ONE))
        terminated = ended | ~allowed
        replies = _moves(theirs, own).where(~terminated, _ALL)
        transition = absorbing_transition(
            state.over,
            jnp.where(allowed, jnp.where(ended, outcome, 0.0), -self.max_return),
            terminated=terminated,
            sign=-1.0,
        )
        sets = jax.tree.leaves((theirs, own & ~theirs, replies))
        words = jnp.stack([*sets, white ^ _ONE, passes.astype(jnp.uint32)]).reshape(4, 2)
        return OthelloState(jnp.where(state.over, state.words, words)), transition

    def observe(self, state: OthelloState) -> Observation:
        """The discs of the player to move, then the opponent's, `[8, 8, 2]`.

        In a final state every action is legal.
        """
        check_state(self, state.words, 2)
        passes = state.over | ~_Squares(*jnp.unstack(state.words[2])).any()
        return Observation(
            features=_bits(state.words[:2]).reshape(8, 8, 2),
            legal=jnp.append(_bits(state.words[2:3]), passes),
        )

    def raw(self, state: OthelloState) -> Any:
        """pgx's own state. Player 0 is black, and the number of steps is 0."""
        env = PgxEnvironment("othello")
        position, seen = env.init(key=jr.key(0)).position, self.observe(state)
        own, theirs = jnp.unstack(seen.features.reshape(64, 2).astype(jnp.int32), axis=1)
        turn, passed = state.white.astype(jnp.int32), state.words[3, 1] == _ONE
        position = position.replace(
            current_player=turn,
            terminated=state.over,
            legal_action_mask=seen.legal,
            _x=position._x._replace(turn=turn, board=own - theirs, passed=passed),
        )
        return env.raw(PgxState(position))

    def render(self, state: OthelloState, *, scale: float = 1.0) -> str:
        return self.raw(state).to_svg(scale=scale)


class _Squares(eqx.Module):
    """A set of squares, or one for each of four directions. Bit `i` is square `i` in `low` and
    square `32 + i` in `high`."""

    low: UInt32[Array | np.ndarray, "*directions"]
    high: UInt32[Array | np.ndarray, "*directions"]

    def __and__(self, other: "_Squares") -> "_Squares":
        return _Squares(self.low & other.low, self.high & other.high)

    def __or__(self, other: "_Squares") -> "_Squares":
        return _Squares(self.low | other.low, self.high | other.high)

    def __xor__(self, other: "_Squares") -> "_Squares":
        return _Squares(self.low ^ other.low, self.high ^ other.high)

    def __invert__(self) -> "_Squares":
        return _Squares(~self.low, ~self.high)

    def forward(self, stride: UInt32[np.ndarray, " directions"]) -> "_Squares":
        """The squares at a distance after these."""
        carried = self.low >> (np.uint32(32) - stride)
        return _Squares(self.low << stride, (self.high << stride) | carried)

    def backward(self, stride: UInt32[np.ndarray, " directions"]) -> "_Squares":
        """The squares at a distance before these."""
        carried = self.high << (np.uint32(32) - stride)
        return _Squares((self.low >> stride) | carried, self.high >> stride)

    def where(
        self, condition: Bool[Array, "*directions"], otherwise: np.uint32 = _NONE
    ) -> "_Squares":
        """These squares if a condition holds, otherwise none or other words."""
        return _Squares(*(jnp.where(condition, x, otherwise) for x in (self.low, self.high)))

    def any(self) -> Bool[Array, "*directions"]:
        """Whether there is a square."""
        return (self.low | self.high) != _NONE

    def count(self) -> Int32[Array, ""]:
        """The number of squares."""
        number = lambda word: jax.lax.population_count(word).astype(jnp.int32)
        return number(self.low) + number(self.high)

    def union(self) -> "_Squares":
        """The squares of all directions together."""
        total = lambda words: jax.lax.reduce(words, _NONE, jax.lax.bitwise_or, (0,))
        return _Squares(total(self.low), total(self.high))


_Shift = Callable[[_Squares, UInt32[np.ndarray, " directions"]], _Squares]


def _square(action: Int32[Array, ""]) -> _Squares:
    """The square of an action, none for others than squares."""
    bit, word = _ONE << (action % 32).astype(jnp.uint32), action // 32
    return _Squares(jnp.where(word == 0, bit, _NONE), jnp.where(word == 1, bit, _NONE))


def _moves(own: _Squares, theirs: _Squares) -> _Squares:
    """The empty squares where a disc of `own` flips some of `theirs`."""
    ends = [
        shift(_line(shift, own, theirs), _STRIDES)
        for shift in (_Squares.forward, _Squares.backward)
    ]
    return (ends[0] | ends[1]).union() & ~(own | theirs)


def _flips(square: _Squares, own: _Squares, theirs: _Squares) -> _Squares:
    """Those of `theirs` in a line between one square and one of `own`."""
    lines = []
    for shift in (_Squares.forward, _Squares.backward):
        line = _line(shift, square, theirs)
        lines.append(line.where((shift(line, _STRIDES) & own).any()))
    return (lines[0] | lines[1]).union()


def _line(shift: _Shift, start: _Squares, theirs: _Squares) -> _Squares:
    """The lines of `theirs` without a gap that begin next to `start`, one for each direction."""
    through = theirs & _Squares(_FLIPPABLE, _FLIPPABLE)
    line = shift(start, _STRIDES) & through
    line |= shift(line, _STRIDES) & through
    # A line has up to six discs; the others are added in pairs.
    pairs = shift(through, _STRIDES) & through
    for _ in range(2):
        line |= shift(line, 2 * _STRIDES) & pairs
    return line


def _bits(words: UInt32[Array, "sets 2"]) -> Bool[Array, "64 sets"]:
    """Whether each square is in each set."""
    places = np.arange(32, dtype=np.uint32).reshape(1, 32, 1)
    return ((words.T[:, None] >> places) & _ONE != _NONE).reshape(64, -1)
