"""Drawings of one moment of an episode for a terminal, in colour or in plain text."""

import dataclasses

import numpy as np
from jaxtyping import Float
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from zero_app import Moment
from zero_envs import Monsters, MonstersState


MOVES = ("stay", "up", "down", "left", "right")
#: The colours of agent, target, distractor, good and bad item, as in `Monsters.render`.
COLOURS = ("#656d76", "#2876be", "#cd5a0a", "#2876be", "#cd5a0a")
_SYMBOLS = "@!?yn"
_HELD = ("nothing", "y, which beats !", "n, which beats ?")
# These greys are among the 256 colours of older terminals.
_WALL, _FLOORS, _TRACK = "#585858", ("#1c1c1c", "#262626"), "#303030"
_CELL = 7  # columns of a cell; it has three lines
_PLAN, _EXACT = "#af87d7", "#949494"
_BAR = 20
# The columns of a picture with the plan beside the board, and the lines of one with it below.
_WIDTH, _HEIGHT = 80, 25
# A regret below this is not shown.
_NOTHING = 5e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """One moment of an episode, and the plan for it; at the end the plan is that of the state
    before.

    **Attributes:**

    - `env`: the environment.
    - `now`: the decision, or the end.
    - `shares`: the fraction of the simulations that began with each action, or the network's
        policy.
    - `qvalues`: the plan's Q-values, NaN for unvisited actions; `None` for a network without a
        search.
    - `exact`: the exact Q-values under optimal play by the run's gamma and step penalty, -inf for a
        wall.
    - `end`: a description of the end if the episode is over, else `None`.
    """

    env: Monsters
    now: Moment
    shares: Float[np.ndarray, " actions"]
    qvalues: Float[np.ndarray, " actions"] | None
    exact: Float[np.ndarray, " actions"]
    end: str | None = None

    @property
    def regret(self) -> float:
        """The difference between the exact values of the best action and of the played one."""
        return float(np.max(self.exact) - self.exact[self.now.action])


def draw(scene: Scene, *, width: int, height: int, plain: bool) -> RenderableType:
    """The board and the plan: beside the board if the terminal is wide enough, otherwise below it.
    If it has too few lines, the board is drawn with letters. A `plain` drawing has no colours, and
    that of the end of an episode no plan."""
    letters = scene.env.text(scene.now.state)
    if plain:
        return Group(letters, *([] if scene.end else [_decision(scene, plain)]), "")
    said, decision = _headline(scene), _decision(scene, plain)
    if width < _WIDTH:
        small = Text("\n".join(letters.splitlines()[: scene.env.size]))
        return Group(_board(scene) if height >= _HEIGHT else small, said, decision)
    beside = Table.grid(padding=(0, 1))
    beside.add_row(_board(scene), Group(said, "", decision))
    return beside


def ending(state: MonstersState) -> str:
    """A description of the end of an episode."""
    agent, target, distractor, *_ = np.asarray(state.pieces).tolist()
    if target < 0 <= agent:
        return "won: the target is beaten"
    if target < 0:
        return "lost: the target is beaten, but the other came"
    if agent < 0:
        return "lost: a monster got it"
    return "lost: it beat the distractor" if distractor < 0 else "lost: the time is up"


def _headline(scene: Scene) -> Text:
    step = f"step {int(scene.now.state.time)}, return {scene.now.gained:+g}"
    said, style = f"holds {_HELD[int(scene.now.state.held)]}", ""
    if scene.end is not None:
        said, style = scene.end, "bold green" if scene.end.startswith("won") else "bold red"
    return Text.assemble((step, "bold"), "\n", (said, style))


