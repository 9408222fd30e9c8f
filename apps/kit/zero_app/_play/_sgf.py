"""Games of black and white stones in the Smart Game Format.

Hollosi, "SGF file format FF[4]", 1999; and what programs write that do not keep to it.
"""

import codecs
import contextlib
import dataclasses
import itertools
import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ._game import AbstractRecord, Game


_START = re.compile(r"\(\s*;")
#: The same before a property, as in no words of a letter.
_GAME = re.compile(r"\(\s*;[\s;]*[A-Za-z]+\s*\[")
#: Parentheses and semicolons, values, names. What is taken is not given back, which would need
#: memory for each character of a value.
_TOKEN = re.compile(
    r"\s*+(?: ([(;)]) | \[ ([^\]\\]*+ (?:\\. [^\]\\]*+)*+) \] | ([^\s()\[\];]++) )",
    re.VERBOSE | re.DOTALL,
)
_CHARSET = re.compile(rb"CA\[\s*([A-Za-z0-9_.:-]{1,40})\s*\]")
_COLOURS = {"AB": 1, "AW": -1, "AE": 0}
#: Komi in hundredths, as the Fox server writes them: of points, or of stones, which are two points.
_HUNDREDTHS = {"50": 0.5} | {
    str(round(scale * komi)): komi for komi in (5.5, 6.5, 7.0, 7.5) for scale in (50, 100)
}
#: The properties that are kept. Comments may be long.
_READ = frozenset({*_COLOURS, "B", "W", "GM", "SZ", "KM", "HA", "PL", "AP"})
_LETTERS = string.ascii_lowercase


