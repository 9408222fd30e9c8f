"""Walks as kernels of their own: against the plain walks, and lowered for a GPU."""

import dataclasses
import functools as ft
import itertools
import types

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractBackup,
    AbstractPriorModel,
    AbstractQTransform,
    AbstractSelection,
    ByMinMax,
    FirstPlayUrgency,
    MaxBackup,
    MeanBackup,
    NodeStatistics,
    PlainQ,
    PUCB,
    PUCT,
    Rules,
    TreeSearch,
    UCB1,
)
from zero_search._root import SequentialHalving
from zero_search._rules import ImprovedPolicySelection
from zero_search._walk import Up, Visits, with_visit

from .dice import RandomDice
from .helpers import Nim, quick_jit, RandomTree


if jax.__version_info__ < (0, 10):  # also the parameters of tests below cannot be made
    pytest.skip('kernels="pallas" is refused before jax 0.10', allow_module_level=True)

# Neither the games nor the actions of `RandomTree` are a power of two.
BATCH, SIMULATIONS = 5, 21
# Compiled in haste, the score that two loops of the CPU compute is not the same number in both.
exact_jit = ft.partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False},
)


class WithFiller(AbstractPriorModel):
    """A `RandomTree` where nothing is legal at some of the roots."""

    tree: RandomTree

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return self.tree.step(node, action, key=key)

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        filler = (node.depth == 0) & (node.name % jnp.uint32(3) == 0)
        return jnp.where(filler[:, None], -jnp.inf, logits), value


class Sorting(AbstractSelection):
    """By the rank of the visits: no kernel can sort."""

    def prepare(self, logits):
        return PUCT().prepare(logits)

    def score(self, node):
        return -jnp.sort(node.visits, axis=1)


class Held(AbstractQTransform):
    """A Q of its own for every action."""

    values: jax.Array

    def __call__(self, node):
        return node.qvalues + self.values[None]


class AboveMean(AbstractSelection):
    """By Q over its mean: the rows of a kernel are wider than the actions are many."""

    def prepare(self, logits):
        return PUCT().prepare(logits)

    def score(self, node):
        return node.qvalues - jnp.mean(node.qvalues, axis=1, keepdims=True)


class AboveLast(AbstractSelection):
    """By Q over that of the last action."""

    def prepare(self, logits):
        return PUCT().prepare(logits)

    def score(self, node):
        return node.qvalues - node.qvalues[:, -1:]


class MeanOfQ(AbstractBackup):
    def __call__(self, node, outcome):
        return jnp.mean(node.qvalues, axis=1)


class Threefold(AbstractSelection):
    def prepare(self, logits):
        return jnp.stack([logits] * 3, axis=1)

    def score(self, node):
        return node.prior[:, 1]


class ByRank(AbstractSelection):
    """By how many actions are worse: each is compared with all along an axis of its own."""

    def prepare(self, logits):
        return PUCT().prepare(logits)

    def score(self, node):
        worse = node.qvalues[:, None, :] > node.qvalues[:, :, None]
        return -jnp.sum(worse.astype(jnp.float32), axis=1)


class OfFeatures(AbstractSelection):
    """Reduces the features, which are as many as the columns of a kernel's row."""

    def prepare(self, logits):
        return jnp.stack([logits, -logits, 2 * logits, logits + 1], axis=1)

    def score(self, node):
        prior = jnp.where(node.prior > -jnp.inf, node.prior, -9.0)
        return jnp.sum(prior, axis=1) - jnp.sum(jnp.max(prior, axis=2), axis=1, keepdims=True)


class Joined(AbstractSelection):
    """Makes one axis of features and actions."""

    def prepare(self, logits):
        return PUCB().prepare(logits)

    def score(self, node):
        prior = jnp.where(node.prior > -jnp.inf, node.prior, -9.0)
        flat = prior.reshape(prior.shape[0], -1)
        return node.qvalues + jnp.sum(flat, axis=1, keepdims=True)


class OfSigns(AbstractSelection):
    """Takes one feature of booleans."""

    def prepare(self, logits):
        return PUCB().prepare(logits)

    def score(self, node):
        return node.qvalues + jnp.where((node.prior > 0)[:, 0], 1.0, 0.0)


