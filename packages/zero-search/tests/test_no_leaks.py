"""Nothing that is hidden reaches a plan: every planner over every kind of model."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import BeliefModel, Hindsight, ParticleSearch, PlayoutModel, TreeSearch

from .helpers import equal, Noise, quick_jit
from .hidden import LISTEN, Tiger


ALPHAZERO = TreeSearch.alphazero(8, noise=Noise(), temperature=1.0)
REUSE = TreeSearch.alphazero(8, temperature=1.0, reuse=True)
GUMBEL = TreeSearch.gumbel(8)
PLANNERS = {
    "alphazero": ALPHAZERO,
    "reuse": REUSE,
    "leaves": TreeSearch.alphazero(8, temperature=1.0, num_leaves=4),
    "gumbel": GUMBEL,
    "gumbel-reuse": TreeSearch.gumbel(8, reuse=True),
    "gumbel-leaves": TreeSearch.gumbel(8, num_leaves=4),
    "hindsight": Hindsight(ALPHAZERO, 3),
    "hindsight-gumbel": Hindsight(GUMBEL, 3),
    "hindsight-reuse": Hindsight(REUSE, 3),
    "hindsight-frozen": Hindsight(dataclasses.replace(REUSE, outcomes="frozen"), 3),
    "particles": ParticleSearch(6, 2, resample_every=None),
}
MODELS = {
    "own": lambda tiger: tiger,
    "playouts": lambda tiger: PlayoutModel(tiger, 2),
    "belief": lambda tiger: BeliefModel(tiger, 6),
    "belief-of-playouts": lambda tiger: BeliefModel(PlayoutModel(tiger, 2), 6),
}
# Every model, and every way in which a planner comes to its roots and keeps them: what goes on
# below a root sees nothing else.
FAST = {
    ("reuse", "playouts"),
    ("gumbel-leaves", "own"),
    ("hindsight-reuse", "own"),
    ("hindsight-frozen", "belief"),
    ("particles", "belief-of-playouts"),
}
PAIRS = list(itertools.product(PLANNERS, MODELS))


@pytest.mark.parametrize(
    "planner, model", [x if x in FAST else pytest.param(*x, marks=pytest.mark.slow) for x in PAIRS]
)
def test_what_is_hidden_changes_no_plan_of_two_moves(planner, model):
    """An honest roar from the left or a false one from the right: both sound alike. A model whose
    root is the true state must be found out."""
    planner, around, batch = PLANNERS[planner], MODELS[model], 3

    @quick_jit
    def move(leaks, state, carry, seed):
        tiger = Tiger(3, leaks=leaks)
        key = jr.split(jr.key(seed), batch)
        plan, carry = planner.plan(around(tiger), state, carry, key=key)
        listen = jnp.full((batch,), LISTEN, jnp.int32)
        carry = planner.advance(carry, listen, jnp.zeros((batch,), bool))
        after = tiger.step(state, listen, key=jr.clone(key))[0]
        return plan, carry, after

    init = quick_jit(lambda state: planner.init(around(Tiger(3)), state))

    def two_moves(leaks, tiger, lie):
        state, found = Tiger(3).start(batch, tiger, lie), []
        carry = init(state)
        for seed in range(2):
            plan, carry, state = move(np.asarray(leaks), state, carry, seed)
            found += [plan, carry]
        return jax.tree.map(np.asarray, (found, state))

    (seen, left), (swapped, right) = two_moves(False, 0, False), two_moves(False, 1, True)
    assert np.array_equal(left.heard, right.heard) and np.all(left.heard[:, 0] == 2)
    assert np.all(left.tiger != right.tiger)
    assert equal(seen, swapped)
    if "belief" in model:
        # Beliefs are drawn anew for every move, so that no tree outlives one.
        assert np.all(seen[2].stats.get("reused", 0) == 0)
    (seen, _), (swapped, _) = two_moves(True, 0, False), two_moves(True, 1, True)
    assert not equal(seen[0], swapped[0]) and not equal(seen[2], swapped[2])
