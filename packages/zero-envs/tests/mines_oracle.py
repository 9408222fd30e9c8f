"""Minesweeper's posterior by enumeration, in plain Python, and boards to ask about."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np


Cell = tuple[int, int]


def around(cell: Cell, rows: int, columns: int) -> list[Cell]:
    row, column = cell
    return [
        (i, j)
        for i in range(max(row - 1, 0), min(row + 2, rows))
        for j in range(max(column - 1, 0), min(column + 2, columns))
        if (i, j) != cell
    ]


def cells_of(mask: np.ndarray) -> list[Cell]:
    return [(int(i), int(j)) for i, j in np.argwhere(mask)]


def shown(mines: np.ndarray, opened: np.ndarray) -> np.ndarray:
    """The boards `[..., rows, columns]` that a player sees: -1 where `opened` is not set."""
    rows, columns = mines.shape[-2:]
    padded = np.pad(mines, [(0, 0)] * (mines.ndim - 2) + [(1, 1), (1, 1)]).astype(np.int32)
    near = sum(padded[..., i : i + rows, j : j + columns] for i in range(3) for j in range(3))
    return np.where(opened, near - mines, np.int32(-1))


def consistent(board: np.ndarray, layouts: np.ndarray, num_mines: int) -> bool:
    """Whether the board could be seen with each of these `[layouts, rows, columns]` mines."""
    opened = board >= 0
    if (opened & layouts).any() or (layouts.sum(axis=(1, 2)) != num_mines).any():
        return False
    return bool((shown(layouts, opened) == board).all())


def posterior(board: np.ndarray, num_mines: int) -> tuple[int, np.ndarray]:
    """The number of layouts and the probability of a mine in each cell, without rounding.

    Hidden cells that share a number are connected. The assignments of each connected component
    are enumerated one by one, and those of different components multiplied by number of mines.
    """
    rows, columns = board.shape
    hidden = cells_of(board < 0)
    total: dict[int, int] = {0: 1}
    with_mine: dict[Cell, dict[int, int]] = {}
    near: set[Cell] = set()
    for cells, numbers in components(board):
        near |= set(cells)
        ways: dict[int, int] = {}
        each: dict[Cell, dict[int, int]] = {x: {} for x in cells}
        for mined in assignments(cells, numbers, num_mines):
            size = len(mined)
            ways[size] = ways.get(size, 0) + 1
            for x in mined:
                each[x][size] = each[x].get(size, 0) + 1
        with_mine = {x: product(w, ways) for x, w in with_mine.items()}
        with_mine |= {x: product(total, w) for x, w in each.items()}
        total = product(total, ways)
    for cell in cells_of(board >= 0):
        if board[cell] > 0 and not any(board[x] < 0 for x in around(cell, rows, columns)):
            total = {}
    others = len(hidden) - len(near)
    count = close(total, others, num_mines)
    probability = np.zeros(board.shape)
    if not count:
        return 0, probability
    for x, ways in with_mine.items():
        probability[x] = Fraction(close(ways, others, num_mines), count)
    elsewhere = sum(
        ways * math.comb(others, num_mines - used) * (num_mines - used)
        for used, ways in total.items()
        if 0 <= num_mines - used <= others
    )
    for x in hidden:
        if x not in near:
            probability[x] = Fraction(elsewhere, count * others)
    return count, probability


def product(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    out: dict[int, int] = {}
    for i, x in a.items():
        for j, y in b.items():
            out[i + j] = out.get(i + j, 0) + x * y
    return out


def close(ways: dict[int, int], others: int, num_mines: int) -> int:
    """Places the mines that are left on the cells that touch no number."""
    left = {num_mines - used: x for used, x in ways.items() if used <= num_mines}
    return sum(x * math.comb(others, k) for k, x in left.items())


def components(board: np.ndarray) -> Iterator[tuple[list[Cell], dict[Cell, int]]]:
    """Connected hidden cells, neighbours near each other in the list, and their numbers."""
    rows, columns = board.shape
    seen: set[Cell] = set()
    for start in cells_of(board >= 0):
        if start in seen:
            continue
        cells: list[Cell] = []
        numbers: dict[Cell, int] = {}
        queue = [start]
        seen.add(start)
        while queue:
            number = queue.pop(0)
            numbers[number] = int(board[number])
            for cell in around(number, rows, columns):
                if board[cell] < 0 and cell not in cells:
                    cells.append(cell)
                    for x in around(cell, rows, columns):
                        if board[x] >= 0 and x not in seen:
                            seen.add(x)
                            queue.append(x)
        if cells:
            yield cells, numbers


def assignments(
    cells: list[Cell], numbers: dict[Cell, int], num_mines: int
) -> Iterator[list[Cell]]:
    """The mines of every assignment that makes all numbers right."""
    touching = {x: [n for n in numbers if n != x and max_distance(n, x) == 1] for x in cells}
    lacking = dict(numbers)
    left = {n: sum(n in touching[x] for x in cells) for n in numbers}
    mined: list[Cell] = []

    def search(i: int) -> Iterator[list[Cell]]:
        if i == len(cells):
            yield list(mined)
            return
        near = touching[cells[i]]
        for n in near:
            left[n] -= 1
        if all(lacking[n] <= left[n] for n in near):
            yield from search(i + 1)
        if len(mined) < num_mines and all(0 < lacking[n] <= left[n] + 1 for n in near):
            for n in near:
                lacking[n] -= 1
            mined.append(cells[i])
            yield from search(i + 1)
            mined.pop()
            for n in near:
                lacking[n] += 1
        for n in near:
            left[n] += 1

    return search(0)


def max_distance(a: Cell, b: Cell) -> int:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def random_mines(rng: np.random.Generator, rows: int, columns: int, num_mines: int) -> np.ndarray:
    mines = np.zeros(rows * columns, np.bool_)
    mines[rng.permutation(rows * columns)[:num_mines]] = True
    return mines.reshape(rows, columns)


def played_board(rng: np.random.Generator, rows: int, columns: int, num_mines: int) -> np.ndarray:
    """After openings that show a 0 where one is left, as a careful player's."""
    mines = random_mines(rng, rows, columns, num_mines)
    counts = shown(mines, ~mines)
    opened = np.zeros_like(mines)
    for _ in range(rng.integers(0, 5)):
        free = np.argwhere(~mines & ~opened)
        if not len(free):
            break
        queue = [tuple(free[rng.integers(len(free))])]
        while queue:
            cell = queue.pop()
            if not opened[cell]:
                opened[cell] = True
                queue += around(cell, rows, columns) if counts[cell] == 0 else []
    return np.where(opened, counts, -1)


def random_board(rng: np.random.Generator, rows: int, columns: int, num_mines: int) -> np.ndarray:
    """After safe cells in any order, from none to all."""
    mines = random_mines(rng, rows, columns, num_mines)
    safe = rng.permutation(np.argwhere(~mines))
    opened = np.zeros_like(mines)
    opened[tuple(safe[: rng.integers(0, len(safe) + 1)].T)] = True
    return shown(mines, opened)


def scattered_board(
    rng: np.random.Generator, rows: int, columns: int, num_mines: int
) -> np.ndarray:
    """A few safe cells far from each other, where a sweep has the most states."""
    mines = random_mines(rng, rows, columns, num_mines)
    safe = rng.permutation(np.argwhere(~mines))
    opened = np.zeros_like(mines)
    opened[tuple(safe[: rng.integers(5, 41)].T)] = True
    return shown(mines, opened)
