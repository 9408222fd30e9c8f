"""The part of a tree that is shown: nested boxes, to be written or drawn."""

from collections.abc import Iterator
from typing import NamedTuple


class Box(NamedTuple):
    """An action that was tried, or the root.

    **Attributes:**

    - `name`, `visits`, `value`: the label; the value, here as in the colours, is for the root's
        player.
    - `lines`: drawn below the label.
    - `title`: shown when the mouse rests on it.
    - `main`: whether it is part of the principal variation.
    - `own`: whether the root's player is the one who acts.
    - `stored`, `final`: whether a node of the tree lies behind it, and one that ends the game.
    - `more`: what is left out below.
    """

    name: str
    visits: int
    value: float
    lines: tuple[str, ...]
    title: str
    main: bool
    own: bool
    stored: bool
    final: bool
    more: str
    children: tuple["Box", ...]

    @property
    def note(self) -> str:
        return " end" if self.final else ""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Box"]]:
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def number(value: float) -> str:
    """Two decimals, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+.3g}"


def write(root: Box) -> str:
    """One line a box: name, visits, value."""
    rows = [(2 * depth * " " + box.name, box) for depth, box in root.walk()]
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, box in rows:
        more = f"  {box.more}" if box.more else ""
        lines.append(f"{label:<{width}} {box.visits:>7} {number(box.value):>7}{box.note}{more}")
    return "\n".join(lines)
