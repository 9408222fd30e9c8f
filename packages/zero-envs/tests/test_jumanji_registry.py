"""All of Jumanji's registry: each environment keeps every promise and is the one of Jumanji, or
stands here with the reason why not."""

import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from jumanji import registration
from jumanji.environments.routing.snake.env import Snake
from jumanji.environments.routing.sokoban.generator import ToyGenerator
from jumanji.wrappers import MultiToSingleWrapper, Wrapper

from zero_envs import FactoredJumanjiEnvironment, JumanjiEnvironment, known_environments, make
from zero_envs.testing import check_environment


PAGE = pathlib.Path(__file__).parents[3] / "docs" / "environments.md"


class Wrapped(Wrapper):
    """Somebody else's."""


# How many steps until a few of 4 random episodes have ended.
FAST = {
    "Game2048-v1": 150,
    "GraphColoring-v1": 30,
    "MultiCVRP-v0": 45,
    "RubiksCube-partly-scrambled-v0": 22,
}
SLOW = {
    "BinPack-v2": 40,
    "CVRP-v1": 60,
    "Cleaner-v0": 105,
    "FlatPack-v0": 30,
    "JobShop-v0": 200,
    "Knapsack-v1": 60,
    "MMST-v0": 75,
    "Maze-v0": 105,
    "Minesweeper-v0": 40,
    "PacMan-v1": 250,
    "RobotWarehouse-v0": 505,
    "RubiksCube-v0": 205,
    "SlidingTilePuzzle-v0": 505,
    # A snake that avoids itself and the walls lives long.
    "Snake-v1": 4005,
    "Sokoban-v0": 125,
    "Sudoku-v0": 90,
    "Sudoku-very-easy-v0": 90,
    "TSP-v1": 25,
    "Tetris-v0": 60,
}
# More than 4 096 joint actions.
FACTORED = {"FlatPack-v0": 8_100, "JobShop-v0": 21**10, "MMST-v0": 36**3}
REFUSED = {
    "Connector-v3": "rewards for 10 agents",
    "LevelBasedForaging-v0": "rewards for 2 agents",
    "SearchAndRescue-v0": "its actions are a BoundedArray of float32; they must be integers",
}


def _ours(name: str, **options: Any) -> JumanjiEnvironment | FactoredJumanjiEnvironment:
    kind = FactoredJumanjiEnvironment if name in FACTORED else JumanjiEnvironment
    return kind(name, **options)


def _check(name: str, num_steps: int):
    env = _ours(name)
    report = check_environment(env, key=jr.key(0), num_steps=num_steps, num_envs=4)
    assert report.terminated + report.truncated > 0, "no end was checked"
    assert report.opponent == 0 and (env.max_steps is not None or report.truncated == 0)


