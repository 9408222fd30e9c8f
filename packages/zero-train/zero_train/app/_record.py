"""Games as text: in the notation of their board, otherwise a line of moves."""

import dataclasses
import re
import string
from collections.abc import Callable, Mapping, Sequence

from ._config import SEEDS
from ._game import AbstractRecord, Game


_SEED = "seed:"
#: What SGF is made of: parentheses and semicolons, the names of properties, their values.
_TOKEN = re.compile(r"\s*(?:([(;)])|([A-Za-z]+)|\[((?:\\.|[^\]\\])*)\])", re.DOTALL)
_LETTERS = string.ascii_lowercase


def write_record(games: Sequence[Game], seed: int = 0) -> str:
    """A game as text: in the notation of its board, or else the names of its moves.

    **Arguments:**

    - `games`: the game at each of its positions, from the start on.
    - `seed`: stands before the moves of a game of chance.
    """
    game = games[-1]
    if game.board.record is not None:
        return game.board.record.write(games)
    return " ".join([*[f"{_SEED}{seed}"] * game.board.chance, *game.moves])


def read_record(start: Game, text: str) -> tuple[list[str], int]:
    """The names of a game's moves, which may be illegal, and its seed: 0 without chance.

    **Raises:** `ValueError` for a text that is no game of this kind.
    """
    record = start.board.record
    names = None if record is None else record.read(start, text)
    if names is not None:
        return names, 0
    words, seed = text.lower().split(), "0"
    if words and words[0].startswith(_SEED):
        seed = words.pop(0).removeprefix(_SEED)
        if not re.fullmatch("[0-9]{1,12}", seed) or int(seed) > SEEDS[1]:
            raise ValueError(f"{ascii(seed[:20])} is no seed; give a whole number up to {SEEDS[1]}")
    return words, int(seed)


@dataclasses.dataclass(frozen=True)
class Sgf(AbstractRecord):
    """The notation of a game of black and white stones, which programs for Go show. Such a game is
    spoken in GTP too. Of a text the main variation is read, where passes may be left out.

    **Attributes:**

    - `size`: rows and columns. Action `size * row + column` is a point, row 0 the upper one, and
        `size * size` a pass.
    - `properties`: beside the size: the number `GM` of the game, the komi `KM`.
    - `score`: the score of a position as in SGF, such as `"B+3.5"`, `"W+12"` or `"0"`.
    """

    size: int
    properties: Mapping[str, str]
    score: Callable[[Game], str]
    notation = "SGF"

    def write(self, games: Sequence[Game]) -> str:
        game = games[-1]
        properties = {"FF": "4", **self.properties, "SZ": str(self.size)}
        if game.over:
            properties["RE"] = self.score(game)
        root = "".join(f"{name}[{value}]" for name, value in properties.items())
        moves = [
            f";{'BW'[ply % 2]}[{_point(game.board.action(name, ply % 2 == 0), self.size)}]"
            for ply, name in enumerate(game.moves)
        ]
        return f"(;{root}{''.join(moves)})"

    def read(self, start: Game, text: str) -> list[str] | None:
        text = text.strip()
        if not text.startswith("("):
            return None
        nodes = _main_variation(text)
        kind, size = (nodes[0].get(name, usual) for name, usual in (("GM", "1"), ("SZ", "19")))
        wanted = self.properties["GM"], str(self.size)
        if (kind.strip(), size.strip()) != wanted:
            raise ValueError(
                f"this is a game GM[{ascii(kind[:9])[1:-1]}] of size {ascii(size[:9])[1:-1]}; give "
                f"one of GM[{wanted[0]}] and size {wanted[1]}"
            )
        names: list[str] = []
        for node in nodes:
            if node.keys() & {"AB", "AW", "AE"}:
                raise ValueError(
                    "this game has stones that were not played; give one of moves alone"
                )
            for colour in [name for name in node if name in ("B", "W")]:  # in the file's order
                if colour != "BW"[len(names) % 2]:
                    names.append("pass")  # by the other side, as the colour says
                names.append(start.board.name(_action(node[colour], self.size)).lower())
        return names


def _main_variation(text: str) -> list[dict[str, str]]:
    """The nodes up to the end of the first variation. Of properties the first value is kept."""
    nodes: list[dict[str, str]] = []
    at, name = 0, ""
    while found := _TOKEN.match(text, at):
        sign, word, value = found.groups()
        at = found.end()
        if sign == ")":
            break
        if sign == ";":
            nodes.append({})
        elif word:
            # Old files write names out, as in `White`: only the capitals count.
            name = "".join(letter for letter in word if letter.isupper())
        elif value is not None and nodes:
            nodes[-1].setdefault(name, value)
    if found is None or not nodes:
        raise ValueError(f"this is no SGF: it breaks off at character {at + 1}")
    return nodes


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
