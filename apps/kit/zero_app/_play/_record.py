"""Games as text: in the notation of their board, otherwise a line of moves."""

import re
from collections.abc import Sequence

from .._command._config import MAX_SEED
from ._game import Game


_SEED = "seed:"


def write_record(games: Sequence[Game], seed: int = 0) -> str:
    """A game, given at each of its positions from the start on, as text: in the notation of its
    board, or else the names of its moves, with the seed before them where there is chance."""
    game = games[-1]
    if game.board.record is not None:
        return game.board.record.write(games)
    return " ".join([*[f"{_SEED}{seed}"] * game.board.chance, *game.moves])


def read_record(start: Game, text: str) -> tuple[Game, list[str], int]:
    """A new game with the komi and the handicap of the text, the names of its moves, which may be
    illegal, and its seed: 0 without chance. A text that is no game of this kind raises a
    `ValueError`."""
    record = start.board.record
    if record is not None and (read := record.read(start, text)) is not None:
        return *read, 0
    words, seed = text.lower().split(), "0"
    if words and words[0].startswith(_SEED):
        seed = words.pop(0).removeprefix(_SEED)
        if not re.fullmatch("[0-9]{1,12}", seed) or int(seed) > MAX_SEED:
            raise ValueError(f"{ascii(seed[:20])} is no seed; give a whole number up to {MAX_SEED}")
    return start, words, int(seed)
