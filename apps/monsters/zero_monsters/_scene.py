"""Drawings of one moment of an episode for a terminal, in colour or in plain text."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

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
# By action: the line and column of the arrow in the drawing of the agent, and the arrow.
_ARROWS = {1: (0, 2, "\u2191"), 2: (2, 2, "\u2193"), 3: (1, 0, "\u2190"), 4: (1, 4, "\u2192")}
_BAR = 20
# The columns of a picture with the plan beside the board, and the lines of one with it below.
_WIDTH, _HEIGHT = 80, 25
# A regret below this is not shown.
_NOTHING = 5e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Thought:
    """The plan of a player for one state, and the exact values.

    **Attributes:**

    - `action`: the action that is played.
    - `value`: the player's value of the state.
    - `shares`: the fraction of the simulations that began with each action, or the network's
        policy.
    - `qvalues`: the plan's Q-values, NaN for unvisited actions; `None` for a network without a
        search.
    - `exact`: the exact Q-values under optimal play at the run's gamma, -inf for a wall.
    """

    action: int
    value: float
    shares: Float[np.ndarray, " actions"]
    qvalues: Float[np.ndarray, " actions"] | None
    exact: Float[np.ndarray, " actions"]

    @property
    def legal(self) -> Bool[np.ndarray, " actions"]:
        """A mask of the actions that do not lead into a wall."""
        return self.exact > -np.inf

    @property
    def regret(self) -> float:
        """The difference between the exact values of the best action and of the played one."""
        return float(np.max(self.exact) - self.exact[self.action])


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """One moment of an episode.

    **Attributes:**

    - `env`, `state`: the environment and its state.
    - `gained`: the sum of the rewards so far.
    - `thought`: the plan for this state or, if the episode is over, for the state before.
    - `end`: a description of the end if the episode is over, else `None`.
    """

    env: Monsters
    state: MonstersState
    gained: float
    thought: Thought
    end: str | None = None


def draw(scene: Scene, *, width: int, height: int, plain: bool) -> RenderableType:
    """The board and the plan: beside the board if the terminal is wide enough, otherwise below it.

    **Arguments:**

    - `width`, `height`: the size of the terminal. If it has too few lines, the board is drawn with
        letters.
    - `plain`: whether to draw without colours. The end of an episode then has no plan.
    """
    if plain:
        board = Text(scene.env.text(scene.state))
        parts = [] if scene.end else [_decision(scene.thought, plain)]
        return Group(board, *parts, Text())
    said, decision = _headline(scene), _decision(scene.thought, plain)
    if width < _WIDTH:
        letters = scene.env.text(scene.state).splitlines()[: scene.env.size]
        board = _board(scene) if height >= _HEIGHT else Text("\n".join(letters))
        return Group(board, said, decision)
    beside = Table.grid(padding=(0, 1))
    beside.add_row(_board(scene), Group(said, Text(), decision))
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
    step = f"step {int(scene.state.time)}, return {scene.gained:+g}"
    if scene.end is None:
        return Text.assemble((step, "bold"), "\n", f"holds {_HELD[int(scene.state.held)]}")
    mood = "bold green" if scene.end.startswith("won") else "bold red"
    return Text.assemble((step, "bold"), "\n", (scene.end, mood))


def _decision(thought: Thought, plain: bool) -> RenderableType:
    """A table with a row for each action, and the regret."""
    table = Table.grid(padding=(0, 1))
    for side in ("left", "left", "left", "right", "right", "right"):
        table.add_column(justify=side, no_wrap=True)
    if thought.qvalues is None:
        lowest, heads = 0, ("policy", "exact", "")
    else:
        lowest, heads = -1, ("plan", "exact", "visits")
    middle = 0 if lowest < 0 else ""
    scale = f"{lowest}{middle:^{_BAR - len(str(lowest)) - 1}}1"
    styles = (_PLAN, _EXACT, "dim")
    table.add_row("", "", Text(scale, "dim"), *map(Text, heads, styles))
    for action, name in enumerate(MOVES):
        table.add_row(*_action(thought, action, name, lowest, plain))
    best = float(np.max(thought.exact))
    cost = "the best there is"
    if thought.regret >= _NOTHING:
        cost = f"loses {thought.regret:.3f}; best is {MOVES[int(np.argmax(thought.exact))]}"
    style = "" if thought.regret < _NOTHING else "red"
    return Group(
        table,
        Text(),
        Text(f"value {thought.value:+z.2f}, exactly {best:+z.2f}"),
        Text(f"{MOVES[thought.action]}: {cost}", style),
    )


def _action(thought: Thought, action: int, name: str, lowest: int, plain: bool) -> list[Text]:
    played, exact = action == thought.action, float(thought.exact[action])
    share, style = float(thought.shares[action]), "bold" if action == thought.action else ""
    mark = (">" if plain else "\u25b6") if played else ""
    if not thought.legal[action]:
        return [Text(mark), Text(name, "dim"), Text("wall", "dim")]
    right = f"{exact:+z.2f}"
    best = exact > np.max(thought.exact) - _NOTHING
    if thought.qvalues is None:
        shown, numbers = share, (f"{share:.0%}", right, "")
    else:
        shown = float(thought.qvalues[action])
        tried = "" if np.isnan(shown) else f"{shown:+z.2f}"
        numbers = (tried, right, f"{share:.0%}")
    bar = _bar(shown, None if thought.qvalues is None else exact, lowest, plain)
    styles = (style, "bold" if best else "", "dim")
    return [Text(mark, style), Text(name, style), bar, *map(Text, numbers, styles)]


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
    """The board in colour. Agent and monsters are round, items are square."""
    side = scene.env.size - 2
    here: dict[int, list[int]] = {}
    for piece, cell in enumerate(np.asarray(scene.state.pieces).tolist()):
        here.setdefault(cell, []).append(piece)
    wall = Text(" " * (side * _CELL + 4), _on(_WALL))
    lines = [wall]
    for y in range(side):
        cells = [
            _cell(here.get(side * y + x, []), _FLOORS[(x + y) % 2], scene) for x in range(side)
        ]
        edge = Text("  ", _on(_WALL))
        lines += [Text.assemble(edge, *parts, edge) for parts in zip(*cells, strict=True)]
    return Text("\n").join([*lines, wall])


def _cell(pieces: list[int], floor: str, scene: Scene) -> list[Text]:
    """The three lines of a cell: one piece, or the letters of several pieces, two in each line."""
    if len(pieces) == 1:
        (piece,) = pieces
        return [Text.assemble(" ", line, " ", style=_on(floor)) for line in _piece(piece, scene)]
    pairs = [pieces[:2], pieces[2:4], pieces[4:]]
    if len(pieces) <= 2:
        pairs = [[], pieces, []]
    lines = []
    for pair in pairs:
        letters = [Text(f" {_SYMBOLS[i]} ", _letter(i)) for i in pair]
        between = Text(" ", _on(floor))
        rest = Text(" " * (_CELL - 4 * len(pair)), _on(floor))
        lines.append(Text.assemble(*(x for letter in letters for x in (letter, between)), rest))
    return [Text.assemble(line[:_CELL], style=_on(floor)) for line in lines]


def _piece(piece: int, scene: Scene) -> list[Text]:
    """The drawing of a piece, three lines of five columns. An arrow shows the agent's action."""
    square = _SYMBOLS[piece] in "yn"
    edge = Style(color=COLOURS[piece])
    lines = [
        Text("\u2584" * 5 if square else "\u2597\u2584\u2584\u2584\u2596", edge),
        Text(f"{_SYMBOLS[piece]:^5}", _letter(piece)),
        Text("\u2580" * 5 if square else "\u259d\u2580\u2580\u2580\u2598", edge),
    ]
    arrow = _ARROWS.get(scene.thought.action)
    if _SYMBOLS[piece] == "@" and scene.end is None and arrow:
        line, column, sign = arrow
        was = lines[line]
        lines[line] = Text.assemble(was[:column], (sign, "bold #ffffff"), was[column + 1 :])
        lines[line].stylize_before(was.style)
    return lines


def _letter(piece: int) -> Style:
    return Style(color="#ffffff", bgcolor=COLOURS[piece], bold=True)


def _on(colour: str) -> Style:
    return Style(bgcolor=colour)
