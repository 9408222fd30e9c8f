"""Pictures of a terminal as SVG, and films of them."""

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
import zlib
from typing import Any

import pytest
from PIL import Image
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from zero_app import check_path, drawn, Frame, UsageError
from zero_app._run._film import film, pack, save_film, scalable
from zero_app._run._page import page


_SVG = "{http://www.w3.org/2000/svg}"


def _picture(console: Console):
    table = Table("move", "value")
    table.add_row("<a & b>", "+0.5")
    board = Text("  \u25cf \u25cf", "black on dark_green")
    return Group(table, board, Text("\u2580\u2588", "#ff0000"), Text("\u2801\u28ff", "#00ff00"))


def _shapes(svg: str, colour: str) -> str:
    found = [x for x in ET.fromstring(svg) if colour in (x.get("fill"), x.get("stroke"))]
    return "".join(x.get("d", "") for x in found)


def test_a_picture_says_what_a_terminal_shows():
    root = ET.fromstring(drawn(_picture))
    words = [x.text for x in root.iter(f"{_SVG}text")]
    console = Console(width=79)
    with console.capture() as capture:
        console.print(_picture(console).renderables[0])
    shown = re.findall(r"\S+(?: \S+)*", capture.get())
    letters = lambda parts: sorted("".join(map(str, parts)).replace(" ", ""))
    assert letters(words) == letters(shown)
    # Every word is at the place of its letters.
    (row,) = [x for x in root.iter(f"{_SVG}text") if "<a & b>" in str(x.text)]
    line = next(line for line in capture.get().splitlines() if "<a & b>" in line)
    assert float(row.get("x", 0)) / 8 + str(row.text).index("<a") == line.index("<a")


def test_blocks_and_dots_are_drawn_where_they_are():
    svg = drawn(_picture)
    # The upper half of a cell of 8 by 17, and a whole one beside it.
    lines = len(_table_lines())
    y = 17 * (lines + 1)
    assert _shapes(svg, "#ff0000") == f"M0 {y}h8v8.5h-8zM8 {y}h8v17h-8z"
    assert _shapes(svg, "#00ff00").count("M") == 1 + 8
    assert _shapes(svg, "#008000").count("M") + _shapes(svg, "#005f00").count("M") == 5


def _table_lines() -> list[str]:
    console = Console(width=79)
    with console.capture() as capture:
        console.print(_picture(console).renderables[0])
    return capture.get().splitlines()


def test_an_image_is_made_scalable():
    assert scalable('<?xml version="1.0"?>\n<svg height="20.5px" id="a" width="10"><g/></svg>') == (
        '<svg id="a" viewBox="0 0 10 20.5"><g/></svg>'
    )
    already = drawn(_picture)
    assert scalable(already) == already


def _frames() -> list[Frame]:
    return [
        Frame(drawn(lambda _, i=i: Text(f"move {i}", "bold on #303030")), f"<{i}>", 0.1 * (i + 1))
        for i in range(3)
    ]


def test_a_player_has_every_frame():
    frames = _frames()
    text = film("a < b", pack(frames))
    (packed,) = re.findall("<template>(.*?)</template>", text)
    fields = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert [Frame(*row) for row in zip(*fields, strict=True)] == frames
    assert "a &lt; b" in text


def test_a_gif_has_every_frame_for_its_time(tmp_path):
    """The last one for an hour, which is more than the format can say."""
    first, *rest = _frames()
    save_film(tmp_path / "film.gif", [first, *rest, Frame(first.svg, first.caption, 3600.0)])
    with Image.open(tmp_path / "film.gif") as opened:
        gif: Any = opened  # a GIF has several pictures
        assert gif.n_frames == 4
        shown, colours = [], []
        for i in range(4):
            gif.seek(i)
            shown.append(gif.info["duration"])
            colours.append(gif.convert("RGB").tobytes())
    assert shown == [100, 200, 300, 655_350] and len(set(colours)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


def test_a_page_of_a_film_stands_alone(tmp_path):
    save_film(tmp_path / "film.html", _frames())
    text = (tmp_path / "film.html").read_text()
    assert "<script>" in text and "<template>" in text
    assert not re.search(r"@import|url\((?!#)|<link|src=|href=", text)


def test_a_page_runs_no_script_but_its_own(tmp_path):
    """What a browser takes the sum of is all between the tags."""
    save_film(tmp_path / "film.html", _frames())
    text = (tmp_path / "film.html").read_text()
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in text and f"script-src 'sha256-{digest}';" in text
    assert "script-src 'none'" in page("a", [])


def test_other_files_are_refused(tmp_path):
    check_path(None)
    check_path(tmp_path / "film.gif")
    with pytest.raises(UsageError, match=r"--save film.mp4 was given; give a file that ends with"):
        check_path(tmp_path.__class__("film.mp4"))
    with pytest.raises(UsageError, match="there is no folder"):
        check_path(tmp_path / "none" / "film.gif")
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(UsageError, match="folder.gif cannot be written .Is a directory.; give"):
        check_path(tmp_path / "folder.gif")
