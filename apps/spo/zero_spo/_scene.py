"""Drawings of one moment of an episode for a terminal, in colour or in plain text."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from zero_search import Plan

from ._picture import action_names, picture
from ._worlds import World


_DRAWN, _PLANNED, _TRACK = "#949494", "#af87d7", "#303030"
# The columns of a terminal that has two parts side by side, and of the left part.
_WIDTH, _NARROW = 80, 34
_BAR, _BINS = 10, 24
_EIGHTHS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
_HEIGHTS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_PLAIN_HEIGHTS = " .:-=+*#@"
# The maximum number of rows of a table.
_ROWS = 6


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """One moment of an episode, with NumPy arrays.

    **Attributes:**

    - `env`, `state`: the environment and its state.
    - `step`: the number of steps so far.
    - `gained`, `reward`: the sum of the rewards so far, and the last reward.
    - `action`: the next action or, if the episode is over, the last one.
    - `plan`: the plan of that action; `None` for a policy without a search.
    - `temperature`: the temperature of the plan.
    - `end`: a description of the end if the episode is over, else `None`.
    """

    env: World
    state: Any
    step: int
    gained: float
    reward: float
    action: np.ndarray
    plan: Plan | None
    temperature: float
    end: str | None = None


def draw(scene: Scene, *, width: int, plain: bool) -> RenderableType:
    """The drawing of the state, if it fits, and the plan beside it or below.

    **Arguments:**

    - `width`: the width of the terminal.
    - `plain`: whether to use ASCII without colours.
    """
    shown = picture(scene.env, scene.state, scene.action, plain=plain)
    columns = 0 if shown is None else max(map(len, shown.plain.splitlines()))
    said = [part for part in (_numbers(scene, plain), _particles(scene, plain)) if part]
    if shown is None or columns > width:
        return _stacked(*said) if plain or width < _WIDTH else _beside(*said)
    if plain or width < _WIDTH:
        return _stacked(shown, *said)
    if columns <= _NARROW:
        return _beside(shown, _stacked(*said))
    return _stacked(shown, _beside(*said))


def _stacked(*parts: RenderableType) -> Group:
    return Group(*(x for part in parts for x in (part, Text())))


def _beside(*parts: RenderableType) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(*parts)
    return table


def _numbers(scene: Scene, plain: bool) -> RenderableType:
    """The step, the return and the value, and the first actions of the particles."""
    rows = Table.grid(padding=(0, 2))
    step = Text(f"step {scene.step}", "" if plain else "bold")
    rows.add_row(step, f"return {scene.gained:.2f}")
    rows.add_row("reward", f"{scene.reward:+z.2f}" if scene.step else "")
    discrete, names = np.issubdtype(scene.action.dtype, np.integer), action_names(scene.env)
    if scene.end:
        rows.add_row("end", scene.end)
    elif discrete:
        rows.add_row("action", names[scene.action] if names else str(scene.action))
    else:
        rows.add_row("action", " ".join(f"{x:+z.2f}" for x in np.ravel(scene.action)))
    if scene.plan is None:
        return rows
    value = float(scene.plan.value)
    planned = value + float(scene.plan.stats["improvement"])
    rows.add_row("value", f"{value:.2f}, by plan {planned:.2f}")
    rows.add_row("temperature", f"{scene.temperature:.3g}")
    choice = _by_action(scene, plain) if discrete else _histogram(scene, plain)
    return Group(rows, Text(), choice)


def _particles(scene: Scene, plain: bool) -> RenderableType | None:
    """The effective sample size after each step of the search."""
    if scene.plan is None:
        return None
    number = scene.plan.weights.shape[-1]
    fractions = np.asarray(scene.plan.stats["ess_fraction"])
    resampled = np.asarray(scene.plan.stats["resampled"])
    alive = np.asarray(scene.plan.stats["alive"])
    table = Table.grid(padding=(0, 1))
    for side in ("right", "left", "right", "right", "left"):
        table.add_column(justify=side, no_wrap=True)
    table.add_row("", f"of {number}", "count", "alive")
    for depth in _some(len(fractions)):
        table.add_row(
            str(depth + 1),
            _bar(float(fractions[depth]), _PLANNED, plain),
            f"{number * fractions[depth]:.1f}",
            f"{alive[depth]:.0%}",
            Text("resampled" if resampled[depth] else "", "" if plain else "dim"),
        )
    return table


def _some(depths: int) -> list[int]:
    """All depths or, if they are many, evenly spaced ones with the first and the last."""
    return sorted({round(x) for x in np.linspace(0, depths - 1, min(depths, _ROWS))})


def _by_action(scene: Scene, plain: bool) -> RenderableType:
    """The fraction of the particles that began with each action, and the plan's weight of it."""
    assert scene.plan is not None
    candidates, weights = np.asarray(scene.plan.candidates), np.asarray(scene.plan.weights)
    advantages = np.asarray(scene.plan.advantages)
    names = action_names(scene.env)
    number = getattr(scene.env, "num_actions", 0)
    drawn = np.bincount(candidates, minlength=number) / len(candidates)
    planned = np.bincount(candidates, weights, minlength=number)
    # If there are many actions, only those of the highest weights are shown.
    rows = np.argsort(-(planned + drawn), kind="stable")[:_ROWS]
    table = Table.grid(padding=(0, 1))
    for side in ("left", "left", "left", "right", "right", "right"):
        table.add_column(justify=side, no_wrap=True)
    styles = ("", "") if plain else (_DRAWN, _PLANNED)
    table.add_row("", "", "", Text("drawn", styles[0]), Text("plan", styles[1]), "advantage")
    for action in sorted(rows.tolist()):
        mine = advantages[candidates == action]
        table.add_row(
            (">" if plain else "\u25b6") if action == int(scene.action) else "",
            names[action] if names else str(action),
            _bar(float(planned[action]), _PLANNED, plain),
            f"{drawn[action]:.0%}",
            f"{planned[action]:.0%}",
            f"{np.mean(mine):+z.2f}" if mine.size else "",
        )
    return table


