"""Policies that follow fixed rules, by the visible board only.

Each takes one observation and returns the logits of the cells, which are equal for those that the
rules allow, and the value 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from zero_envs import mine_posterior, Observation


Judged = tuple[Float[Array, " cells"], Float[Array, ""]]


def least_likely(
    obs: Observation, *, num_mines: int, tie_break: bool, max_states: int = 512
) -> Judged:
    """The cells of the lowest risk by the exact posterior, or `by_rules` if the posterior
    overflows. With `tie_break` these are only those of them with the fewest hidden neighbours,
    which most likely give information."""
    board = obs.features["board"]
    hidden = (board < 0).reshape(-1)
    posterior = mine_posterior(board, num_mines, max_states=max_states)
    risk = jnp.where(hidden, posterior.probability.reshape(-1), jnp.inf)
    # Equal up to rounding.
    least = hidden & (risk <= jnp.min(risk) * (1 + 1e-5))
    if tie_break:
        near = jnp.where(least, around(board < 0).reshape(-1), 9)
        least = least & (near == jnp.min(near))
    return _any_of(jnp.where(posterior.overflowed, _allowed(board), least))


def by_rules(obs: Observation) -> Judged:
    """The cells that a single number proves safe, or else those that no number proves to be
    mines."""
    return _any_of(_allowed(obs.features["board"]))


# Compiled, for whoever asks for one move at a time.
@jax.jit
def _allowed(board: Int[Array, "rows columns"]) -> Bool[Array, " cells"]:
    safe, mines = proven(board)
    hidden = (board < 0).reshape(-1)
    rest = hidden & ~mines
    return jnp.where(jnp.any(safe), safe, jnp.where(jnp.any(rest), rest, hidden))


def proven(
    board: Int[Array, "rows columns"],
) -> tuple[Bool[Array, " cells"], Bool[Array, " cells"]]:
    """Masks of the hidden cells that single numbers prove safe, and of those proven to be mines.

    If a number has as many hidden neighbours as mines, all of them are mines. If all mines of a
    number are known, its other neighbours are safe.
    """
    board = board.astype(jnp.int32)
    hidden = board < 0
    full = ~hidden & (around(hidden) == board)
    mines = hidden & (around(full) > 0)
    done = ~hidden & (around(mines) == board)
    return (hidden & ~mines & (around(done) > 0)).reshape(-1), mines.reshape(-1)


@jax.jit
def around(cells: Bool[Array, "rows columns"]) -> Int[Array, "rows columns"]:
    """The number of neighbours of each cell that are in `cells`."""
    padded = jnp.pad(cells.astype(jnp.int32), 1)
    rows, columns = cells.shape
    parts = [padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return sum(parts, jnp.zeros(cells.shape, jnp.int32)) - cells.astype(jnp.int32)


def _any_of(cells: Bool[Array, " cells"]) -> Judged:
    return jnp.where(cells, 0.0, -jnp.inf), jnp.zeros((), jnp.float32)
