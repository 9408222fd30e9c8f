"""The Jumanji adapter against Jumanji itself, and what it keeps apart."""

import itertools
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from jumanji.environments.logic.minesweeper.env import Minesweeper
from jumanji.environments.logic.minesweeper.generator import UniformSamplingGenerator
from jumanji.environments.logic.rubiks_cube.types import Observation as CubeObservation
from jumanji.environments.routing.cleaner.env import Cleaner
from jumanji.environments.routing.lbf.env import LevelBasedForaging
from jumanji.environments.routing.lbf.generator import RandomGenerator
from jumanji.environments.routing.snake.env import Snake
from jumanji.environments.routing.sokoban.env import Sokoban
from jumanji.environments.routing.sokoban.generator import SimpleSolveGenerator
from jumanji.wrappers import AutoResetWrapper, MultiToSingleWrapper

from zero_envs import JumanjiEnvironment


@pytest.fixture(scope="module")
def snake() -> JumanjiEnvironment:
    return JumanjiEnvironment(Snake(4, 4, time_limit=12))


@pytest.mark.parametrize("game", ["snake", "mines"])
def test_episodes_are_those_of_jumanji(game: str, snake: JumanjiEnvironment):
    """The same keys and actions, by Jumanji alone: rewards, observations, masks and ends.

    Actions are taken apart by hand; a wrong order of the components opens the wrong cell.
    """
    theirs: Any = Snake(4, 4, time_limit=12)
    if game == "mines":
        theirs = Minesweeper(generator=UniformSamplingGenerator(3, 5, 3))
    env = snake if game == "snake" else JumanjiEnvironment(theirs)
    steps = jnp.arange(12, dtype=jnp.uint32)

    def ours(seed: Array):
        def body(state: Any, step: Array):
            akey, skey = jr.split(jr.fold_in(jr.key(seed), step))
            seen: Any = env.observe(state)
            # Illegal ones too in every second episode, which they end.
            may = seen.legal | (seed % 2 == 1)
            action = jr.categorical(akey, jnp.where(may, 0.0, -jnp.inf)).astype(jnp.int32)
            state, transition = env.step(state, action, key=skey)
            return state, (seen.features, seen.legal, action, transition)

        return jax.lax.scan(body, env.init(key=jr.key(seed)), steps)[1]

    def alone(seed: Array, actions: Array):
        def body(carry: Any, step: Array):
            state, seen = carry
            action = actions[step]
            if game == "mines":
                action = jnp.stack([action // 5, action % 5])
            skey = jr.key_data(jr.split(jr.fold_in(jr.key(seed), step))[1])
            state, after = theirs.step(state.replace(key=skey), action)
            return (state, after.observation), (seen, after.reward, after.last())

        state, first = theirs.reset(jr.key_data(jr.key(seed)))
        return jax.lax.scan(body, (state, first.observation), steps)[1]

    seeds = jnp.arange(8, dtype=jnp.uint32)
    features, legal, actions, transition = jax.jit(jax.vmap(ours))(seeds)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        seen, rewards, lasts = jax.jit(jax.vmap(alone))(seeds, actions)
    # Up to the first end, where Jumanji says nothing about what comes after.
    rewards, lasts = np.asarray(rewards), np.asarray(lasts)
    ends = np.argmax(lasts, axis=1)
    live = np.arange(12) <= ends[:, None]
    found, expected = (features, seen.grid) if game == "snake" else (features["board"], seen.board)
    np.testing.assert_array_equal(np.asarray(found)[live], np.asarray(expected)[live])
    mask = np.asarray(seen.action_mask).reshape(8, 12, -1)
    mask = mask | ~mask.any(axis=-1, keepdims=True)
    np.testing.assert_array_equal(np.asarray(legal)[live], mask[live])
    np.testing.assert_array_equal(transition.reward, np.where(live, rewards, 0))
    np.testing.assert_array_equal(transition.last, np.arange(12) >= ends[:, None])
    assert rewards[live].any() and len(set(ends.tolist())) > 1 and lasts.any(axis=1).all()
    # No snake both ends and reaches its limit. Mines have none.
    assert (ends.max() == 11) == (game == "snake")
    truncated = (np.arange(12) == 11) & (ends[:, None] == 11)
    np.testing.assert_array_equal(transition.discount, live & ~lasts | truncated)


def test_a_solution_at_the_limit_is_an_end_and_the_limit_is_none():
    """Jumanji says discount 0 for both; then the level would look lost at the limit."""
    up, right, down = 0, 1, 2
    solution = [up, *3 * [down, right, up]]
    for limit, discount, rewarded in ((10, 0.0, 10.9), (9, 1.0, -0.1)):
        # Jumanji's own viewer leaves its pictures' files open.
        viewer: Any = object()
        level = Sokoban(generator=SimpleSolveGenerator(), viewer=viewer, time_limit=limit)
        env = JumanjiEnvironment(level)
        assert env.max_steps == limit and level.time_limit == limit
        step = jax.jit(lambda s, a, env=env: env.step(s, a, key=jr.key(0)))
        state = jax.jit(lambda env=env: env.init(key=jr.key(0)))()
        for action in solution[: limit - 1]:
            state, transition = step(state, jnp.int32(action))
            assert not transition.last
        state, transition = step(state, jnp.int32(solution[limit - 1]))
        assert (transition.discount, transition.last) == (discount, True)
        np.testing.assert_allclose(transition.reward, rewarded, rtol=1e-6)
        frozen, after = step(state, jnp.int32(down))
        assert (after.reward, after.discount, after.last) == (0, 0, True)
        np.testing.assert_array_equal(env.raw(frozen).agent_location, env.raw(state).agent_location)


def test_chance_follows_the_keys_of_the_steps():
    """A fruit that the state's own key placed would be known to whoever holds the state."""
    env = JumanjiEnvironment("Game2048-v1")
    state = jax.jit(lambda: env.init(key=jr.key(0)))()
    assert state.position.key is None
    legal = np.asarray(state.observation.action_mask)
    action = jnp.int32(np.argmax(legal))
    step = jax.jit(jax.vmap(lambda key: env.step(state, action, key=key)[0].position.board))
    boards = np.asarray(step(jr.split(jr.key(1), 16))).reshape(16, -1)
    np.testing.assert_array_equal(boards, np.asarray(step(jr.split(jr.key(1), 16))).reshape(16, -1))
    assert len(np.unique(boards, axis=0)) > 3


def test_masks_of_components_are_joined():
    """A joint action is legal exactly where each agent's part is."""
    env = JumanjiEnvironment(Cleaner())
    state = jax.jit(lambda: env.init(key=jr.key(0)))()
    mask = np.asarray(state.observation.action_mask)
    joint = [mask[[0, 1, 2], list(parts)].all() for parts in itertools.product(range(4), repeat=3)]
    np.testing.assert_array_equal(jax.jit(env.observe)(state).legal, joint)
    assert 0 < sum(joint) < 64


def test_where_nothing_is_allowed_everything_is(snake: JumanjiEnvironment):
    """A snake that is shut in has an empty mask and is not dead yet: softmax would be NaN."""
    state, observe = jax.jit(lambda: snake.init(key=jr.key(0)))(), jax.jit(snake.observe)
    for allowed, legal in (([0, 0, 1, 0], [0, 0, 1, 0]), ([0, 0, 0, 0], [1, 1, 1, 1])):
        mask = jnp.asarray(allowed, jnp.bool_)
        at = eqx.tree_at(lambda s: s.observation.action_mask, state, mask)
        np.testing.assert_array_equal(observe(at).legal, np.asarray(legal, np.bool_))


def test_features_may_be_chosen():
    """By default all but the mask; a function of one's own sees Jumanji's observation."""
    maze = JumanjiEnvironment("Maze-v0")
    seen = jax.eval_shape(lambda: maze.observe(maze.init(key=jr.key(0)))).features
    assert set(seen) == {"agent_position", "target_position", "walls", "step_count"}
    walls = JumanjiEnvironment("Maze-v0", features=lambda o: o.walls.astype(jnp.float32))
    seen = jax.eval_shape(lambda: walls.observe(walls.init(key=jr.key(0)))).features
    assert (seen.shape, seen.dtype) == ((10, 10), jnp.float32)
    # The same id is the same environment, so that nothing is traced twice.
    assert maze.env is walls.env
    # The colours of a cube are numbers.
    cube = JumanjiEnvironment("RubiksCube-partly-scrambled-v0")
    colours = np.arange(54, dtype=np.int8).reshape(6, 3, 3) % 6
    seen = jax.jit(cube.factored.features)(CubeObservation(colours, jnp.int32(0)))
    np.testing.assert_array_equal(seen, np.eye(6)[colours])


def test_an_unknown_environment_names_its_neighbours():
    """`snake` must not send anybody to the documentation."""
    with pytest.raises(ValueError, match="Did you mean Snake-v1.* Allowed: BinPack-v2,") as raised:
        JumanjiEnvironment("snake")
    assert "\n" not in str(raised.value)


def test_hidden_states():
    """Mines must not be planned over in the open; an environment of one's own must be declared."""

    class Own(Snake):
        pass

    for name in ("Minesweeper-v0", "RobotWarehouse-v0"):
        assert JumanjiEnvironment(name).hidden
    assert not JumanjiEnvironment("Maze-v0").hidden
    for sight in (3, 4):  # of a grid of 5 cells
        foraging = LevelBasedForaging(
            generator=RandomGenerator(5, fov=sight, num_agents=1, num_food=1)
        )
        assert JumanjiEnvironment(MultiToSingleWrapper(foraging)).hidden == (sight == 3)
    assert JumanjiEnvironment(Own(4, 4), hidden=True).hidden
    with pytest.raises(ValueError, match="Own.*pass hidden=True or False"):
        JumanjiEnvironment(Own(4, 4))
    with pytest.raises(ValueError, match="AutoResetWrapper resets within a step"):
        JumanjiEnvironment(AutoResetWrapper(Own(4, 4)), hidden=True)


def test_jumanji_missing(monkeypatch: Any):
    """Names what to install."""
    monkeypatch.setitem(sys.modules, "jumanji", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `jumanji`"):
        JumanjiEnvironment("Sudoku-v1")
