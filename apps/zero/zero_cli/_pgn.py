"""Games of chess in Portable Game Notation.

What is written and read is described in Edwards, "Standard: Portable Game Notation Specification
and Implementation Guide" (1994), of which section 8.2.3 is that of Standard Algebraic Notation.
"""

import itertools
import re
import textwrap
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from zero_app import AbstractRecord, Game

from ._pieces import Pieces


#: The tags that a game must have before its result.
_UNKNOWN = dict.fromkeys(("Event", "Site", "Date", "Round", "White", "Black"), "?")
_UNKNOWN |= {"Date": "????.??.??"}
#: What a text is made of: space, comments, signs such as $1, tags, parentheses, and words.
_TOKEN = re.compile(
    r"""\s+ | ^%[^\n]* | ;[^\n]* | \{[^}]*\} | \$[0-9]+
    | \[ \s* (?P<tag>[^\s"\[\]]+) \s* "(?P<value>[^\n]*?)" \s* \]
    | (?P<sign>[()])
    | (?P<word>[^\s;{}$\[\]()]+)""",
    re.VERBOSE | re.MULTILINE,
)
_NUMBER = re.compile("^(?:[0-9]*[.\u2026]+|[0-9]+$)")
#: What ChessBase and books print, as the notation has it: figurines, dashes, signs of their own.
_PRINTED: dict[int, Any] = str.maketrans(
    "\u2654\u2655\u2656\u2657\u2658\u265a\u265b\u265c\u265d\u265e"
    "\u00d7\u2010\u2011\u2012\u2013\u2014\u2212",
    "KQRBNKQRBNx------",
    "\u2659\u265f\u200b\u2060\ufe0e\ufe0f\ufeff",
)
_PRINTED |= str.maketrans(
    {"\u00bd": "1/2", "\u203c": "!!", "\u2047": "??", "\u2048": "?!", "\u2049": "!?"}
)
#: Judgements: of a move, at its end, and of a position, alone or there.
_JUDGED = "+#!?\u00b1\u2213\u2a71\u2a72\u221e\u25a1\u2191\u2192\u21c6\u27f3\u2295\u2a00\u25b3\u2313"
_AT_THE_END = ("+/=", "=/+", "+/-", "-/+", "+=", "=+", "+-", "-+", *_JUDGED)
# It never backtracks, which would take quadratic time in a long word.
_JUDGEMENT = re.compile("(?=[-/]*+[+=])[-+=/]++")
_RESULTS = ("1-0", "0-1", "1/2-1/2", "1/2", "*")
#: The usual position, as far as it decides the game: without the number of the move.
_USUAL = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0".split()
_SAN = re.compile("([KQRBN]?)([a-h]?)([1-8]?)[x:-]?([a-h][1-8])=?([QRBNqrbn]?)")


class _Move(NamedTuple):
    """A legal move, by the letter of its piece, squares, and the letter of a promotion. A pawn has
    no letter. Castling is called by two squares and by letters, such as `O-O`."""

    name: str
    action: int
    piece: str
    start: str
    end: str
    taking: bool
    promotion: str
    castling: str


