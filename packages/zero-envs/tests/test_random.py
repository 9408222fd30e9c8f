"""Environments say that they are random where what a step results in depends on its key."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest
from jumanji.environments.logic.rubiks_cube.env import RubiksCube
from jumanji.environments.routing.mmst.generator import SplitRandomGenerator
from jumanji.environments.routing.snake.env import Snake

from zero_envs import (
    AbstractDiscreteEnvironment,
    draws,
    JumanjiEnvironment,
    known_environments,
    make,
    Observation,
    PgxEnvironment,
    TimeLimit,
    Transition,
)
from zero_envs._environment import step_draws
from zero_envs._known import GYMNAX_STEADY


FAST = (
    "pgx/connect_four",
    "pgx/2048",
    "pgx/minatar-breakout",
    "jumanji/Snake-v1",
    "jumanji/Maze-v0",
    "gymnax/CartPole-v1",
    "gymnax/FrozenLake-misc",
)
#: Those that look at their key to no effect.
STEADY = [f"gymnax/{name}" for name in sorted(GYMNAX_STEADY)]
#: Discrete and visible ones whose step is traced.
ALL = [
    name
    for name, facts in known_environments().items()
    if name.startswith(("pgx/", "jumanji/", "gymnax/")) and facts.actions == "discrete"
]


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize(
    "name", [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in ALL]
)
def test_what_draws_says_so(name):
    env = make(name)
    state = jax.eval_shape(lambda: env.init(key=jr.key(0)))
    action = jax.ShapeDtypeStruct((), np.int32)
    step = lambda key, state, action: env.step(state, action, key=key)
    text = jax.jit(step).lower(jr.key(0), state, action).as_text()
    # The key comes first, if anything depends on it: a program has no argument without a use. What
    # else comes first, a part of a state, is no uint32[2].
    main = next(line for line in text.splitlines() if "@main" in line)
    draws = "%arg0: tensor<2xui32>" in main
    assert getattr(env, "random", False) == (draws and name not in STEADY)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEADY)
def test_what_looks_at_its_key_to_no_effect_does_not_say_so(name):
    env: Any = make(name)

    def differs(state, given):
        action, *keys = given
        one, other = (env.step(state, action, key=key) for key in keys)
        equal = jax.tree.map(lambda x, y: (x == y).all(), one, other)
        return one[0], ~state.over & ~jnp.stack(jax.tree.leaves(equal)).all()

    @jax.jit
    @jax.vmap
    def episode(begin, *given):
        return jax.lax.scan(differs, env.init(key=begin), given)[1]

    akey, bkey, *keys = jr.split(jr.key(0), 4)
    actions = jr.randint(akey, (32, 300), 0, env.num_actions)
    given = actions, *(jr.split(key, (32, 300)) for key in keys)
    assert not episode(jr.split(bkey, 32), *given).any()


class Coin(AbstractDiscreteEnvironment):
    """Action 0 pays 1 or -1 by chance, action 1 pays 0.3."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return jnp.zeros((), jnp.int32)

    def step(self, state, action, *, key):
        paid = jnp.where(jr.bernoulli(key), 1.0, -1.0)
        reward = jnp.where(state > 0, 0.0, jnp.where(action == 0, paid, 0.3))
        return state + 1, Transition(reward, jnp.zeros(()), jnp.ones((), bool))

    def observe(self, state):
        return Observation(jnp.zeros(1), jnp.ones(2, bool))


class Keyless(AbstractDiscreteEnvironment):
    """A game that only looks at its key."""

    coin: Coin = Coin()
    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return self.coin.init(key=key)

    def step(self, state, action, *, key):
        jr.split(key)
        return self.coin.step(state, action, key=jr.key(0))

    def observe(self, state):
        return self.coin.observe(state)


class Stated(AbstractDiscreteEnvironment):
    """One that says what it is."""

    random: ClassVar[bool] = False
    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return Coin().init(key=key)

    def step(self, state, action, *, key):
        return Coin().step(state, action, key=key)

    def observe(self, state):
        return Coin().observe(state)


def test_what_says_nothing_is_traced():
    for env, said in ((Coin(), True), (Keyless(), False), (Stated(), False)):
        assert draws(env) is said and draws(TimeLimit(env, 3)) is said


def test_a_game_of_ones_own_of_a_library_is_traced():
    made: Any = pgx.make
    for name, said in (("2048", True), ("tic_tac_toe", False)):
        game = made(name)
        own = type("Own", (type(game),), {"id": property(lambda self: "own")})
        assert PgxEnvironment(own(), hidden=False).random is said
    for kind, said in ((Snake, True), (RubiksCube, False)):
        own = type("Own", (kind,), {})
        assert JumanjiEnvironment(own(), hidden=False).random is said


def test_numbered_mmst_draws():
    generator = SplitRandomGenerator(20, 40, 5, 2, 3, 30)
    env = JumanjiEnvironment("MMST-v0", generator=generator)
    assert env.random and step_draws(env)
