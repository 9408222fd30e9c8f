"""What test files share: random play in worlds that hide their state, a test of counts, and a pgx
game of our own, with what pgx's games do not have: truncation and a key in the state."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest
from pgx._src.struct import dataclass
from scipy import stats

from zero_envs import Tag


def play(env: Any, filters: list[Any], key: Any, episodes: int, steps: int) -> Any:
    """Random play: what was done and seen, and what filters made of it, `[episodes, steps, ..]`.
    Where the opponent of Tag is there, it is often tagged."""

    def episode(key):
        init_key, belief_key, key = jr.split(key, 3)
        state = env.init(key=init_key)
        obs = env.observe(state)
        beliefs = [x.init(env, obs, key=jr.fold_in(belief_key, i)) for i, x in enumerate(filters)]

        def step(carry, i):
            state, beliefs = carry
            draw, move, *keys = jr.split(jr.fold_in(key, i), 2 + len(filters))
            action = jr.randint(draw, (), 0, env.num_actions, jnp.int32)
            if isinstance(env, Tag):
                tag = (state.agent == state.opponent) & (i % 2 == 1)
                action = jnp.where(tag, 4, action)
            state, transition = env.step(state, action, key=move)
            obs = env.observe(state)
            both = [
                x.update(env, belief, action, obs, transition.last, key=k)
                for x, belief, k in zip(filters, beliefs, keys, strict=True)
            ]
            beliefs = [belief for belief, _ in both]
            seen = {"action": action, "features": obs.features, "last": transition.last}
            return (state, beliefs), (seen, both)

        first = obs.features
        return first, jax.lax.scan(step, (state, beliefs), jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.device_get(jax.jit(jax.vmap(episode))(jr.split(key, episodes)))


def close(counts: Any, odds: Any) -> None:
    """Counts are those of probabilities, but for one in ten million."""
    counts, odds = np.asarray(counts, np.float64), np.asarray(odds, np.float64)
    assert counts[odds == 0].sum() == 0
    some = odds > 0
    assert odds.sum() == pytest.approx(1, abs=1e-5)
    if some.sum() > 1:
        expected = odds[some] / odds[some].sum() * counts.sum()
        assert stats.chisquare(counts[some], expected).pvalue > 1e-7


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
