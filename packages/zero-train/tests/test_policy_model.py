"""The model that particles plan over: an environment's steps, row by row, and a policy's words."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
from jaxtyping import Array, Float

from zero_envs import AbstractFactoredEnvironment, Observation, Transition
from zero_search import AbstractProposalModel
from zero_train import PolicyModel
from zero_train._policies import ActorCriticEvaluator

from .actor_critics import Aim, AimState, assert_same, DIMS, GaussianNet, particle_search, ValueNet
from .policies import Categorical, Gaussian


ENV = Aim(max_steps=2)


class Judge(eqx.Module):
    policy: GaussianNet
    critic: ValueNet

    def __call__(self, obs: Observation) -> tuple[Gaussian, Float[Array, ""]]:
        return self.policy(obs.features), self.critic(obs.features)


def judge(seed: int) -> Judge:
    pkey, ckey = jr.split(jr.key(seed))
    return Judge(GaussianNet(DIMS, key=pkey), ValueNet(DIMS, key=ckey))


@pytest.fixture(scope="module")
def states() -> AimState:
    """Four at the start of an episode, the last one step before its end."""
    state = jax.vmap(lambda key: ENV.init(key=key))(jr.split(jr.key(0), 4))
    return AimState(state.goal, jnp.array([0, 0, 0, 1], jnp.int32))


def row(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)


def test_rows_are_the_environment(states):
    """Steps with ends, policies and values: each row by itself is its environment's."""
    model = PolicyModel(ENV, judge(1))
    assert isinstance(model, AbstractProposalModel)
    actions = jr.normal(jr.key(1), (4, DIMS))
    after, reward, discount, last = model.step(states, actions, key=jr.split(jr.key(2), 4))
    policy, value = model.propose(states, key=jr.split(jr.key(3), 4))
    assert last.tolist() == [False, False, False, True] and discount.tolist() == [1.0] * 4
    for i in range(4):
        state, transition = ENV.step(row(states, i), actions[i], key=jr.key(0))
        assert_same(row(after, i), state)
        assert_same((reward[i], discount[i], last[i]), jax.tree.leaves(transition), rtol=1e-6)
        said = model.evaluate(ENV.observe(row(states, i)))
        assert_same((row(policy, i), value[i]), said, rtol=1e-5, atol=1e-6)


def test_a_search_of_one_step_weighs_by_one_step(states):
    """`softmax((r + gamma d V' - V) / temperature)` of its candidates, by the environment and the
    networks alone. New parameters are not traced again."""
    traces = []
    search = particle_search(
        num_particles=6, depth=1, resample_every=None, temperature=jnp.float32(0.7)
    )

    @eqx.filter_jit
    def plan(model, states):
        traces.append(None)
        return search.plan(model, states, None, key=jr.split(jr.key(4), 4))[0]

    for seed in (1, 2):
        net = judge(seed)
        found = plan(PolicyModel(ENV, net, 0.9), states)
        value = lambda state, net=net: float(net.critic(ENV.observe(state).features))
        for i in range(4):
            advantages = []
            for action in found.candidates[i]:
                state, transition = ENV.step(row(states, i), action, key=jr.key(0))
                gain = float(transition.reward) + 0.9 * float(transition.discount) * value(state)
                advantages.append(gain - value(row(states, i)))
            np.testing.assert_allclose(found.advantages[i], advantages, rtol=1e-4, atol=1e-5)
            wanted = scipy.special.softmax(np.array(advantages) / 0.7)
            np.testing.assert_allclose(found.weights[i], wanted, rtol=1e-4, atol=1e-6)
    assert len(traces) == 1


class Parts(AbstractFactoredEnvironment[Any]):
    """Actions of two components, of which the second may not be its last value."""

    num_values: Any = (2, 3)
    hidden: Any = False

    def init(self, *, key):
        del key
        return jnp.zeros(1)

    def step(self, state, action, *, key):
        del action, key
        return state, Transition(jnp.float32(0), jnp.float32(1), jnp.bool_(False))

    def observe(self, state):
        return Observation(state, jnp.array([1, 1, 1, 1, 0], jnp.bool_))


def test_networks_propose_actions_of_several_components():
    evaluator = ActorCriticEvaluator(lambda x: Categorical(jnp.zeros(5)), jnp.sum, None)
    model, keys = PolicyModel(Parts(), evaluator), jr.split(jr.key(0), 2)
    policy, value = cast(Any, model.propose(jnp.ones((2, 1)), key=keys))
    np.testing.assert_array_equal(policy.logits, [[0, 0, 0, 0, -np.inf]] * 2)
    np.testing.assert_array_equal(value, [1, 1])


def test_what_the_player_cannot_see_is_refused():
    hidden = eqx.tree_at(lambda env: env.hidden, ENV, True)
    with pytest.raises(ValueError, match=r"^PolicyModel\(env=Aim\): .*cannot see.*hides nothing"):
        PolicyModel(hidden, judge(1))
