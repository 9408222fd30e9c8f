"""One moment of an episode, drawn for a terminal: in colour, or in plain text."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from zero_envs import Monsters, MonstersState


MOVES = ("stay", "up", "down", "left", "right")
#: Of agent, target, distractor, good and bad item, as in `Monsters.render`.
COLOURS = ("#656d76", "#2876be", "#cd5a0a", "#2876be", "#cd5a0a")
_SYMBOLS = "@!?yn"
_HELD = ("nothing", "y, which beats !", "n, which beats ?")
# Greys that terminals of 256 colours have too.
_WALL, _FLOORS, _TRACK = "#585858", ("#1c1c1c", "#262626"), "#303030"
_CELL = 7  # columns of a cell, which has three lines
_PLAN, _EXACT = "#af87d7", "#949494"
# By action: in which line and column of the agent the arrow is.
_ARROWS = {1: (0, 2, "\u2191"), 2: (2, 2, "\u2193"), 3: (1, 0, "\u2190"), 4: (1, 4, "\u2192")}
_BAR = 20
# Columns of a picture that has the board beside the plan, and lines of one that has it above.
_WIDTH, _HEIGHT = 80, 25
# A regret below this is not shown.
_NOTHING = 5e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Thought:
    """What a player thinks of one state.

    **Attributes:**

    - `action`: what it plays.
    - `value`: what it thinks the state is worth.
    - `shares`: of the simulations that began with each action, or the network's policy.
    - `qvalues`: what it thinks each action is worth, nan where none began with it; `None` for a
        network, which does not say.
    - `exact`: what each action is really worth at the run's discount, with the best play after it;
        -inf for a wall.
    """

    action: int
    value: float
    shares: Float[np.ndarray, " actions"]
    qvalues: Float[np.ndarray, " actions"] | None
    exact: Float[np.ndarray, " actions"]

    @property
    def legal(self) -> Bool[np.ndarray, " actions"]:
        """What does not lead into a wall."""
        return self.exact > -np.inf

    @property
    def regret(self) -> float:
        """What the action loses against the best one."""
        return float(np.max(self.exact) - self.exact[self.action])


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """**Attributes:**

    - `env`, `state`: the world, and where everything is.
    - `gained`: the rewards so far.
    - `thought`: of this state, or of the last decision where the episode is over.
    - `end`: how the episode ended, if it has.
    """

    env: Monsters
    state: MonstersState
    gained: float
    thought: Thought
    end: str | None = None


def draw(scene: Scene, *, width: int, height: int, plain: bool) -> RenderableType:
    """The board and, beside it if there are so many columns or else below, what the player thinks.

    **Arguments:**

    - `width`, `height`: of the terminal. The board is of letters alone where it has too few lines.
    - `plain`: without colours, one below the other; an end then leaves out the last decision.
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
    """How an episode ended, in words."""
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
    """A row for each action, and what the choice costs."""
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
        Text(f"worth {thought.value:+.2f} it thinks, exactly {best:+.2f}"),
        Text(f"{MOVES[thought.action]}: {cost}", style),
    )


def _action(thought: Thought, action: int, name: str, lowest: int, plain: bool) -> list[Text]:
    played, exact = action == thought.action, float(thought.exact[action])
    share, style = float(thought.shares[action]), "bold" if action == thought.action else ""
    mark = (">" if plain else "\u25b6") if played else ""
    if not thought.legal[action]:
        return [Text(mark), Text(name, "dim"), Text("wall", "dim")]
    right = f"{exact:+.2f}"
    best = exact > np.max(thought.exact) - _NOTHING
    if thought.qvalues is None:
        shown, numbers = share, (f"{share:.0%}", right, "")
    else:
        shown = float(thought.qvalues[action])
        tried = "" if np.isnan(shown) else f"{shown:+.2f}"
        numbers = (tried, right, f"{share:.0%}")
    bar = _bar(shown, None if thought.qvalues is None else exact, lowest, plain)
    styles = (style, "bold" if best else "", "dim")
    return [Text(mark, style), Text(name, style), bar, *map(Text, numbers, styles)]


def _bar(value: float, exact: float | None, lowest: int, plain: bool) -> Text:
    """From 0 to `value`, above one to `exact`; without colours a bar and a stroke."""

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
    """Cells of three lines within a wall: round agent and monsters, square items."""
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
    """The three lines of a cell: a piece, or the letters of several, two in a line."""
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
    """Three lines of five columns; an arrow says where the agent will go."""
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
