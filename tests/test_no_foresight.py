"""What a planner cannot know of a world of another library, whose states hold the keys of what they
draw next: through the adapters it plans without them."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import gymnax_environment, stoa_environment
from zero_nets import Categorical
from zero_search import ParticleSearch
from zero_train import PolicyModel


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import stoa


class Guess(stoa.Environment):
    """One guess of a coin that the key in the state tosses: who knows the key is always right."""

    def reset(self, rng_key, env_params=None) -> Any:
        one = jnp.float32(1)
        seen = stoa.TimeStep(stoa.StepType.FIRST, one - 1, one, jnp.zeros(1), {})
        return {"rng_key": rng_key}, seen

    def step(self, state: Any, action: Any, env_params=None) -> Any:
        rng_key, drawn = jr.split(state["rng_key"])
        won = (action == jr.bernoulli(drawn).astype(jnp.int32)).astype(jnp.float32)
        kind = stoa.StepType.TERMINATED
        return {"rng_key": rng_key}, stoa.TimeStep(kind, won, jnp.float32(0), jnp.zeros(1), {})

    def action_space(self, env_params=None) -> Any:
        return stoa.DiscreteSpace(2, jnp.int32)

    def observation_space(self, env_params=None) -> Any:
        return stoa.ArraySpace((1,), jnp.float32)

    def state_space(self, env_params=None) -> Any:
        return stoa.DictSpace({})


def test_a_guess_is_right_half_the_time():
    """256 of them, planned with 8 particles. A search that steps Stoa's own states is always right:
    that is shown first, or nothing would be tested."""
    games = 256
    keys = jr.split(jr.key(0), games)
    state, _ = jax.vmap(Guess().reset)(jr.key_data(keys))
    rewards = [
        jax.vmap(lambda s, a=action: Guess().step(s, jnp.int32(a))[1].reward)(state)
        for action in (0, 1)
    ]
    assert (jnp.maximum(*rewards) == 1).all()

    env = stoa_environment(Guess(), hidden=False)
    model = PolicyModel(env, lambda seen: (Categorical(jnp.zeros(2)), jnp.float32(0)))
    search = ParticleSearch(8, 1, temperature=0.1, resample_every=None)

    @jax.jit
    def played(starts, plans, steps):
        states = jax.vmap(lambda key: env.init(key=key))(starts)
        plan, _ = search.plan(model, states, None, key=plans)
        step = jax.vmap(lambda s, a, k: env.step(s, a, key=k)[1].reward)
        return plan.action, plan.weights, step(states, plan.action, steps)

    draws = [jr.split(jr.key(seed), games) for seed in range(1, 5)]
    action, weights, won = played(keys, draws[0], draws[1])
    # 4.5 standard deviations.
    assert abs(float(won.mean()) - 0.5) < 0.14
    # Other keys of the first states change nothing, and other keys of the search do.
    same = played(draws[2], jr.clone(draws[0]), draws[3])
    np.testing.assert_array_equal(action, same[0])
    np.testing.assert_array_equal(weights, same[1])
    other = played(jr.clone(keys), jr.clone(draws[3]), jr.clone(draws[1]))
    assert (other[1] != weights).any()


def test_what_is_hidden_is_not_planned_over():
    """Whether it is has to be said of every environment that is not known."""
    env = stoa_environment(Guess(), hidden=True)
    assert env.hidden and gymnax_environment("SimpleBandit-bsuite").hidden
    with pytest.raises(ValueError, match="planners may not see it"):
        PolicyModel(env, lambda seen: (Categorical(jnp.zeros(2)), jnp.float32(0)))
