"""Draws classic control problems for a terminal or as an SVG, with the standard library alone."""

import math
import xml.etree.ElementTree as ET


STYLE = """
.zero-control { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.zero-control .paper { fill: #ffffff; }
.zero-control .body { fill: #1f2328; }
.zero-control .line { stroke: #8c959f; stroke-width: 2; }
.zero-control .rod { stroke: #cd5a0a; stroke-width: 8; stroke-linecap: round; }
@media (prefers-color-scheme: dark) {
  .zero-control .paper { fill: #0d1117; }
  .zero-control .body { fill: #e6edf3; }
  .zero-control .line { stroke: #484f58; }
}
"""


def text_cart_pole(x: float, angle: float, steps: int, track: float) -> str:
    """The track to its ends, 10 columns and 5 rows a metre; `O` is the cart."""
    ground = f"   |{'-' * (round(20 * track) - 1)}|   "
    rows = [*([" "] * len(ground) for _ in range(5)), list(ground)]
    column = len(ground) // 2 + 10 * x
    _stroke(rows, column, 5, angle)
    _put(rows, round(column), 5, "O")
    return _lines(rows, _cart_caption(x, angle, steps))


def text_pendulum(angle: float, velocity: float, steps: int) -> str:
    """10 columns and 5 rows each way; `O` is the axle. Positive angles turn to the left."""
    rows = [[" "] * 21 for _ in range(11)]
    _stroke(rows, 10, 5, -angle)
    _put(rows, 10, 5, "O")
    return _lines(rows, _rod_caption(angle, velocity, steps))


def draw_cart_pole(x: float, angle: float, steps: int, track: float, scale: float) -> str:
    """The track to its ends, 100 units a metre."""
    width, floor = 200 * track + 80, 140.0
    svg = _sheet(width, 180, scale, _cart_caption(x, angle, steps))
    middle = width / 2
    _line(svg, "line", middle - 100 * track, floor, middle + 100 * track, floor)
    for end in (-track, track):
        _line(svg, "line", middle + 100 * end, floor - 8, middle + 100 * end, floor + 8)
    cart = middle + 100 * x
    place = {"x": f"{cart - 25:.1f}", "y": f"{floor - 15:.1f}", "width": "50", "height": "15"}
    ET.SubElement(svg, "rect", {"class": "body"} | place)
    # The whole pole has 1 m.
    top = floor - 15
    _line(svg, "rod", cart, top, cart + 100 * math.sin(angle), top - 100 * math.cos(angle))
    return _text(svg)


def draw_pendulum(angle: float, velocity: float, steps: int, scale: float) -> str:
    """Upright is up; positive angles turn to the left, as in Gymnasium's drawing."""
    svg = _sheet(260, 280, scale, _rod_caption(angle, velocity, steps))
    _line(svg, "rod", 130, 130, 130 - 100 * math.sin(angle), 130 - 100 * math.cos(angle))
    ET.SubElement(svg, "circle", {"class": "body", "cx": "130", "cy": "130", "r": "5"})
    return _text(svg)


def _cart_caption(x: float, angle: float, steps: int) -> str:
    return f"step {steps}, cart at {x:.2f} m, pole at {_degrees(angle)}"


def _rod_caption(angle: float, velocity: float, steps: int) -> str:
    return f"step {steps}, {_degrees(angle)} from upright, {velocity:.2f} rad/s"


def _stroke(rows: list[list[str]], column: float, row: float, angle: float) -> None:
    """A line of 1 m that leans to the right by `angle`; a cell is twice as high as it is wide."""
    across, up = 10 * math.sin(angle), 5 * math.cos(angle)
    length = max(round(abs(across)), round(abs(up)))
    # By the eighth of a turn nearest to the line: those in between are the slanted ones.
    symbol = "|/-\\"[round(angle / (math.pi / 4)) % 4]
    for i in range(1, length + 1):
        place = round(column + across * i / length), round(row - up * i / length)
        _put(rows, *place, symbol)


def _put(rows: list[list[str]], column: int, row: int, symbol: str) -> None:
    if 0 <= column < len(rows[row]):
        rows[row][column] = symbol


def _lines(rows: list[list[str]], caption: str) -> str:
    return "\n".join([*("".join(row).rstrip() for row in rows), caption])


def _sheet(width: float, height: float, scale: float, caption: str) -> ET.Element:
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    svg.attrib.update(
        {"class": "zero-control"}, width=f"{width * scale:g}", height=f"{height * scale:g}"
    )
    svg.set("viewBox", f"0 0 {width:g} {height:g}")
    ET.SubElement(svg, "title").text = caption
    ET.SubElement(svg, "style").text = STYLE
    ET.SubElement(svg, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    place = {"class": "body", "x": "10", "y": f"{height - 10:g}"}
    ET.SubElement(svg, "text", place).text = caption
    return svg


def _line(svg: ET.Element, kind: str, *ends: float) -> None:
    named = dict(zip(("x1", "y1", "x2", "y2"), (f"{end:.1f}" for end in ends), strict=True))
    ET.SubElement(svg, "line", {"class": kind} | named)


def _degrees(angle: float) -> str:
    return f"{math.degrees(math.remainder(angle, 2 * math.pi)):.0f}°"


def _text(svg: ET.Element) -> str:
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"
