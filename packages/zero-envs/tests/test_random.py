"""Environments say that they are random where what a step results in depends on its key."""

import jax
import jax.random as jr
import numpy as np
import pytest

from zero_envs import known_environments, make


FAST = (
    "pgx/connect_four",
    "pgx/2048",
    "pgx/minatar-breakout",
    "jumanji/Snake-v1",
    "jumanji/Maze-v0",
)
#: Discrete and visible ones whose step is traced.
ALL = [
    name
    for name, facts in known_environments().items()
    if name.startswith(("pgx/", "jumanji/")) and facts.actions == "discrete"
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
    assert getattr(env, "random", False) == draws
