"""Beliefs: bad input ends in one line that names it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from zero_search import Belief, BeliefModel, PlayoutModel, TreeSearch

from .helpers import RandomTree
from .hidden import Tiger


pytestmark = pytest.mark.usefixtures("unhooked")

PLANNER, TIGER, TREE = TreeSearch(4), Tiger(2), RandomTree(2)
MODEL = BeliefModel(TIGER, 4)
ARGUMENTS: list[tuple[Any, tuple[Any, ...], str]] = [
    (BeliefModel, (TIGER, 0), r"`BeliefModel\(num_particles=0\)`: must be an integer, 1 or"),
    (BeliefModel, (TIGER, 2.5), r"`BeliefModel\(num_particles=2.5\)`: must be an integer"),
    (BeliefModel, (TIGER, 4, 0), r"`BeliefModel\(min_particles=0\)`: must be an integer, 1"),
    (BeliefModel, (TIGER, 4, 5), r"`BeliefModel\(num_particles=4, min_particles=5\)`: no bel"),
    (BeliefModel, (TREE,), r"`BeliefModel\(model=RandomTree.*subclass of .*AbstractHiddenModel`"),
    (BeliefModel, (MODEL,), r"`BeliefModel\(model=BeliefModel.*of `?.*AbstractHiddenModel`"),
    (BeliefModel, (PlayoutModel(TREE, 1),), "has `num_signals=0`, so it tells the"),
]


@pytest.mark.parametrize("part, fields, message", ARGUMENTS)
def test_bad_arguments_are_named(part, fields, message):
    with pytest.raises(ValueError, match=message) as error:
        part(*fields)
    assert "\n" not in str(error.value)


KEYS = jr.split(jr.key(0), 2)


@pytest.mark.parametrize("key", [jr.key(0), jr.split(jr.key(0), 3), jnp.zeros((2,), jnp.uint32)])
def test_wrong_keys_are_named(key):
    start = TIGER.start(2)
    with pytest.raises(ValueError, match=r"`key` is .* for 2 states; .* shape \(2,\)"):
        PLANNER.plan(MODEL, start, PLANNER.init(MODEL, start), key=key)
    with pytest.raises(ValueError, match=r"`key` is .* for 2 states"):
        MODEL.root(start, None, key=key)


@pytest.mark.parametrize(
    "where, what, message",
    [
        (lambda b: b.weights, jnp.ones((8,)), r"`belief.weights` is float32\[8\]; it must be"),
        (lambda b: b.weights, jnp.ones((2, 0)), r"`belief.weights` is float32\[2,0\]; it must be"),
        (
            lambda b: b.weights,
            jnp.ones((2, 7)),
            r"`belief.particles.tiger` is int32\[2,8\], but the weights are of 2 games with 7",
        ),
        (
            lambda b: b.particles.over,
            jnp.zeros((2, 7), bool),
            r"`belief.particles.over` is bool\[2,7\], .* must begin with \(2, 8\)",
        ),
        (
            lambda b: b.weights,
            jnp.ones((2, 8), jnp.bfloat16),
            r"`belief.weights` is bfloat16\[2,8\]; it must be float32",
        ),
        (lambda b: b.weights, jnp.ones((2, 8), bool), r"`belief.weights` is bool\[2,8\]; it must"),
        (lambda b: b.seed, jnp.zeros((3,), jnp.uint32), r"`belief.seed` is uint32\[3\] for 2 g"),
        (lambda b: b.seed, jnp.zeros((2,), jnp.int32), r"`belief.seed` is int32\[2\] for 2 g"),
    ],
)
def test_a_belief_of_wrong_arrays_is_named(where, what, message):
    belief: Belief = eqx.tree_at(where, TIGER.belief(2), what)
    model = BeliefModel(TIGER)
    with pytest.raises(ValueError, match=message) as error:
        model.afterstate(belief, jnp.zeros((2,), jnp.int32))
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        model.predict(belief, key=KEYS)


@pytest.mark.parametrize("action", [jnp.zeros((3,), jnp.int32), jnp.zeros((2,)), jnp.int32(0)])
def test_wrong_actions_are_named(action):
    with pytest.raises(ValueError, match=r"`action` is .* of 2 games; it must be int\[2\]"):
        BeliefModel(TIGER).afterstate(TIGER.belief(2), action)
    carry = PLANNER.init(MODEL, TIGER.start(2))
    with pytest.raises(ValueError, match="`action` is .* for a carry of 2 games"):
        PLANNER.advance(carry, action, jnp.zeros((2,), bool))


@pytest.mark.parametrize("spoil", [lambda x: x[:, None], lambda x: x.astype(jnp.float32)])
def test_a_wrong_signal_is_named(monkeypatch, spoil):
    right = Tiger.signal
    monkeypatch.setattr(Tiger, "signal", lambda self, *step: spoil(right(self, *step)))
    plan = lambda s, k: PLANNER.plan(MODEL, s, PLANNER.init(MODEL, s), key=k)[0]
    with pytest.raises(ValueError, match=r"`model.signal` returned .* 8 steps; .* int\[8\]: one"):
        jax.eval_shape(plan, TIGER.start(2), KEYS)
