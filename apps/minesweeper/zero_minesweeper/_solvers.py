"""Agents that follow fixed rules."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from zero_envs import mine_posterior, Observation, Transition
from zero_train import AbstractActor


class BoardActor(AbstractActor[None]):
    """Chooses a cell by the visible board only.

    **Attributes:**

    - `choose`: `(board, *, key) -> cell` for one board `[rows, columns]`, in which hidden cells are
        -1.
    """

    choose: Callable[..., Int[Array, ""]]

    def init(self, state: PyTree[Array]) -> None:
        del state

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], None, None]:
        del state, carry
        choose = lambda board, key: self.choose(board, key=key)
        return jax.vmap(choose)(obs.features["board"], key), None, None

    def advance(
        self, carry: None, action: Any, next_state: PyTree[Array], transition: Transition
    ) -> None:
        del carry, action, next_state, transition


def least_likely(
    board: Int[Array, "rows columns"],
    *,
    num_mines: int,
    tie_break: bool,
    max_states: int = 512,
    key: PRNGKeyArray,
) -> Int[Array, ""]:
    """A cell of the lowest risk by the exact posterior, or `by_rules` if the posterior overflows.

    **Arguments:**

    - `num_mines`: the number of mines on the board.
    - `tie_break`: whether to choose, of cells of equal risk, one with the fewest hidden neighbours,
        which most likely gives information; otherwise a random one.
    - `max_states`: see [`zero_envs.mine_posterior`][].
    """
    hidden = (board < 0).reshape(-1)
    posterior = mine_posterior(board, num_mines, max_states=max_states)
    risk = jnp.where(hidden, posterior.probability.reshape(-1), jnp.inf)
    # Equal up to rounding.
    least = hidden & (risk <= jnp.min(risk) * (1 + 1e-5))
    if tie_break:
        near = jnp.where(least, around(board < 0).reshape(-1), 9)
        least = least & (near == jnp.min(near))
    akey, rkey = jr.split(key)
    cell = _any_of(least, akey)
    return jnp.where(posterior.overflowed, by_rules(board, key=rkey), cell)


# Compiled, for whoever asks for one move at a time.
@jax.jit
def by_rules(board: Int[Array, "rows columns"], *, key: PRNGKeyArray) -> Int[Array, ""]:
    """A cell that a single number proves safe, or else one that no number proves to be a mine."""
    safe, mines = proven(board)
    hidden = (board < 0).reshape(-1)
    rest = hidden & ~mines
    choice = jnp.where(jnp.any(safe), safe, jnp.where(jnp.any(rest), rest, hidden))
    return _any_of(choice, key)


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


def _any_of(mask: Bool[Array, " cells"], key: PRNGKeyArray) -> Int[Array, ""]:
    """A random one of the true entries."""
    score: Float[Array, " cells"] = jr.uniform(key, mask.shape, jnp.float32)
    return jnp.argmax(jnp.where(mask, score, -1.0)).astype(jnp.int32)
