"""Measures an agent with estimates of a small variance."""

import math
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from zero_envs import Minesweeper, MinesweeperState
from zero_search import Hindsight
from zero_train import AbstractActor, PlanningActor


class Played(eqx.Module):
    """The results of games, one number for each board.

    **Attributes:**

    - `won`, `safe`: whether the game was won, and the number of opened safe cells.
    - `win_estimate`: 1 minus the sum of the risks: the exact probabilities of a mine given the
        visible board. Its mean over boards equals that of `won` for every agent, and its variance
        is a sixteenth for an agent that takes few risks. An unknown risk, whose posterior needs
        more than `max_states`, counts by its result.
    - `return_estimate`: the same for `safe`: the number of all safe cells minus, for each risk, its
        product with the number of safe cells that are not open yet.
    - `needless`: the number of risks taken although some cell was safe.
    - `unknown`: the number of unknown risks.
    - `moves`: the number of moves.
    """

    won: Bool[Array, " boards"]
    safe: Int[Array, " boards"]
    win_estimate: Float[Array, " boards"]
    return_estimate: Float[Array, " boards"]
    needless: Int[Array, " boards"]
    unknown: Int[Array, " boards"]
    moves: Int[Array, " boards"]

    @property
    def as_it_came(self) -> bool:
        """Whether `won` has a smaller variance than `win_estimate`, as for agents that take many
        risks."""
        return self._raw_variance < float(np.var(np.asarray(self.win_estimate, np.float64)))

    @property
    def wins(self) -> np.ndarray:
        """For each board the estimate of a win with the smaller variance."""
        return np.asarray(self.won if self.as_it_came else self.win_estimate, np.float64)

    @property
    def returns(self) -> np.ndarray:
        """The same for the number of safe cells."""
        return np.asarray(self.safe if self.as_it_came else self.return_estimate, np.float64)

    @property
    def win_error(self) -> float:
        """The standard error of the mean of `wins`."""
        if self.as_it_came:
            return math.sqrt(self._raw_variance / len(self.won))
        return mean_and_error(self.wins)[1]

    @property
    def _raw_variance(self) -> float:
        # By Laplace's rule of succession, so that it is not 0 if a few games all end alike.
        share = (int(np.sum(self.won)) + 1) / (len(self.won) + 2)
        return share * (1 - share)


def measure(
    env: Minesweeper,
    actor: AbstractActor,
    *,
    boards: int,
    key: PRNGKeyArray,
    timed: bool = True,
    at_once: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Played, float]:
    """Plays `boards` boards.

    Board `i` and all randomness on it depend only on `key` and `i`, so agents with the same key can
    be compared board by board. By default 1000 are played `at_once`, or fewer if they need too much
    memory, and `progress` is called with the number of boards so far after every batch.

    **Returns:** the games, as NumPy arrays, and the moves per second of many parallel boards
    including the exact risks, without compilation; NaN if they are not `timed`: then the compiled
    program of an earlier call with the same actor is used again.
    """
    most = at_once or boards_at_once(env, actor)
    # All batches have the same size, so that one compiled program plays them.
    batches = math.ceil(boards / most)
    size = math.ceil(boards / batches)
    rows = [jnp.arange(i * size, (i + 1) * size, dtype=jnp.int32) for i in range(batches)]
    play: Any = _play
    if timed:
        play = play.lower(env, actor, rows[0], key).compile()
    played, start = [], time.perf_counter()
    for numbers in rows:
        played.append(jax.device_get(play(env, actor, numbers, key)))
        progress(min(len(played) * size, boards))
    seconds = time.perf_counter() - start
    games = jax.tree.map(lambda *xs: np.concatenate(xs)[:boards], *played)
    moves = sum(int(one.moves.sum()) for one in played)
    return games, moves / seconds if timed else math.nan


def mean_and_error(x: ArrayLike) -> tuple[float, float]:
    numbers = np.asarray(x, np.float64)
    return float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(numbers.size))


def boards_at_once(env: Minesweeper, actor: AbstractActor) -> int:
    """The number of parallel boards that fit into memory: 1000 of 10 x 10 cells.

    The memory of a posterior grows with the number of cells and the length of rows. Hindsight needs
    a tree for each layout.
    """
    most = 1e6 / env.num_actions**1.5
    if isinstance(actor, PlanningActor) and isinstance(actor.planner, Hindsight):
        most = min(most, 1.28e7 / (actor.planner.num_trees * env.num_actions))
    return max(1, min(1000, round(most)))


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
        risk, needless = jax.vmap(_risk, in_axes=(None, 0, 0))(env, state, action)
        unknown = jnp.isnan(risk)
        after, transition = jax.vmap(env.step)(state, action, key=keys(1, step))
        carry = actor.advance(carry, action, transition)
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

    state = jax.vmap(env.init)(key=keys(2, 0))
    none = jnp.zeros(rows.shape, jnp.int32)
    whole = jnp.ones(rows.shape, jnp.float32)
    played = Played(none > 0, none, whole, safe_cells * whole, none, none, none)
    loop = (jnp.zeros((), jnp.int32), state, actor.init(state), played)
    return jax.lax.while_loop(lambda loop: jnp.any(~loop[1].over), body, loop)[-1]


def _risk(
    env: Minesweeper, state: MinesweeperState, action: Int[Array, ""]
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The probability that the move opens a mine (NaN if unknown), and whether the risk was
    needless."""
    found, hidden = env.posterior(state).probability, state.board < 0
    # Opening an open cell ends the game like a mine.
    risk = jnp.where(hidden.reshape(-1)[action], found.reshape(-1)[action], 1.0)
    needless = (risk > 0) & jnp.any(hidden & (found == 0))
    return jnp.where(state.over, 0.0, risk), jnp.where(state.over, 0, needless.astype(jnp.int32))
