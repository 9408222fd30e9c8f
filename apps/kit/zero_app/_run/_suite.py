"""Positions whose every move has a known score, and how a player does in them."""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree

from zero_envs import AbstractDiscreteEnvironment, Observation
from zero_train import AbstractActor, score_interval

from .._command._config import AbstractConfig
from .._command._errors import UsageError
from ._app import App
from ._lines import RunError
from ._measures import plus_minus


#: The score of an illegal move.
ILLEGAL = -128


@dataclasses.dataclass(frozen=True)
class Suite:
    """Positions of a game of two without chance, with the exact score of every move.

    **Attributes:**

    - `moves`: of each position the actions from the start of the game, then -1.
    - `scores`: of each position what every action leads to if both play perfectly from then on, as
        the player to move sees it: more than 0 for a win, 0 for a draw, less for a loss, and -128
        for an illegal action.
    """

    moves: Int[np.ndarray, "positions plies"]
    scores: Int[np.ndarray, "positions actions"]

    def __post_init__(self) -> None:
        fits = self.moves.max(initial=0) < 2**15 and self.scores.max(initial=0) <= -ILLEGAL - 1
        fits = fits and self.moves.min(initial=0) >= -1 and self.scores.min(initial=0) >= ILLEGAL
        if not (fits and len(self.moves) == len(self.scores) > 0):
            raise ValueError(
                f"a suite of {len(self.moves)} positions and {len(self.scores)} rows of scores was "
                "given; give as many of both, actions below 32768 and scores from -127 to 127."
            )
        if not (self.scores > ILLEGAL).any(axis=1).all():
            raise ValueError("a suite has a position without a legal move; leave it out.")

    @staticmethod
    def of(
        positions: Sequence[tuple[Sequence[int], Mapping[int, int]]], num_actions: int
    ) -> "Suite":
        """A suite of positions, each by the actions from the start of the game and by the scores of
        its legal actions."""
        plies = max((len(actions) for actions, _ in positions), default=0)
        moves = np.full((len(positions), plies), -1, np.int32)
        scores = np.full((len(positions), num_actions), ILLEGAL, np.int32)
        for i, (actions, known) in enumerate(positions):
            moves[i, : len(actions)] = actions
            scores[i, [*known]] = [*known.values()]
        return Suite(moves, scores)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "Suite":
        """Reads what `write` wrote.

        **Raises:** [`zero_app.RunError`][] for other files, and `OSError` without one.
        """
        try:
            with open(path, "rb") as file, np.load(file) as stored:
                return Suite(stored["moves"].astype(np.int32), stored["scores"].astype(np.int32))
        except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as e:
            raise RunError(f"{path} is no suite of positions ({str(e)[:100]}).") from e

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of NumPy's, compressed."""
        moves, scores = self.moves.astype(np.int16), self.scores.astype(np.int8)
        with open(path, "wb") as file:
            np.savez_compressed(file, moves=moves, scores=scores)

    def measure(
        self, env: AbstractDiscreteEnvironment, player: AbstractActor, *, key: PRNGKeyArray
    ) -> dict[str, Any]:
        """How well a player moves in the positions.

        **Returns:** in plain numbers the `positions`, and with 95 % intervals by Wilson, which end
        in `_low` and `_high`, the share of moves that are `best` and of those that have `kept` the
        result: the sign of the best score. `loss_mean` is by how much moves are worse than the
        best, and `loss_se` its standard error.
        """
        keys = jr.split(key, len(self.moves))
        fits, state, obs, carry = _reached(env, player, jnp.asarray(self.moves, jnp.int32))
        if not (np.all(fits) and np.array_equal(np.asarray(obs.legal), self.scores > ILLEGAL)):
            raise ValueError(
                "the suite is of another game: its moves, or those it scores, are illegal"
            )
        action = np.asarray(_act(player, state, obs, carry, keys))
        if not np.all((action >= 0) & (action < env.num_actions)):
            raise ValueError(
                "the player's action was NaN or out of the environment's range: look at the "
                "network's parameters"
            )
        best = self.scores.max(axis=1)
        score = np.take_along_axis(self.scores, action[:, None], axis=1)[:, 0]
        row: dict[str, Any] = {"positions": len(best)}
        for name, good in ("best", score == best), ("kept", np.sign(score) == np.sign(best)):
            low, high = score_interval(good[:, None].astype(float))
            row |= {name: float(good.mean()), f"{name}_low": low, f"{name}_high": high}
        loss = best - score
        error = float(loss.std(ddof=1) / np.sqrt(len(loss))) if len(loss) > 1 else float("nan")
        return row | {"loss_mean": float(loss.mean()), "loss_se": error}


def asked_suites(
    app: App[Any], config: AbstractConfig, name: str, game: str
) -> dict[str, pathlib.Path]:
    """The files of the suites of a name, or `all` of them, by their names. A game that has none of
    the name raises a [`zero_app.UsageError`][]."""
    folder = app.suites and app.suites / getattr(config, "env", "")
    known = {path.stem: path for path in sorted(folder.glob("*.npz"))} if folder else {}
    if not known:
        raise UsageError(f"--suite {name} was given, and {game} has none; leave --suite out.")
    if name == "all":
        return known
    if name not in known:
        raise UsageError(f"--suite {name} is unknown; give {', '.join(known)} or all.")
    return {name: known[name]}


def suite_sentence(row: dict[str, Any]) -> str:
    """What [`zero_app.Suite.measure`][] found, as a line."""
    share = lambda name: (
        f"{100 * row[name]:.1f} % ({100 * row[f'{name}_low']:.1f} to "
        f"{100 * row[f'{name}_high']:.1f})"
    )
    loss = plus_minus(row["loss_mean"], row["loss_se"], row["positions"])
    return (
        f"best move {share('best')}, result kept {share('kept')}, mean loss {loss} (95 % "
        f"intervals; {row['positions']} positions)"
    )


@eqx.filter_jit
def _reached(
    env: AbstractDiscreteEnvironment, player: AbstractActor, moves: Int[Array, "positions plies"]
) -> tuple[Bool[Array, " positions"], PyTree[Array], Observation, PyTree[Array]]:
    """Whether these moves are legal and end no game, the states after them, what is observed there,
    and the carry of a player."""

    def move(state: Any, action: Int[Array, ""]) -> tuple[Any, Bool[Array, ""]]:
        legal = env.observe(state).legal
        assert legal is not None  # the actions are numbered
        exists = (action >= 0) & (action < legal.shape[0])
        after, told = env.step(state, jnp.where(exists, action, 0), key=jr.key(0))
        state = jax.tree.map(lambda x, y: jnp.where(action < 0, x, y), state, after)
        fits = exists & legal[jnp.where(exists, action, 0)] & ~told.last
        return state, (action < 0) | fits

    start = env.init(key=jr.key(0))
    state, fits = jax.vmap(lambda actions: jax.lax.scan(move, start, actions))(moves)
    return jnp.all(fits, axis=1), state, jax.vmap(env.observe)(state), player.init(state)


# A program of its own: XLA would look long into a search of trees that it knows to be empty.
@eqx.filter_jit
def _act(
    player: AbstractActor,
    state: PyTree[Array],
    obs: Observation,
    carry: PyTree[Array],
    keys: Key[Array, " positions"],
) -> Int[Array, " positions"]:
    return player.act(state, obs, carry, key=keys)[0]