@dataclasses.dataclass(frozen=True)
class Sgf(AbstractRecord):
    """The notation of a game of black and white stones, which programs for Go show. Such a game is
    spoken in GTP too.

    Of a text the main variation of the first game is read. Where a side moves twice in a row, the
    other one has passed. Stones that were set up are read as moves with passes between, where the
    game allows passes. The komi and the handicap of the text are those of the game.

    **Attributes:**

    - `size`: rows and columns. Action `size * row + column` is a point, row 0 the upper one, and
        `size * size` a pass.
    - `kind`: the number `GM` of the game.
    - `margin`: the points of black minus those of white in a position, without komi. It is infinite
        where the game has ended by another rule than counting.
    - `komi`: that of the environment; `None` for games without one.
    """

    size: int
    kind: int
    margin: Callable[[Game], float]
    komi: float | None = None
    notation = "SGF"

    def lead(self, game: Game) -> float:
        """The points of black minus those of white, with the komi of the game."""
        return self.margin(game) - (self._komi(game) or 0.0)

    def score(self, game: Game) -> str:
        """The score with the komi of the game, such as `"B+3.5"`, `"W+12"` or `"0"`, and `"B+F"`
        where white has lost by another rule than counting."""
        lead = self.lead(game)
        if lead == 0:
            return "0"
        return f"{'B' if lead > 0 else 'W'}+{'F' if math.isinf(lead) else f'{abs(lead):g}'}"

    def result(self, game: Game) -> str:
        """The result in words, such as `"black wins by 3.5"`, or `"draw"`."""
        lead = self.lead(game)
        if lead == 0:
            return "draw"
        points = f" by {abs(lead):g}" if math.isfinite(lead) else ""
        return f"{game.board.sides[0 if lead > 0 else 1]} wins{points}"

    def write(self, games: Sequence[Game]) -> str:
        game = games[-1]
        komi, placed = self._komi(game), _handicap(game)
        properties = {"FF": "4", "GM": str(self.kind)}
        if komi is not None:
            properties["KM"] = f"{komi:g}"
        properties["SZ"] = str(self.size)
        if game.over:
            properties["RE"] = self.score(game)
        if placed:
            properties["HA"] = str(game.handicap)
        root = "".join(f"{name}[{value}]" for name, value in properties.items())
        actions = [game.board.action(name, ply % 2 == 0) for ply, name in enumerate(game.moves)]
        points = [f"[{_point(action, self.size)}]" for action in actions]
        stones = f"AB{''.join(points[:placed:2])}" if placed else ""
        moves = [f";{'BW'[ply % 2]}{points[ply]}" for ply in range(placed, len(points))]
        return f"(;{root}{stones}{''.join(moves)})"

    def read(
        self, start: Game, text: str, before: int | None = None
    ) -> tuple[Game, list[str]] | None:
        """See [`zero_app.AbstractRecord`][].

        **Arguments:**

        - `before`: the number of the move, from 1 on, before which to end.
        """
        nodes = _main_variation(text)
        root = next(nodes, None)
        if root is None:
            return None
        start = self._begin(start, root)
        game, names, side, played = start, list[str](), "", 0
        for node in itertools.chain([root], nodes):
            if node.keys() & _COLOURS.keys():
                for ply in range(game.num_plies, len(names)):
                    game = game.play(game.board.action(names[ply], game.first_moves))
                game = self._set_up(game, node)
                names = list(game.moves)
                if node is root and 0 < start.handicap < np.sum(game.stones > 0):
                    raise _other_stones(start.handicap)
            side = node.get("PL", [side])[0].strip()[:1].upper()
            for colour in [name for name in node if name in ("B", "W")]:  # in the file's order
                played += 1
                if before is not None and played >= before:
                    _check_handicap(start.handicap, names, cut=True)
                    return start, names + ["pass"] * (colour != "BW"[len(names) % 2])
                action = _action(node[colour][0], self.size)
                if action == self.size**2 and names[-2:] == ["pass"] * 2:
                    continue  # IGS and the AGA's rules have a third pass, when all is over
                if colour != "BW"[len(names) % 2]:
                    names.append("pass")  # by the other side, as the colour says
                names.append(start.board.name(action).lower())
                side = ""
        if side in ("B", "W") and side != "BW"[len(names) % 2]:
            names.append("pass")
        _check_handicap(start.handicap, names)
        return start, names

    def _komi(self, game: Game) -> float | None:
        return self.komi if self.komi is None or game.komi is None else game.komi

    def _begin(self, start: Game, root: dict[str, list[str]]) -> Game:
        """A new game with the komi and the handicap of a text."""
        usual = {"GM": "1", "SZ": "19" if self.kind == 1 else str(self.size), "KM": "", "HA": ""}
        said = {name: root.get(name, [value])[0].strip() for name, value in usual.items()}
        kind, size = said["GM"], said["SZ"]
        if kind != str(self.kind) or size not in (f"{self.size}", f"{self.size}:{self.size}"):
            raise ValueError(
                f"this is a game GM[{ascii(kind[:9])[1:-1]}] of size {ascii(size[:9])[1:-1]}; give "
                f"one of GM[{self.kind}] and size {self.size}"
            )
        komi, handicap = said["KM"], said["HA"] or "0"  # Old files leave them empty.
        by_fox = "foxwq" in "".join(root.get("AP", []))
        if komi in _HUNDREDTHS and (by_fox or int(komi) > self.size**2):
            komi = str(_HUNDREDTHS[komi])
        komi = " ".join(komi.split())  # many blanks would take quadratic time below
        komi = re.sub(r"(?: ?\u00bd|(?:^| |(?<=-))1/2)$", ".5", komi).replace(",", ".")
        if not re.fullmatch("[0-9]{1,3}", handicap) or int(handicap) > self.size**2:
            raise ValueError(
                f"HA[{ascii(handicap[:20])[1:-1]}] is no handicap; give a number of stones up to "
                f"{self.size**2}, or leave HA out"
            )
        return dataclasses.replace(
            start,
            komi=komi_of(komi, self.size) if komi else start.komi,
            handicap=int(handicap) * (int(handicap) > 1),
        )

    def _set_up(self, game: Game, node: dict[str, list[str]]) -> Game:
        """The game after moves that lead to the stones of a node."""
        stones = game.stones.ravel()
        before, said = stones.copy(), dict[int, None]()  # in the file's order
        for name, colour in _COLOURS.items():
            for value in node.get(name, []):
                for action in _points(value, self.size):
                    stones[action] = colour
                    said[action] = None
        if np.array_equal(stones, before):
            return game
        black, white = (
            [action for action in said if stones[action] == colour != before[action]]
            for colour in (1, -1)
        )
        if np.all((before == 0) | (before == stones)) and self.size**2 in game.legal:
            with contextlib.suppress(ValueError):
                after = place(game, black, white)
                if np.array_equal(after.stones.ravel(), stones):
                    return after
        raise ValueError(
            "this game has stones that were not played, which no moves and passes lead to; give "
            "one of moves alone"
        )


def place(game: Game, black: Iterable[int], white: Iterable[int] = ()) -> Game:
    """The game after stones were put on the board in turn, where a side without any left passes. A
    `ValueError` is raised where a move or a pass is illegal."""
    left = {True: list(black), False: list(white)}
    while left[True] or left[False]:
        mine = left[game.first_moves]
        game = game.play(mine.pop(0) if mine else game.board.action("pass"))
    return game


