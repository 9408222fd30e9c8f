"""One game of a person or an agent with a record of the risks, and what is said of it."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float, Int, Int8, PRNGKeyArray
from rich.text import Text

from zero_envs import Minesweeper, MinesweeperState
from zero_search import Plan
from zero_train import AbstractActor, PlanningActor

from ._planner import Minefield
from ._scene import name


_SAFE, _GUESS, _NEEDLESS = "bold #5fd787", "bold #ffaf00", "bold #ff5f5f"


@dataclasses.dataclass(frozen=True)
class Risk:
    """A move that could have opened a mine: its cell, the exact probability of a mine given the
    visible board, NaN if unknown, and whether it was needless, because some other cell was safe."""

    cell: int
    probability: float
    needless: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Advice:
    """The move of an agent: the cell that it would open, and after a search the plan of the belief
    tree, as NumPy arrays without a batch axis."""

    cell: int
    plan: Plan | None = None


class Game:
    """A game that does not show its mines before its end.

    It is equal to the board of the same number that
    [`measure`][zero_minesweeper._measure.measure] plays with the same key, and agents get the same
    keys.
    """

    def __init__(self, env: Minesweeper, number: int, *, key: PRNGKeyArray):
        self.env = env
        self.risks: list[Risk] = []
        self.moves = 0
        self.last: int | None = None
        self._number, self._key = number, key
        self._state: MinesweeperState = eqx.filter_jit(env.init)(key=self._draw(2, 0))
        self._heat: Float[np.ndarray, "rows columns"] | None = None

    @property
    def board(self) -> Int8[np.ndarray, "rows columns"]:
        """The visible board; hidden cells are -1."""
        return np.asarray(self._state.board)

    @property
    def over(self) -> bool:
        return bool(self._state.over)

    @property
    def won(self) -> bool:
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
            self._heat = heat(self.env, self._state)
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
        key = self._draw(1, self.moves)
        self._state, _ = eqx.filter_jit(self.env.step)(self._state, jnp.int32(cell), key=key)
        self.moves, self.last = self.moves + 1, cell
        if not self.over:
            self._heat = None

    def ask(self, actor: AbstractActor) -> Advice:
        """The move of `actor`, which gets a state without mines."""
        blind = eqx.tree_at(lambda s: s.mines, self._state, jnp.zeros_like(self._state.mines))
        cell, plan = act(self.env, actor, blind, self._draw(0, self.moves))
        found = plan.extra if isinstance(plan, Plan) else None
        if not isinstance(found, Minefield):
            return Advice(cell)
        self._heat = np.asarray(found.probability)
        return Advice(cell, plan if found.searched else None)

    def _draw(self, consumer: int, step: int) -> PRNGKeyArray:
        return jr.fold_in(jr.fold_in(jr.fold_in(self._key, consumer), step), self._number)


def heat(env: Minesweeper, state: MinesweeperState) -> Float[np.ndarray, "rows columns"]:
    """The exact probability of a mine in each cell given the visible board, NaN if unknown."""
    # With a batch axis, so that the compiled function of the agents is used.
    return np.asarray(jax.vmap(env.posterior)(_batch(state)).probability[0])


def act(
    env: Minesweeper, actor: AbstractActor, state: MinesweeperState, key: PRNGKeyArray
) -> tuple[int, Any]:
    """The action of an agent, and its record as NumPy arrays without a batch axis: the whole plan
    of one that plans."""
    batch = _batch(state)
    decide: Any = actor.act
    # Others are not compiled as a whole, so that the posterior is compiled once, for the agents and
    # for `heat`.
    if isinstance(actor, PlanningActor):
        decide = eqx.filter_jit(dataclasses.replace(actor, record=_whole).act)
    obs = jax.vmap(env.observe)(batch)
    action, record, _ = decide(batch, obs, actor.init(batch), key=key[None])
    return int(action[0]), jax.tree.map(lambda x: np.asarray(x)[0], record)


def _batch(state: MinesweeperState) -> MinesweeperState:
    return jax.tree.map(lambda x: x[None], state)


# One function, so that all moves of an agent share what was compiled.
def _whole(plan: Plan) -> Plan:
    return plan


def decision(game: Game, advice: Advice) -> Text:
    """The move and its risk."""
    where = name(advice.cell, game.env.columns)
    risk = float(game.heat.flat[advice.cell])
    if risk == 0:
        return Text(f"{where}: safe", _SAFE)
    if math.isnan(risk):
        return Text(f"{where}: unknown risk", _GUESS)
    if number := game.safe.size:
        cells = "1 cell is" if number == 1 else f"{number} cells are"
        return Text(f"{where}: risk {risk:.1%}, and {cells} safe", _NEEDLESS)
    least = float(np.min(game.heat[game.board < 0]))
    beside = "no cell is safer" if risk < least + 1e-6 else f"the least is {least:.1%}"
    return Text(f"{where}: a guess of risk {risk:.1%}; {beside}", _GUESS)


def reasons(game: Game, advice: Advice, number: int = 5) -> list[Text]:
    """The move and, after a search, the chance to win and the most visited cells, one in each
    line."""
    lines = [decision(game, advice)]
    if (plan := advice.plan) is None:
        return lines
    lines.append(Text(f"estimated probability of a win: {plan.value:.1%}"))
    lines.append(Text("cell    mine     wins  visits", "dim"))
    for cell in np.lexsort((-plan.qvalues, -plan.visits))[:number]:
        if plan.visits[cell] > 0:
            where, risk = name(int(cell), game.env.columns), float(game.heat.flat[cell])
            numbers = f"{risk:>7.1%}{plan.qvalues[cell]:>9.1%}{plan.visits[cell]:>8.0f}"
            lines.append(Text(f"{where:<5}{numbers}", "bold" if cell == advice.cell else ""))
    return lines


def outcome(game: Game) -> Text:
    """The result of the game."""
    if game.won:
        return Text("won", _SAFE)
    cell = game.last or 0
    mine = game.mines is not None and game.mines.flat[cell]
    why = "was a mine" if mine else "was open already"
    return Text(f"lost: {name(cell, game.env.columns)} {why}", _NEEDLESS)


def ending(game: Game) -> list[Text]:
    """The result, and how much luck it took."""
    return [outcome(game), *map(Text, luck(game))]


def luck(game: Game) -> list[str]:
    """The risks, and the estimate of a win that does not depend on the actual mines."""
    if not game.risks:
        return ["no risk taken"]
    # At most six are listed.
    told = [_told(risk, game.env.columns) for risk in game.risks[:6]]
    if len(game.risks) > len(told):
        told.append(f"{len(game.risks) - len(told)} more")
    needless = sum(risk.needless for risk in game.risks)
    said = [f"risks: {', '.join(told)}"]
    if needless:
        said.append(f"{needless} of them needless, because another cell was safe")
    if not math.isnan(game.win_estimate):
        said.append(f"win estimate {game.win_estimate:.1%}")
    return said


def _told(risk: Risk, columns: int) -> str:
    number = "unknown" if math.isnan(risk.probability) else f"{risk.probability:.1%}"
    return f"{name(risk.cell, columns)} {number}"
