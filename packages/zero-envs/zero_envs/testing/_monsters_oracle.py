"""Exact values of `Monsters`, by dynamic programming over every state."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from .._monsters import Monsters, MonstersState
from ._monsters_tables import layouts, motion, MOVES, neighbours, symmetries


# Some minutes.
_MOST_STATES = 2**22
_TOLERANCE = 1e-9


class MonstersEpisode(NamedTuple):
    """What one episode, cut off after some steps, is expected to bring."""

    return_mean: float
    win_rate: float
    loss_rate: float


class MonstersOracle:
    """Values of every state of a [`zero_envs.Monsters`][], and of what one can do there.

    For tests and for measuring regret. It is made of tables that were written from the rules, not
    from the environment's `step`. The eight symmetries of the board save most of the work: the
    1 122 304 states of 6 x 6 take about three seconds on a CPU.

    The time limit is left out: values are those of a game without one.

    **Arguments:**

    - `env`: of at most about four million states: 6 x 6 and smaller, larger with fewer pieces.
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
        self._near = neighbours(side)
        # Of moves of monsters, from the second cell to the third; and as they lie in memory for a
        # product from the other side.
        self._to = motion(side, env.sight, env.aggression)
        self._from = self._to.swapaxes(1, 2).copy()
        self._turns = symmetries(side)
        self._items = layouts(cells, env.bad_item, self._turns.cells)
        # The symmetry that brings a cell to the one that stands for all that are like it.
        self._turn = np.argmin(self._turns.cells, axis=0)
        self._alike, self._class, self._count = np.unique(
            np.min(self._turns.cells, axis=0), return_inverse=True, return_counts=True
        )
        self._open = self._near[self._alike] >= 0
        self._start = self._starts(cells)
        self._gather = {cell: self._turned(cell) for cell in range(cells)}
        self._solved: dict[float, np.ndarray] = {}

    def qvalues(
        self, state: MonstersState, *, gamma: float = 0.99
    ) -> Float[np.ndarray, "batch actions"]:
        """The value of each action and the best play ever after; the first call takes seconds.

        **Arguments:**

        - `state`: a batch of states.
        - `gamma`: the discount of one step, below 1.

        **Returns:** expected discounted sums of rewards, to 1e-9: -inf for illegal actions; in a
        final state 0 for all.
        """
        pieces = np.asarray(state.pieces, np.int64)
        over = np.asarray(state.over)
        inside = np.max(pieces, axis=1) < len(self._near)
        agent, target, distractor, good, bad = np.where((over | ~inside)[:, None], 0, pieces).T
        # Final states are looked up at a place where something is, and then overwritten.
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
        cells = self._turns.cells
        distractor = cells[g, distractor] if self.env.distractor else np.zeros_like(g)
        where = self._class[agent], self._items.turned[g, layout], cells[g, target], distractor
        moves = self._turns.moves[g].T
        found = [self._solve(gamma)[where[0], move, *where[1:]] for move in moves]
        return np.where(over[:, None], 0.0, np.stack(found, axis=1))

    def regret(
        self,
        state: MonstersState,
        action: Int[Array | np.ndarray, " batch"],
        *,
        gamma: float = 0.99,
    ) -> Float[np.ndarray, " batch"]:
        """What is lost by `action` and the best play after it, against the best play at once."""
        qvalues = self.qvalues(state, gamma=gamma)
        chosen = np.take_along_axis(qvalues, np.asarray(action)[:, None], axis=1)[:, 0]
        return np.max(qvalues, axis=1) - chosen

    def start_value(self, *, gamma: float = 0.99) -> float:
        """The value of a fresh start under the best play, on average over all starts."""
        return float(np.sum(self._start * np.max(self._solve(gamma), axis=1)))

    def rollout(
        self, num_steps: int = 32, policy: str = "optimal", *, gamma: float = 0.99
    ) -> float:
        """The expected sum of rewards in `num_steps` steps, a fresh start following every end.

        **Arguments:**

        - `policy`: `"optimal"`, which knows how many steps are left; `"greedy"`, which does not and
            plays what `qvalues(gamma=gamma)` says is best; or `"random"`.
        """
        self._check(num_steps, policy)
        values, start = self._zeros(), 0.0
        for _ in range(num_steps):
            qvalues = self._sweep(values, 1.0 + start, -1.0 + start, -self.env.step_penalty)
            (values,) = self._follow(policy, gamma, qvalues)
            start = float(np.sum(self._start * values))
        return start

    def episode(
        self, num_steps: int = 32, policy: str = "optimal", *, gamma: float = 0.99
    ) -> MonstersEpisode:
        """What one episode brings, that ends or is cut off after `num_steps` steps.

        The optimal policy is that of the largest expected sum of rewards, which knows how many
        steps are left. The others are those of `rollout`.
        """
        self._check(num_steps, policy)
        returns = wins = losses = self._zeros()
        for _ in range(num_steps):
            returns, wins, losses = self._follow(
                policy,
                gamma,
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

    def _solve(self, gamma: float) -> Float[np.ndarray, "classes 5 layouts cells others"]:
        if not 0.0 <= gamma < 1.0:
            raise ValueError(f"MonstersOracle: gamma={gamma}; it must be at least 0 and below 1.")
        if gamma not in self._solved:
            values, qvalues = self._zeros(), np.empty(0)
            # Taken items do not come back. So first come games in which none is left: one that
            # cannot be won any more may go on for long, and these are few.
            # What is still to come is at most a geometric series.
            enough = _TOLERANCE * (1 - gamma) / max(gamma, _TOLERANCE)
            for number in self._items.stages:
                change = np.inf
                while change > enough:
                    known = values[:, :number]
                    qvalues = self._sweep(known, 1.0, -1.0, -self.env.step_penalty, gamma)
                    new = np.max(qvalues, axis=1)
                    change = np.max(np.abs(new - known))
                    values[:, :number] = new
            self._solved[gamma] = qvalues
        return self._solved[gamma]

    def _follow(
        self, policy: str, gamma: float, first: np.ndarray, *others: np.ndarray
    ) -> list[np.ndarray]:
        """Values of states, of values of actions: where `first` is best, or those with gamma, or
        anywhere."""
        if policy != "random":
            lead = first if policy == "optimal" else self._solve(gamma)
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
        """One step: `won` or `lost` at its end, or else `step` and then `gamma * values`.

        The first few layouts are enough.
        """
        number, others = values.shape[1], self.env.distractor
        armed = self._items.armed[:number]
        qvalues = np.full((len(values), len(MOVES), *values.shape[1:]), -np.inf)
        for i, move in np.argwhere(self._open).tolist():
            old = int(self._alike[i])
            new = int(self._near[old, move])
            arrives = np.zeros(values.shape[-1])
            # By what is held, where target and distractor are after their moves.
            landed = values[self._class[new]].ravel()[self._gather[new][:number]] * gamma + step
            landed[:, new, :] = np.where(armed, won, lost)[:, None]
            if others:
                landed[:, :, new] = lost
            if self.env.moving:
                landed = self._to[old] @ landed
            if self.env.moving and others:
                landed = landed @ self._from[old]
                arrives = self._from[old, new]
            # Before their moves: who beat the target may yet meet the distractor.
            after = won + (lost - won) * arrives
            landed[:, new, :] = np.where(armed[:, None], after, lost)
            if others:
                landed[:, :, new] = lost
            qvalues[i, move] = landed[self._items.taken[:number, new]]
        return qvalues

    def _zeros(self) -> Float[np.ndarray, "classes layouts cells others"]:
        return np.zeros(self._start.shape)

    def _starts(self, cells: int) -> Float[np.ndarray, "classes layouts cells others"]:
        """The probability that a game starts in a state, or in one like it."""
        free, apart = self._items.free, ~np.eye(cells, dtype=np.bool_)
        agent = self._count[:, None] * (free[:, self._alike].T & self._items.intact)
        monster = free[None] & apart[self._alike][:, None]
        start = agent[..., None, None] * monster[..., None]
        if self.env.distractor:
            start = start * monster[..., None, :] * apart
        return start / np.sum(start)

    def _turned(self, cell: int) -> Int[np.ndarray, "layouts cells others"]:
        """Where in a table of values an agent at `cell` finds its own."""
        g = self._turn[cell]
        cells = self._turns.cells[g]
        others = cells if self.env.distractor else np.zeros(1, np.int64)
        indices = np.ix_(self._items.turned[g], cells, others)
        return np.ravel_multi_index(np.broadcast_arrays(*indices), self._start.shape[1:])
