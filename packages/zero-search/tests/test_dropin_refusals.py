"""`zero_search.mctx`: bad input ends in one line that names it, and spoils nothing."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import pytest

import zero_search.mctx as dropin

from .helpers import quick_jit


# chex dataclasses hide their constructors from type checkers.
engine: Any = mctx
POLICIES = ("muzero_policy", "gumbel_muzero_policy")
MIN_MAX = functools.partial(engine.qtransform_by_min_max, min_value=-2.0, max_value=3.0, scale=2)


def small_root(**changes):
    fields = dict(
        prior_logits=jnp.zeros((2, 3)), value=jnp.zeros((2,)), embedding=jnp.zeros((2, 5))
    )
    return engine.RootFnOutput(**{**fields, **changes})


def constant(change=lambda output, embedding: (output, embedding)):
    """A `recurrent_fn` whose answer is changed."""

    def recurrent_fn(params, key, action, embedding):
        del params, key, action
        zeros = jnp.zeros((2,))
        return change(
            engine.RecurrentFnOutput(
                reward=zeros, discount=zeros, prior_logits=jnp.zeros((2, 3)), value=zeros
            ),
            embedding,
        )

    return recurrent_fn


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "root, options, message",
    [
        ({}, {"num_simulations": 0}, r"`num_simulations=0`: must be 1 or more"),
        ({}, {"num_simulations": 2.0}, r"`num_simulations=2.0`: must be 1 or more"),
        ({}, {"num_simulations": None}, r"`num_simulations=None`: must be 1 or more"),
        ({}, {"max_depth": "3"}, r"`max_depth=3`: must be 1 or more, a known integer"),
        ({"value": [0.0, 0.0]}, {}, r"`root.value` is list; it must be a float \[2\]"),
        ({"embedding": "x"}, {}, r"`root.embedding` is str"),
        ({}, {"invalid_actions": "x"}, r"`invalid_actions` is str"),
        ({}, {"max_depth": 0}, r"`max_depth=0`: must be 1 or more"),
        ({"prior_logits": jnp.zeros((2,))}, {}, r"`root.prior_logits` is float32\[2\]"),
        ({"value": jnp.zeros((2, 1))}, {}, r"`root.value` is float32\[2,1\].* float \[2\]"),
        ({"embedding": {"x": jnp.zeros((3,))}}, {}, r"`root.embedding\['x'\]` is float32\[3\]"),
        ({}, {"invalid_actions": jnp.zeros((3, 3))}, r"`invalid_actions` is float32\[3,3\].*2, 3"),
        ({}, {"invalid_actions": jnp.ones((2, 3))}, r"invalid in rows \[0, 1\] of 2"),
        ({}, {"qtransform": lambda tree, node: 0}, "must be one of mctx's three"),
        ({}, {"qtransform": mctx.qtransform_by_min_max}, "min_value"),
        ({}, {"qtransform": MIN_MAX}, "scale"),
    ],
)
@pytest.mark.usefixtures("unhooked")
def test_bad_arguments_are_named(policy, root, options, message):
    search = getattr(dropin, policy)
    options = {"num_simulations": 2, **options}
    with pytest.raises((ValueError, TypeError), match=message) as error:
        search((), jr.key(0), small_root(**root), constant(), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_not_finite_spoils_nothing(policy):
    # At the root and inside: one logit is NaN, another `inf`; so are values and rewards.
    def spoilt(output, embedding):
        bad = jnp.array([jnp.nan, jnp.inf])
        return output.replace(value=bad, reward=bad, prior_logits=logits), embedding

    logits = jnp.array([[jnp.nan, 0.0, 1.0], [0.0, jnp.inf, -jnp.inf]])
    root = small_root(prior_logits=logits, value=jnp.array([jnp.nan, -jnp.inf]))
    search = lambda key: getattr(dropin, policy)((), key, root, constant(spoilt), 8)
    out = quick_jit(search)(jr.key(0))
    arrays = [out.action_weights, out.search_tree.summary().value, out.search_tree.node_values]
    assert all(jnp.all(jnp.isfinite(x)) for x in arrays)
    assert jnp.all(out.search_tree.children_visits[1, :, 2] == 0)
    assert jnp.all(out.search_tree.children_visits[:, 0, 1] > 0)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda o, e: (o.replace(reward=jnp.zeros((3,))), e), r"output.reward` is float32\[3\].*2"),
        (lambda o, e: (o.replace(prior_logits=jnp.zeros((2, 4))), e), r"prior_logits.*\[2,4\].*3"),
        (lambda o, e: (o, (e, e)), "structure"),
        (lambda o, e: None, "`recurrent_fn` returned NoneType; it must return 2: `output"),
        (lambda o, e: (o, e, e), "`recurrent_fn` returned a tuple of 3; it must return 2"),
        (lambda o, e: ((1, 2), e), "output` is a tuple; it must be an `mctx.RecurrentFnOutput`"),
        (lambda o, e: (o, e[:, :2]), r"embedding` is float32\[2,2\].*2, 5"),
    ],
)
def test_a_bad_recurrent_fn_is_named(change, message):
    search = lambda key: dropin.gumbel_muzero_policy((), key, small_root(), constant(change), 2)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(search, jr.key(0))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_no_key_or_root_is_named(policy, unhooked):
    search: Any = getattr(dropin, policy)
    with pytest.raises(ValueError, match="`rng_key` is None; give a key"):
        search((), None, small_root(), constant(), 2)
    with pytest.raises(ValueError, match="`root` is a tuple; give an `mctx.RootFnOutput`"):
        search((), jr.key(0), (1, 2), constant(), 2)


def test_a_tree_of_other_games_is_refused():
    tree = jax.eval_shape(
        lambda: dropin.alphazero_policy((), jr.key(0), small_root(), constant(), 2).search_tree
    )
    tree = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), tree)
    with pytest.raises(ValueError, match=r"search_tree.children_index` is int32\[2,3,3\].*\[3,"):
        root = small_root(
            prior_logits=jnp.zeros((3, 3)), value=jnp.zeros((3,)), embedding=jnp.zeros((3, 5))
        )
        dropin.alphazero_policy((), jr.key(0), root, constant(), 2, tree)
    with pytest.raises(ValueError, match="search_tree.embeddings"):
        root = small_root(embedding=jnp.zeros((2, 4)))
        dropin.alphazero_policy((), jr.key(0), root, constant(), 2, tree)
