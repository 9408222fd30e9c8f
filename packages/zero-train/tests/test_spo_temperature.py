"""The adaptive temperature: it brings the search to its bound, and the next search has it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import scipy.optimize
import scipy.special

from zero_train import ParticleRecord
from zero_train.losses import Dual

from .actor_critics import (
    Aim,
    aiming,
    BATCH,
    continuous_region,
    counted,
    DIMS,
    LENGTH,
    particle_search,
    spo,
    windows,
)


PARTICLES, EPSILON = 16, 0.2
SHAPE = BATCH, LENGTH, PARTICLES
DRAWS = np.random.default_rng(0)
#: Of the advantages of every state; the last are those of a sparse reward.
ADVANTAGES = {
    "normal": DRAWS.normal(size=SHAPE),
    "tiny": 1e-3 * DRAWS.normal(size=SHAPE),
    "large": 100 + 50 * DRAWS.normal(size=SHAPE),
    "skewed": -(DRAWS.exponential(size=SHAPE) ** 2),
    "heavy": DRAWS.standard_t(2.0, size=SHAPE),
    "two levels": 3 * (DRAWS.random(SHAPE) < 0.3).astype(float),
    "states differ": DRAWS.normal(size=SHAPE) * 10 ** DRAWS.uniform(-1, 1, (BATCH, LENGTH, 1)),
    "one in a hundred": (DRAWS.random(SHAPE) < 0.01).astype(float),
    "drawn with noise": DRAWS.normal(size=SHAPE),
}
#: How much likelier candidates are under the policy than they were to be drawn, as logarithms: the
#: noise of the last ones prefers good actions.
LOG_RATIOS = {name: np.zeros(SHAPE) for name in ADVANTAGES}
LOG_RATIOS["drawn with noise"] -= ADVANTAGES["drawn with noise"]


def kl_nonparametric(eta: float, name: str, counts: np.ndarray) -> float:
    prior = scipy.special.log_softmax(LOG_RATIOS[name], axis=-1)
    improved = scipy.special.log_softmax(prior + ADVANTAGES[name] / eta, axis=-1)
    kl = np.sum(np.exp(improved) * (improved - prior), axis=-1)
    return float(np.sum(counts * kl) / counts.sum())


@pytest.fixture(scope="module")
def settled():
    """By name of the advantages: metrics of the last of 1500 updates of them, by the agent."""

    def record(*, candidates, weights, advantages, log_prob):
        del weights, advantages, log_prob
        zeros = jnp.zeros(SHAPE)
        return ParticleRecord(
            jnp.broadcast_to(candidates[:, :, :1], (*SHAPE, DIMS)), zeros, zeros, {}, zeros
        )

    batch = windows(record=record)
    agent: Any = spo(
        region=continuous_region(epsilon=EPSILON, temperature=Dual.from_value(1.0)),
        policy_optimiser=optax.set_to_zero(),
        critic_optimiser=optax.set_to_zero(),
        # From 1 to 100 in fewer steps than these, and slowly in the end: forgetting soon how large
        # the first slopes were.
        dual_optimiser=optax.adam(optax.exponential_decay(0.3, 250, 0.4), b2=0.9),
    )

    def settle(told):
        where = lambda b: (b.items.record.advantages, b.items.record.log_ratio)
        given = eqx.tree_at(where, batch, told)
        step = lambda state, key: agent.update(state, given, key=key)
        keys = jr.split(jr.key(1), 1500)
        state, metrics = jax.lax.scan(step, agent.init(key=jr.key(0)), keys)
        return state.online.duals["temperature"].value, jax.tree.map(lambda x: x[-1], metrics)

    stack = lambda cases: jnp.asarray(np.stack([*cases.values()]), jnp.float32)
    stacked = stack(ADVANTAGES), stack(LOG_RATIOS)
    found = jax.device_get(jax.jit(jax.vmap(settle))(stacked))
    each = zip(*jax.tree.leaves(found), strict=True)
    unflatten = jax.tree.structure(found).unflatten
    return dict(zip(ADVANTAGES, map(unflatten, each), strict=True)), counted(batch)


@pytest.mark.parametrize("name", [name for name in ADVANTAGES if name != "one in a hundred"])
def test_the_dual_brings_the_search_to_its_bound(settled, name):
    """Whatever the unit and the shape of the advantages, the mean KL is within 5 % of epsilon, and
    the temperature is the one that bisection finds."""
    found, counts = settled
    temperature, metrics = found[name]
    assert metrics["kl_nonparametric"] == pytest.approx(EPSILON, rel=0.05)
    assert metrics["kl_nonparametric_relative"] == pytest.approx(1, rel=0.05)
    excess = lambda eta: kl_nonparametric(eta, name, counts) - EPSILON
    wanted = scipy.optimize.brentq(excess, 1e-5, 1e5)
    assert temperature == pytest.approx(wanted, rel=0.05)
    assert metrics["temperature"] == pytest.approx(temperature, rel=0.01)


def test_a_bound_out_of_reach_leaves_a_temperature_that_is_finite(settled):
    """Where hardly any state prefers an action, no temperature is `epsilon` nats from the policy:
    it falls, and stops where the dual is cut off."""
    found, counts = settled
    temperature, metrics = found["one in a hundred"]
    assert kl_nonparametric(1e-4, "one in a hundred", counts) < EPSILON
    assert 0 < temperature < 0.1
    assert metrics["kl_nonparametric"] < EPSILON


@pytest.mark.parametrize("explore", [True, False])
def test_the_next_search_has_the_temperature_that_is_learned(explore):
    """The weights are those of a search of that temperature, without compiling anew; or always
    of its own, if it is not adaptive."""
    traces = []
    env = Aim()
    searches = dict(
        explorer=particle_search(num_particles=PARTICLES, temperature=5.0),
        planner=particle_search(
            num_particles=PARTICLES, temperature=5.0, depth=1, resample_every=None
        ),
    )
    agents = [aiming(spo, adaptive=adaptive, **searches) for adaptive in (True, False)]
    state = agents[0].init(key=jr.key(0))
    world = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(1), 3))
    obs = jax.vmap(env.observe)(world)

    @eqx.filter_jit
    def weights(agent, state):
        traces.append(None)
        actor = agent.actor(state, explore=explore)
        return actor.act(world, obs, actor.init(world), key=jr.split(jr.key(2), 3))[1].weights

    def hot(eta):
        where = lambda s: s.online.duals["temperature"]
        return eqx.tree_at(where, state, Dual.from_value(eta))

    found = [weights(agents[0], hot(eta)) for eta in (0.1, 1.0, 10.0)]
    assert len(traces) == 1
    sizes = [float(np.mean(1 / np.sum(np.square(w), axis=1))) for w in found]
    assert sizes[0] < 0.7 * sizes[1] < 0.7 * sizes[2]
    own = [weights(agents[1], hot(eta)) for eta in (5.0, 0.1)]
    np.testing.assert_array_equal(*own)
    np.testing.assert_allclose(weights(agents[0], hot(5.0)), own[0], rtol=1e-5)
    assert len(traces) == 2