def grown(planner, model, state, key, moves=1):
    """The plan and the trees after so many moves with the same planner."""
    batch, carry = state.name.shape[0], planner.init(model, state)
    for i in range(moves - 1):
        keys = jr.split(jr.fold_in(key, i), batch)
        plan, carry = planner.plan(model, state, carry, key=keys)
        state, _, _, last = model.step(state, plan.action, key=keys)
        carry = planner.advance(carry, plan.action, last)
    plan, _, tree = planner.grow(model, state, carry, key=jr.split(key, batch))
    return plan, tree


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "kind, parts, moves",
    [
        ("alphazero", {"root": SequentialHalving(3), "max_depth": 3, "max_nodes": 12}, 1),
        pytest.param("alphazero", {"max_depth": 3, "max_nodes": 12}, 1, marks=SLOW),
        pytest.param("gumbel", {}, 1, marks=SLOW),
        pytest.param("alphazero", {"num_leaves": 3}, 1, marks=SLOW),
        pytest.param("gumbel", {"num_leaves": 3, "reuse": True}, 2, marks=SLOW),
        pytest.param("gumbel", {"in_rounds": True}, 1, marks=SLOW),
        pytest.param("muzero", {}, 1, marks=SLOW),
        pytest.param("uct", {"backup": MaxBackup()}, 1, marks=SLOW),
        pytest.param("alphazero", {"selection": PUCB()}, 1, marks=SLOW),
    ],
)
def test_the_trees_are_those_of_the_plain_walks(kind, parts, moves):
    # Players who move twice, final states, and roots without a legal action.
    model = WithFiller(RandomTree(truncate=0.1, gamma=0.9, illegal=0.4))
    state, found = model.tree.start(BATCH), []
    for kernels in ("plain", "pallas"):
        planner = getattr(TreeSearch, kind)(SIMULATIONS, kernels=kernels, **parts)
        found.append(
            exact_jit(lambda s, k, p=planner: grown(p, model, s, k, moves))(state, jr.key(0))
        )
    plain, fused = found
    assert moves > 1 or 0 < np.asarray(plain[0].weights).sum() < BATCH
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(fused), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.parametrize(
    "selection, features",
    # With every action visited, an unvisited one among them would change what Q is stretched by.
    [(ImprovedPolicySelection(), 2), (ByRank(), 2), (OfFeatures(), 4), (OfSigns(), 2)],
    ids=lambda x: type(x).__name__,
)
def test_no_reduction_sees_the_columns_that_are_no_actions(selection, features):
    from zero_search._kernels import _entering

    rules = TreeSearch(4, selection=selection, kernels="pallas")._world(
        Nim(), jnp.zeros(1), 3, jr.split(jr.key(0), 1)
    )[2]
    enter = _entering(rules, 0, features, 2, 3, 4)
    one = jnp.ones((1,))

    def given(key):
        draw = lambda i, *shape: jr.normal(jr.fold_in(key, i), shape)
        row = jnp.asarray([[3.0, 2.0, 4.0]])
        return NodeStatistics(
            draw(0, 1, features, 3), row, draw(1, 1, 3), 10 * one, draw(2, 1), 5 * one
        )

    @quick_jit
    def run(key, action, filler):
        node, action = given(key), action[None]
        pad = lambda x, with_: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)], constant_values=with_)
        wide = dataclasses.replace(
            node,
            prior=pad(node.prior, -jnp.inf),
            visits=pad(node.visits, filler),
            qvalues=pad(node.qvalues, filler),
        )
        real = jnp.asarray([True])
        best, edges, visit = enter(wide, [], action, Up(one, one, one, one, -one), real)
        count, outcome = node.count + 1, jnp.zeros(1)
        same = Visits(action, action, real, node.value, outcome, count, 5 * one, outcome, one)
        after = with_visit(dataclasses.replace(node, count=count), same)
        value = rules.value(after, None, outcome)
        expected = rules.choose(dataclasses.replace(after, value=value), None)
        return (best, edges[0][:, :3], visit.value), (expected, after.visits, value)

    for filler, action in itertools.product((0.0, np.nan, 1e6), range(3)):
        found, expected = run(jr.key(0), np.int32(action), np.float32(filler))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-6)


