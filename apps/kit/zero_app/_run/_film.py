"""Episodes as films: pictures that a page shows one by one, or that a file holds."""

import base64
import collections
import dataclasses
import errno
import io
import json
import math
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from .._command._errors import UsageError
from ._disk import reason, target_of, write_whole
from ._lines import RunError
from ._page import page, text
from ._provenance import read_of_run


#: The endings of the files that a film can be saved as.
ENDINGS = (".gif", ".html")
# On a terminal of 80 columns apps put two things side by side, which is too small for a phone.
_COLUMNS, _LINES = 79, 48
# The cell and the size of a letter, in the unit of a picture. The advance of a monospaced letter is
# 0.6 of its size.
_WIDTH, _HEIGHT, _SIZE = 8.0, 17.0, 13.3
# Parts of a letter's cell that block elements fill: left, top, width and height. Fonts leave gaps
# between them.
_BLOCKS = {
    "\u2580": (0, 0, 1, 0.5),
    "\u2590": (0.5, 0, 0.5, 1),
    "\u2596": (0, 0.5, 0.5, 0.5),
    "\u2597": (0.5, 0.5, 0.5, 0.5),
    "\u2598": (0, 0, 0.5, 0.5),
    "\u259d": (0.5, 0, 0.5, 0.5),
    **{chr(0x2590 - i): (0, 0, i / 8, 1) for i in range(1, 9)},
    **{chr(0x2580 + i): (0, 1 - i / 8, 1, i / 8) for i in range(1, 8)},
}
_DISC, _BRAILLE = "\u25cf", 0x2800
# The column and line of the dot of each bit of a braille letter.
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
# The colours of a GIF.
_PAGE, _INK = "#16181c", "#e7e9ec"


@dataclasses.dataclass(frozen=True)
class Frame:
    """A picture of a film.

    **Attributes:**

    - `svg`: an SVG element, whose own colour is `currentColor`.
    - `caption`: plain text of one line.
    - `seconds`: how long it is shown.
    """

    svg: str
    caption: str
    seconds: float = 0.5


def drawn(draw: Callable[[Console], RenderableType], *, columns: int = _COLUMNS) -> str:
    """The picture that `draw` makes for a terminal of so many columns, as an SVG element. It looks
    the same with every font."""
    # SVG draws in this order: backgrounds lie below the shapes, and these below the words.
    grounds: dict[str, list[str]] = collections.defaultdict(list)
    shapes: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    words: dict[str, list[str]] = collections.defaultdict(list)
    console, wide, high = _terminal(columns), 0, 0
    for line, cells in enumerate(map(list, _cells(console, draw(console)))):
        y, start = _HEIGHT * line, 0
        for column, (letter, style) in enumerate(cells):
            x, (fore, back) = _WIDTH * column, _colours(style)
            if back is not None:
                grounds[back].append(_box(x, y, (0, 0, 1, 1)))
            shape = _shape(letter, x, y)
            if shape is not None:
                kind, path = shape
                shapes[kind, fore].append(path)
            if back is not None or letter != " ":
                wide, high = max(wide, column + 1), line + 1
            ends = column + 1 == len(cells) or cells[column + 1][1] != style
            if ends or shape is not None or _shape(cells[column + 1][0], 0, 0) is not None:
                letters = "".join(one for one, _ in cells[start : column + 1])
                if shape is None:
                    words[_dress(style, fore)] += _words(letters, _WIDTH * start, y)
                start = column + 1
    paths = [_path("", colour, parts) for colour, parts in grounds.items()]
    paths += [_path(kind, colour, parts) for (kind, colour), parts in shapes.items()]
    texts = [f"<g {dress}>{''.join(parts)}</g>" for dress, parts in words.items() if parts]
    size = f'viewBox="0 0 {_WIDTH * wide:g} {_HEIGHT * high:g}"'
    font = f'font-family="monospace" font-size="{_SIZE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{"".join(paths + texts)}</svg>'


