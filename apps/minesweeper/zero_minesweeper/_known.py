"""What is known of the usual board, 10 x 10 with 10 mines."""

from zero_envs import Minesweeper


#: Wins and return, measured elsewhere or worked out; of `belief` the best hand-written solver's.
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
#: Nobody who does not see the mines does better, by exact expectimax over optimistic positions.
BOUND = (0.8711, 78.43)


def is_usual(env: Minesweeper) -> bool:
    """Whether that holds of it."""
    return (env.rows, env.columns, env.num_mines) == (10, 10, 10)
