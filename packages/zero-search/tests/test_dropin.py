"""`zero_search.mctx` against mctx: same arguments and keys, same results."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
import pytest

import zero_search.mctx as dropin
from zero_search import AbstractQTransform, ByParentAndSiblings, TreeSearch
from zero_search.mctx import _nodes

from .helpers import Jitted, othello_positions, quick_jit, RandomTree


# A learned discount may be above 1, and mctx takes it as it is.
SIMULATIONS, GAMMA = 24, 1.05
# chex dataclasses hide their constructors from type checkers.
ENGINE: Any = mctx
POLICIES = ("muzero_policy", "gumbel_muzero_policy")
LOWEST = np.finfo(np.float32).min
# The models here draw nothing.
UNUSED: Any = None


@pytest.fixture(autouse=True)
def loose():
    """mctx promotes types and ranks freely, and reuses keys that it will not use."""
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        with jax.numpy_dtype_promotion("standard"):
            yield


@pytest.fixture
def quiet(monkeypatch):
    """Neither engine breaks ties at random; all other noise stays."""
    monkeypatch.setattr(_nodes, "TIE_BREAK", 0.0)
    monkeypatch.setattr(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape))


@functools.cache
def case(name):
    """A model that may go on below final states, positions, and what is illegal there."""
    if name == "othello":
        model, state = othello_positions(24, seed=3)
    else:
        model = RandomTree(num_actions=4, after_end=0.7)
        state = model.start(40)
    return model, state, np.asarray(quick_jit(lambda s: predict(model, s)[0] <= LOWEST)(state))


def predict(model, state):
    """As a network with a mask does; below the end nothing is legal."""
    logits, value = model.predict(state, key=UNUSED)
    legal = logits > -jnp.inf
    if isinstance(model, RandomTree):
        legal = legal & ~state.done[:, None]
    return jnp.where(legal, logits, LOWEST), value


def recurrent(model, key, action, state):
    """Rewards are drawn from the key, so that another key would change the search."""
    state, reward, discount, _ = model.step(state, action, key=UNUSED)
    logits, value = predict(model, state)
    return ENGINE.RecurrentFnOutput(
        reward=reward + 0.1 * jr.normal(key, reward.shape),
        discount=GAMMA * discount,
        prior_logits=logits,
        value=value,
    ), state


@functools.cache
def searcher(policy, name, **kwargs):
    """A compiled search from states, with a key and a mask."""
    model, _, _ = case(name)

    def run(state, key, invalid):
        logits, value = predict(model, state)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        return policy(model, key, root, recurrent, SIMULATIONS, invalid, **kwargs)

    return quick_jit(run)


def run(policy, name, key=None, **kwargs):
    _, state, invalid = case(name)
    key = jr.key(7) if key is None else key
    return searcher(policy, name, **kwargs)(state, key, invalid)


def assert_equal(ours, theirs):
    """Every array, and where it stands."""
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(ours),
        jax.tree_util.tree_leaves_with_path(theirs),
        strict=True,
    )
    for (path, x), (other, y) in pairs:
        assert path == other
        assert x.dtype == y.dtype, path
        if jnp.issubdtype(x.dtype, jnp.floating):
            assert np.allclose(x, y, rtol=1e-6, atol=1e-6), path
        elif jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert np.array_equal(jr.key_data(x), jr.key_data(y)), path
        else:
            assert np.array_equal(x, y), path


def test_everything_public_of_mctx_is_here():
    for name in mctx.__all__:
        found = getattr(dropin, name)
        assert (found is getattr(mctx, name)) == (name not in POLICIES), name


@pytest.mark.parametrize("name", POLICIES)
def test_arguments_are_those_of_mctx(name):
    ours = inspect.signature(getattr(dropin, name)).parameters.values()
    theirs = inspect.signature(getattr(mctx, name)).parameters.values()
    shape = lambda found: [(p.name, p.kind, p.default) for p in found]
    assert shape(ours) == shape(theirs)


def test_alphazero_has_two_arguments_more():
    ours = dict(inspect.signature(dropin.alphazero_policy).parameters)
    assert list(ours)[5:7] == ["search_tree", "max_nodes"]
    for name in ("search_tree", "max_nodes"):
        assert ours.pop(name).default is None
    theirs = inspect.signature(mctx.muzero_policy).parameters
    assert [p.name for p in ours.values()] == list(theirs)


MIN_MAX = functools.partial(mctx.qtransform_by_min_max, min_value=-2.0, max_value=3.0)
MIXED = functools.partial(
    mctx.qtransform_completed_by_mix_value,
    value_scale=0.3,
    maxvisit_init=10.0,
    rescale_values=False,
    use_mixed_value=False,
)
PUCT = {"qtransform": MIN_MAX, "dirichlet_alpha": 0.5, "pb_c_init": 2.0, "pb_c_base": 30}
HALVING = {"qtransform": MIXED, "max_num_considered_actions": 3, "gumbel_scale": 0.5}
TRIPS = []


def noting_loop(lower, upper, body, carry):
    TRIPS.append((lower, upper))
    return jax.lax.fori_loop(lower, upper, body, carry)


@pytest.mark.parametrize(
    "policy, name, options",
    [
        ("muzero_policy", "tree", PUCT),
        # Gumbel on trees: see the next test.
        pytest.param("muzero_policy", "othello", {}, marks=pytest.mark.slow),
        pytest.param("gumbel_muzero_policy", "othello", {}, marks=pytest.mark.slow),
    ],
)
def test_output_equals_that_of_mctx(policy, name, options, quiet):
    # The noise at the root and the keys of `recurrent_fn` come from the same `rng_key`.
    ours = run(getattr(dropin, policy), name, **options)
    assert_equal(ours, run(getattr(mctx, policy), name, **options))
    assert type(ours) is mctx.PolicyOutput
    assert type(ours.search_tree) is mctx.Tree


def test_raw_keys_and_other_loops_are_honoured(quiet, every_device):
    # A key from `jax.random.PRNGKey` reaches `recurrent_fn` as one, too.
    policies = dropin.gumbel_muzero_policy, mctx.gumbel_muzero_policy
    key = jr.key_data(jr.key(5))
    assert_equal(*(run(policy, "tree", key, **HALVING) for policy in policies))
    _, state, invalid = case("tree")
    TRIPS.clear()
    for policy in policies:
        search = searcher(policy, "tree", **HALVING, loop_fn=noting_loop)
        search.eval_shape(state, key, invalid)
    # Ours is traced for a CPU and for other devices.
    assert TRIPS == 3 * [(0, SIMULATIONS)]


class Flipped(AbstractQTransform):
    """Seeks what is worst."""

    def __call__(self, node):
        return 1 - ByParentAndSiblings()(node)


def test_depth_and_our_own_qtransform_are_honoured(quiet):
    found = run(dropin.muzero_policy, "tree", max_depth=3, qtransform=Flipped()).search_tree
    usual = run(dropin.muzero_policy, "tree", **PUCT).search_tree
    at_root = lambda tree: np.mean(np.asarray(tree.node_values)[:, 0])
    assert at_root(found) < at_root(usual) - 0.1
    assert [depths(found).max(), depths(usual).max() > 3] == [3, True]
    assert np.all(np.sum(np.asarray(found.children_visits)[:, 0], axis=1) == SIMULATIONS)


def depths(tree) -> np.ndarray:
    """Of every node, found from parents to children."""
    parents = np.asarray(tree.parents)
    found = np.zeros(parents.shape, int)
    for node in range(1, parents.shape[1]):
        above = np.take_along_axis(found, np.maximum(parents[:, [node]], 0), axis=1)[:, 0]
        found[:, node] = np.where(parents[:, node] < 0, 0, above + 1)
    return found


@pytest.mark.parametrize(
    "policy, key, options",
    [("muzero_policy", jr.key, PUCT), ("gumbel_muzero_policy", jr.PRNGKey, HALVING)],
    ids=POLICIES,
)
def test_illegal_actions_are_never_visited(policy, key, options, quiet):
    # Masked by the logits alone, at the root and inside; but row 3 is filler. (The searches are
    # those of the tests above, already compiled.)
    _, state, invalid = case("tree")
    filler = np.zeros(invalid.shape, bool)
    filler[3] = True
    out = searcher(getattr(dropin, policy), "tree", **options)(state, key(0), filler)
    tree = out.search_tree
    illegal = np.asarray(tree.children_prior_logits) <= LOWEST
    partly = illegal & ~np.all(illegal, axis=2, keepdims=True)
    assert np.any(partly[:, 0]) and np.any(partly[:, 1:])
    assert not np.any(np.asarray(tree.children_visits)[partly])
    assert np.array_equal(tree.root_invalid_actions, illegal[:, 0])
    assert np.array_equal(tree.root_invalid_actions, filler | invalid)
    real = np.arange(40) != 3
    assert np.array_equal(illegal[np.arange(40), 0, out.action], ~real)
    assert np.array_equal(np.asarray(tree.node_visits)[:, 0], np.where(real, 1 + SIMULATIONS, 1))
    assert np.allclose(np.sum(out.action_weights, axis=1), 1.0, atol=1e-5)
    assert not any(np.any(np.isnan(x)) for x in jax.tree.leaves(out))


def test_ties_are_broken_at_random():
    # One visit, all actions alike: the first one taken is a matter of chance alone.
    model = RandomTree(num_actions=4, illegal=0.0, sharpness=0.0, noise=0.0)
    state = model.start(400)

    @quick_jit
    def search(key):
        logits, value = predict(model, state)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        args = (model, key, root, recurrent, 2)
        return dropin.muzero_policy(*args, dirichlet_fraction=0.0).search_tree

    # Our own part needs no leniency.
    with jax.debug_key_reuse(True), jax.numpy_rank_promotion("raise"):
        with jax.numpy_dtype_promotion("strict"):
            first, second = search(jr.key(0)), search(jr.key(1))
    taken = np.asarray(first.action_from_parent)
    counts = np.bincount(taken[:, 1], minlength=4)
    assert np.all(counts > 60), counts  # 100 each, give or take 9
    assert not np.array_equal(taken, second.action_from_parent)
    # What is returned has no noise.
    assert len(np.unique(np.asarray(first.children_prior_logits)[:, 0])) == 1


# Going on with a tree.


@functools.cache
def endless():
    """Nothing is final, and no action needs a mask: what is compared is the tree alone."""
    model = RandomTree(num_actions=3, discounts=(0.9, -0.9), illegal=0.0)
    return model, model.start(30)


def plain(model, key, action, state):
    """Without rewards from the key: two short searches must equal a long one."""
    del key
    state, reward, discount, _ = model.step(state, action, key=UNUSED)
    logits, value = model.predict(state, key=UNUSED)
    return ENGINE.RecurrentFnOutput(
        reward=reward, discount=discount, prior_logits=logits, value=value
    ), state


def grown(state, tree, num_simulations, max_nodes=20):
    """`alphazero_policy` without root noise."""
    model, _ = endless()
    logits, value = model.predict(state, key=UNUSED)
    root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
    args = (model, jr.key(0), root, plain, num_simulations, tree, max_nodes)
    with pytest.MonkeyPatch.context() as patch:
        # A Dirichlet draw takes long to compile, and here it has no weight.
        patch.setattr(jr, "dirichlet", lambda key, alpha, shape: jnp.ones((*shape, *alpha.shape)))
        return dropin.alphazero_policy(*args, dirichlet_fraction=0.0).search_tree


go_on = quick_jit(grown, static_argnums=(2, 3))


def test_two_searches_equal_a_long_one(quiet):
    # The second one fills the tree; what finds no room counts all the same.
    _, state = endless()
    whole = go_on(state, None, 30)
    # From a tree that was emptied as from none.
    empty = quick_jit(dropin.reset_search_tree)(whole)
    assert not np.any(empty.node_visits) and np.all(np.asarray(empty.children_index) == -1)
    assert_equal(go_on(state, go_on(state, empty, 15), 15), whole)
    assert np.all(np.sum(np.asarray(whole.children_visits)[:, 0], axis=1) == 30)
    assert np.all(np.sum(np.asarray(whole.node_visits) > 0, axis=1) == 20)


def test_a_full_tree_counts_on_as_that_of_the_planner(quiet):
    model, state = endless()
    summary = quick_jit(lambda tree: tree.summary())(go_on(state, None, 30))
    plan = Jitted(TreeSearch.muzero(30, max_nodes=20), model).fresh(state)
    assert np.allclose(summary.visit_probs, plan.weights)
    assert np.allclose(summary.value, plan.value, atol=1e-5)
    ours, theirs = (np.asarray(x.qvalues)[plan.weights > 0] for x in (plan, summary))
    assert np.allclose(ours, theirs, atol=1e-5)


def test_what_lies_on_the_host_is_taken(quiet, unhooked):
    """NumPy's 64 bits in a root, trees that were fetched, and an array of JAX as a count."""
    _, state = endless()
    root = jax.device_get(state)
    wide = jax.tree.map(lambda x: x.astype(np.int64) if x.dtype == np.int32 else x, root)
    action = np.arange(30, dtype=np.int32) % 3
    few: Any = jnp.int32(15)
    tree = go_on(state, None, 15)
    below = subtree(tree, action, np.zeros(30, bool))
    assert_equal(grown(wide, None, few), tree)  # outside of `jit`, which makes arrays of all
    fetched: Any = jax.device_get(tree).replace(extra_data="mine")
    left: Any = dropin.get_subtree(fetched, jnp.asarray(action))
    assert left.extra_data == "mine"
    assert_equal(left.replace(extra_data=below.extra_data), below)
    rows: Any = [True] * 30
    assert not dropin.reset_search_tree(tree, rows).node_visits.any()