@pytest.mark.parametrize(
    "selection, backup",
    [
        (PUCT(c_base=10.0, bound="log"), MaxBackup()),
        (PUCT(qtransform=FirstPlayUrgency(0.2)), MeanBackup()),
        (UCB1(), MeanBackup()),
        (UCB1(epsilon=1.0, qtransform=PlainQ()), MeanBackup()),
        (PUCB(qtransform=ByMinMax(-1.0, 1.0)), MeanBackup()),
        (ImprovedPolicySelection(), MeanBackup()),
    ],
    ids=lambda x: type(x).__name__,
)
def test_every_rule_of_ours_lowers_to_a_gpu_kernel(selection, backup):
    model = RandomTree()
    planner = TreeSearch(4, selection=selection, backup=backup, kernels="pallas")
    run = jax.jit(lambda s, k: grown(planner, model, s, k)[0].weights)
    traced = run.trace(model.start(BATCH), jr.key(0))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.triton(") == 2


@pytest.mark.parametrize(
    "planner, model, message",
    [
        (TreeSearch(4, kernels="pallas"), RandomDice(RandomTree()), 'only "plain" has them'),
        (TreeSearch(4, selection=Sorting(), kernels="pallas"), RandomTree(), "`sort` in a rule"),
        (TreeSearch(4, selection=AboveMean(), kernels="pallas"), RandomTree(), "their mean"),
        (TreeSearch(4, selection=AboveLast(), kernels="pallas"), RandomTree(), "their mean"),
        (TreeSearch(4, backup=MeanOfQ(), kernels="pallas"), RandomTree(), "their mean"),
        (TreeSearch(4, selection=Threefold(), kernels="pallas"), RandomTree(), "of 3 features"),
        (TreeSearch(4, selection=Joined(), kernels="pallas"), RandomTree(), "axis of both actions"),
        (
            TreeSearch(4, selection=UCB1(qtransform=Held(jnp.ones(6))), kernels="pallas"),
            RandomTree(),
            "holds an array",
        ),
    ],
)
def test_what_no_kernel_can_do_is_refused(planner, model, message):
    state = RandomTree().start(BATCH)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda s, k: grown(planner, model, s, k), state, jr.key(0))


def test_other_kernels_are_named():
    with pytest.raises(ValueError, match="kernels='mosaic'.*.plain., .pallas. or .auto."):
        TreeSearch(4, kernels="mosaic")
    with pytest.raises(ValueError, match="`Rules.kernels='auto'.`: must be .plain. or .pallas."):
        Rules(PUCT(), kernels="auto")


@pytest.mark.parametrize(
    "platform, kind, capability, model, chosen",
    [
        ("gpu", "NVIDIA H100 80GB HBM3", "9.0", RandomTree(), "pallas"),
        ("gpu", "NVIDIA H100 80GB HBM3", "9.0", RandomDice(RandomTree()), "plain"),
        ("gpu", "Tesla T4", "7.5", RandomTree(), "plain"),
        ("gpu", "AMD Instinct MI300X", "gfx942", RandomTree(), "plain"),
        ("tpu", "TPU v5 lite", None, RandomTree(), "plain"),
        ("cpu", "cpu", None, RandomTree(), "plain"),
    ],
)
def test_auto_is_for_the_devices_that_triton_compiles_for(
    monkeypatch, platform, kind, capability, model, chosen
):
    device = types.SimpleNamespace(
        platform=platform, device_kind=kind, compute_capability=capability
    )
    monkeypatch.setattr(jax, "devices", lambda: [device])
    rules = TreeSearch(4, kernels="auto")._world(
        model, RandomTree().start(2), 3, jr.split(jr.key(0), 2)
    )[2]
    assert rules.kernels == chosen


@SLOW
def test_searches_on_a_mesh():
    model, planner = RandomTree(), TreeSearch.gumbel(8, kernels="pallas")
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("data")

    def run(state, key):
        return planner.plan(model, state, planner.init(model, state), key=key)[0].visits

    given = lambda: (model.start(6), jr.split(jr.key(0), 6))
    # Interpreted kernels know nothing of what varies over devices.
    mapped = jax.shard_map(run, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
    shared = quick_jit(mapped)
    np.testing.assert_array_equal(shared(*given()), quick_jit(run)(*given()))
