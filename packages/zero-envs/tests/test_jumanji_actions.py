"""Jumanji's actions, numbered or factored: what is legal, what is outside; and the options."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jumanji.environments.logic.minesweeper.generator import UniformSamplingGenerator
from jumanji.environments.logic.minesweeper.reward import DefaultRewardFn
from jumanji.environments.routing.cleaner.env import Cleaner
from jumanji.environments.routing.connector.env import Connector
from jumanji.environments.routing.connector.generator import UniformRandomGenerator
from jumanji.environments.routing.snake.env import Snake
from jumanji.wrappers import MultiToSingleWrapper, Wrapper

from zero_envs import FactoredJumanjiEnvironment, JumanjiEnvironment, JumanjiState


# Three mines on three rows of four.
BOARD = UniformSamplingGenerator(3, 4, 3)


@pytest.fixture(scope="module")
def mines() -> JumanjiEnvironment:
    """A return of 1 says that all safe cells are explored, one of less says which share."""
    share = DefaultRewardFn(1 / 9, 0.0, 0.0)
    return JumanjiEnvironment("Minesweeper-v0", generator=BOARD, reward_function=share)


def _step(env: Any) -> Any:
    return jax.jit(lambda state, action: env.step(state, action, key=jr.key(0)))


def _start(env: Any, seed: int = 0) -> Any:
    return jax.jit(lambda: env.init(key=jr.key(seed)))()


def _same(state: JumanjiState, other: JumanjiState) -> None:
    jax.tree.map(np.testing.assert_array_equal, state, other)


def _with_mask(state: JumanjiState, mask: Any) -> JumanjiState:
    return eqx.tree_at(lambda s: s.observation.action_mask, state, jnp.asarray(mask, jnp.bool_))


def test_the_share_explored_is_the_return(mines: JumanjiEnvironment):
    """All safe cells are worth 1; a mine instead of the last one leaves it at 8 of 9, although
    then as many cells are open."""
    start, step = _start(mines), _step(mines)
    hidden = np.asarray(mines.raw(start).flat_mine_locations).tolist()
    safe = [cell for cell in range(12) if cell not in hidden]
    assert (mines.num_actions, len(safe)) == (12, 9)
    for cells, share in ((safe, 1.0), ([*safe[:8], hidden[0]], 8 / 9)):
        state, rewards, lasts = start, [], []
        for cell in cells:
            state, transition = step(state, jnp.int32(cell))
            rewards.append(float(transition.reward))
            lasts.append(bool(transition.last))
        assert lasts == [False] * (len(cells) - 1) + [True]
        assert (np.asarray(mines.raw(state).board) >= 0).sum() == 9
        np.testing.assert_allclose(sum(rewards), share, rtol=1e-6)


def test_an_action_outside_is_an_error_and_traced_it_is_none(mines: JumanjiEnvironment):
    """Jumanji pays for a cell beyond the board, and writes to one before it."""
    several = mines.factored
    state = _start(mines)
    over = eqx.tree_at(lambda s: s.over, state, jnp.bool_(True))
    for env, actions in (
        (mines, [12, -1, 2**31 - 1]),
        (several, [[3, 1], [1, 4], [-1, -1], [0, 12]]),
    ):
        step = _step(env)
        for action in actions:
            with pytest.raises(ValueError, match=r"Minesweeper: .*is outside.* must be from 0 to"):
                env.step(state, jnp.asarray(np.asarray(action, np.int32)), key=jr.key(0))
            for before in (state, over):
                after, transition = step(before, np.asarray(action, np.int32))
                _same(after, before)
                assert transition.reward == 0
                assert float(transition.discount) == (not before.over)
                assert transition.last == before.over
    with pytest.raises(ValueError, match=r"\[1, 2, 3\] has 3 components; it must have 2"):
        several.step(state, jnp.asarray(np.asarray([1, 2, 3], np.int32)), key=jr.key(0))
    both = _step(mines)(state, np.int32(7)), _step(several)(state, np.asarray([1, 3], np.int32))
    _same(both[0][0], both[1][0])


def test_of_a_joint_mask_each_value_is_legal_that_a_legal_action_has(mines: JumanjiEnvironment):
    """Which allows combinations that are not."""
    state, several = _start(mines), mines.factored
    observe = [jax.jit(env.observe) for env in (mines, several)]
    assert several.num_values == (3, 4)
    for cells in ([(0, 1), (2, 3)], [(1, 1)], []):
        mask = np.zeros((3, 4), np.bool_)
        mask[tuple(np.array(cells, np.int32).reshape(-1, 2).T)] = True
        at = _with_mask(state, mask)
        some = mask if mask.any() else ~mask
        np.testing.assert_array_equal(observe[0](at).legal, some.ravel())
        expected = np.concatenate([some.any(axis=1), some.any(axis=0)])
        np.testing.assert_array_equal(observe[1](at).legal, expected)


def test_rows_of_a_mask_are_joined_or_kept():
    """A joint action is legal exactly where each part is; a row of nothing forbids nothing, and
    the other rows stand."""
    joint = JumanjiEnvironment(Cleaner())
    state, observe = _start(joint), [jax.jit(env.observe) for env in (joint, joint.factored)]
    first = np.asarray(state.observation.action_mask)
    assert 0 < first.sum() < 12
    stuck = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]], np.bool_)
    for mask, rows in ((first, first), (stuck, stuck | [[True], [False], [False]])):
        at = _with_mask(state, mask)
        parts = itertools.product(range(4), repeat=3)
        legal = [rows[[0, 1, 2], list(part)].all() for part in parts]
        np.testing.assert_array_equal(observe[0](at).legal, legal)
        np.testing.assert_array_equal(observe[1](at).legal, rows.ravel())


def test_values_beyond_a_mask_are_illegal():
    """`MultiCVRP` allows its vehicles, by the bounds of its actions, a place more than there is."""
    env = FactoredJumanjiEnvironment("MultiCVRP-v0")
    state = _start(env)
    legal = np.asarray(jax.jit(env.observe)(state).legal).reshape(2, 22)
    assert env.num_values == (22, 22)
    np.testing.assert_array_equal(legal[:, :21], state.observation.action_mask)
    assert not legal[:, 21].any() and legal.any()
    with pytest.raises(ValueError, match=r"mask has the shape \(2, 23\) for actions of \(22, 22\)"):
        env.observe(_with_mask(state, np.ones((2, 23))))


def test_options_are_those_of_the_environment():
    """A generator and a reward by a plain function; what the id stands for is kept."""
    corner = lambda state, action: jnp.asarray(action.sum() == 0, jnp.float32) * state.board.size
    env = JumanjiEnvironment("Minesweeper-v0", generator=BOARD, reward_function=corner)
    state, step = _start(env), _step(env)
    paid = [float(step(state, np.int32(cell))[1].reward) for cell in (0, 5)]
    assert (paid, env.hidden) == ([12.0, 0.0], True)
    cube = JumanjiEnvironment("RubiksCube-partly-scrambled-v0", time_limit=3)
    assert cube.max_steps == 3
    assert cube.env.generator.num_scrambles_on_reset == 7


def test_other_options_are_refused():
    """One line with those that there are."""
    for call, message in (
        (
            lambda: JumanjiEnvironment("Minesweeper-v0", reward_fn=None, generator=BOARD),
            r'"Minesweeper-v0", reward_fn\): Minesweeper takes generator, reward_function, done_',
        ),
        (
            lambda: FactoredJumanjiEnvironment("Snake-v1", generator=None),
            r"Snake takes num_rows, num_cols, time_limit, viewer; for anything else .*Wrapper",
        ),
        (
            lambda: JumanjiEnvironment(Snake(4, 4), time_limit=3),
            "<Snake>, time_limit.*options belong to a name",
        ),
    ):
        with pytest.raises(ValueError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


class Hungry(Wrapper):
    """Pays for living, where Jumanji takes no reward function."""

    def step(self, state: Any, action: Any) -> Any:
        after: Any
        state, after = self._env.step(state, action)
        return state, after.replace(reward=after.reward + 0.5)


class Noisy(Wrapper):
    """Pays by chance."""

    def step(self, state: Any, action: Any) -> Any:
        after: Any
        state, after = self._env.step(state, action)
        return state, after.replace(reward=after.reward + jr.normal(state.key))


def test_wrappers_are_played_as_what_they_wrap():
    """Agents' rewards added up, or a reward of one's own; the limit within stays a truncation."""
    two = Connector(generator=UniformRandomGenerator(5, 2), time_limit=3)
    both = JumanjiEnvironment(MultiToSingleWrapper(two))
    hungry = JumanjiEnvironment(Hungry(Snake(6, 6, time_limit=3)), hidden=False)
    with pytest.raises(ValueError, match="<Hungry>.*pass hidden=True or False"):
        JumanjiEnvironment(Hungry(Snake(6, 6)))
    with pytest.raises(ValueError, match="<Hungry>.*pass hidden=True or False"):
        JumanjiEnvironment(MultiToSingleWrapper(Hungry(two)))
    drawn = JumanjiEnvironment(MultiToSingleWrapper(Noisy(two)), hidden=False)
    assert drawn.random and not both.random
    assert (both.num_actions, both.factored.num_values, two.time_limit) == (25, (5, 5), 3)
    for env, paid in ((both, 2 * -0.03), (hungry, 0.5)):
        state, step, observe = _start(env, 3), _step(env), jax.jit(env.observe)
        assert env is both or observe(state).features.shape == (6, 6, 5)
        for left in (2, 1, 0):
            action = np.argmax(np.asarray(observe(state).legal)).astype(np.int32)
            state, transition = step(state, action)
            assert (transition.last, transition.discount) == (left == 0, 1)
            np.testing.assert_allclose(transition.reward, paid, rtol=1e-6)
