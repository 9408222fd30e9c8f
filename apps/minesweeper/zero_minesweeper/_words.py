"""Texts about a move, and about a game at its end."""

import math

import numpy as np
from rich.text import Text

from ._agents import NETWORKED
from ._game import Advice, Game, Risk
from ._scene import name
from ._table import Table


_SAFE, _GUESS, _NEEDLESS = "bold #5fd787", "bold #ffaf00", "bold #ff5f5f"


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


def about(table: Table, agent: str) -> str:
    """The agent and the board."""
    trained = ""
    if table.trained is not None and agent in NETWORKED:
        trained = f" (trained for {table.trained.step} steps)"
    env = table.env
    return f"{agent}{trained} on {env.rows} x {env.columns} with {env.num_mines} mines"


def _told(risk: Risk, columns: int) -> str:
    number = "unknown" if math.isnan(risk.probability) else f"{risk.probability:.1%}"
    return f"{name(risk.cell, columns)} {number}"
