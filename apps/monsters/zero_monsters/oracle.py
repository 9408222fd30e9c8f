"""Exact values of `Monsters`, by dynamic programming over all states.

The rules are implemented a second time, as NumPy tables that are independent of the environment.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from zero_envs import Monsters, MonstersState


# So many states take some minutes.
_MOST_STATES = 2**22
_TOLERANCE = 1e-9
# Stay, up, down, left, right.
_MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))


class MonstersEpisode(NamedTuple):
    """The expected results of an episode with a limited number of steps."""

    return_mean: float
    win_rate: float
    loss_rate: float


class MonstersOracle:
    """The exact values of all states and actions of a [`zero_envs.Monsters`][], without its time
    limit.

    It is for tests and for measuring regret. The rules are implemented independently of the
    environment's `step`. The environment has at most about four million states: up to 6 x 6, or
    larger with fewer pieces. Because of the eight symmetries of the board, the 1 122 304 states of
    6 x 6 take about three seconds on a CPU.
    """

    def __init__(self, env: Monsters):
        side = env.size - 2
        cells = side**2
        held = cells**2 + cells + 2 if env.bad_item else cells + 1
        number = cells ** (2 + env.distractor) * held
        if number > _MOST_STATES:
            raise ValueError(
                f"MonstersOracle(Monsters(size={env.size})): {number} states, at most "
                f"{_MOST_STATES} fit; take a smaller board or fewer pieces."
            )
        self.env = env
        self._near = _neighbours(side)
        # The transition probabilities of a monster, and their transpose contiguous in memory.
        self._to = _motion(side, env.sight, env.aggression)
        self._from = self._to.swapaxes(1, 2).copy()
        self._turns, self._moves = _symmetries(side)
        self._items = _layouts(cells, env.bad_item, self._turns)
        # The symmetry that maps each cell to the representative of its class.
        self._turn = np.argmin(self._turns, axis=0)
        self._alike, self._class, self._count = np.unique(
            np.min(self._turns, axis=0), return_inverse=True, return_counts=True
        )
        self._open = self._near[self._alike] >= 0
        self._start = self._starts(cells)
        self._gather = {cell: self._turned(cell) for cell in range(cells)}
        self._solved: dict[tuple[float, float], np.ndarray] = {}

    def qvalues(
        self, state: MonstersState, *, gamma: float = 0.99, step_penalty: float | None = None
    ) -> Float[np.ndarray, "batch actions"]:
        """The value of each action in a batch of states with optimal play afterwards: the expected
        sum of rewards discounted by `gamma`, which is below 1, with an error below 1e-9; -inf for
        illegal actions, and 0 for all actions of a final state. The first call takes seconds.

        With a `step_penalty` the rewards are those of an environment that has it.

        **Raises:** `ValueError` for states that are not part of the environment's game.
        """
        pieces = np.asarray(state.pieces, np.int64)
        over = np.asarray(state.over)
        inside = np.max(pieces, axis=1) < len(self._near)
        agent, target, distractor, good, bad = np.where((over | ~inside)[:, None], 0, pieces).T
        # Final states are looked up at a valid index, and overwritten below.
        layout = self._items.number[good, bad, np.where(over, 0, np.asarray(state.held))]
        layout = np.where(over, 0, layout)
        alive = (pieces[:, : 2 + self.env.distractor] >= 0).all(axis=1)
        if np.any(layout < 0) or not np.all((alive | over) & inside):
            raise ValueError(
                "MonstersOracle.qvalues: no game comes to one of the states; give states of the "
                f"environment with size={self.env.size}, distractor={self.env.distractor} and "
                f"bad_item={self.env.bad_item}."
            )
        g = self._turn[agent]
        cells = self._turns
        distractor = cells[g, distractor] if self.env.distractor else np.zeros_like(g)
        where = self._class[agent], self._items.turned[g, layout], cells[g, target], distractor
        moves = self._moves[g].T
        solved = self._solve(gamma, step_penalty)
        found = [solved[where[0], move, *where[1:]] for move in moves]
        return np.where(over[:, None], 0.0, np.stack(found, axis=1))

    def regret(
        self,
        state: MonstersState,
        action: Int[Array | np.ndarray, " batch"],
        *,
        gamma: float = 0.99,
    ) -> Float[np.ndarray, " batch"]:
        """The difference between the value of the best action and that of `action`."""
        qvalues = self.qvalues(state, gamma=gamma)
        chosen = np.take_along_axis(qvalues, np.asarray(action)[:, None], axis=1)[:, 0]
        return np.max(qvalues, axis=1) - chosen

    def start_value(self, *, gamma: float = 0.99) -> float:
        """The value of optimal play, averaged over all initial states."""
        return float(np.sum(self._start * np.max(self._solve(gamma), axis=1)))

    def rollout(
        self,
        num_steps: int = 32,
        policy: str = "optimal",
        *,
        gamma: float = 0.99,
        step_penalty: float | None = None,
    ) -> float:
        """The expected sum of rewards in `num_steps` steps, below the environment's time limit,
        with a new episode after every end. The policy is `"optimal"`, which depends on the number
        of remaining steps; `"greedy"`, which plays the best action by `qvalues` with this `gamma`
        and `step_penalty`; or `"random"`."""
        lead = gamma, step_penalty
        self._check(num_steps, policy)
        values, start = np.zeros_like(self._start), 0.0
        for _ in range(num_steps):
            qvalues = self._sweep(values, 1.0 + start, -1.0 + start, -self.env.step_penalty)
            (values,) = self._follow(policy, lead, qvalues)
            start = float(np.sum(self._start * values))
        return start

    def episode(self, num_steps: int = 32, policy: str = "optimal") -> MonstersEpisode:
        """The expected results of one episode of at most `num_steps` steps.

        The policies are those of `rollout`. The optimal one maximises the sum of rewards, and the
        greedy one has gamma 0.99.
        """
        self._check(num_steps, policy)
        returns = wins = losses = np.zeros_like(self._start)
        for _ in range(num_steps):
            returns, wins, losses = self._follow(
                policy,
                (0.99, None),
                self._sweep(returns, 1.0, -1.0, -self.env.step_penalty),
                self._sweep(wins, 1.0, 0.0, 0.0),
                self._sweep(losses, 0.0, 1.0, 0.0),
            )
        return MonstersEpisode(*(float(np.sum(self._start * x)) for x in (returns, wins, losses)))

    def _check(self, num_steps: int, policy: str) -> None:
        if policy not in ("optimal", "greedy", "random"):
            raise ValueError(
                f"MonstersOracle: policy={policy!r}; it is 'optimal', 'greedy' or 'random'."
            )
        if not 1 <= num_steps < self.env.time_limit:
            raise ValueError(
                f"MonstersOracle: {num_steps} steps; there are values for 1 to "
                f"{self.env.time_limit - 1}, below the time limit of the game."
            )

    def _solve(
        self, gamma: float, step_penalty: float | None = None
    ) -> Float[np.ndarray, "classes 5 layouts cells others"]:
        penalty = self.env.step_penalty if step_penalty is None else step_penalty
        if not 0.0 <= penalty < math.inf:
            raise ValueError(
                f"MonstersOracle: step_penalty={penalty}; it must be finite and at least 0."
            )
        if not 0.0 <= gamma < 1.0:
            raise ValueError(f"MonstersOracle: gamma={gamma}; it must be at least 0 and below 1.")
        if (gamma, penalty) not in self._solved:
            values, qvalues = np.zeros_like(self._start), np.empty(0)
            # Taken items do not return, so layouts without items are solved first. Games that can
            # no longer be won take many sweeps, but there are few such states. The remaining error
            # is bounded by a geometric series.
            enough = _TOLERANCE * (1 - gamma) / max(gamma, _TOLERANCE)
            for number in self._items.stages:
                change = np.inf
                while change > enough:
                    known = values[:, :number]
                    qvalues = self._sweep(known, 1.0, -1.0, -penalty, gamma)
                    new = np.max(qvalues, axis=1)
                    change = np.max(np.abs(new - known))
                    values[:, :number] = new
            self._solved[gamma, penalty] = qvalues
        return self._solved[gamma, penalty]

    def _follow(
        self,
        policy: str,
        greedy: tuple[float, float | None],
        first: np.ndarray,
        *others: np.ndarray,
    ) -> list[np.ndarray]:
        """The values of states under a policy, for each of several tables of action values. The
        optimal policy maximises `first`, and the greedy one `_solve(*greedy)`."""
        if policy != "random":
            lead = first if policy == "optimal" else self._solve(*greedy)
            best = np.argmax(lead, axis=1)[:, None]
            return [np.take_along_axis(x, best, axis=1)[:, 0] for x in (first, *others)]
        open_ = self._open.reshape(*self._open.shape, 1, 1, 1)
        return [np.mean(x, axis=1, where=open_) for x in (first, *others)]

    def _sweep(
        self,
        values: Float[np.ndarray, "classes layouts cells others"],
        won: float,
        lost: float,
        step: float,
        gamma: float = 1.0,
    ) -> Float[np.ndarray, "classes 5 layouts cells others"]:
        """The action values of one step: `won` or `lost` if the episode ends, and otherwise
        `step + gamma * values`. `values` may have the first layouts only."""
        number, others = values.shape[1], self.env.distractor
        armed = self._items.armed[:number]
        qvalues = np.full((len(values), len(_MOVES), *values.shape[1:]), -np.inf)
        for i, move in np.argwhere(self._open).tolist():
            old = int(self._alike[i])
            new = int(self._near[old, move])
            arrives = np.zeros(values.shape[-1])
            # The result by the layout and the cells of target and distractor after their moves.
            landed = values[self._class[new]].ravel()[self._gather[new][:number]] * gamma + step
            landed[:, new, :] = np.where(armed, won, lost)[:, None]
            if others:
                landed[:, :, new] = lost
            if self.env.moving:
                landed = self._to[old] @ landed
            if self.env.moving and others:
                landed = landed @ self._from[old]
                arrives = self._from[old, new]
            # Before the monsters' moves. An agent that beats the target may meet the distractor.
            after = won + (lost - won) * arrives
            landed[:, new, :] = np.where(armed[:, None], after, lost)
            if others:
                landed[:, :, new] = lost
            qvalues[i, move] = landed[self._items.taken[:number, new]]
        return qvalues

    def _starts(self, cells: int) -> Float[np.ndarray, "classes layouts cells others"]:
        """The probability that a game starts in a state of each class."""
        free, apart = self._items.free, ~np.eye(cells, dtype=np.bool_)
        agent = self._count[:, None] * (free[:, self._alike].T & self._items.intact)
        monster = free[None] & apart[self._alike][:, None]
        start = agent[..., None, None] * monster[..., None]
        if self.env.distractor:
            start = start * monster[..., None, :] * apart
        return start / np.sum(start)

    def _turned(self, cell: int) -> Int[np.ndarray, "layouts cells others"]:
        """The indices into a table of values for an agent at `cell`."""
        g = self._turn[cell]
        cells = self._turns[g]
        others = cells if self.env.distractor else np.zeros(1, np.int64)
        indices = np.ix_(self._items.turned[g], cells, others)
        return np.ravel_multi_index(np.broadcast_arrays(*indices), self._start.shape[1:])


class _Layouts(NamedTuple):
    """All layouts of the items. In a game the index of the layout never increases.

    **Attributes:**

    - `number`: the index of a layout by the good item's cell, the bad item's cell (-1 if it is
        taken) and the held item.
    - `free`: the cells without an item.
    - `armed`: whether the good item is held.
    - `intact`: whether no item has been taken.
    - `stages`: the number of layouts with at most 0, 1, ... remaining items, which come first.
    - `taken`: the layout after the agent enters a cell.
    - `turned`: the layout after a symmetry.
    """

    number: Int[np.ndarray, "places places 3"]
    free: Bool[np.ndarray, "layouts cells"]
    armed: Bool[np.ndarray, " layouts"]
    intact: Bool[np.ndarray, " layouts"]
    stages: Int[np.ndarray, " stages"]
    taken: Int[np.ndarray, "layouts cells"]
    turned: Int[np.ndarray, "symmetries layouts"]


def _neighbours(side: int) -> Int[np.ndarray, "cells 5"]:
    """The cell after each move, -1 for a wall."""
    board = np.pad(np.arange(side**2).reshape(side, side), 1, constant_values=-1)
    near = [board[1 + dy : 1 + dy + side, 1 + dx : 1 + dx + side] for dx, dy in _MOVES]
    return np.stack(near, axis=-1).reshape(-1, len(_MOVES))


def _motion(side: int, sight: float, aggression: float) -> Float[np.ndarray, "prey cells cells"]:
    """The probability that a monster moves from one cell to another, for each cell of its prey."""
    odds, near = np.zeros((side**2,) * 3), _neighbours(side)
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


def _symmetries(
    side: int,
) -> tuple[Int[np.ndarray, "symmetries cells"], Int[np.ndarray, "symmetries 5"]]:
    """Four rotations of the board and of its mirror image, applied to cells and to moves."""
    board = np.arange(side**2).reshape(side, side)
    turned = [np.rot90(b, k).ravel() for b in (board, board.T) for k in range(4)]
    # `turned` maps new cells to old ones; its inverse maps old cells to new ones.
    cells = np.argsort(turned, axis=1)
    near = _neighbours(side)
    moves = np.zeros((len(cells), len(_MOVES)), np.int64)
    for g, i in np.ndindex(*moves.shape):
        start = int(np.flatnonzero(near[:, i] >= 0)[0])
        (moves[g, i],) = np.flatnonzero(near[cells[g, start]] == cells[g, near[start, i]])
    return cells, moves


def _layouts(cells: int, bad_item: bool, turns: Int[np.ndarray, "symmetries cells"]) -> _Layouts:
    """All consistent combinations of the items' cells and the held item."""
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
        # The index -1 selects the appended entry, so taken items stay taken.
        return int([*g, taken][good]), int([*g, taken][bad]), held

    return _Layouts(
        number=number,
        free=np.asarray([[cell not in (good, bad) for cell in each] for good, bad, _ in found]),
        armed=np.asarray([held == 1 for _, _, held in found]),
        intact=np.asarray([held == 0 for _, _, held in found]),
        stages=np.cumsum(np.bincount(left)),
        taken=np.asarray([[number[arrive(*x, agent)] for agent in each] for x in found]),
        turned=np.asarray([[number[turn(*x, g)] for x in found] for g in turns]),
    )
