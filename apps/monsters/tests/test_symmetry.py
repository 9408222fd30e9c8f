"""The eight symmetries: what a window becomes is what the turned world would have shown.

Where a cell or a move is turned to is worked out here from coordinates alone.
"""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from zero_envs import Monsters, MonstersState
from zero_monsters._build import build_loop
from zero_monsters._config import Config
from zero_nets import BoardSymmetries
from zero_train import Experience, PlanRecord

from .positions import played


VECTORS = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)]  # stay, up, down, left, right
SIDE = 4
SYMMETRIES: Any = build_loop(Config()).augment


def turn(x: int, y: int, index: int) -> tuple[int, int]:
    """Around the origin, `y` growing downwards: mirrored first, then turned counterclockwise."""
    x = -x if index >= 4 else x
    for _ in range(index % 4):
        x, y = y, -x
    return x, y


def new_moves(index: int) -> np.ndarray:
    return np.asarray([VECTORS.index(turn(*vector, index)) for vector in VECTORS])


def turned_states(states: MonstersState, index: int) -> MonstersState:
    cells = np.empty(SIDE**2 + 1, np.int16)
    for cell in range(SIDE**2):
        # Twice the distance from the middle, so that it is whole.
        x, y = turn(2 * (cell % SIDE) - SIDE + 1, 2 * (cell // SIDE) - SIDE + 1, index)
        cells[cell] = (x + SIDE - 1) // 2 + SIDE * ((y + SIDE - 1) // 2)
    cells[-1] = -1  # who is gone stays so
    return eqx.tree_at(lambda s: s.pieces, states, cells[states.pieces])


@ft.cache
def futures(moving: bool):
    """`futures(moving)(states)`: of each action and outcome the odds, the state and what it
    brings, `[states, actions, outcomes]`."""
    env = Monsters(moving=moving)
    actions, outcomes = (jnp.arange(n, dtype=jnp.int32) for n in (5, env.num_outcomes))

    def one(state, action):
        after = env.afterstate(state, action)
        odds = jnp.exp(env.outcome_logits(after))
        return odds, *jax.vmap(lambda outcome: env.resolve(after, outcome))(outcomes)

    return jax.jit(jax.vmap(lambda s: jax.vmap(lambda a: one(s, a))(actions)))


@pytest.mark.parametrize("moving", [True, False])
def test_the_world_has_all_eight(moving):
    """A turned move in a turned state has the turned outcomes, exactly as likely."""
    states = played(Monsters(moving=moving), games=40, steps=6)
    odds, after, transition = jax.device_get(futures(moving)(states))
    # Else little would be compared.
    assert np.mean(np.sum(odds > 0, axis=-1)) > 4 if moving else np.all(odds == 1)
    for index in range(8):
        here = futures(moving)(turned_states(states, index))
        moves = new_moves(index)
        pairs = (5 * moves[:, None] + moves).reshape(-1) if moving else np.asarray([0])
        at = lambda x: np.asarray(x)[:, moves][:, :, pairs]  # noqa: B023
        np.testing.assert_allclose(at(here[0]), odds, atol=1e-6)
        expected = turned_states(after, index), transition
        for x, y in zip(jax.tree.leaves(here[1:]), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(at(x), y)


@pytest.fixture(scope="module", params=["planes", "tokens"])
def window(request):
    """What was seen, done and planned in some states, and the states."""
    env = Monsters(observation=request.param)
    states = played(env, games=10, steps=6)
    rng = np.random.default_rng(0)
    obs = jax.device_get(jax.jit(jax.vmap(env.observe))(states))
    assert obs.legal is not None
    weights = rng.uniform(size=obs.legal.shape) * obs.legal
    number = len(states.time)
    rows = Experience(
        obs=jax.device_put(obs),
        action=jnp.asarray(np.argmax(weights, axis=1), jnp.int32),
        reward=jnp.asarray(rng.normal(size=number), jnp.float32),
        discount=jnp.ones(number, jnp.float32),
        last=jnp.asarray(states.over),
        record=PlanRecord(
            weights=jnp.asarray(weights / weights.sum(axis=1, keepdims=True), jnp.float32),
            value=jnp.asarray(rng.normal(size=number), jnp.float32),
        ),
    )
    return env, states, jax.device_get(rows)


#: What is seen in states of an environment, and a window turned by one of the symmetries.
observed = eqx.filter_jit(lambda env, states: jax.vmap(env.observe)(states))
turned = eqx.filter_jit(lambda symmetries, rows, index: symmetries.turned(rows, index))


def check(window, symmetries=SYMMETRIES) -> None:
    env, states, rows = window
    for index in range(8):
        found, moves = turned(symmetries, rows, np.int32(index)), new_moves(index)
        back = np.argsort(moves)
        expected = eqx.tree_at(
            lambda w: (w.obs, w.action, w.record.weights),
            rows,
            (
                observed(env, turned_states(states, index)),
                moves[rows.action],
                rows.record.weights[:, back],
            ),
        )
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(x, y)
        assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, rows)


def test_a_window_becomes_what_the_turned_world_shows(window):
    check(window)


@pytest.mark.parametrize("wrong", [[4, 7, 1, 3, 5], [4, 1, 7, 5, 3], [4, 3, 5, 1, 7]])
def test_moves_that_do_not_turn_with_the_board_are_noticed(window, wrong):
    """Up and down, or left and right, the wrong way round; or along the other axis."""
    places = tuple(divmod(cell, 3) for cell in wrong)
    with pytest.raises(AssertionError):
        check(window, BoardSymmetries(SIDE, SIDE, 5, places))


def test_each_is_drawn_as_often_and_for_the_whole_window(window):
    _, _, rows = window
    draw = jax.jit(jax.vmap(lambda key: SYMMETRIES(rows, key=key).obs.features))
    drawn = jax.device_get(draw(jr.split(jr.key(0), 400)))
    found = []
    for index in range(8):
        of_one = jax.tree.leaves(turned(SYMMETRIES, rows, np.int32(index)).obs.features)
        same = [
            np.all(x == np.asarray(y), axis=tuple(range(1, x.ndim)))
            for x, y in zip(jax.tree.leaves(drawn), of_one, strict=True)
        ]
        found.append(int(np.all(same, axis=0).sum()))
    assert sum(found) == 400
    assert stats.chisquare(found).pvalue > 1e-3