def test_gaps_in_a_tree_of_mctx_stay_empty(quiet):
    """They are where `max_depth` has stopped a simulation."""
    model, state = endless()

    @quick_jit
    def search(state) -> Any:
        logits, value = model.predict(state, key=UNUSED)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        args: Any = (model, jr.key(0), root, plain, 8)
        found: Any = mctx.muzero_policy(*args, max_depth=1, dirichlet_fraction=0.0)
        return found.search_tree

    tree = search(state).replace(extra_data=None)
    there = np.asarray(tree.parents)[:, 1:] >= 0
    gaps = ~there & np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    after = np.asarray(go_on(state, tree, 4).parents)[:, 1:]
    assert gaps.any() and np.all(after[gaps] < 0)


def test_logits_beyond_float32_stay_finite(float64):
    logits = jnp.array([-1e300, 0.0, 1e300, np.nan, np.finfo(np.float64).min])
    seen = np.asarray(_nodes.prior(logits))
    assert seen.dtype == np.float32 and np.isfinite(seen[:4]).all() and seen[4] == -np.inf


def nodes_below(tree, row, index):
    """A tree's row, from a node on, as nested dictionaries: numbers are left out."""
    at = lambda name: np.asarray(getattr(tree, name))[row, index]
    names = ("node_visits", "raw_values", "node_values")
    shallow: dict[str, Any] = {name: at(name) for name in names}
    for name in ("prior_logits", "visits", "rewards", "discounts", "values"):
        shallow[name] = at(f"children_{name}")
    shallow["embedding"] = [np.asarray(x)[row, index] for x in tree.embeddings]
    children = {}
    for action, child in enumerate(at("children_index")):
        if child >= 0:
            assert np.asarray(tree.parents)[row, child] == index
            assert np.asarray(tree.action_from_parent)[row, child] == action
            children[action] = nodes_below(tree, row, child)
    return {**shallow, "children": children}


