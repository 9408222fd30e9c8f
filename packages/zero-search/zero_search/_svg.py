"""The part of a tree that is shown, as nested boxes: written as lines, or drawn as an SVG.

The drawing goes from the left to the right and needs nothing but the standard library.
A box stands level with its first child, so the line along first children runs straight across the
top: that is the principal variation. Colours are legible on light and on dark paper and differ in
blue against orange, which the colour-blind can tell apart.
"""

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import NamedTuple


# Pixels. A letter of a monospaced 12 px font is 7.2 wide.
CHAR, LINE, PAD, BAR = 7.2, 16.0, 8.0, 5.0
GAP, GUTTER, MARGIN = 8.0, 56.0, 20.0  # between boxes, between columns, around everything
WIDEST = 10.0  # the line that all visits went through

LOW, MIDDLE, HIGH = (205, 90, 10), (138, 138, 138), (40, 118, 190)

STYLE = """
.zero-tree { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.zero-tree text { fill: #1f2328; }
.zero-tree .paper { fill: #ffffff; }
.zero-tree .box { fill: #f6f8fa; stroke: #c4cad1; }
.zero-tree .main .box { stroke: #1f2328; stroke-width: 2; }
.zero-tree .main text.name { font-weight: bold; }
.zero-tree .unstored .box { stroke-dasharray: 3 3; }
.zero-tree text.quiet { fill: #656d76; }
.zero-tree path { fill: none; }
@media (prefers-color-scheme: dark) {
  .zero-tree text { fill: #e6edf3; }
  .zero-tree .paper { fill: #0d1117; }
  .zero-tree .box { fill: #161b22; stroke: #444c56; }
  .zero-tree .main .box { stroke: #e6edf3; }
  .zero-tree text.quiet { fill: #8d96a0; }
}
"""


class Box(NamedTuple):
    """An action that was tried, or the root."""

    name: str
    visits: int
    value: float  # here as in the colours, for the root's player
    lines: tuple[str, ...]  # drawn below the label
    title: str  # shown when the mouse rests on it
    main: bool  # whether it is part of the principal variation
    own: bool  # whether the root's player is the one who acts
    stored: bool  # whether a node of the tree lies behind it
    final: bool  # whether that node ends the game
    more: str  # what is left out below
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
    return f"{value:+z.2f}" if abs(value) < 100 else f"{value:+.3g}"


def write(root: Box) -> str:
    """One line a box: name, visits, value."""
    rows = [(2 * depth * " " + box.name, box) for depth, box in root.walk()]
    width = max(len(label) for label, _ in rows)
    lines = []
    for label, box in rows:
        more = f"  {box.more}" if box.more else ""
        lines.append(f"{label:<{width}} {box.visits:>7} {number(box.value):>7}{box.note}{more}")
    return "\n".join(lines)


class _Column(NamedTuple):
    """Where all boxes of one depth stand: left edge, width, right edges of their two numbers."""

    left: float
    width: float
    visits: float
    value: float


class _Page(NamedTuple):
    """What is drawn on: lines lie below boxes."""

    lines: ET.Element
    boxes: ET.Element
    columns: list[_Column]
    span: float  # the value of full colour
    total: int  # visits of the root


def draw(root: Box) -> str:
    """The drawing, as the text of a file. Boxes are the elements `g` of class `node`."""
    boxes = list(root.walk())
    values = [abs(box.value) for _, box in boxes if math.isfinite(box.value)]
    span = max(values, default=0.0) or 1.0
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "zero-tree"})
    _add(svg, "title", text=f"Search tree, {root.visits} visits at the root")
    _add(svg, "style", text=STYLE)
    paper = _add(svg, "rect", {"class": "paper", "rx": 6.0})
    page = _Page(_add(svg, "g"), _add(svg, "g"), _columns(boxes), span, root.visits)
    height = _place(page, root, 0, MARGIN)
    legend = _legend(svg, boxes, span, MARGIN + height + 2 * GAP)
    last = page.columns[-1]
    size = {"width": max(last.left + last.width, legend[0]) + MARGIN, "height": legend[1] + MARGIN}
    for element in (svg, paper):
        element.attrib.update({name: f"{x:.0f}" for name, x in size.items()})
    svg.set("viewBox", f"0 0 {size['width']:.0f} {size['height']:.0f}")
    svg.set("role", "img")
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _columns(boxes: list[tuple[int, Box]]) -> list[_Column]:
    """As wide as their contents."""
    columns, left = [], MARGIN
    for depth in range(1 + max(d for d, _ in boxes)):
        level = [box for d, box in boxes if d == depth]
        visits = BAR + PAD + max(_width(box.name) for box in level)
        visits += 2 * CHAR + max(_width(str(box.visits)) for box in level)
        value = visits + 2 * CHAR + max(_width(number(box.value)) for box in level)
        width = value + max(_width(box.note) for box in level)
        texts = [BAR + PAD + _width(line) for box in level for line in box.lines]
        width = max(width, *texts, 0.0) + PAD
        columns.append(_Column(left, width, left + visits, left + value))
        left += width + GUTTER
    return columns


