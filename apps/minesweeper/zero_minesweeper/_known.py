"""Known results for the default board, 10 x 10 with 10 mines."""

from zero_envs import Minesweeper


#: Win rates and returns, measured elsewhere or computed; for `belief` those of the best
#: hand-written solver.
KNOWN = {
    "random": (0.0, 8.18),
    "rules": (0.747, 71.7),
    "minprob": (0.8127, 74.20),
    "tiebreak": (0.857, 78.0),
    "hindsight-8": (0.190, 24.1),
    "hindsight-32": (0.577, 56.3),
    "hindsight-128": (0.809, 73.9),
    "belief": (0.857, 78.0),
}
#: Upper bounds of both without observing the mines, by exact expectimax over optimistic positions.
BOUND = (0.8711, 78.43)


def is_usual(env: Minesweeper) -> bool:
    """Whether these results apply to `env`."""
    return (env.rows, env.columns, env.num_mines) == (10, 10, 10)