def _histogram(scene: Scene, plain: bool) -> RenderableType:
    """Histograms of the particles' first actions in each dimension, unweighted and weighted, above
    an axis from -1 to 1 with a mark at the action."""
    assert scene.plan is not None
    weights: Float[np.ndarray, " particles"] = np.asarray(scene.plan.weights)
    candidates = np.asarray(scene.plan.candidates).reshape(len(weights), -1)
    action, plus_minus = np.ravel(scene.action), "+-" if plain else "\u00b1"
    table = Table.grid(padding=(0, 1))
    for dimension, values in enumerate(candidates.T[: _ROWS // 2]):
        equal = np.full_like(weights, 1 / len(weights))
        for name, shares, style in (("drawn", equal, _DRAWN), ("plan", weights, _PLANNED)):
            mean = float(shares @ values)
            spread = float(np.sqrt(shares @ (values - mean) ** 2))
            said = f"{mean:+z.2f} {plus_minus} {spread:.2f}"
            table.add_row(name, _heights(values, shares, style, plain), said)
        place = min(int((float(action[dimension]) + 1) / 2 * _BINS), _BINS - 1)
        axis = list(f"{-1:<{_BINS - 1}}1")
        axis[max(place, 0)] = "^" if plain else "\u25b2"
        table.add_row("", Text("".join(axis), "" if plain else "dim"))
    return table


def _heights(
    values: Float[np.ndarray, " particles"],
    shares: Float[np.ndarray, " particles"],
    style: str,
    plain: bool,
) -> Text:
    """A histogram of the values over [-1, 1], relative to its highest bin."""
    found, _ = np.histogram(np.clip(values, -1, 1), _BINS, (-1.0, 1.0), weights=shares)
    letters = _PLAIN_HEIGHTS if plain else _HEIGHTS
    top = max(float(np.max(found)), 1e-9)
    # Every bin that is not empty is visible.
    levels = np.ceil(found / top * (len(letters) - 1)).astype(int)
    line = "".join(letters[level] for level in levels)
    return Text(line) if plain else Text(line, Style(color=style, bgcolor=_TRACK))


def _bar(share: float, style: str, plain: bool) -> Text:
    share = min(max(share, 0.0), 1.0)
    if plain:
        return Text(("=" * round(share * _BAR)).ljust(_BAR, "."))
    whole, rest = divmod(round(8 * share * _BAR), 8)
    line = _EIGHTHS[7] * whole + (_EIGHTHS[rest - 1] if rest else "")
    return Text(line.ljust(_BAR), Style(color=style, bgcolor=_TRACK))
