"""An n-tuple network of 2048 as an evaluator: planners plan with what was learned on the host."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from zero_envs import Game2048, Game2048Afterstate, Game2048State, Observation
from zero_train import EnvironmentModel


#: The cells of the four 6-tuples of Yeh et al. 2016, "Multistage temporal difference learning for
#: 2048-like games".
TUPLES = (0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8, 9), (0, 1, 2, 4, 5, 6), (4, 5, 6, 8, 9, 10)
#: The entries of the table of a tuple: one for each arrangement of tiles up to `2^15`.
ENTRIES = 16**6


class NTupleNetwork(eqx.Module):
    """The sum of a table's entry for each of four tuples of cells and each of the 8 symmetries of
    the board. Tiles above `2^15` count as `2^15`.

    **Attributes:**

    - `tables`: by tuple; the first cell of a tuple is the lowest of the 6 digits, to base 16, of
        the number of an entry.
    """

    tables: Float[Array, "tuples entries"]

    def __call__(self, board: Int8[Array, " 16"]) -> Float[Array, ""]:
        """The points still to come after a slide, where `board` is what it left."""
        tiles = jnp.minimum(board.astype(jnp.int32), 15)[jnp.asarray(_cells())]
        entry = tiles @ jnp.asarray(16 ** np.arange(6), jnp.int32)
        tuples = jnp.arange(len(TUPLES), dtype=jnp.int32)[:, None]
        return jnp.sum(self.tables[tuples, entry])


class AfterstateEvaluator(eqx.Module):
    """An evaluator of 2048 of values of afterstates.

    A position is worth the most that a slide brings, its points and the value of what it leaves; it
    prefers no action.
    """

    network: NTupleNetwork

    def __call__(self, obs: Observation) -> tuple[Float[Array, " 4"], Float[Array, ""]]:
        board = jnp.argmax(obs.features, axis=-1).reshape(16).astype(jnp.int8)
        state = Game2048State(board, jnp.zeros((), jnp.bool_))
        slide = lambda action: Game2048().afterstate(state, action)
        after = jax.vmap(slide)(jnp.arange(4, dtype=jnp.int32))
        worth = jnp.where(after.illegal, -jnp.inf, jax.vmap(self.afterstate)(after))
        value = jnp.where(jnp.all(after.illegal), 0.0, jnp.max(worth))
        return jnp.zeros(4, jnp.float32), value

    def afterstate(self, after: Game2048Afterstate) -> Float[Array, ""]:
        """The points of the slide and all that are still to come."""
        return after.points + self.network(after.board)


def model_of(network: NTupleNetwork) -> EnvironmentModel:
    """The game with its odds, for planners, its leaves evaluated by the network."""
    evaluator = AfterstateEvaluator(network)
    return EnvironmentModel(Game2048(), evaluator, evaluate_afterstate=evaluator.afterstate)


def _cells() -> np.ndarray:
    """By tuple and symmetry, its cells."""
    board = np.arange(16).reshape(4, 4)
    turned = [np.rot90(x, k).ravel() for x in (board, board.T) for k in range(4)]
    return np.asarray(turned)[:, np.asarray(TUPLES)].swapaxes(0, 1)
