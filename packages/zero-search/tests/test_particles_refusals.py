"""Particle search: bad input ends in one line that names it, and NaN in a count."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractModel,
    AbstractProposalModel,
    DirichletNoise,
    GaussianNoise,
    ParticleSearch,
)

from .helpers import quick_jit, RandomTree


ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    (ParticleSearch, dict(num_particles=0), r"\(num_particles=0\)`: must be an integer, 1 or"),
    (ParticleSearch, dict(depth=0), r"\(depth=0\)`: must be an integer, 1 or more"),
    (ParticleSearch, dict(depth=4.0), r"\(depth=4.0\)`: must be an integer"),
    (
        ParticleSearch,
        dict(depth=3),
        r"\(resample_every=4, depth=3\)`: is longer than the search is deep",
    ),
    (ParticleSearch, dict(temperature=np.nan), r"\(temperature=nan\)`: must be finite and above 0"),
    (ParticleSearch, dict(temperature=0.0), r"\(temperature=0.0\)`: must be finite and above 0"),
    (ParticleSearch, dict(temperature=[1.0, 2.0]), r"has shape \(2,\): must be a scalar"),
    (ParticleSearch, dict(lambda_=-0.1), r"\(lambda_=-0.1\)`: must be from 0 to 1"),
    (ParticleSearch, dict(resample_every=0), r"\(resample_every=0\)`: must be an integer"),
    (ParticleSearch, dict(resampling="residual"), r"resampling='residual'\)`: must be \"multi"),
    (ParticleSearch, dict(noise=0.3), r"\(noise=0.3\)`: must be .*DirichletNoise.*GaussianNoise"),
    (ParticleSearch, dict(noise=GaussianNoise), r"GaussianNoise'>\)`: must be .*`GaussianNoise\("),
    (ParticleSearch, dict(readout="best"), r"\(readout='best'\)`: must be \"sampled\", \"argmax\""),
    (ParticleSearch, dict(resample_below=1.1), r"\(resample_below=1.1\)`: must be from 0 to 1"),
    (GaussianNoise, dict(scale=-1.0), r"`GaussianNoise\(scale=-1.0\)`: must be finite, 0 or more"),
    (GaussianNoise, dict(scale=1.0, minimum=2.0), r"\(minimum=2.0, maximum=1.0\)`: must be finite"),
    (GaussianNoise, dict(scale=1.0, maximum=np.inf), r"maximum=inf\)`: must be finite and in"),
]


@pytest.mark.parametrize("part, fields, message", ARGUMENTS)
def test_bad_arguments_are_named(unhooked, part, fields, message):
    with pytest.raises(ValueError, match=message) as error:
        part(**fields)
    assert "\n" not in str(error.value)


class Point(eqx.Module):
    """A policy that always does the same."""

    loc: Any

    def sample(self, *, key):
        return self.loc

    def log_prob(self, action):
        return jnp.zeros(())


class Line(AbstractProposalModel[jax.Array]):
    """Walks to the right; below 0 something is not finite."""

    what: str = "nothing"

    def root(self, state, obs, *, key):
        return state

    def wrong(self, state, what, x):
        return jnp.where((state[:, 0] < 0) & (self.what == what), jnp.nan, x)

    def step(self, node, action, *, key):
        ones = jnp.ones(node.shape[0])
        return node + action, self.wrong(node, "reward", -ones), ones, ones == 0

    def propose(self, node, *, key):
        loc = self.wrong(node, "action", jnp.ones(node.shape[0]))
        return Point(loc[:, None]), self.wrong(node, "value", jnp.ones(node.shape[0]))


class Counting(AbstractProposalModel[jax.Array]):
    """Draws integers, without logits."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        ones = jnp.ones(node.shape[0])
        return node, ones, ones, ones == 0

    def propose(self, node, *, key):
        return Point(jnp.zeros(node.shape[0], jnp.int32)), node[:, 0]


class Raw(AbstractProposalModel[jax.Array]):
    """Takes an array for a policy."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        ones = jnp.ones(node.shape[0])
        return node, ones, ones, ones == 0

    def propose(self, node, *, key):
        policy: Any = node
        return policy, node[:, 0]


class Broken(AbstractProposalModel[jax.Array]):
    """Policies without a batch axis, or values with one too many."""

    value_shape: tuple[int, ...]

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        ones = jnp.ones(node.shape[0])
        return node, ones, ones, ones == 0

    def propose(self, node, *, key):
        return Point(jnp.zeros((7,))), jnp.zeros(self.value_shape)


class Blind(AbstractModel[jax.Array]):
    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        ones = jnp.ones(node.shape[0])
        return node, ones, ones, ones == 0


def plan(planner, model, state):
    return planner.plan(model, state, None, key=jr.split(jr.key(0), 3))[0]


NOT_A_TREE = RandomTree(2)
USES: list[tuple[ParticleSearch, Any, str]] = [
    (ParticleSearch(), Blind(), "`Blind`, which has no policy: give it an `AbstractPriorModel`"),
    (ParticleSearch(), Raw(), r"for a policy; it must have `sample\(\*, key\)` and"),
    (ParticleSearch(), Broken((3, 1)), r"returned values float32\[3,1\] for 3 states"),
    (ParticleSearch(), Broken((3,)), r"leaf `.loc` is float32\[7\] for 3 states"),
    (ParticleSearch(noise=DirichletNoise()), Line(), "got a model without logits"),
    (ParticleSearch(noise=GaussianNoise(1.0)), NOT_A_TREE, "got a model of discrete actions"),
    (ParticleSearch(noise=GaussianNoise(1.0)), Counting(), "`GaussianNoise` got actions of int32"),
    (ParticleSearch(readout="mean"), NOT_A_TREE, "actions of int32, which have no mean"),
    (
        eqx.tree_at(lambda p: p.temperature, ParticleSearch(), jnp.float32(jnp.nan)),
        Line(),
        r"\(temperature=nan\)`: must be finite",
    ),
]


@pytest.mark.parametrize("planner, model, message", USES)
def test_bad_uses_are_named(unhooked, planner, model, message):
    state = jnp.zeros((3, 1)) if not isinstance(model, RandomTree) else model.start(3)
    with pytest.raises(ValueError, match=message) as error:
        eqx.filter_eval_shape(lambda state: plan(planner, model, state), state)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("what, times", [("reward", 4), ("value", 1), ("action", 4)])
def test_what_is_not_finite_is_counted_and_stops_its_particle(what, times):
    # In the second game something is not finite: at the root, for each of 4 particles or once.
    planner = ParticleSearch(4, 2, resample_every=None)
    state = jnp.array([[0.0], [-9.0], [5.0]])
    model = Line(what)
    result = quick_jit(lambda s: plan(planner, model, s))(state)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(result))
    with pytest.raises(ValueError, match=f"in {result.stats['invalid'].sum()} eval.*rows .1.:"):
        result.check()
    extra = 4 if what == "value" else 0  # the value of the state that the first step leads to
    assert result.stats["invalid"].tolist() == [0, times + extra, 0]
    # Wrecked steps count for nothing: not even the reward of -1, which others have paid.
    assert np.all(result.advantages[1] == 0) and result.stats["alive"][1, 1] == 0
    assert np.all(result.advantages[0] == -2)