@pytest.mark.parametrize("name", FAST)
def test_quick_environments(name: str):
    """One number and several, ends and limits, a mask, a row for each component, and none."""
    _check(name, FAST[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize("name", SLOW)
def test_the_other_environments(name: str):
    """All else that Jumanji has for one player and discrete actions."""
    _check(name, SLOW[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_place_here_is_refused(name: str):
    """One clear line each, for both kinds of actions, by the class that was called."""
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (name, {}, REFUSED[name]),
        ("Nope", {}, "no such environment"),
        ("Snake-v1", {"rows": 3}, "Snake takes num_rows"),
        (Snake(4, 4), {"time_limit": 3}, "options belong to a name"),
        (Wrapped(Snake(4, 4)), {}, "pass hidden=True or False"),
    ]
    for kind in (JumanjiEnvironment, FactoredJumanjiEnvironment):
        for env, options, match in refused:
            with pytest.raises(ValueError, match=match) as raised:
                kind(env, **options)
            said = str(raised.value)
            assert "\n" not in said and said.startswith(f"{kind.__name__}(")


@pytest.mark.parametrize("name", [name for name in REFUSED if "rewards" in REFUSED[name]])
def test_agents_that_are_added_up_are_played_by_the_class_that_the_page_names(name: str):
    with jax.numpy_dtype_promotion("standard"):
        both = MultiToSingleWrapper(registration.make(name))
    said = re.search(rf"of `{name}`[^;|]*? by `(\w+)`", PAGE.read_text())
    assert said is not None
    if said[1] == "FactoredJumanjiEnvironment":
        with pytest.raises(ValueError, match="construct FactoredJumanjiEnvironment"):
            JumanjiEnvironment(both)
    assert {"JumanjiEnvironment": JumanjiEnvironment}.get(said[1], FactoredJumanjiEnvironment)(both)


@pytest.mark.parametrize("name", FACTORED)
def test_what_is_too_large_to_be_numbered_is_factored(name: str):
    with pytest.raises(ValueError, match=f" {FACTORED[name]} joint actions, more than 4096"):
        JumanjiEnvironment(name)
    assert known_environments()[f"jumanji/{name}"].actions == "factored"
    assert isinstance(make(f"jumanji/{name}"), FactoredJumanjiEnvironment)


def test_no_environment_is_left_out():
    """What Jumanji adds must be added here."""
    assert FAST.keys() | SLOW.keys() | REFUSED.keys() == registration.registered_environments()
    assert not SLOW.keys() & FAST.keys() and FACTORED.keys() <= SLOW.keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_episodes_are_those_of_jumanji(name: str):
    """The same keys and actions, by Jumanji with its limit: observations, rewards and ends. What it
    calls an end before its limit is one; after that nothing is paid."""
    limit = None if _ours(name).max_steps is None else 25
    options: dict[str, Any] = {} if limit is None else {"time_limit": limit}
    if name == "Sokoban-v0":
        # Jumanji's levels have to be downloaded, and its viewer leaves its pictures' files open.
        options |= {"generator": ToyGenerator(), "viewer": object()}
    with jax.numpy_dtype_promotion("standard"):
        theirs = registration.make(name, **options)
    assert getattr(theirs, "time_limit", None) == limit
    env = _ours(name, **options)
    num_steps = 60 if limit is not None else max(60, (FAST | SLOW)[name])
    shape, values = theirs.action_spec.shape, _values(env)

    def body(carry: Any, step: Array):
        state, other, seed = carry
        akey, bkey, skey = jr.split(jr.fold_in(jr.key(seed), step), 3)
        # Now and then an illegal one.
        legal: Any = env.observe(state).legal
        legal = legal | jr.bernoulli(bkey, 0.02)
        action = _draw(env, jnp.where(legal, 0.0, -jnp.inf), akey)
        parts = jnp.stack(jnp.unravel_index(action, values)) if action.ndim == 0 else action
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            before = other.replace(key=jr.key_data(skey))
            parts = parts.astype(theirs.action_spec.dtype).reshape(shape)
            other, after = theirs.step(before, parts)
        state, transition = env.step(state, action, key=skey)
        pairs = zip(
            jax.tree.leaves(state.observation), jax.tree.leaves(after.observation), strict=True
        )
        same = jnp.all(jnp.stack([jnp.array_equal(x, y) for x, y in pairs]))
        carry = jax.tree.map(lambda x, y: jnp.asarray(y, x.dtype), carry, (state, other, seed))
        return carry, (transition, after.reward, after.last(), same)

    def play(seed: Array):
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            other, _ = theirs.reset(jr.key_data(jr.key(seed)))
        carry = (env.init(key=jr.key(seed)), other, seed)
        return jax.lax.scan(body, carry, jnp.arange(num_steps, dtype=jnp.uint32))[1]

    transition, rewards, lasts, same = jax.jit(jax.vmap(play))(jnp.arange(6, dtype=jnp.uint32))
    lasts = np.asarray(lasts)
    assert lasts.any(axis=1).sum() > 1
    ends = np.where(lasts.any(axis=1), np.argmax(lasts, axis=1), num_steps)[:, None]
    numbers = np.arange(num_steps)
    live = numbers <= ends
    assert np.asarray(same)[live].all()
    paid = np.where(live, rewards, 0)
    np.testing.assert_allclose(transition.reward, paid, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(transition.last, numbers >= ends)
    discount = np.asarray(transition.discount)
    at_limit = (numbers + 1 == limit) & (numbers == ends)
    np.testing.assert_array_equal(discount[~at_limit], (numbers < ends)[~at_limit])


def _values(env: Any) -> tuple[int, ...]:
    return env.factored.num_values if isinstance(env, JumanjiEnvironment) else env.num_values


def _draw(env: Any, logits: Array, key: Array) -> Array:
    if isinstance(env, JumanjiEnvironment):
        return jr.categorical(key, logits).astype(jnp.int32)
    rows = jnp.split(logits, np.cumsum(env.num_values)[:-1])
    drawn = [jr.categorical(jr.fold_in(key, i), row) for i, row in enumerate(rows)]
    return jnp.stack(drawn).astype(jnp.int32)
