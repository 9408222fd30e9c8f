"""A pgx game of our own, with what pgx's games do not have: truncation and a key in the state."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import pgx
from pgx._src.struct import dataclass


@dataclass
class MovingState(pgx.State):
    current_player: Any
    observation: Any
    rewards: Any
    terminated: Any
    truncated: Any
    legal_action_mask: Any
    _step_count: Any
    _die: Any
    _rng_key: Any

    @property
    def env_id(self) -> Any:
        return "moving"


class MovingGame(pgx.Env):
    """Two players throw a die in turn, drawn from the key in the state; truncated after 5."""

    def __init__(self, typed: bool):
        super().__init__()
        self.typed = typed

    def _init(self, key):
        return MovingState(
            current_player=jnp.int32(0),
            observation=jnp.zeros(3, jnp.float32),
            rewards=jnp.zeros(2, jnp.float32),
            terminated=jnp.bool_(False),
            truncated=jnp.bool_(False),
            legal_action_mask=jnp.ones(2, jnp.bool_),
            _step_count=jnp.int32(0),
            _die=jnp.int32(0),
            _rng_key=jr.wrap_key_data(key) if self.typed else key,
        )

    def _step(self, state, action, key):
        del action, key
        return state.replace(
            current_player=1 - state.current_player,
            truncated=state._step_count >= 5,
            _die=jr.randint(state._rng_key, (), 0, 6, jnp.int32),
        )

    def _observe(self, state: Any, player_id):
        del player_id
        return jnp.float32([0, 1, 2]) * state._die

    @property
    def id(self) -> Any:
        return "moving"

    @property
    def version(self):
        return "v0"

    @property
    def num_players(self):
        return 2