class Pgn(AbstractRecord):
    """The notation of chess. Of a text the main variation of the first game is read; moves may be
    called by their squares too."""

    notation = "PGN"

    def __init__(self, pieces: Pieces):
        self._pieces, self._cells = pieces, pieces.names
        self._letters = dict(zip(pieces.kinds, pieces.letters, strict=True)) | {"pawn": ""}
        # What the last move of each game is called: a page asks for a game after each of its moves.
        self._said: weakref.WeakKeyDictionary[Game, str] = weakref.WeakKeyDictionary()

    def write(self, games: Sequence[Game]) -> str:
        end = games[-1]
        sign = (end.total > 0) - (end.total < 0)
        result = {1: "1-0", -1: "0-1", 0: "1/2-1/2"}[sign] if end.over else "*"
        tags = [f'[{name} "{value}"]' for name, value in {**_UNKNOWN, "Result": result}.items()]
        words: list[str] = []
        for ply, (before, after) in enumerate(itertools.pairwise(games)):
            if ply % 2 == 0:
                words.append(f"{ply // 2 + 1}.")
            if after not in self._said:
                self._said[after] = self._move(before, after)
            words.append(self._said[after])
        text = " ".join([*words, result])
        lines = textwrap.wrap(text, 79, break_on_hyphens=False, break_long_words=False)
        return "\n".join([*tags, "", *lines])

    def read(self, start: Game, text: str) -> tuple[Game, list[str]]:
        game = start
        for word in _main_variation(text):
            said = f"ply {game.num_plies + 1}, {ascii(word[:20])}"
            if game.over:
                raise ValueError(f"the game was over before {said}")
            fitting = [move for move in self._legal(game) if _fits(word, move)]
            if not fitting:
                raise ValueError(f"{said}, is no legal move of {game.mover} there")
            if len(fitting) > 1:
                names = " or ".join(move.name for move in fitting)
                raise ValueError(f"{said}, may be {names}; give the square that it comes from")
            game = game.play(fitting[0].action)
        return start, list(game.moves)

    def _legal(self, game: Game) -> Iterator[_Move]:
        on = dict(zip(self._cells, self._pieces.cells(game), strict=True))
        for action in game.legal:
            name = game.name(action)
            start, end = name[:2], name[2:4]
            piece = self._letters[on[start].split()[1]]
            pawn, columns = piece == "", ord(end[0]) - ord(start[0])
            yield _Move(
                name,
                action,
                piece,
                start,
                end,
                taking=on[end] != "" or pawn and columns != 0,  # the latter in passing
                promotion=(name[4:] or "q").upper() if pawn and end[1] in "18" else "",
                castling={2: "O-O", -2: "O-O-O"}.get(columns, "") if piece == "K" else "",
            )

    def _move(self, before: Game, after: Game) -> str:
        """The last move of a game, as shortly as the notation has it."""
        moves = list(self._legal(before))
        (played,) = (move for move in moves if move.action == after.action)
        sign = ""
        if _in_check(after.state.position):
            sign = "#" if after.over and after.total else "+"
        if played.castling:
            return played.castling + sign
        piece, start, taking = played.piece, played.start, "x" * played.taking
        promotion = played.promotion and f"={played.promotion}"
        least = start[0] if taking and not piece else ""
        said = (
            f"{piece}{origin}{taking}{played.end}{promotion}"
            for origin in (least, start[0], start[1], start)
        )
        return next(word for word in said if sum(_fits(word, move) for move in moves) == 1) + sign


def _fits(word: str, move: _Move) -> bool:
    """Whether a word may stand for a move: its name, or its notation with as much of the square
    where it begins as one likes."""
    if word.lower() == move.name or word.upper().replace("0", "O") == move.castling:
        return True
    found = _SAN.fullmatch(word)
    if found is None:
        return False
    piece, column, row, end, promotion = found.groups()
    return (piece, end, promotion.upper()) == (move.piece, move.end, move.promotion) and (
        column in ("", move.start[0]) and row in ("", move.start[1])
    )


#: What programs call games of chess that begin as usual; others have rules of their own.
_VARIANTS = ("", "?", "standard", "chess", "normal", "from position", "chess960", "fischerandom")


def _main_variation(text: str) -> list[str]:
    """The moves of a game, without what follows a move."""
    words, tags = list[str](), dict[str, str]()
    text = text.removeprefix("\ufeff")  # which marks a file's encoding
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    at = depth = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(
                f"this is no PGN from character {at + 1} on: {ascii(text[at : at + 20])}"
            )
        at = found.end()
        tag, value, sign, word = found.group("tag", "value", "sign", "word")
        if tag and words and depth == 0:
            break  # the next game
        if tag:
            tags[tag] = value
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth < 0:
            raise ValueError(f"this is no PGN: nothing is open before the ) at character {at}")
        if not word or depth > 0:
            continue
        word = word.translate(_PRINTED)
        if word in _RESULTS:
            break
        # Without check, mate, a judgement such as !?, and that a pawn was taken in passing.
        word = _NUMBER.sub("", word)
        if not _JUDGEMENT.fullmatch(word) and (word := _bare(word).removesuffix("e.p.")):
            words.append(word)
    if depth > 0:
        raise ValueError("this is no PGN: a variation in parentheses does not end")
    if tag := _own_position(tags):
        raise ValueError(
            f"this game begins with a position of its own, by its tag {tag}; give a whole game"
        )
    if (variant := tags.get("Variant", "")).lower() not in _VARIANTS:
        raise ValueError(f"this is a game of {variant}, by its tag Variant; give one of chess")
    return words


def _bare(word: str) -> str:
    """A move without the judgements at its end."""
    end = len(word)
    while judged := next((x for x in _AT_THE_END if word.endswith(x, 0, end)), ""):
        end -= len(judged)
    return word[:end]


def _own_position(tags: Mapping[str, str]) -> str | None:
    """The tag by which a game begins with another position than the usual one. Many programs write
    the usual one too, and some write none."""
    if "FEN" not in tags:
        return "SetUp" if tags.get("SetUp", "0") not in ("0", "") else None
    position = tags["FEN"].replace(" HAha ", " KQkq ").split()[: len(_USUAL)]
    return "FEN" if position != _USUAL[: len(position)] and position != ["?"] else None


@jax.jit
def _in_check(position: Any) -> Bool[Array, ""]:
    # It has no public name for this, and starts JAX where it is imported.
    from pgx._src.games.chess import _is_checked

    return jnp.asarray(_is_checked(position._x))
