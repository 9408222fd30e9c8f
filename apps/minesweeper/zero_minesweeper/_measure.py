"""What a player is worth, from few games: luck with the mines is taken out."""

import dataclasses
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from zero_envs import mine_posterior, Minesweeper
from zero_train import AbstractActor


_BOARDS_AT_ONCE = 1000


class Played(eqx.Module):
    """What games came to, one number a board.

    **Attributes:**

    - `won`, `safe`: whether it was won, and how many safe cells were opened.
    - `win_estimate`: 1 less the risks that were taken, each the exact probability of a mine given
        what was seen. The mean over boards is that of `won`, whoever plays; its variance is a
        sixteenth for somebody who takes few risks. A risk that is not known, because the posterior
        does not fit, counts as what came of it.
    - `return_estimate`: the same for `safe`: all safe cells less, for each risk, what it put at
        stake.
    - `needless`: risks taken where a cell was known to be safe.
    - `unknown`: risks that are not known.
    - `moves`: how many.
    """

    won: Bool[Array, " boards"]
    safe: Int[Array, " boards"]
    win_estimate: Float[Array, " boards"]
    return_estimate: Float[Array, " boards"]
    needless: Int[Array, " boards"]
    unknown: Int[Array, " boards"]
    moves: Int[Array, " boards"]


@dataclasses.dataclass(frozen=True)
class Measured:
    """**Attributes:**

    - `games`: one number a board, on the host.
    - `moves_per_second`: without compilation, many boards at once, the exact risks included; NaN
        if not timed.
    """

    games: Played
    moves_per_second: float

    @property
    def wins(self) -> np.ndarray:
        """Board by board, with the mean of `won`: without luck, or as it came for who risks so much
        that this varies less."""
        return _steadier(self.games.win_estimate, self.games.won)

    @property
    def returns(self) -> np.ndarray:
        """The same for `safe`."""
        return _steadier(self.games.return_estimate, self.games.safe)


def measure(
    env: Minesweeper,
    actor: AbstractActor,
    *,
    boards: int,
    key: PRNGKeyArray,
    timed: bool = True,
) -> Measured:
    """Plays `boards` boards. Board `i`, and whatever is random in playing it, depends on `key` and
    on `i` only: give two players the same key and compare them board by board.

    Compilation is not `timed`: a few boards are played twice; of many the first are left out.
    """
    rows = np.arange(boards, dtype=np.int32)
    chunks = [rows[i : i + _BOARDS_AT_ONCE] for i in range(0, boards, _BOARDS_AT_ONCE)]
    # The last chunk is filled up, so that one compiled program plays them all.
    size = len(chunks[0])
    padded = [np.resize(chunk, size) for chunk in chunks]
    played, seconds = [], []
    # The first one compiles: if there is no other to be timed, it is played again.
    for chunk in (*padded, *padded[: int(timed and len(padded) == 1)]):
        start = time.perf_counter()
        played.append(jax.block_until_ready(_play(env, actor, jnp.asarray(chunk), key)))
        seconds.append(time.perf_counter() - start)
    numbers = [len(chunk) for chunk in chunks]
    join = lambda *xs: np.concatenate([np.asarray(x)[:n] for x, n in zip(xs, numbers, strict=True)])
    games = jax.tree.map(join, *played[: len(chunks)])
    if not timed:
        return Measured(games, math.nan)
    moves = sum(int(jnp.sum(one.moves)) for one in played[1:])
    return Measured(games, moves / sum(seconds[1:]))


def mean_and_error(x: ArrayLike) -> tuple[float, float]:
    """The mean and its standard error."""
    numbers = np.asarray(x, np.float64)
    return float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(numbers.size))


def _steadier(*estimates: ArrayLike) -> np.ndarray:
    numbers = [np.asarray(x, np.float64) for x in estimates]
    return min(numbers, key=np.var)


@eqx.filter_jit
def _play(
    env: Minesweeper, actor: AbstractActor, rows: Int[Array, " boards"], key: PRNGKeyArray
) -> Played:
    def keys(consumer: int, step: Int[Array, ""] | int) -> Array:
        mine = jr.fold_in(jr.fold_in(key, consumer), step)
        return jax.vmap(jr.fold_in, in_axes=(None, 0))(mine, rows)

    safe_cells = env.num_actions - env.num_mines

    def body(loop):
        step, state, carry, played = loop
        obs = jax.vmap(env.observe)(state)
        action, _, carry = actor.act(state, obs, carry, key=keys(0, step))
        risk, needless = jax.vmap(_risk, in_axes=(None, 0, 0, 0))(
            env, state.board, state.over, action
        )
        unknown = jnp.isnan(risk)
        after, transition = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(
            state, action, keys(1, step)
        )
        carry = actor.advance(carry, action, after, transition)
        going, won = ~state.over, jax.vmap(env.won)(after)
        risk = jnp.where(unknown, (transition.last & ~won).astype(jnp.float32), risk)
        played = Played(
            won=won,
            safe=played.safe + jnp.where(going & (transition.reward > 0), 1, 0),
            win_estimate=played.win_estimate - risk,
            return_estimate=played.return_estimate
            - risk * (safe_cells - played.safe).astype(jnp.float32),
            needless=played.needless + needless,
            unknown=played.unknown + unknown.astype(jnp.int32),
            moves=played.moves + going.astype(jnp.int32),
        )
        return step + 1, after, carry, played

    state = jax.vmap(lambda k: env.init(key=k))(keys(2, 0))
    none = jnp.zeros(rows.shape, jnp.int32)
    whole = jnp.ones(rows.shape, jnp.float32)
    played = Played(none > 0, none, whole, safe_cells * whole, none, none, none)
    loop = (jnp.zeros((), jnp.int32), state, actor.init(state), played)
    return jax.lax.while_loop(lambda loop: jnp.any(~loop[1].over), body, loop)[-1]


def _risk(
    env: Minesweeper, board: Int[Array, "rows columns"], over: Bool[Array, ""], action: Array
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The probability that the move opens a mine, NaN if not known, and whether that could have
    been avoided."""
    # A board on which a mine was stepped on shows what no layout shows.
    board = jnp.where(over, jnp.int8(-1), board)
    found = mine_posterior(board, env.num_mines, max_states=env.max_states).probability
    hidden = board < 0
    # Opening a cell again ends the game as surely as a mine does.
    risk = jnp.where(hidden.reshape(-1)[action], found.reshape(-1)[action], 1.0)
    needless = (risk > 0) & jnp.any(hidden & (found == 0))
    return jnp.where(over, 0.0, risk), jnp.where(over, 0, needless.astype(jnp.int32))
