"""Draws a board of `Monsters` for a terminal or as an SVG, with the standard library alone."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

import numpy as np
from jaxtyping import Array, Bool, Int, Int8, Int16


SYMBOLS = "@!?yn"
HELD = ("nothing", "y", "n")
# Items have the colour of the monster that they beat: blue and orange, which the colour-blind can
# tell apart too.
COLOURS = ("#656d76", "#2876be", "#cd5a0a", "#2876be", "#cd5a0a")
CELL, RADIUS, MARGIN, CAPTION = 40, 13, 10, 24
STYLE = """
.zero-monsters { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.zero-monsters .paper { fill: #ffffff; }
.zero-monsters .wall { fill: #8c959f; }
.zero-monsters .cell { fill: #f6f8fa; stroke: #d0d7de; }
.zero-monsters .caption { fill: #1f2328; }
.zero-monsters .letter { fill: #ffffff; font-weight: bold; text-anchor: middle; }
@media (prefers-color-scheme: dark) {
  .zero-monsters .paper { fill: #0d1117; }
  .zero-monsters .wall { fill: #484f58; }
  .zero-monsters .cell { fill: #161b22; stroke: #30363d; }
  .zero-monsters .caption { fill: #e6edf3; }
}
"""


def draw_text(
    pieces: Int16[Array, " 5"],
    held: Int8[Array, ""],
    time: Int[Array, ""],
    over: Bool[Array, ""],
    size: int,
) -> str:
    """Rows of the board, walls `#`, empty cells `.`; below, what is held and how it stands."""
    rows = [["#"] * size for _ in range(size)]
    for y, x in np.ndindex(size - 2, size - 2):
        rows[y + 1][x + 1] = ""
    for i, x, y in _places(pieces, size):
        rows[y][x] += SYMBOLS[i]
    # As wide as the fullest cell.
    width = 1 + max(len(cell) for row in rows for cell in row)
    lines = ["".join(f"{cell or '.':<{width}}" for cell in row).rstrip() for row in rows]
    return "\n".join([*lines, _caption(pieces, held, time, over)])


def draw_svg(
    pieces: Int16[Array, " 5"],
    held: Int8[Array, ""],
    time: Int[Array, ""],
    over: Bool[Array, ""],
    size: int,
    scale: float,
) -> str:
    """Round monsters and agent, square items; several in one cell are small."""
    side = size * CELL + 2 * MARGIN
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "zero-monsters"})
    svg.attrib.update(width=f"{side * scale:g}", height=f"{(side + CAPTION) * scale:g}")
    svg.attrib.update(viewBox=f"0 0 {side} {side + CAPTION}", role="img")
    caption = _caption(pieces, held, time, over)
    ET.SubElement(svg, "title").text = caption
    ET.SubElement(svg, "style").text = STYLE
    _rectangle(svg, "paper", 0, 0, side, side + CAPTION)
    for y, x in np.ndindex(size, size):
        inside = 0 < x < size - 1 and 0 < y < size - 1
        _rectangle(svg, "cell" if inside else "wall", *_corner(x, y), CELL, CELL)
    crowd: dict[tuple[int, int], list[int]] = {}
    for i, x, y in _places(pieces, size):
        crowd.setdefault((x, y), []).append(i)
    for (x, y), here in crowd.items():
        left, top = _corner(x, y)
        for k, i in enumerate(here):
            # Alone in the middle, or at half the size in a quarter of the cell.
            across, down, part = (k % 2 + 0.5, k // 2 + 0.5, 0.6) if here[1:] else (1.0, 1.0, 1.0)
            place = f"translate({left + across * CELL / 2:g} {top + down * CELL / 2:g})"
            place += f" scale({part:g})"
            _piece(ET.SubElement(svg, "g", {"transform": place}), i, int(held))
    text = ET.SubElement(svg, "text", {"class": "caption", "x": str(MARGIN)})
    text.set("y", str(side + CAPTION - MARGIN))
    text.text = caption
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _places(pieces: Int16[Array, " 5"], size: int) -> Iterator[tuple[int, int, int]]:
    """Number, column and row of each piece that is there, walls counted."""
    for i, cell in enumerate(np.asarray(pieces).tolist()):
        if cell >= 0:
            yield i, 1 + cell % (size - 2), 1 + cell // (size - 2)


def _caption(
    pieces: Int16[Array, " 5"], held: Int8[Array, ""], time: Int[Array, ""], over: Bool[Array, ""]
) -> str:
    agent, target, *_ = np.asarray(pieces).tolist()
    won = "won" if target < 0 <= agent else "lost" if agent < 0 else "over"
    return f"step {int(time)}, holds {HELD[int(held)]}{f', {won}' if over else ''}"


def _corner(x: int, y: int) -> tuple[int, int]:
    return MARGIN + x * CELL, MARGIN + y * CELL


def _rectangle(parent: ET.Element, kind: str, x: int, y: int, width: int, height: int) -> None:
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height)}
    ET.SubElement(parent, "rect", {"class": kind} | place)


def _piece(group: ET.Element, i: int, held: int) -> None:
    """Around the origin."""
    group.set("class", f"piece {SYMBOLS[i]}")
    if SYMBOLS[i] in "yn":
        box = {"x": -RADIUS, "y": -RADIUS, "width": 2 * RADIUS, "height": 2 * RADIUS, "rx": 4}
        shape = ET.SubElement(group, "rect", {name: str(value) for name, value in box.items()})
    else:
        shape = ET.SubElement(group, "circle", {"r": str(RADIUS)})
    shape.set("fill", COLOURS[i])
    if SYMBOLS[i] == "@" and held:
        shape.attrib.update({"stroke": COLOURS[2 + held], "stroke-width": "5"})
    ET.SubElement(group, "text", {"class": "letter", "y": "5"}).text = SYMBOLS[i]
