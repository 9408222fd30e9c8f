"""Sokoban's random levels, by a reading of Jumanji's grids and by playing their solutions."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import JumanjiEnvironment, SokobanGenerator


LEVELS = 64


def _reachable(floor: np.ndarray, start: tuple[int, int]) -> set[tuple[int, int]]:
    seen, stack = {start}, [start]
    while stack:
        i, j = stack.pop()
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if floor[cell] and cell not in seen:
                seen.add(cell)
                stack.append(cell)
    return seen


def test_levels_are_complete_and_their_solutions_solve_them():
    """A wall around, no cell out of reach, four boxes off four targets; and Jumanji calls the end
    of the solution one, and pays for it."""
    env = JumanjiEnvironment("Sokoban-v0")

    def solve(key: Any) -> Any:
        start = env.init(key=key)
        # The adapter gives the generator the first half of the key.
        solution = env.env.generator.level(jr.split(jr.key_data(key))[0]).solution

        def play(state: Any, action: Any) -> Any:
            after, transition = env.step(state, jnp.maximum(action, 0), key=key)
            after = jax.tree.map(lambda x, y: jnp.where(action < 0, x, y), state, after)
            return after, (transition.reward, transition.discount, transition.last)

        end, steps = jax.lax.scan(play, start, solution)
        return start.position, end.over, solution, *steps

    keys = jr.split(jr.key(0), LEVELS)
    position, over, solution, rewards, discounts, lasts = jax.jit(jax.vmap(solve))(keys)
    fixed, moving = np.asarray(position.fixed_grid), np.asarray(position.variable_grid)
    for i in range(LEVELS):
        floor = fixed[i] != 1
        agent = tuple(np.argwhere(moving[i] == 3)[0].tolist())
        assert agent == tuple(np.asarray(position.agent_location[i]).tolist())
        assert not floor[[0, -1]].any() and not floor[:, [0, -1]].any()
        assert len(_reachable(floor, agent)) == floor.sum()
        assert (moving[i] == 3).sum() == 1
        assert (moving[i] == 4).sum() == (fixed[i] == 2).sum() == 4
        assert not ((moving[i] == 4) & (fixed[i] != 0)).any() and floor[moving[i] > 0].all()
    assert np.asarray(over).all()
    ends = np.argmax(np.asarray(lasts) & (np.asarray(solution) >= 0), axis=1)
    row = np.arange(LEVELS)
    assert (np.asarray(discounts)[row, ends] == 0).all() and (ends < 120).all()
    assert (np.asarray(rewards)[row, ends] > 10).all()
    levels = np.concatenate([fixed.reshape(LEVELS, -1), moving.reshape(LEVELS, -1)], axis=1)
    assert len(np.unique(levels, axis=0)) == LEVELS
    assert len(np.unique(ends)) > LEVELS / 4


@pytest.mark.parametrize("options", [{"num_steps": 39}, {"wall_probability": 0.31}])
def test_what_makes_no_levels_is_refused(options: dict[str, Any]):
    with pytest.raises(ValueError, match="steps must be 40 or more.* from 0 to 0.3") as raised:
        SokobanGenerator(**options)
    assert "\n" not in str(raised.value)