def _terminal(columns: int) -> Console:
    """A terminal of all colours that shows nothing."""
    return Console(
        file=io.StringIO(),
        width=columns,
        height=_LINES,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def _cells(console: Console, picture: RenderableType) -> Iterator[Iterator[tuple[str, Style]]]:
    """The letters of every line, with their styles."""
    for line in console.render_lines(picture, pad=False):
        yield (
            (letter, segment.style or Style.null())
            for segment in line
            if not segment.control
            for letter in segment.text
            if cell_len(letter)
        )


def _colours(style: Style) -> tuple[str, str | None]:
    theme = DEFAULT_TERMINAL_THEME
    hexes = [
        None if colour is None or colour.is_default else colour.get_truecolor(theme).hex
        for colour in (style.color, style.bgcolor)
    ]
    if style.reverse:
        return hexes[1] or "Canvas", hexes[0] or "currentColor"
    return hexes[0] or "currentColor", hexes[1]


def _shape(letter: str, x: float, y: float) -> tuple[str, str] | None:
    """The width of the line (empty for an area) and the path of a letter that is drawn as a shape;
    `None` for other letters."""
    if letter in _BLOCKS:
        return "", _box(x, y, _BLOCKS[letter])
    if letter == _DISC:
        return f"{1.6 * _WIDTH:g}", f"M{x + _WIDTH / 2:g} {y + _HEIGHT / 2:g}h.1"
    bits = ord(letter) - _BRAILLE
    if 0 < bits < 256:
        places = (dot for bit, dot in enumerate(_DOTS) if bits >> bit & 1)
        dots = (
            f"M{x + _WIDTH * (0.25 + i / 2):g} {y + _HEIGHT * (0.125 + j / 4):g}h.1"
            for i, j in places
        )
        return f"{0.42 * _WIDTH:g}", "".join(dots)
    return None


def _box(x: float, y: float, part: tuple[float, float, float, float]) -> str:
    left, top, width, height = part
    across = _WIDTH * width
    corner = f"M{x + _WIDTH * left:g} {y + _HEIGHT * top:g}"
    return f"{corner}h{across:g}v{_HEIGHT * height:g}h{-across:g}z"


def _path(kind: str, colour: str, parts: Sequence[str]) -> str:
    path = f'd="{"".join(parts)}"'
    if not kind:
        return f'<path fill="{colour}" shape-rendering="crispEdges" {path}/>'
    # A style, because the charts of the same page have one for every element.
    return f'<path stroke="{colour}" stroke-width="{kind}" style="stroke-linecap:round" {path}/>'


def _dress(style: Style, colour: str) -> str:
    parts = [f'fill="{colour}"']
    parts += ['font-weight="bold"'] * bool(style.bold) + ['opacity="0.65"'] * bool(style.dim)
    return " ".join(parts)


def _words(line: str, x: float, y: float) -> Iterator[str]:
    """The words of a line. SVG would make one of several blanks."""
    for found in re.finditer(r"\S+(?: \S+)*", line):
        place = f'x="{x + _WIDTH * found.start():g}" y="{y + 0.76 * _HEIGHT:.4g}"'
        length = f'textLength="{_WIDTH * len(found[0]):g}"'
        yield f"<text {place} {length}>{text(found[0])}</text>"


def scalable(svg: str) -> str:
    """An SVG image as an element that is as wide as its surroundings."""
    opening, rest = svg[svg.index("<svg") :].split(">", 1)
    sizes = {name: size for name, size in re.findall(r' (width|height)="([\d.]+)[^"]*"', opening)}
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    if "viewBox" not in opening:
        opening += f' viewBox="0 0 {sizes["width"]} {sizes["height"]}"'
    return f"{opening}>{rest}"


def pack(frames: Sequence[Frame]) -> str:
    """The frames of a film as letters."""
    fields = [[getattr(frame, name) for frame in frames] for name in ("svg", "caption", "seconds")]
    return base64.b64encode(zlib.compress(json.dumps(fields).encode(), 9)).decode()


def film(heading: str, packed: str) -> str:
    """A film among the charts of a page, with buttons to go through its frames, which are `packed`
    by `pack`. It needs the page's script."""
    return (
        '<figure class="film" tabindex="0">'
        f'<h3>{text(heading)}</h3><p></p><div class="stage"></div>'
        '<p class="said" aria-live="polite"></p>'
        f'<div class="controls">{_BUTTONS}'
        '<input type="range" min="0" value="0" aria-label="picture"></div>'
        f"<template>{text(packed)}</template></figure>"
    )


def kept_films(folder: pathlib.Path) -> list[str]:
    """The films that the folder of a run keeps for its reports, as parts of a page."""
    path = folder / FILMS
    then = "Play the episodes again with the command `report`, or remove the file."
    try:
        found = read_of_run(path) if path.exists() else {}
    except RunError as e:
        raise RunError(f"{e} {then}") from e
    if isinstance(found, dict):
        found = found.get("films", found)  # older versions had nothing else in it
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise RunError(f"{path} is damaged: it is no object of texts. {then}")
    return [film(heading, packed) for heading, packed in found.items()]


#: In the folder of a run: the packed films of its report by their headings.
FILMS = "films.json"
_BUTTONS = "".join(
    f'<button type="button" data-by="{by}" aria-label="{label}">{sign}</button>'
    for label, by, sign in (
        ("to the start", "start", "&laquo;"),
        ("back", "back", "&lsaquo;"),
        ("play", "play", "play"),
        ("on", "on", "&rsaquo;"),
        ("to the end", "end", "&raquo;"),
    )
)


def check_path(
    path: pathlib.Path | None, flag: str = "--save", endings: Sequence[str] = ENDINGS
) -> None:
    """Refuses a file to write that could be something else, such as a log of a run. It has to have
    one of the `endings`, by default of a film, and be in a folder that can be written. Messages say
    that it was given as `flag`."""
    if path is None:
        return
    if path.suffix not in endings:
        allowed = " or ".join(endings)
        raise UsageError(f"{flag} {path} was given; give a file that ends with {allowed}.")
    if not path.parent.is_dir():
        raise UsageError(
            f"{flag} {path} was given, and there is no folder {path.parent}; "
            "make it, or give another path."
        )
    try:
        target = target_of(path)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        why = reason(e)
        raise UsageError(f"{flag} {path} cannot be written ({why}); give another file.") from e


def save_film(path: pathlib.Path, frames: Sequence[Frame]) -> None:
    """Writes a film as a GIF, or as a page that loads nothing else, replacing an earlier file."""
    as_page = lambda: page(path.stem, [film("", pack(frames))])
    write_whole(path, _gif(frames) if path.suffix == ".gif" else as_page())


def _gif(frames: Sequence[Frame]) -> bytes:
    from PIL import Image

    wide, high = (max(sizes) for sizes in zip(*(_size(frame.svg) for frame in frames), strict=True))
    zoom, said = max(1.0, min(2.0, 640 / wide)), any(frame.caption for frame in frames)
    below = 32 if said else 8
    images = [Image.open(io.BytesIO(_png(frame, wide, high + below, zoom))) for frame in frames]
    first, *rest = [image.convert("RGB").quantize(64) for image in images]
    written = io.BytesIO()
    first.save(
        written,
        format="GIF",
        save_all=True,
        append_images=rest,
        # The format has 16 bits for hundredths of a second.
        duration=[min(max(20, round(1000 * frame.seconds)), 655_350) for frame in frames],
        loop=0,
        disposal=1,
    )
    return written.getvalue()


def _png(frame: Frame, wide: float, high: float, zoom: float) -> bytes:
    """A picture with its caption below."""
    import matplotlib
    import resvg_py

    fonts = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    names = ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSans", "DejaVuSans-Bold")
    width, height = _size(frame.svg)
    inner = frame.svg.replace("<svg", f'<svg x="8" y="8" width="{width:g}" height="{height:g}"', 1)
    caption = text(frame.caption)
    whole = f'width="{wide + 16:g}" height="{high + 8:g}"'
    said = f'x="8" y="{high - 5:g}" fill="{_INK}" font-size="12" font-family="DejaVu Sans"'
    return resvg_py.svg_to_bytes(
        svg_string=f'<svg xmlns="http://www.w3.org/2000/svg" color="{_INK}" {whole}>{inner}'
        f"<text {said}>{caption}</text></svg>".replace("Canvas", _PAGE),
        background=_PAGE,
        zoom=zoom,
        skip_system_fonts=True,
        font_files=[str(fonts / f"{name}.ttf") for name in names],
        monospace_family="DejaVu Sans Mono",
        font_family="DejaVu Sans",
        sans_serif_family="DejaVu Sans",
        serif_family="DejaVu Sans",
    )


def _size(svg: str) -> tuple[float, float]:
    found: Any = re.search(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"', svg)
    width, height = map(float, found.groups())
    return math.ceil(width), math.ceil(height)
