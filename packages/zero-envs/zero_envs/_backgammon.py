"""Backgammon of pgx with known odds of its dice."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    AbstractChanceEnvironment,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._foreign import default_numerics, import_or_explain, raw_key
from ._pgx import PgxEnvironment, PgxState


# The 21 rolls, the smaller die first. pgx numbers the faces of a die from 0.
_ROLLS = np.stack(np.triu_indices(6), axis=1).astype(np.int32)
# The number of each roll of two dice.
_NUMBERS = np.zeros((6, 6), np.int32)
_NUMBERS[*_ROLLS.T] = _NUMBERS[*_ROLLS.T[::-1]] = np.arange(len(_ROLLS))
_LOG_ODDS = np.log(np.where(_ROLLS[:, 0] == _ROLLS[:, 1], 1 / 36, 1 / 18)).astype(np.float32)


class BackgammonAfterstate(eqx.Module):
    """The state after the move of one checker and before the roll.

    **Attributes:**

    - `position`: pgx's own state, in which also the legal actions are `None`. After a move that
        ended the turn it is that of the opponent, whose dice are -1.
    - `transition`: what `resolve` returns, which does not depend on the roll.
    - `rolls`: whether the turn ended, so that the dice are rolled.
    """

    position: Any
    transition: Transition
    rolls: Bool[Array, "*axes"]


class Backgammon(AbstractChanceEnvironment[PgxState]):
    """pgx's `backgammon` with known chance probabilities.

    An action moves one checker by one die, and ends the turn where nothing can move. When a turn
    ends, the opponent's dice are rolled: the 21 outcomes are the rolls without order, of which a
    double has probability 1/36 and another one 1/18. Within a turn, after a win and after the end
    outcome 0 has probability 1 and nothing is rolled.

    `step` is that of [`zero_envs.PgxEnvironment`][] with the same roll for the same `key`: a player
    may move several times in a row, with discount 1, a win pays 1, a gammon 2 and a backgammon 3,
    and an illegal action pays -3 and ends the game. Only the order of the dice in the state
    differs: after a roll the smaller one comes first. No rule depends on it. As in pgx, a
    backgammon is a gammon with a checker of the loser in the winner's home board; one on the bar
    does not count.
    """

    _pgx: PgxEnvironment = eqx.field(
        init=False, repr=False, default_factory=lambda: PgxEnvironment("backgammon")
    )
    num_actions: int = eqx.field(init=False, default=156)
    num_outcomes: int = eqx.field(init=False, default=len(_ROLLS))
    num_players: int = eqx.field(init=False, default=2)
    hidden: bool = eqx.field(init=False, default=False)

    @property
    def max_return(self) -> float:
        """3, that of a backgammon; the smallest return is -3."""
        return self._pgx.max_return

    def init(self, *, key: PRNGKeyArray) -> PgxState:
        """Draws who begins, and a first roll of two different dice, in pgx's order."""
        return self._pgx.init(key=key)

    def afterstate(self, state: PgxState, action: Int[Array, ""]) -> BackgammonAfterstate:
        """Moves a checker."""
        action = checked_action(self, action)
        check_state(self, state.position._board, 1)
        # Whatever this key rolls is removed below, and so is the need to compute it.
        after, transition = self._pgx.step(state, action, key=jr.key(0))
        position = after.position
        rolls = position.current_player != state.position.current_player
        position = position.replace(
            legal_action_mask=None,
            _dice=jnp.where(rolls, -1, position._dice),
            _playable_dice=jnp.where(rolls, -1, position._playable_dice),
        )
        return BackgammonAfterstate(position, transition, rolls)

    def outcome_logits(self, afterstate: BackgammonAfterstate) -> Float[Array, " outcomes"]:
        """The log-probabilities of the rolls."""
        first = jnp.arange(self.num_outcomes, dtype=jnp.int32) == 0
        nothing = jnp.where(first, jnp.float32(0), -jnp.inf)
        return jnp.where(afterstate.rolls, jnp.asarray(_LOG_ODDS), nothing)

    def resolve(
        self, afterstate: BackgammonAfterstate, outcome: Int[Array, ""]
    ) -> tuple[PgxState, Transition]:
        """Rolls the dice, if the turn ended."""
        rules, position = _rules(), afterstate.position
        rolled = jnp.asarray(_ROLLS)[outcome]
        with default_numerics("pgx/backgammon"):
            playable = rules._set_playable_dice(rolled)
            playable = jnp.where(afterstate.rolls, playable, position._playable_dice)
            legal = rules._legal_action_mask(position._board, playable)
        position = position.replace(
            legal_action_mask=legal | position.terminated,
            _dice=jnp.where(afterstate.rolls, rolled, position._dice),
            _playable_dice=playable,
        )
        return PgxState(position), afterstate.transition

    def step(
        self, state: PgxState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[PgxState, Transition]:
        """Moves a checker and, if that ends the turn, rolls the dice."""
        with default_numerics("pgx/backgammon"):
            first, second = _rules()._roll_dice(raw_key(key))
        outcome = jnp.asarray(_NUMBERS)[first, second]
        return self.resolve(self.afterstate(state, action), outcome)

    def observe(self, state: PgxState) -> Observation:
        """pgx's observation `[34]`, from the view of the player to move: the checkers on the 24
        points, on both bars and off the board, the opponent's below 0, and how many dice of each
        number can be played. In a final state every action is legal."""
        check_state(self, state.position._board, 1)
        return self._pgx.observe(state)

    def raw(self, state: PgxState) -> Any:
        """pgx's own state with its observation, for pgx's tools; its rewards are 0."""
        return self._pgx.raw(state)

    def render(self, state: PgxState, *, scale: float = 1.0) -> str:
        return self._pgx.render(state, scale=scale)


def _rules() -> Any:
    """pgx's functions, which are imported late, because that takes seconds."""
    return import_or_explain("pgx.backgammon", "Backgammon")