@quick_jit
def subtree(tree, action, emptied) -> Any:
    return dropin.reset_search_tree(dropin.get_subtree(tree, action), emptied)


def test_a_subtree_is_what_was_below_the_action(quiet):
    _, state = endless()
    tree = go_on(state, None, 30)
    action = np.arange(30, dtype=np.int32) % 3
    below = jax.tree.map(np.asarray, subtree(tree, action, np.zeros(30, bool)))
    tree = jax.tree.map(np.asarray, tree)
    child = tree.children_index[np.arange(30), 0, action]
    assert np.all(below.parents[:, 0] == -1) and np.any(child < 0) and np.any(child > 0)
    for row in range(30):
        size = int(np.sum(below.node_visits[row] > 0))
        # Nodes in front, nothing behind them.
        for name, empty in (("parents", -1), ("children_index", -1), ("children_visits", 0)):
            assert np.all(getattr(below, name)[row, size:] == empty)
        if child[row] < 0:
            assert size == 0
        else:
            kept = nodes_below(below, row, 0)
            assert str(kept) == str(nodes_below(tree, row, int(child[row])))
            assert 1 + kept["visits"].sum() == kept["node_visits"] == below.node_visits[row, 0]


def test_a_kept_subtree_grows_and_an_empty_tree_starts_anew(quiet):
    model, state = endless()
    tree = go_on(state, None, 30)
    action = np.arange(30, dtype=np.int32) % 3
    after, *_ = model.step(state, action, key=UNUSED)
    below = subtree(tree, action, np.arange(30) == 1)
    none = subtree(tree, action, np.ones(30, bool))
    found = (go_on(after, below, 15), go_on(after, none, 15), below)
    grown, fresh, below = jax.tree.map(np.asarray, found)
    empty = below.node_visits[:, 0] == 0
    assert empty[1] and 2 <= np.sum(empty) <= 15
    # Old visits and new ones.
    visits = np.sum(grown.children_visits[:, 0], axis=1)
    assert np.array_equal(visits, np.maximum(below.node_visits[:, 0], 1) - 1 + 15)
    assert np.array_equal(grown.embeddings.name[:, 0], after.name)
    for row in np.flatnonzero(empty):
        assert str(nodes_below(grown, row, 0)) == str(nodes_below(fresh, row, 0))
    for row in range(30):
        check = nodes_below(grown, row, 0)
        assert 1 + check["visits"].sum() == check["node_visits"]


