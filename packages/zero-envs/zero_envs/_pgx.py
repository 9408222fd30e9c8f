"""Every game of pgx as an environment (Koyamada et al., 2023, arXiv:2303.17503)."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractDiscreteEnvironment,
    checked_action,
    Observation,
    step_draws,
    Transition,
)
from ._foreign import check_foreign, default_numerics, import_or_explain, raw_key, strongly_typed
from ._known import names_of, PGX_DOWNLOADED, PGX_HIDDEN, PGX_RANDOM, unknown


# The largest returns of those games of two players in which it is not 1.
_MAX_RETURNS = {"backgammon": 3.0, "kuhn_poker": 2.0, "leduc_holdem": 13.0}

_KEY_FIELD = "_rng_key"


class PgxState(eqx.Module):
    """A state of a pgx game.

    **Attributes:**

    - `position`: pgx's own state, in which the observation, the rewards and any PRNG key are
        `None`. All leaves are arrays with fixed dtypes.
    """

    position: Any


class PgxEnvironment(AbstractDiscreteEnvironment[PgxState]):
    """A pgx game for one or two players.

    A two-player game must be zero-sum, as every game of pgx is. `reward` is that of the player who
    just acted, and `discount` is -1 if and only if `current_player` changed. An illegal action
    terminates the game with pgx's penalty for the player (1, in backgammon 3).

    `hidden` is true for card games. In other games only the outcome of chance is unknown, which
    depends on the `key` of `step`.

    `max_return` is the largest return of a game of two players: 1, in backgammon 3, and 1 for games
    that are not pgx's own.
    """

    game: Any = eqx.field(static=True)
    num_actions: int
    num_players: int
    hidden: bool
    _carried_key: Any = eqx.field(static=True)

    def __init__(self, game: Any, *, hidden: bool | None = None):
        """`game` is an id of `pgx.available_envs()`, for instance `"othello"`, or a `pgx.Env`.
        `hidden` says whether the state is only partly observable, and is required for games that
        are not pgx's own."""
        self.game = _make(game) if isinstance(game, str) else game
        check_foreign(
            "PgxEnvironment", self.game, "an id or a pgx.Env", "num_players", "id", "init"
        )
        if not isinstance(hidden, bool | None):
            raise ValueError(f"PgxEnvironment(hidden={hidden!r}): it must be True, False or None.")
        self.num_players = int(self.game.num_players)
        if self.num_players > 2:
            raise ValueError(
                f'PgxEnvironment("{self.game.id}"): the game has {self.num_players} players; only '
                "one- and two-player games have a signed discount. Choose another game."
            )
        self.hidden = _is_hidden(self.game.id) if hidden is None else hidden
        with default_numerics(f"pgx/{self.game.id}"):
            state = jax.eval_shape(lambda: self.game.init(raw_key(jax.random.key(0))))
        self.num_actions = int(state.legal_action_mask.shape[-1])
        carried = getattr(state, _KEY_FIELD, None)
        self._carried_key = None if carried is None else carried.dtype

    @property
    def max_return(self) -> float:
        """See above; the smallest is `-max_return`."""
        return _MAX_RETURNS.get(self.game.id, 1.0)

    @property
    def random(self) -> bool:
        """Whether its steps draw, which tells no odds."""
        return self.game.id in PGX_RANDOM if _is_own(self.game.id) else step_draws(self)

    def init(self, *, key: PRNGKeyArray) -> PgxState:
        """Draws an initial state; which of pgx's two players moves first is random."""
        with default_numerics(f"pgx/{self.game.id}"):
            return PgxState(_strip(self.game.init(raw_key(key))))

    def step(
        self, state: PgxState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[PgxState, Transition]:
        """Takes an action; `key` decides the outcome of chance."""
        action = checked_action(self, action)
        before = state.position
        restored = before.replace(rewards=jnp.zeros(self.num_players, jnp.float32))
        if self._carried_key is not None:
            key, ckey = jax.random.split(key)
            typed = jnp.issubdtype(self._carried_key, jax.dtypes.prng_key)
            carried = ckey if typed else jax.random.key_data(ckey)
            restored = restored.replace(**{_KEY_FIELD: carried})
        with default_numerics(f"pgx/{self.game.id}"):
            after = self.game.step(restored, action, raw_key(key))
        over = before.terminated | before.truncated
        transition = absorbing_transition(
            over,
            after.rewards[before.current_player],
            terminated=after.terminated,
            truncated=after.truncated,
            sign=jnp.where(after.current_player == before.current_player, 1.0, -1.0),
        )
        return PgxState(_strip(after)), transition

    def observe(self, state: PgxState) -> Observation:
        """pgx's observation, from the view of the player to move; https://sotets.uk/pgx/ describes
        that of each game.

        In a final state every action is legal.
        """
        position = state.position
        with default_numerics(f"pgx/{self.game.id}"):
            features = self.game.observe(position)
        return Observation(features=features, legal=position.legal_action_mask)

    def raw(self, state: PgxState) -> Any:
        """pgx's own state with its observation, for pgx's tools; its rewards are 0."""
        position = state.position.replace(rewards=jnp.zeros(self.num_players, jnp.float32))
        with default_numerics(f"pgx/{self.game.id}"):
            return position.replace(observation=self.game.observe(position))

    def render(self, state: PgxState, *, scale: float = 1.0) -> str:
        with default_numerics(f"pgx/{self.game.id}"):
            return self.raw(state).to_svg(scale=scale)


@ft.cache
def _make(game: str) -> Any:
    """Returns the same object for the same id, so that nothing is traced twice."""
    pgx = import_or_explain("pgx", "PgxEnvironment")
    if game in PGX_DOWNLOADED:
        raise ValueError(
            f'PgxEnvironment("{game}"): this game needs a data file that must be downloaded, so it '
            "cannot be made by its id; pass the pgx game that you constructed with the file, or "
            f"one of: {', '.join(names_of('pgx'))}."
        )
    if game not in pgx.available_envs():
        raise unknown("PgxEnvironment", game, names_of("pgx"))
    with default_numerics(f"pgx/{game}"):
        return pgx.make(game)


def _is_own(game: str) -> bool:
    return game in import_or_explain("pgx", "PgxEnvironment").available_envs()


def _is_hidden(game: str) -> bool:
    if not _is_own(game):
        raise ValueError(
            f'PgxEnvironment(<game "{game}">): not one of pgx\'s own games, so it is not known '
            "whether its state is fully observable; pass hidden=True or hidden=False."
        )
    return game in PGX_HIDDEN


def _strip(position: Any) -> Any:
    """Removes derived fields and keys."""
    position = position.replace(observation=None, rewards=None)
    if hasattr(position, _KEY_FIELD):
        position = position.replace(**{_KEY_FIELD: None})
    return strongly_typed(position)
