"""What is written in the lines of GTP: numbers, colours, and analyses, of which Leela Zero and
KataGo have the words."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from zero_search import Plan, read_tree, Tree

from ._game import expected, Game


SYNTAX = "syntax error"
_COLOURS = {"b": "black", "black": "black", "w": "white", "white": "white"}
#: Seconds between the lines of an analysis, where none are asked for.
_INTERVAL = 1.0
#: Keys that `kata-analyze` may be asked for in addition. Our search knows `rootinfo` alone, and
#: controllers do without the others.
_MORE = frozenset(
    "movesownership movesownershipstdev noresultvalue ownership ownershipstdev pvedgevisits "
    "pvvisits rootinfo".split()
)


class GtpError(Exception):
    """An error response, which is sent after a question mark."""


@contextlib.contextmanager
def refusing(what: str = SYNTAX) -> Iterator[None]:
    """Makes an error response of a `ValueError` in the `with` block."""
    try:
        yield
    except ValueError:
        raise GtpError(what) from None


def number(kind: type[int] | type[float], text: str) -> float:
    if not text.isascii() or "_" in text:  # which Python reads
        raise GtpError(SYNTAX)
    with refusing():
        return kind(text)


def seconds(text: str) -> float:
    """A number that is not negative, as clocks and counts are."""
    said = number(float, text)
    if not 0 <= said < 1e9:
        raise GtpError(SYNTAX)
    return said


def colour(text: str) -> str:
    if text.lower() not in _COLOURS:
        raise GtpError(SYNTAX)
    return _COLOURS[text.lower()]


def shown(name: str) -> str:
    """The name of a move."""
    return name if name == "pass" else name.upper()


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What an analysis is asked for.

    **Attributes:**

    - `style`: whose words its lines have, those of Leela Zero or KataGo.
    - `colour`: whose moves; `None` for the side to move.
    - `interval`: the seconds between its lines.
    - `least`, `most`: how many moves, `None` for all.
    - `root`: whether the whole position is told too.
    """

    style: Literal["lz", "kata"]
    colour: str | None = None
    interval: float = _INTERVAL
    least: int = 0
    most: int | None = None
    root: bool = False

    @classmethod
    def read(cls, style: Literal["lz", "kata"], words: Sequence[str]) -> "Analysis":
        """An analysis by the arguments of its command."""
        asked, left = dict[str, Any](), [word.lower() for word in words]
        if left and left[0] in _COLOURS:
            asked["colour"] = _COLOURS[left.pop(0)]
        if left and left[0].isdigit():
            left.insert(0, "interval")
        for name, value in zip(left[::2], [*left[1::2], ""], strict=False):
            if name in ("allow", "avoid"):
                raise GtpError(f"unsupported: {name}; every legal move is searched")
            elif name == "interval":
                asked["interval"] = seconds(value) / 100
            elif name in ("minmoves", "maxmoves"):
                asked["least" if name == "minmoves" else "most"] = int(seconds(value))
            elif style == "kata" and name in _MORE and value in ("true", "false"):
                asked |= {"root": value == "true"} if name == "rootinfo" else {}
            else:
                raise GtpError(SYNTAX)
        return cls(style, **asked)

    def line(self, game: Game, plan: Plan, tree: Tree | None) -> str:
        """What a plan says of the moves: the one it plays, and then by weight."""
        others = np.arange(len(plan.weights)) != int(plan.action)
        order = [int(a) for a in np.lexsort((-game.prior, -plan.visits, -plan.weights, others))]
        legal = [action for action in order if action in game.legal]
        tried = sum(1 for action in legal if plan.visits[action] > 0)
        most = len(legal) if self.most is None else self.most
        read, said = None if tree is None else read_tree(tree), []
        for rank, action in enumerate(legal[: max(1, min(most, max(self.least, tried)))]):
            visits = int(plan.visits[action])
            value = float(plan.qvalues[action] if visits else plan.value)
            line = " ".join(shown(name) for name in expected(game, read, action))
            lead = (
                f"scoreLead {game.scores[action]} " if game.scores and self.style == "kata" else ""
            )
            said.append(
                f"info move {shown(game.name(action))} {self._figures(game, visits, value)} {lead}"
                f"prior {self._share(float(game.prior[action]))} order {rank} pv {line}"
            )
        if self.root:
            whole = self._figures(game, float(plan.visits.sum()), float(plan.value))
            said.append(f"rootInfo {whole}")
        return " ".join(said)

    def _figures(self, game: Game, visits: float, value: float) -> str:
        utility = value / game.max_value
        more = "" if self.style == "lz" else f" utility {utility:.4f}"
        return f"visits {visits:.0f}{more} winrate {self._share((1 + utility) / 2)}"

    def _share(self, x: float) -> str:
        return str(round(1e4 * x)) if self.style == "lz" else f"{x:.4f}"