def handicap_points(size: int, number: int) -> list[int]:
    """The points of a fixed handicap, in the order of the specification of GTP. The list is empty
    where there is no such handicap on a board of this size."""
    edge = 3 if size >= 13 else 2
    low, middle, high = edge, size // 2, size - 1 - edge
    # Columns count from the left, rows from below.
    points = [(low, low), (high, high), (low, high), (high, low)]
    if size % 2 == 1 and size > 7:
        sides = [(low, middle), (high, middle), (middle, low), (middle, high)]
        points += sides[: (number - 4) // 2 * 2]
        points += [(middle, middle)] * (number in (5, 7, 9))
    known = size >= 7 and 2 <= number <= len(points)
    return [size * (size - 1 - row) + column for column, row in points[:number]] if known else []


def komi_of(text: str, size: int) -> float:
    """A komi. A text that is no number, or more than a board can hold, raises a `ValueError`."""
    komi = math.nan
    if "_" not in text and text.isascii():
        with contextlib.suppress(ValueError):
            komi = float(text)
    if not abs(komi) <= size**2:
        raise ValueError(f"{ascii(text[:20])} is no komi; give a number up to {size**2}")
    return komi + 0.0  # which has no negative zero


def decode(data: bytes) -> str:
    """The text of a file, in UTF-8 or else in the character set that it names; in some of them a
    parenthesis or a bracket is a part of a letter."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    named = _CHARSET.search(data)
    for charset in ("utf-8-sig", named[1].decode() if named else "latin-1"):
        with contextlib.suppress(UnicodeError, LookupError):
            return data.decode(charset)
    return data.decode("latin-1")


def _main_variation(text: str) -> Iterator[dict[str, list[str]]]:
    """The nodes up to the end of the first variation, each with the values of its properties in
    the file's order. There are none in a text that is no SGF at all.

    A last parenthesis may be missing, and before the first one there may be anything.
    """
    begin = _GAME.search(text) or _START.search(text)
    if begin is None:
        if text.lstrip("\ufeff \t\r\n").startswith("("):
            raise ValueError("this is no SGF: no semicolon follows its first parenthesis")
        return
    node: dict[str, list[str]] | None = None
    name, at = "", begin.start()
    while token := _TOKEN.match(text, at):
        sign, word, at = token[1], token[3], token.end()
        if sign == ")":
            break
        if sign == ";":
            if node is not None:
                yield node
            node, name = {}, ""
        elif word is not None:
            # Old files write names out, as in `White`: only the capitals count.
            name = "".join(letter for letter in word[:80] if "A" <= letter <= "Z")
        elif sign is None and name in _READ and node is not None:
            node.setdefault(name, []).append(token[2])
    if token is None and text[at:].strip():
        raise ValueError(f"this is no SGF: it breaks off at character {at + 1}")
    assert node is not None
    yield node


def _handicap(game: Game) -> int:
    """The number of moves that are the stones of the handicap and the passes between them; 0 where
    the game does not begin with them."""
    with contextlib.suppress(ValueError):
        _check_handicap(game.handicap, game.moves)
        return max(0, 2 * game.handicap - 1)
    return 0


def _check_handicap(number: int, names: Sequence[str], cut: bool = False) -> None:
    """Raises a `ValueError` where moves do not begin with so many stones of black, as far as they
    were not `cut`."""
    first = names[: max(0, 2 * number - 1)]
    black, white = first[::2], first[1::2]
    if not (cut or len(black) == number) or "pass" in black or {*white} - {"pass"}:
        raise _other_stones(number)


def _other_stones(handicap: int) -> ValueError:
    return ValueError(
        f"HA[{handicap}] says that black has {handicap} stones before white's first move, and this "
        "game has others; set them up by AB, or leave HA out"
    )


def _points(value: str, size: int) -> list[int]:
    """The actions of a point such as `aa`, or of a rectangle such as `aa:cc`."""
    corners = [divmod(_action(corner, size), size) for corner in value.split(":")[:2]]
    (top, left), (bottom, right) = corners[0], corners[-1]
    if size in (top, bottom) or value.count(":") > 1:
        raise ValueError(f"{ascii(value[:9])} is no point of a board of size {size}")
    return [
        size * row + column
        for row in range(min(top, bottom), max(top, bottom) + 1)
        for column in range(min(left, right), max(left, right) + 1)
    ]


def _action(point: str, size: int) -> int:
    point = point.strip()
    if point == "" or (point == "tt" and size <= 19):
        return size**2
    column, row = (_LETTERS.find(letter) for letter in (point + "  ")[:2])
    if len(point) != 2 or not (0 <= column < size and 0 <= row < size):
        raise ValueError(f"{ascii(point[:9])} is no point of a board of size {size}")
    return size * row + column


def _point(action: int, size: int) -> str:
    row, column = divmod(action, size)
    return "" if row == size else _LETTERS[column] + _LETTERS[row]
