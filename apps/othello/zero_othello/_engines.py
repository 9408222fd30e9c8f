"""Opponents without training, for measuring a trained player."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Int32, Key, PyTree

from zero_app import HostActor, uct
from zero_envs import AbstractDiscreteEnvironment, Observation
from zero_search import sample_action
from zero_train import AbstractActor, AbstractReflexActor, RandomActor


_QUADRANT = np.array([
    [100, -20, 10, 5],
    [-20, -50, -2, -2],
    [10, -2, -1, -1],
    [5, -2, -1, -1],
], np.int32)  # fmt: skip

#: The square weights of `positional`, from van Eck and van Wezel, "Application of reinforcement
#: learning to the game of Othello", Computers & Operations Research 35, 2008. Corners can never be
#: flipped, and a disc beside a corner often lets the opponent take it.
SQUARE_WEIGHTS = np.block(
    [[_QUADRANT, _QUADRANT[:, ::-1]], [_QUADRANT[::-1], _QUADRANT[::-1, ::-1]]]
)


class SquareActor(AbstractReflexActor):
    """Maximises the sum of the square weights of its discs minus the opponent's after one ply.

    With equal weights it plays the move that flips the most discs: `f` flips change the sum by
    `2 f + 1`. Ties are broken uniformly at random. Its record is `None`.

    **Attributes:**

    - `env`: Othello. Its features are `[8, 8, 2]`: the discs of the player to move, then the
        opponent's.
    - `weights`: the weight of a disc on each square.
    """

    env: AbstractDiscreteEnvironment
    weights: Int32[Array | np.ndarray, "8 8"]

    def _scores(self, state: PyTree[Array]) -> Int32[Array, " actions"]:
        def after(action: Int[Array, ""]) -> Int32[Array, ""]:
            # Othello is deterministic, so the key does not matter.
            board, _ = self.env.step(state, action, key=jr.key(0))
            discs = self.env.observe(board).features.astype(jnp.int32)
            # The opponent is to move after the action, so the player's own discs come second.
            return jnp.sum(self.weights * (discs[..., 1] - discs[..., 0]))

        return jax.vmap(after)(jnp.arange(self.env.num_actions, dtype=jnp.int32))

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], None, None]:
        del carry
        assert obs.legal is not None  # the actions are discrete
        scores = jax.vmap(self._scores)(state)
        scores = jnp.where(obs.legal, scores, jnp.iinfo(jnp.int32).min)
        best = scores == jnp.max(scores, axis=-1, keepdims=True)
        return sample_action(best.astype(jnp.float32), 1.0, key=key), None, None


def opponent(name: str, env: Any) -> AbstractActor:
    """An opponent by name: a `random` legal move, the `greedy` one that flips the most discs, the
    `positional` one with the largest sum of `SQUARE_WEIGHTS` after one ply, and `uct` with 200
    playouts a move. On the host, with the extra `judges`, `uct-N` has N playouts, and
    `alpha-beta-N` the largest such sum after N plies, and from 12 empty squares on the best score.
    Ties are broken at random."""
    kind, _, number = name.rpartition("-")
    if kind:
        from ._host import AlphaBeta, play_uct

        number = int(number)
        return HostActor(ft.partial(play_uct, number) if kind == "uct" else AlphaBeta(number))
    if name == "random":
        return RandomActor()
    if name == "uct":
        return uct(env)
    weights = {"greedy": np.ones((8, 8), np.int32), "positional": SQUARE_WEIGHTS}
    return SquareActor(env, weights[name])
