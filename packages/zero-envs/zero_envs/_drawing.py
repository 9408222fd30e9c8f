"""Parts of drawings of states: SVG images with the standard library alone."""

import xml.etree.ElementTree as ET


_STYLE = """
.zero-state { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.zero-state .paper { fill: #ffffff; }
.zero-state .ink, .zero-state .caption { fill: #1f2328; }
.zero-state .line { stroke: #8c959f; stroke-width: 2; }
.zero-state .rod { stroke: #cd5a0a; stroke-width: 8; stroke-linecap: round; }
.zero-state .wall { fill: #8c959f; }
.zero-state .cell { fill: #f6f8fa; stroke: #d0d7de; }
.zero-state .letter { fill: #ffffff; font-weight: bold; text-anchor: middle; }
@media (prefers-color-scheme: dark) {
  .zero-state .paper { fill: #0d1117; }
  .zero-state .ink, .zero-state .caption { fill: #e6edf3; }
  .zero-state .line { stroke: #484f58; }
  .zero-state .wall { fill: #484f58; }
  .zero-state .cell { fill: #161b22; stroke: #30363d; }
}
"""
MARGIN = 10


def sheet(width: float, height: float, scale: float, caption: str) -> ET.Element:
    """An empty image with a caption at the bottom."""
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "zero-state"})
    svg.attrib.update(width=f"{width * scale:g}", height=f"{height * scale:g}")
    svg.attrib.update(viewBox=f"0 0 {width:g} {height:g}", role="img")
    ET.SubElement(svg, "title").text = caption
    ET.SubElement(svg, "style").text = _STYLE
    add(svg, "rect", "paper", x=0, y=0, width=width, height=height)
    add(svg, "text", "caption", x=MARGIN, y=height - MARGIN).text = caption
    return svg


def line(svg: ET.Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    add(svg, "line", kind, x1=x1, y1=y1, x2=x2, y2=y2)


def add(parent: ET.Element, tag: str, kind: str | None, **attributes: float | str) -> ET.Element:
    named = {k: v if isinstance(v, str) else f"{v:g}" for k, v in attributes.items()}
    return ET.SubElement(parent, tag, named if kind is None else {"class": kind} | named)


def markup(svg: ET.Element) -> str:
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"
