"""Othello written from the rules alone, in plain loops: what everything else is compared with."""

import numpy as np


PASS = 64
_DIRECTIONS = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]


class Game:
    """`board` holds 1 for black, -1 for white; `mover` is 1 or -1."""

    def __init__(self):
        self.board = np.zeros((8, 8), int)
        for square, disc in (("d4", -1), ("e5", -1), ("e4", 1), ("d5", 1)):
            self.board[int(square[1]) - 1, "abcdefgh".index(square[0])] = disc
        self.mover = 1
        self.passes = 0

    def flips(self, action: int) -> list[tuple[int, int]]:
        row, column = divmod(action, 8)
        if self.board[row, column]:
            return []
        flipped = []
        for down, right in _DIRECTIONS:
            line = []
            r, c = row + down, column + right
            while 0 <= r < 8 and 0 <= c < 8 and self.board[r, c] == -self.mover:
                line.append((r, c))
                r, c = r + down, c + right
            if 0 <= r < 8 and 0 <= c < 8 and self.board[r, c] == self.mover:
                flipped += line
        return flipped

    def legal(self) -> list[int]:
        return [action for action in range(64) if self.flips(action)] or [PASS]

    @property
    def over(self) -> bool:
        return (
            self.passes == 2
            or 0 in ((self.board == 1).sum(), (self.board == -1).sum())
            or bool(np.all(self.board))
        )

    def play(self, action: int) -> None:
        if action == PASS:
            self.passes += 1
        else:
            self.passes = 0
            for square in [divmod(action, 8), *self.flips(action)]:
                self.board[square] = self.mover
        self.mover = -self.mover

    def after(self, action: int) -> np.ndarray:
        """The board after a move, leaving this game as it is."""
        kept, passes = self.board.copy(), self.passes
        self.play(action)
        board, self.board, self.mover, self.passes = self.board, kept, -self.mover, passes
        return board


def random_game(seed: int, num_plies: int = 200) -> list[int]:
    """The moves of a game of random moves, to its end or for `num_plies`."""
    draws, game, moves = np.random.default_rng(seed), Game(), []
    while not game.over and len(moves) < num_plies:
        moves.append(int(draws.choice(game.legal())))
        game.play(moves[-1])
    return moves
