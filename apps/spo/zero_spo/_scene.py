"""Drawings of one moment of an episode for a terminal, in colour or in plain text."""

import numpy as np
from jaxtyping import Float
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from zero_app import Moment

from ._picture import action_names, picture


_DRAWN, _PLANNED, _TRACK = "#949494", "#af87d7", "#303030"
# The columns of a terminal that has two parts side by side, and of the left part.
_WIDTH, _NARROW = 80, 34
_BAR, _BINS = 10, 24
_EIGHTHS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
_HEIGHTS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_PLAIN_HEIGHTS = " .:-=+*#@"
# The maximum number of rows of a table.
_ROWS = 6


def draw(moment: Moment, temperature: float, *, width: int, plain: bool) -> RenderableType:
    """The drawing of the state, if it fits, and the plan, which has this temperature, beside it or
    below. `plain` is ASCII without colours."""
    shown = picture(moment.env, moment.state, moment.action, plain=plain)
    columns = 0 if shown is None else max(map(len, shown.plain.splitlines()))
    parts = _numbers(moment, temperature, plain), _particles(moment, plain)
    said = [part for part in parts if part]
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


def _numbers(moment: Moment, temperature: float, plain: bool) -> RenderableType:
    """The step, the return and the value, and the first actions of the particles."""
    rows = Table.grid(padding=(0, 2))
    step = Text(f"step {moment.step}", "" if plain else "bold")
    rows.add_row(step, f"return {moment.gained:.2f}")
    rows.add_row("reward", f"{moment.reward:+z.2f}" if moment.step else "")
    discrete, names = np.issubdtype(moment.action.dtype, np.integer), action_names(moment.env)
    if moment.end:
        rows.add_row("end", moment.end)
    elif discrete:
        rows.add_row("action", names[moment.action] if names else str(moment.action))
    else:
        rows.add_row("action", " ".join(f"{x:+z.2f}" for x in np.ravel(moment.action)))
    if moment.plan is None:
        return rows
    value = float(moment.plan.value)
    planned = value + float(moment.plan.stats["improvement"])
    rows.add_row("value", f"{value:.2f}, by plan {planned:.2f}")
    rows.add_row("temperature", f"{temperature:.3g}")
    choice = _by_action(moment, plain) if discrete else _histogram(moment, plain)
    return Group(rows, Text(), choice)


def _particles(moment: Moment, plain: bool) -> RenderableType | None:
    """The effective sample size after each step of the search."""
    if moment.plan is None:
        return None
    number = moment.plan.weights.shape[-1]
    fractions = np.asarray(moment.plan.stats["ess_fraction"])
    resampled = np.asarray(moment.plan.stats["resampled"])
    alive = np.asarray(moment.plan.stats["alive"])
    table = Table.grid(padding=(0, 1))
    for side in ("right", "left", "right", "right", "left"):
        table.add_column(justify=side, no_wrap=True)
    table.add_row("", f"of {number}", "count", "alive")
    # All depths or, if they are many, evenly spaced ones with the first and the last.
    shown = np.linspace(0, len(fractions) - 1, min(len(fractions), _ROWS))
    for depth in sorted({round(x) for x in shown}):
        table.add_row(
            str(depth + 1),
            _bar(float(fractions[depth]), _PLANNED, plain),
            f"{number * fractions[depth]:.1f}",
            f"{alive[depth]:.0%}",
            Text("resampled" if resampled[depth] else "", "" if plain else "dim"),
        )
    return table


def _by_action(moment: Moment, plain: bool) -> RenderableType:
    """The fraction of the particles that began with each action, and the plan's weight of it."""
    assert moment.plan is not None
    candidates, weights = np.asarray(moment.plan.candidates), np.asarray(moment.plan.weights)
    advantages = np.asarray(moment.plan.advantages)
    names = action_names(moment.env)
    number = getattr(moment.env, "num_actions", 0)
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
            (">" if plain else "\u25b6") if action == int(moment.action) else "",
            names[action] if names else str(action),
            _bar(float(planned[action]), _PLANNED, plain),
            f"{drawn[action]:.0%}",
            f"{planned[action]:.0%}",
            f"{np.mean(mine):+z.2f}" if mine.size else "",
        )
    return table


def _histogram(moment: Moment, plain: bool) -> RenderableType:
    """Histograms of the particles' first actions in each dimension, unweighted and weighted, above
    an axis from -1 to 1 with a mark at the action."""
    assert moment.plan is not None
    weights: Float[np.ndarray, " particles"] = np.asarray(moment.plan.weights)
    candidates = np.asarray(moment.plan.candidates).reshape(len(weights), -1)
    action, plus_minus = np.ravel(moment.action), "+-" if plain else "\u00b1"
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
