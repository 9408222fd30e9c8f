"""Every game of pgx as an environment (Koyamada et al., 2023, arXiv:2303.17503)."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ._environment import AbstractDiscreteEnvironment, Observation, Transition
from ._foreign import default_numerics, raw_key, strongly_typed


#: Card games of pgx for two players: the state holds cards that the player to move cannot see.
HIDDEN_GAMES = frozenset({"kuhn_poker", "leduc_holdem"})

#: Games of pgx that need a downloaded data file before they can be constructed.
DOWNLOADED_GAMES = frozenset({"bridge_bidding"})

_KEY_FIELD = "_rng_key"

_MISSING_PGX = (
    "PgxEnvironment needs pgx, which is not installed: install zero-envs with its extra `pgx`."
)
_NEEDS_DATA = (
    'PgxEnvironment("{game}"): this game reads a data file that has to be downloaded first, so it '
    "has no id to make it by; pass the pgx game that you constructed with the file, or one of: "
    "{allowed}."
)
_UNKNOWN = 'PgxEnvironment("{game}"): no such game; allowed: {allowed}.'
_HIDDEN_OR_NOT = (
    'PgxEnvironment(<game "{game}">): not one of pgx\'s own games, so nobody but you knows whether '
    "its state holds what the player to move cannot see; pass hidden=True or hidden=False."
)


class PgxState(eqx.Module):
    """One position of a pgx game.

    **Attributes:**

    - `position`: pgx's own state without what can be derived from it (the observation), what
        belongs to the last step (the rewards) and any PRNG key; those fields are `None`. All
        leaves are arrays whose dtypes never change.
    """

    position: Any


class PgxEnvironment(AbstractDiscreteEnvironment[PgxState]):
    """A pgx game for one or two players.

    With two players the game must be zero-sum, as every game of pgx is: `reward` is the one of the
    player who just acted, and `discount` is -1 exactly where `current_player` changed. An illegal
    action ends the game and costs the one who played it what pgx says (1, in backgammon 3).

    `hidden` is true for card games. Other games keep nothing secret except how chance will fall,
    and that comes from the `key` given to `step`.
    """

    game: Any = eqx.field(static=True)
    num_actions: int
    num_players: int
    hidden: bool
    _carried_key: Any = eqx.field(static=True)

    def __init__(self, game: Any, *, hidden: bool | None = None):
        """**Arguments:**

        - `game`: an id out of `pgx.available_envs()`, for instance `"othello"`, or a `pgx.Env`.
        - `hidden`: whether the state holds what the player to move cannot see. Known for the games
            that come with pgx, to be given for a game of your own.

        **Raises:** `ValueError` for an unknown id, for more than two players and for a game of
        your own without `hidden`; `ImportError` naming the package to install.
        """
        self.game = _make(game) if isinstance(game, str) else game
        self.num_players = int(self.game.num_players)
        if self.num_players > 2:
            raise ValueError(
                f'PgxEnvironment("{self.game.id}"): the game has {self.num_players} players; only '
                "one- and two-player games have a signed discount. Choose another game."
            )
        self.hidden = _is_hidden(self.game.id) if hidden is None else hidden
        with default_numerics():
            state = jax.eval_shape(lambda: self.game.init(raw_key(jax.random.key(0))))
        self.num_actions = int(state.legal_action_mask.shape[-1])
        carried = getattr(state, _KEY_FIELD, None)
        self._carried_key = None if carried is None else carried.dtype

    def init(self, *, key: PRNGKeyArray) -> PgxState:
        """A fresh game; which of pgx's two players moves first is random."""
        with default_numerics():
            return PgxState(_strip(self.game.init(raw_key(key))))

    def step(
        self, state: PgxState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[PgxState, Transition]:
        """Plays `action`; `key` decides what chance does."""
        before = state.position
        restored = _with_rewards(before, self.num_players)
        if self._carried_key is not None:
            key, ckey = jax.random.split(key)
            typed = jnp.issubdtype(self._carried_key, jax.dtypes.prng_key)
            carried = ckey if typed else jax.random.key_data(ckey)
            restored = restored.replace(**{_KEY_FIELD: carried})
        with default_numerics():
            after = self.game.step(restored, action, raw_key(key))
        over = before.terminated | before.truncated
        reward = after.rewards[before.current_player]
        sign = jnp.where(after.current_player == before.current_player, 1.0, -1.0)
        transition = Transition(
            reward=jnp.where(over, 0.0, reward).astype(jnp.float32),
            discount=jnp.where(over | after.terminated, 0.0, sign).astype(jnp.float32),
            last=over | after.terminated | after.truncated,
        )
        return PgxState(_strip(after)), transition

    def observe(self, state: PgxState) -> Observation:
        """pgx's observation, from the view of the player to move, with pgx's shape and dtype.

        In a position that ended the game every action is legal, as filler.
        """
        position = state.position
        with default_numerics():
            features = self.game.observe(position)
        return Observation(features=features, legal=position.legal_action_mask)

    def raw(self, state: PgxState) -> Any:
        """pgx's own state with its observation, for pgx's drawing and other tools.

        Rewards are those of no step: zero.
        """
        position = _with_rewards(state.position, self.num_players)
        with default_numerics():
            return position.replace(observation=self.game.observe(position))

    def render(self, state: PgxState, *, scale: float = 1.0) -> str:
        """The position as an SVG image."""
        with default_numerics():
            return self.raw(state).to_svg(scale=scale)


@ft.cache
def _make(game: str) -> Any:
    """The pgx game of that id, always the same object, so that nothing is traced twice."""
    pgx = _pgx()
    allowed = pgx.available_envs()
    if game not in allowed:
        message = _NEEDS_DATA if game in DOWNLOADED_GAMES else _UNKNOWN
        raise ValueError(message.format(game=game, allowed=", ".join(allowed)))
    with default_numerics():
        return pgx.make(game)


def _is_hidden(game: str) -> bool:
    if game not in _pgx().available_envs():
        raise ValueError(_HIDDEN_OR_NOT.format(game=game))
    return game in HIDDEN_GAMES


def _pgx() -> Any:
    try:
        import pgx
    except ImportError as error:
        raise ImportError(_MISSING_PGX) from error
    return pgx


def _with_rewards(position: Any, num_players: int) -> Any:
    return position.replace(rewards=jnp.zeros(num_players, jnp.float32))


def _strip(position: Any) -> Any:
    """Drops derived fields and keys."""
    position = position.replace(observation=None, rewards=None)
    if hasattr(position, _KEY_FIELD):
        position = position.replace(**{_KEY_FIELD: None})
    return strongly_typed(position)