def _place(page: _Page, box: Box, depth: int, top: float) -> float:
    """Draws the box and what hangs on it; returns the height that this takes."""
    column = page.columns[depth]
    _box(page, box, column, top)
    end = column.left + column.width
    middle = top + (LINE + PAD) / 2
    below = top
    for child in box.children:
        x = page.columns[depth + 1].left
        y = below + (LINE + PAD) / 2
        bend = (end + x) / 2
        curve = (end, middle, bend, middle, bend, y, x, y)
        line = {"d": "M{:g} {:g}C{:g} {:g} {:g} {:g} {:g} {:g}".format(*curve)}
        width = max(1.2, WIDEST * child.visits / max(page.total, 1))
        line |= {"stroke": colour(child.value, page.span), "stroke-width": width}
        _add(page.lines, "path", line | {"opacity": 1.0 if child.main else 0.7})
        below += _place(page, child, depth + 1, below) + GAP
    return max(below - GAP - top, _height(box) + (LINE if box.more else 0.0))


def _box(page: _Page, box: Box, column: _Column, top: float) -> None:
    names = ["node"] + ["main"] * box.main + ["unstored"] * (not box.stored)
    group = _add(page.boxes, "g", {"class": " ".join(names)})
    _add(group, "title", text=box.title)
    frame = {"x": column.left, "y": top, "width": column.width, "height": _height(box)}
    _add(group, "rect", frame | {"class": "box", "rx": 2.0 if box.own else (LINE + PAD) / 2})
    bar = {"x": column.left + 5, "y": top + 5, "width": BAR, "height": _height(box) - 10}
    _add(group, "rect", bar | {"rx": 2.0, "fill": colour(box.value, page.span)})
    left, base = column.left + BAR + PAD + 1, top + LINE
    _text(group, box.name, left, base, "name")
    _text(group, str(box.visits), column.visits, base, "visits", "end")
    _text(group, number(box.value), column.value, base, "value", "end")
    if box.note:
        _text(group, box.note.strip(), column.value + CHAR, base, "quiet")
    for i, line in enumerate(box.lines, start=1):
        # Boards are drawn in letters: no space may be lost.
        _text(group, line.replace(" ", "\u00a0"), left, base + i * LINE, "quiet")
    if box.more:
        right = column.left + column.width
        _text(group, f"{box.more} \u2192", right, top + _height(box) + LINE - 4, "quiet", "end")


def _legend(
    svg: ET.Element, boxes: list[tuple[int, Box]], span: float, top: float
) -> tuple[float, float]:
    """Says what the marks mean, those that occur; returns its right and its lower end."""
    group = _add(svg, "g", {"class": "legend"})
    steps, left = 24, round(MARGIN + _width(number(-span)) + CHAR)
    base = top + LINE - 4
    _text(group, number(-span), MARGIN, base, "quiet")
    for i in range(steps):
        value = span * (2 * i / (steps - 1) - 1)
        cell = {"x": left + 4.0 * i, "y": top + 3, "width": 4.0, "height": 10.0}
        _add(group, "rect", cell | {"fill": colour(value, span)})
    end = left + 4.0 * steps + CHAR
    first = f"{number(span)}  value for the root's player"
    _text(group, first.replace(" ", "\u00a0"), end, base, "quiet")
    rest = ["label: action, visits, value; line: share of the visits"]
    rest += ["strong frame: principal variation (most visited)"]
    below = [box for depth, box in boxes if depth > 0]
    rest += ["round frame: the other player acts"] * any(not box.own for box in below)
    rest += ["dashed frame: visited, but not stored"] * any(not box.stored for box in below)
    rest += ["end: nothing follows"] * any(box.final for box in below)
    for i, line in enumerate(rest, start=1):
        _text(group, line, MARGIN, base + i * LINE, "quiet")
    right = max(end + _width(first), *(MARGIN + _width(line) for line in rest))
    return right, base + len(rest) * LINE


def colour(value: float, span: float) -> str:
    """Orange at `-span`, grey at 0, blue at `span`."""
    share = max(-1.0, min(1.0, value / span)) if math.isfinite(value) else 0.0
    to = HIGH if share > 0 else LOW
    mixed = (round(m + abs(share) * (t - m)) for m, t in zip(MIDDLE, to, strict=True))
    return "#" + "".join(f"{x:02x}" for x in mixed)


def _width(text: str) -> float:
    return CHAR * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _height(box: Box) -> float:
    return LINE * (1 + len(box.lines)) + PAD


def _text(
    parent: ET.Element, text: str, x: float, y: float, name: str, anchor: str | None = None
) -> None:
    where = {"class": name, "x": x, "y": y}
    _add(parent, "text", where | ({"text-anchor": anchor} if anchor else {}), text)


def _add(
    parent: ET.Element, tag: str, attributes: dict[str, str | float] | None = None, text: str = ""
) -> ET.Element:
    shown = {k: v if isinstance(v, str) else f"{v:g}" for k, v in (attributes or {}).items()}
    element = ET.SubElement(parent, tag, shown)
    # XML has no way to write most control characters.
    element.text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    return element
