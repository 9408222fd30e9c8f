"""The clock of one side of a game."""

import dataclasses


#: A game is planned to have so many moves left of each side where time must last.
_MOVES_LEFT = 30


@dataclasses.dataclass(frozen=True)
class Clock:
    """The time that a side has left: first a main time, then periods of byo-yomi as in Canada, each
    of so many seconds for so many moves.

    **Attributes:**

    - `seconds`: left of the main time, or of the present period.
    - `moves`: for how many moves they are; 0 for the main time, which has no number of them.
    - `period`, `stones`: the seconds and the moves of each later period; no `stones` for none.
    """

    seconds: float
    moves: int = 0
    period: float = 0.0
    stones: int = 0

    @classmethod
    def start(cls, main: float, period: float, stones: int) -> "Clock | None":
        """The clock at the start of a game; `None` where there is no limit, which a period for no
        stones says."""
        if stones == 0 and (period > 0 or main == 0):
            return None
        return cls(main, 0, period, stones) if main > 0 else cls(period, stones, period, stones)

    def told(self, seconds: float, moves: int) -> "Clock":
        """The clock after a controller has said what is left. Where each period is for one move,
        `moves` counts the periods."""
        moves = min(moves, self.stones) if self.stones else moves
        return dataclasses.replace(self, seconds=seconds, moves=moves)

    def share(self) -> float:
        """The seconds that the next move may take, with a part kept for what is not the search: of
        the main time a thirtieth, or what a move of the periods that follow gets if that is more.
        """
        later = self.period / self.stones if self.stones and not self.moves else 0.0
        return 0.9 * max(self.seconds / (self.moves or _MOVES_LEFT), later)

    def took(self, seconds: float) -> "Clock":
        """The clock after a move that took so long."""
        left, moves = self.seconds - seconds, self.moves - 1
        if self.moves == 0 and left <= 0 and self.stones:  # in this move the first period began
            left, moves = left + self.period, self.stones - 1
        if moves == 0:
            left, moves = self.period, self.stones
        return dataclasses.replace(self, seconds=max(0.0, left), moves=max(0, moves))
