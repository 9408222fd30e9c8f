"""One game of a person or an agent, with a record of the risks."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from zero_envs import Minesweeper, MinesweeperState, Transition
from zero_search import Plan
from zero_train import AbstractActor, PlanningActor

from ._planner import SolverSearch


@dataclasses.dataclass(frozen=True)
class Risk:
    """A move that could have opened a mine.

    **Attributes:**

    - `cell`: the opened cell.
    - `probability`: the exact probability of a mine given the visible board, NaN if unknown.
    - `needless`: whether some other cell was safe.
    """

    cell: int
    probability: float
    needless: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Advice:
    """The move of an agent and, if it searched, the result of the search.

    **Attributes:**

    - `cell`: the cell that it would open.
    - `value`: the estimated probability of a win. This and the following are `None` without a
        search.
    - `visits`: the visits of each cell.
    - `wins`: the estimated probability of a win after each cell; undefined for unvisited cells.
    """

    cell: int
    value: float | None = None
    visits: Int[np.ndarray, " cells"] | None = None
    wins: Float[np.ndarray, " cells"] | None = None


class Game:
    """A game that does not show its mines before its end.

    It is equal to the board of the same number that
    [`measure`][zero_minesweeper._measure.measure] plays with the same key, and agents get the same
    keys.

    **Attributes:**

    - `env`: the environment.
    - `risks`: the risks so far.
    - `moves`: the number of moves so far.
    - `last`: the last opened cell.
    """

    def __init__(self, env: Minesweeper, number: int, *, key: PRNGKeyArray):
        self.env = env
        self.risks: list[Risk] = []
        self.moves = 0
        self.last: int | None = None
        self._number, self._key = number, key
        self._state: MinesweeperState = _deal(env, self._draw(2, 0))
        self._heat: Float[np.ndarray, "rows columns"] | None = None

    @property
    def board(self) -> Int8[np.ndarray, "rows columns"]:
        """The visible board; hidden cells are -1."""
        return np.asarray(self._state.board)

    @property
    def over(self) -> bool:
        """Whether the game is over."""
        return bool(self._state.over)

    @property
    def won(self) -> bool:
        """Whether the game is won."""
        return self.over and bool(self.env.won(self._state))

    @property
    def mines(self) -> Bool[np.ndarray, "rows columns"] | None:
        """The mines, or `None` before the end of the game."""
        return np.asarray(self._state.mines) if self.over else None

    @property
    def heat(self) -> Float[np.ndarray, "rows columns"]:
        """The exact probability of a mine in each cell given the visible board, NaN if unknown. At
        the end it is that before the last move."""
        if self._heat is None:
            # With a batch axis, so that the compiled function of the agents is used.
            self._heat = np.asarray(_heat(self.env, self._state))
        return self._heat

    @property
    def safe(self) -> Int[np.ndarray, " safe"]:
        """The hidden cells whose risk is 0."""
        return np.flatnonzero((self.board < 0) & (self.heat == 0))

    @property
    def win_estimate(self) -> float:
        """1 minus the sum of the risks (see [`Played`][zero_minesweeper._measure.Played]), NaN if
        one is unknown."""
        return 1 - sum(risk.probability for risk in self.risks)

    def open(self, cell: int) -> None:
        """Opens a cell. Opening an open cell ends the game like a mine."""
        probability = float(self.heat.flat[cell]) if self.board.flat[cell] < 0 else 1.0
        if probability != 0:
            self.risks.append(Risk(cell, probability, bool(self.safe.size)))
        state, _ = _step(self.env, self._state, jnp.int32(cell), self._draw(1, self.moves))
        self._state, self.moves, self.last = state, self.moves + 1, cell
        if not self.over:
            self._heat = None

    def ask(self, actor: AbstractActor) -> Advice:
        """The move of `actor`, which gets a state without mines."""
        board = self._state.board
        blind = MinesweeperState(board, jnp.zeros(board.shape, jnp.bool_), self._state.over)
        key = self._draw(0, self.moves)
        if not isinstance(actor, PlanningActor):
            # Not compiled as a whole, so that the posterior is compiled once, for the agents and
            # for `heat`.
            return Advice(int(_act(self.env, actor, blind, key)))
        if not isinstance(actor.planner, SolverSearch):
            return Advice(int(_act_compiled(self.env, actor, blind, key)))
        plan = _plan(actor, blind, key)
        self._heat = np.asarray(plan.extra.probability[0])
        cell = int(plan.action[0])
        if not plan.extra.searched[0]:
            return Advice(cell)
        visits = np.rint(plan.visits[0]).astype(int)
        return Advice(cell, float(plan.value[0]), visits, np.asarray(plan.qvalues[0]))

    def _draw(self, consumer: int, step: int) -> PRNGKeyArray:
        return jr.fold_in(jr.fold_in(jr.fold_in(self._key, consumer), step), self._number)


@eqx.filter_jit
def _deal(env: Minesweeper, key: PRNGKeyArray) -> MinesweeperState:
    return env.init(key=key)


@eqx.filter_jit
def _step(
    env: Minesweeper, state: MinesweeperState, cell: Int[Array, ""], key: PRNGKeyArray
) -> tuple[MinesweeperState, Transition]:
    return env.step(state, cell, key=key)


def _heat(env: Minesweeper, state: MinesweeperState) -> Float[Array, "rows columns"]:
    batch = jax.tree.map(lambda x: x[None], state)
    return jax.vmap(env.posterior)(batch).probability[0]


def _act(
    env: Minesweeper, actor: AbstractActor, state: MinesweeperState, key: PRNGKeyArray
) -> Int[Array, ""]:
    batch = jax.tree.map(lambda x: x[None], state)
    obs = jax.vmap(env.observe)(batch)
    return actor.act(batch, obs, actor.init(batch), key=key[None])[0][0]


_act_compiled = eqx.filter_jit(_act)


@eqx.filter_jit
def _plan(actor: PlanningActor, state: MinesweeperState, key: PRNGKeyArray) -> Plan:
    batch = jax.tree.map(lambda x: x[None], state)
    carry = actor.planner.init(actor.model, batch)
    return actor.planner.plan(actor.model, batch, carry, key=key[None])[0]