def _decision(scene: Scene, plain: bool) -> RenderableType:
    """A table with a row for each action, and the regret."""
    table = Table.grid(padding=(0, 1))
    for side in ("left", "left", "left", "right", "right", "right"):
        table.add_column(justify=side, no_wrap=True)
    searched = scene.qvalues is not None
    lowest, middle, heads = (
        (-1, 0, ("plan", "exact", "visits")) if searched else (0, "", ("policy", "exact", ""))
    )
    scale = f"{lowest}{middle:^{_BAR - len(str(lowest)) - 1}}1"
    table.add_row("", "", Text(scale, "dim"), *map(Text, heads, (_PLAN, _EXACT, "dim")))
    best = float(np.max(scene.exact))
    for action, (name, exact) in enumerate(zip(MOVES, scene.exact.tolist(), strict=True)):
        played = action == int(scene.now.action)
        mark, style = ((">" if plain else "\u25b6") if played else "", "bold" if played else "")
        if exact == -np.inf:
            table.add_row(mark, Text(name, "dim"), Text("wall", "dim"))
            continue
        share = float(scene.shares[action])
        value = share if scene.qvalues is None else float(scene.qvalues[action])
        tried = "" if np.isnan(value) else f"{value:+z.2f}" if searched else f"{share:.0%}"
        table.add_row(
            Text(mark, style),
            Text(name, style),
            _bar(value, exact if searched else None, lowest, plain),
            Text(tried, style),
            Text(f"{exact:+z.2f}", "bold" if exact > best - _NOTHING else ""),
            Text(f"{share:.0%}" if searched else "", "dim"),
        )
    cost, style = "the best there is", ""
    if scene.regret >= _NOTHING:
        better = MOVES[int(np.argmax(scene.exact))]
        cost, style = f"loses {scene.regret:.3f}; best is {better}", "red"
    value = Text(f"value {float(scene.now.record.value):+z.2f}, exactly {best:+z.2f}")
    return Group(table, "", value, Text(f"{MOVES[int(scene.now.action)]}: {cost}", style))


def _bar(value: float, exact: float | None, lowest: int, plain: bool) -> Text:
    """Two bars above each other, from 0 to `value` and from 0 to `exact`; only the first without
    colours."""

    def reach(x: float | None) -> range:
        if x is None or np.isnan(x):
            return range(0)
        column = round((min(max(x, lowest), 1.0) - lowest) / (1 - lowest) * _BAR)
        zero = -lowest * _BAR // (1 - lowest)
        return range(min(zero, column), max(zero, column))

    above, below = reach(value), reach(exact)
    if plain:
        return Text("".join("=" if i in above else "." for i in range(_BAR)))
    bar = Text()
    for i in range(_BAR):
        upper = _PLAN if i in above else _TRACK
        lower = upper if exact is None else _EXACT if i in below else _TRACK
        bar.append("\u2580", Style(color=upper, bgcolor=lower))
    return bar


def _board(scene: Scene) -> Text:
    side = scene.env.size - 2
    here: dict[int, list[int]] = {}
    for piece, cell in enumerate(np.asarray(scene.now.state.pieces).tolist()):
        here.setdefault(cell, []).append(piece)
    wall = lambda columns: Text(" " * columns, Style(bgcolor=_WALL))
    lines = [wall(side * _CELL + 4)]
    for y in range(side):
        cells = [_cell(here.get(side * y + x, []), _FLOORS[(x + y) % 2]) for x in range(side)]
        lines += [Text.assemble(wall(2), *line, wall(2)) for line in zip(*cells, strict=True)]
    return Text("\n").join([*lines, lines[0]])


def _cell(pieces: list[int], floor: str) -> list[Text]:
    """The three lines of a cell: one piece in all of them, two in the middle, or two in each."""
    alone = len(pieces) == 1
    piece = lambda i, letter: Text(
        f"{letter:^{_CELL - 2 if alone else 3}}",
        Style(color="#ffffff", bgcolor=COLOURS[i], bold=True),
    )
    letters = [piece(i, _SYMBOLS[i]) for i in pieces]
    blank = [piece(i, "") for i in pieces if alone]
    rows = [letters[:2], letters[2:4], letters[4:]] if pieces[2:] else [blank, letters, blank]
    lines = [Text(" ").join(row) for row in rows]
    for line in lines:
        line.align("center", _CELL)
    return [Text.assemble(line, style=Style(bgcolor=floor)) for line in lines]
