"""The rules of `Monsters` once more, as NumPy tables written without a look at the environment."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


# Stay, up, down, left, right.
MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))


class Layouts(NamedTuple):
    """All that can be said about the items; games go through them from the last to the first.

    **Attributes:**

    - `number`: of a layout, by good item's cell, bad item's cell (-1: taken) and what is held.
    - `free`: which cells have no item.
    - `armed`: whether the good item is held.
    - `intact`: whether nothing was taken yet.
    - `stages`: how many layouts have at most 0, 1, ... items left; they come first.
    - `taken`: the layout after the agent came to a cell.
    - `turned`: the layout on the turned board.
    """

    number: Int[np.ndarray, "places places 3"]
    free: Bool[np.ndarray, "layouts cells"]
    armed: Bool[np.ndarray, " layouts"]
    intact: Bool[np.ndarray, " layouts"]
    stages: Int[np.ndarray, " stages"]
    taken: Int[np.ndarray, "layouts cells"]
    turned: Int[np.ndarray, "symmetries layouts"]


class Symmetries(NamedTuple):
    """The eight ways to turn the board over: where a cell goes, and what becomes of a move."""

    cells: Int[np.ndarray, "symmetries cells"]
    moves: Int[np.ndarray, "symmetries 5"]


def neighbours(side: int) -> Int[np.ndarray, "cells 5"]:
    """Where each move leads; -1 for a wall."""
    table = np.full((side**2, len(MOVES)), -1)
    for y, x in np.ndindex(side, side):
        for i, (dx, dy) in enumerate(MOVES):
            if 0 <= x + dx < side and 0 <= y + dy < side:
                table[y * side + x, i] = (y + dy) * side + x + dx
    return table


def motion(side: int, sight: float, aggression: float) -> Float[np.ndarray, "prey cells cells"]:
    """The probability that a monster goes from one cell to another, for each cell of its prey."""
    odds, near = np.zeros((side**2,) * 3), neighbours(side)
    where = [(cell % side, cell // side) for cell in range(side**2)]
    for prey, cell in itertools.product(range(side**2), repeat=2):
        distance = math.dist(where[cell], where[prey])
        anywhere = [c for c in near[cell] if c >= 0]
        closer = [c for c in anywhere if math.dist(where[c], where[prey]) < distance <= sight]
        for c in closer:
            odds[prey, cell, c] += aggression / len(closer)
        for c in anywhere:
            odds[prey, cell, c] += (1 - aggression if closer else 1) / len(anywhere)
    return odds


def symmetries(side: int) -> Symmetries:
    """Four turns, each of the board and of its mirror image."""
    board = np.arange(side**2).reshape(side, side)
    turned = [np.rot90(b, k).ravel() for b in (board, board.T) for k in range(4)]
    # `turned` says which cell came to a place; its inverse, which place a cell went to.
    cells = np.argsort(turned, axis=1)
    near = neighbours(side)
    moves = np.zeros((len(cells), len(MOVES)), np.int64)
    for g, i in np.ndindex(*moves.shape):
        start = int(np.flatnonzero(near[:, i] >= 0)[0])
        (moves[g, i],) = np.flatnonzero(near[cells[g, start]] == cells[g, near[start, i]])
    return Symmetries(cells, moves)


def layouts(cells: int, bad_item: bool, turns: Int[np.ndarray, "symmetries cells"]) -> Layouts:
    """Every place of the items and what is held, as far as they agree."""
    each, taken = range(cells), -1
    found = [(taken, taken, 1)]
    if bad_item:
        found += [(taken, taken, 2)]
        found += [(taken, bad, 1) for bad in each] + [(good, taken, 2) for good in each]
        found += [(good, bad, 0) for good in each for bad in each if good != bad]
    else:
        found += [(good, taken, 0) for good in each]
    left = [(good != taken) + (bad != taken) for good, bad, _ in found]
    number = np.full((cells + 1, cells + 1, 3), -1)
    for i, layout in enumerate(found):
        number[layout] = i

    def arrive(good: int, bad: int, held: int, agent: int) -> tuple[int, int, int]:
        if agent == good:
            return taken, bad, 1
        return (good, taken, 2) if agent == bad else (good, bad, held)

    def turn(good: int, bad: int, held: int, g: np.ndarray) -> tuple[int, int, int]:
        # -1 is beyond the last cell, and stays.
        return int([*g, taken][good]), int([*g, taken][bad]), held

    return Layouts(
        number=number,
        free=np.asarray([[cell not in (good, bad) for cell in each] for good, bad, _ in found]),
        armed=np.asarray([held == 1 for _, _, held in found]),
        intact=np.asarray([held == 0 for _, _, held in found]),
        stages=np.cumsum(np.bincount(left)),
        taken=np.asarray([[number[arrive(*x, agent)] for agent in each] for x in found]),
        turned=np.asarray([[number[turn(*x, g)] for x in found] for g in turns]),
    )
