"""Whole games of every planner under `jax.shard_map`, with its check of what varies over devices,
and in double precision, as users turn it on for all their program.

A loop fails the check, while it is traced, if it starts with the same numbers on all devices and
goes on with others.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from mctx import RecurrentFnOutput, RootFnOutput

import zero_search.mctx
from zero_search import (
    BeliefModel,
    DirichletNoise,
    GaussianNoise,
    Hindsight,
    MaxBackup,
    ParticleSearch,
    PlayoutModel,
    SoftmaxQ,
    TreeSearch,
)

from .dice import judged, RandomDice
from .helpers import Nim, quick_jit, RandomTree
from .hidden import Tiger
from .test_particles_continuous import Walk


pytestmark = pytest.mark.usefixtures("every_device")

TREE = RandomTree(4)
DICE = RandomDice(TREE)
NOISE = DirichletNoise()
MODELS: dict[str, Any] = {
    "tree": TREE,
    "nim": Nim(),
    "dice": DICE,
    "judged": judged(DICE),
    "tiger": Tiger(noisy=True),
    "belief": BeliefModel(Tiger(), 3),
    "playouts": PlayoutModel(TREE, 3, mixing=0.5),
    "playouts of dice": PlayoutModel(DICE, 3, bootstrap=True),
    "playouts elsewhere": PlayoutModel(TREE, 3, bootstrap=True, playouts_in=TREE),
    "playouts of a tiger": PlayoutModel(Tiger(noisy=True), 3),
    "walk": Walk(),
}
PLAYED = sorted(set(MODELS) - {"tree", "walk"})
STARTS: dict[str, Any] = {
    "nim": lambda: jnp.full((4,), 9, jnp.int32),
    "tiger": lambda: Tiger().start(4),
    "belief": lambda: Tiger().start(4),
    "playouts of a tiger": lambda: Tiger().start(4),
    "walk": lambda: jnp.ones((4, 2), jnp.float32),
}
PLANNERS: dict[str, Any] = {
    "alphazero": TreeSearch.alphazero(4, noise=NOISE, temperature=1.0),
    "alphazero, fixed alpha": TreeSearch.alphazero(4, noise=DirichletNoise(alpha=0.3)),
    "muzero": TreeSearch.muzero(4, noise=NOISE),
    "gumbel": TreeSearch.gumbel(4),
    "gumbel, no noise": TreeSearch.gumbel(4, gumbel_scale=0.0),
    "in rounds": TreeSearch.gumbel(4, max_num_considered_actions=2, in_rounds=True),
    "uct": TreeSearch.uct(4, stop_early=True),
    "proofs": TreeSearch(4, max_return=9.0, stop_early=True, reuse=True),
    "leaves": TreeSearch(4, num_leaves=2, backup=MaxBackup(), reuse=True),
    "gumbel leaves": TreeSearch.gumbel(4, num_leaves=2, reuse=True),
    "softmax": TreeSearch(4, readout=SoftmaxQ(0.5), max_depth=2),
    "weighted": TreeSearch(4, outcomes="weighted"),
    "sampled": TreeSearch(4, outcomes="sampled", reuse=True),
    "frozen": TreeSearch(4, outcomes="frozen"),
    "expected": TreeSearch(4, evaluate_outcomes=True),
    "hindsight": Hindsight(TreeSearch(4), 2),
    "hindsight gumbel": Hindsight(TreeSearch.gumbel(4, num_leaves=2), 2),
    "particles": ParticleSearch(4, 2, resample_every=2),
    "particles, no resampling": ParticleSearch(4, 2, resample_every=None, readout="argmax"),
    "particles by size": ParticleSearch(
        4, 2, resample_every=None, resample_below=0.5, resampling="systematic"
    ),
    "particles, both": ParticleSearch(4, 2, resample_every=1, resample_below=0.5, noise=NOISE),
    "gaussian": ParticleSearch(4, 2, resample_every=1, noise=GaussianNoise(0.1)),
    "mean": ParticleSearch(4, 2, resample_every=1, readout="mean"),
    "particles, not corrected": ParticleSearch(4, 2, resample_every=1, noise=NOISE, correct=False),
}
if jax.__version_info__ >= (0, 10):
    PLANNERS["pallas"] = TreeSearch.gumbel(4, kernels="pallas")


def moves(planner, model, world):
    """Two moves of some games, from their states and keys."""

    def move(carry, number):
        state, kept, key = carry
        plan_key, step_key = jax.vmap(lambda k: tuple(jr.split(jr.fold_in(k, number))))(key)
        plan, kept = planner.plan(model, state, kept, key=plan_key)
        state, _, _, last = world.step(state, plan.action, key=step_key)
        return (state, planner.advance(kept, plan.action, last), key), plan

    def run(state, key):
        first = state, planner.init(model, state), key
        return jax.lax.scan(move, first, jnp.arange(2, dtype=jnp.int32))[1]

    return run


def given(model, mesh=None):
    """First states and keys, split over the devices of a mesh."""
    start = STARTS.get(model, lambda: TREE.start(4))()
    both = start, jr.split(jr.key(0), 4)
    return both if mesh is None else jax.device_put(both, jax.NamedSharding(mesh, P("data")))


#: Of the models: one that has loops of its own, one of chance and one that hides something.
FEW = ("playouts of dice", "dice", "tiger")
#: Every planner, every model under a tree, and those few under particles.
CASES = [
    *((planner, "tree") for planner in PLANNERS if planner not in ("gaussian", "mean")),
    *((planner, "dice") for planner in ("weighted", "sampled", "frozen", "expected")),
    *(("alphazero", model) for model in PLAYED),
    *(("particles", model) for model in FEW),
    *(pytest.param("particles", x, marks=pytest.mark.slow) for x in PLAYED if x not in FEW),
    *(("leaves", "dice"), ("leaves", "belief"), ("hindsight", "tiger"), ("hindsight", "playouts")),
    *(("gaussian", "walk"), ("mean", "walk"), ("particles by size", "walk")),
]
#: One of each kind, which are run, and whose dtypes are looked at in double precision.
RUN = [("leaves", "playouts"), ("in rounds", "tree"), ("hindsight", "tiger")]
RUN += [("particles, both", "playouts of dice"), ("gaussian", "walk")]
MESH = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])


def over_devices(run, axes):
    return jax.shard_map(run, mesh=MESH, in_specs=P("data"), out_specs=axes)


def game(planner, model):
    world = Tiger(noisy=True) if model == "belief" else MODELS[model]
    return moves(PLANNERS[planner], MODELS[model], world)


def kinds(tree):
    return {x.dtype.name for x in jax.tree.leaves(tree)}


@pytest.mark.parametrize("planner, model", CASES)
def test_games_may_vary_over_devices(planner, model):
    run = over_devices(game(planner, model), P(None, "data"))
    plan = jax.eval_shape(run, *given(model, MESH))
    assert plan.weights.shape[:2] == (2, 4)
    # In double precision, too, where a session of nox runs these tests.
    assert kinds(plan) <= {"float32", "int32", "bool"}


@pytest.mark.parametrize("planner, model", [*RUN, ("gumbel", "tree"), ("weighted", "dice")])
def test_plans_are_of_single_precision(float64, planner, model):
    plan = jax.eval_shape(game(planner, model), *given(model))
    assert kinds(plan) <= {"float32", "int32", "bool"}


@pytest.mark.parametrize("planner, model", RUN)
@pytest.mark.slow
def test_devices_share_the_games_out(planner, model):
    whole = quick_jit(game(planner, model))(*given(model))
    run = quick_jit(over_devices(game(planner, model), P(None, "data")))
    shared = run(*given(model, MESH))
    assert np.array_equal(shared.action, whole.action)
    for ours, theirs in zip(jax.tree.leaves(shared), jax.tree.leaves(whole), strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)


def policy_of_mctx(name):
    """One of mctx's functions over `TREE`, from the states of some games."""

    def recurrent(params, key, action, state):
        del params, key
        unused: Any = None  # the tree draws nothing
        after, reward, discount, _ = TREE.step(state, action, key=unused)
        logits, value = TREE.predict(after, key=unused)
        fields: Any = dict(reward=reward, discount=discount, prior_logits=logits, value=value)
        return RecurrentFnOutput(**fields), after

    def run(state):
        unused: Any = None
        logits, value = TREE.predict(state, key=unused)
        fields: Any = dict(prior_logits=logits, value=value, embedding=state)
        function = getattr(zero_search.mctx, name)
        found = function((), jr.key(0), RootFnOutput(**fields), recurrent, num_simulations=4)
        return found.action_weights, found.search_tree.node_values

    return run


@pytest.mark.parametrize("name", ["muzero_policy", "alphazero_policy", "gumbel_muzero_policy"])
def test_functions_of_mctx(name):
    run, (state, _) = policy_of_mctx(name), given("tree", MESH)
    found = jax.eval_shape(over_devices(run, P("data")), state)
    assert [x.shape for x in found] == [(4, 4), (4, 5)]


def test_functions_of_mctx_in_double_precision(float64):
    for name in ("muzero_policy", "gumbel_muzero_policy"):
        found = jax.eval_shape(policy_of_mctx(name), TREE.start(4))
        assert found[1].dtype == jnp.float32