# A program written for mctx.


def self_play(library, games, moves):
    """Games by pgx's AlphaZero recipe: a network with a mask, a search, then a step that starts the
    next game where one ends.
    """
    import pgx  # starts the backend
    from pgx.experimental import auto_reset

    env = pgx.make("tic_tac_toe")
    weights = jr.normal(jr.key(1), (27, 10))

    def network(weights, state):
        cells = jax.nn.one_hot(state._x.board + 1, 3).reshape(-1, 27)
        out = cells @ weights
        logits = out[:, :9] - jnp.max(out[:, :9], axis=-1, keepdims=True)
        lowest = jnp.finfo(logits.dtype).min
        return jnp.where(state.legal_action_mask, logits, lowest), jnp.tanh(out[:, 9])

    def recurrent_fn(weights, rng_key, action, state):
        del rng_key
        player = state.current_player
        state = jax.vmap(env.step)(state, action)
        logits, value = network(weights, state)
        return library.RecurrentFnOutput(
            reward=state.rewards[jnp.arange(games), player],
            discount=jnp.where(state.terminated, 0.0, -1.0),
            prior_logits=logits,
            value=jnp.where(state.terminated, 0.0, value),
        ), state

    def move(state, key):
        search_key, reset_key = jr.split(key)
        logits, value = network(weights, state)
        output = library.gumbel_muzero_policy(
            params=weights,
            rng_key=search_key,
            root=library.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            recurrent_fn=recurrent_fn,
            num_simulations=8,
            invalid_actions=~state.legal_action_mask,
            qtransform=library.qtransform_completed_by_mix_value,
            gumbel_scale=1.0,
        )
        keys = jr.split(reset_key, games)
        state = jax.vmap(auto_reset(env.step, env.init))(state, output.action, keys)
        return state, (output.action, output.action_weights, state.rewards, state.terminated)

    def play(key):
        init_key, key = jr.split(key)
        state = jax.vmap(env.init)(jr.split(init_key, games))
        return jax.lax.scan(move, state, jr.split(key, moves))

    return quick_jit(play)(jr.key(0))


@pytest.mark.slow
def test_self_play_goes_the_same_way():
    ours, theirs = self_play(dropin, 16, 12), self_play(mctx, 16, 12)
    assert_equal(ours, theirs)
    assert np.sum(ours[1][3]) > 8  # games that ended
