"""Bad input is refused by one line that names it."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from zero_search import (
    AbstractPriorModel,
    DirichletNoise,
    GumbelSearch,
    MctxSearch,
    MuZeroPUCT,
    PUCT,
    Temperature,
    TreeSearch,
    UCB1,
)
from zero_search._check import check_keys

from .helpers import Node, RandomTree


PLANNERS = [TreeSearch(4), GumbelSearch(4), MctxSearch(4)]
TREE = RandomTree()


class Bad(AbstractPriorModel[Any]):
    """A tree with one thing wrong in what it returns."""

    wrong: str

    def step(self, state, action, *, key):
        after, reward, discount, last = TREE.step(state, action, key=key)
        if self.wrong == "reward":
            reward = reward[:, None]
        if self.wrong == "discount":
            discount = discount.astype(jnp.int32)
        if self.wrong == "last":
            last = last.astype(jnp.int32)
        if self.wrong == "structure":
            return tuple(after), reward, discount, last
        if self.wrong == "leaf":
            after = after._replace(depth=after.depth.astype(jnp.float32))
        return after, reward, discount, last

    def predict(self, state, *, key):
        logits, value = TREE.predict(Node(*state), key=key)
        if self.wrong == "value":
            value = value[:, None]
        if self.wrong == "logits":
            logits = logits.astype(jnp.int32)
        return logits, value


def trace(planner, model, state, num_keys: int):
    """Plans without running anything."""

    def run(state):
        keys = jr.split(jr.key(0), num_keys)
        return planner.plan(model, state, planner.init(model, state), key=keys)

    return jax.eval_shape(run, state)


@pytest.mark.parametrize("planner", [TreeSearch(4, reuse=True), MctxSearch(4)])
@pytest.mark.parametrize(
    "wrong, message",
    [
        ("value", r"values float32\[3,1\] for 3 states; they must be \(3, actions\) and \(3,\)"),
        ("logits", r"returned logits int32\[3,6\]"),
        ("reward", r"`reward` float32\[3,1\] for 3 states; it must be float of shape \(3,\)"),
        ("discount", r"`discount` int32\[3\] for 3 states; it must be float"),
        ("last", r"`last` int32\[3\] for 3 states; it must be bool"),
        ("structure", r"keep the structure"),
        ("leaf", r"the leaf `state\.depth` from int32\[3\] into float32\[3\]"),
    ],
)
def test_wrong_results_of_a_model_are_named(planner, wrong, message):
    # Under the import hook's eyes too: a user's own model is not annotated.
    with pytest.raises(ValueError, match=message) as error:
        trace(planner, Bad(wrong), TREE.root(3), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("planner", PLANNERS)
def test_wrong_rows_are_named(planner):
    state = TREE.root(3)
    with pytest.raises(ValueError, match=r"`key` is key<fry>\[2\] for 3 states"):
        trace(planner, TREE, state, 2)
    scalar = state._replace(depth=jnp.zeros((), jnp.int32))
    with pytest.raises(ValueError, match=r"leaves of shapes \(\), \(3,\)"):
        trace(planner, TREE, scalar, 3)


def test_keys_must_be_typed_and_one_a_row():
    # The import hook of these tests refuses such keys earlier; a user's program has no hook.
    with pytest.raises(ValueError, match=r"`key` is key<fry>\[\] for 3 states"):
        check_keys(jr.key(0), 3)
    with pytest.raises(ValueError, match=r"uint32\[3,2\] for 3 states.*one typed key a state"):
        check_keys(jr.split(jr.PRNGKey(0), 3), 3)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: TreeSearch(0), "num_simulations=0"),
        (lambda: TreeSearch(4, max_nodes=0), "max_nodes=0"),
        (lambda: TreeSearch(4, temperature=-1.0), "temperature=-1.0"),
        (lambda: TreeSearch(4, gamma=1.5), "gamma=1.5"),
        (lambda: GumbelSearch(-1), "num_simulations=-1"),
        (lambda: GumbelSearch(4, max_nodes=0), "max_nodes=0"),
        (lambda: GumbelSearch(4, max_num_considered_actions=0), "considered_actions=0"),
        (lambda: GumbelSearch(4, gumbel_scale=-1.0), "gumbel_scale=-1.0"),
        (lambda: GumbelSearch(4, gamma=-0.1), "gamma=-0.1"),
        (lambda: MctxSearch(4, "alphazero"), "policy='alphazero'"),
        (lambda: MctxSearch(4, gamma=float("nan")), "gamma=nan"),
        (lambda: MctxSearch(4, temperature=-1.0), "temperature=-1.0"),
        (lambda: MctxSearch(4, "gumbel", noise=DirichletNoise()), "`noise` is for policy='muzero'"),
        (lambda: MctxSearch(4, "gumbel", temperature=1.0), "`temperature` is for policy='muzero'"),
        (lambda: MctxSearch(4, gumbel_scale=0.0), "`gumbel_scale` is for policy='gumbel'"),
        (lambda: MctxSearch(4, "gumbel", max_num_considered_actions=0), "considered_actions=0"),
        (lambda: PUCT(-1.0), r"PUCT\(c=-1.0\)"),
        (lambda: MuZeroPUCT(c_init=-1.0), "c_init=-1.0"),
        (lambda: MuZeroPUCT(c_base=0.0), "c_base=0.0"),
        (lambda: UCB1(-0.5), "c=-0.5"),
        (lambda: DirichletNoise(fraction=1.5), "fraction=1.5"),
        (lambda: DirichletNoise(alpha=0.0), "alpha=0.0"),
        (lambda: DirichletNoise(total=-1.0), "total=-1.0"),
        (lambda: Temperature(moves=-1), "moves=-1"),
    ],
)
def test_bad_hyperparameters_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
