"""Particle search on continuous actions, and what exploration noise does to it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

from zero_search import AbstractPriorModel, AbstractProposalModel, GaussianNoise, ParticleSearch

from .helpers import Noise, quick_jit
from .test_particles import Bandit, search


class Gaussian(eqx.Module):
    """A policy as those of zero-nets are."""

    loc: jax.Array
    scale: jax.Array

    def sample(self, *, key):
        return self.loc + self.scale * jr.normal(key, self.loc.shape, self.loc.dtype)

    def log_prob(self, action):
        return jnp.sum(norm.logpdf(action, self.loc, self.scale))


class Walk(AbstractProposalModel[jax.Array]):
    """`s' = s + a`, reward `slope * s'`, value `worth * s`, policy `N(pull * s, sigma ** 2)`: the
    policy tilted by the exponential of all that is gained is a Gaussian with known moments."""

    slope: float = 0.3
    worth: float = 0.5
    pull: float = -0.2
    sigma: float = 0.6

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after = node + action
        flat = jnp.zeros(node.shape[0], bool)
        return after, self.slope * after[:, 0], jnp.ones(node.shape[0], jnp.float32), flat

    def propose(self, node, *, key):
        policy = Gaussian(self.pull * node, jnp.full_like(node, self.sigma))
        return policy, self.worth * node[:, 0]

    def tilted_mean(self, state: float, depth: int, temperature: float) -> float:
        # The gain is linear in the noise of the first action, and a Gaussian tilted by
        # exp(c noise) has the mean c.
        keep = 1 + self.pull
        slope = sum(self.slope * keep**i for i in range(depth)) + self.worth * keep ** (depth - 1)
        return self.pull * state + self.sigma**2 * slope / temperature


def plans(planner, model, state, seed=0):
    run = quick_jit(lambda s, k: planner.plan(model, s, None, key=k)[0])
    return jax.tree.map(np.asarray, run(state, jr.split(jr.key(seed), state.shape[0])))


def test_variance_falls_with_the_number_of_particles():
    model, rows, errors = Walk(), 500, []
    truth = model.tilted_mean(0.4, 3, 1.0)
    for number in (40, 640):
        planner = ParticleSearch(number, 3, 1.0, resample_every=1, readout="mean")
        plan = plans(planner, model, np.full((rows, 1), 0.4, np.float32), number)
        mean = np.sum(plan.weights[..., None] * plan.candidates, axis=1)
        np.testing.assert_allclose(plan.action, mean, rtol=1e-4, atol=1e-5)
        errors.append(plan.action[:, 0] - truth)
    # N times the mean square error is the same number for both, to its own error of 6 % each.
    scaled = [n * np.mean(e**2) for n, e in zip((40, 640), errors, strict=True)]
    assert max(scaled) < 1.35 * min(scaled)
    assert abs(errors[-1].mean()) < 4 * errors[-1].std() / np.sqrt(rows)
    # The policy alone is far off.
    assert truth + 0.08 > 5 * errors[-1].std()


def test_systematic_resampling_has_less_variance():
    model, spreads = Walk(), []
    for resampling in (ParticleSearch().resampling, "systematic"):
        planner = ParticleSearch(32, 1, 0.3, resample_every=1, resampling=resampling)
        plan = plans(planner, model, np.zeros((1000, 1), np.float32))
        # What resampling adds to the weights that it stands for.
        exact = np.exp(plan.advantages / 0.3)
        exact /= exact.sum(axis=1, keepdims=True)
        spreads.append(np.mean(np.square(plan.weights - exact)))
    assert spreads[1] < 0.7 * spreads[0]


class Ramp(eqx.Module):
    """The density `(1 + a) / 2` on `[-1, 1]`, of mean 1/3."""

    loc: jax.Array

    def sample(self, *, key):
        return 2 * jnp.sqrt(jr.uniform(key, self.loc.shape)) - 1

    def log_prob(self, action):
        return jnp.sum(jnp.log((1 + action) / 2))


class Flat(AbstractProposalModel[jax.Array]):
    """Nothing is worth anything."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        zero = jnp.zeros(node.shape[0])
        return node, zero, zero, zero == 0

    def propose(self, node, *, key):
        return Ramp(node), jnp.zeros(node.shape[0])


def test_corrected_noise_leaves_the_policy_as_it_was():
    # Where nothing is worth more than the rest the weights must stand for the policy, whatever
    # the candidates were drawn from.
    planner = ParticleSearch(200, 1, resample_every=None, noise=GaussianNoise(0.7))
    plan = plans(planner, Flat(), np.zeros((400, 1), np.float32))
    actions = plan.candidates[..., 0]
    assert np.all(np.abs(actions) <= 1)
    for function, mean in ((lambda a: a, 1 / 3), (lambda a: a**2, 1 / 3)):
        rows = np.sum(plan.weights * function(actions), axis=1)
        # The bias of a ratio of means is a few parts in 200.
        assert abs(rows.mean() - mean) < 4 * rows.std() / np.sqrt(400) + 0.004
    drawn = actions.mean(axis=1)
    assert abs(drawn.mean() - 1 / 3) > 20 * drawn.std() / np.sqrt(400)


def test_a_plan_tells_how_much_likelier_candidates_are_than_they_were_to_be_drawn():
    """So the weights of a search of one step are those of the policy improved by their advantages,
    with that prior: what a temperature is learned from."""
    state, noise = np.full((8, 1), 0.4, np.float32), GaussianNoise(0.7)
    planner = ParticleSearch(50, 1, 0.3, resample_every=None, noise=noise)
    plan = plans(planner, Walk(), state)
    tilted = jax.nn.softmax(plan.extra + plan.advantages / 0.3, axis=1)
    np.testing.assert_allclose(plan.weights, tilted, rtol=1e-4, atol=1e-6)
    assert plan.extra.std() > 0.3
    for other in (
        dataclasses.replace(planner, noise=None),
        dataclasses.replace(planner, correct=False),
    ):
        assert plans(other, Walk(), state).extra is None


def test_corrected_noise_on_discrete_actions():
    planner = ParticleSearch(300, 1, 1e9, resample_every=None, noise=Noise())
    state = np.zeros((200,), np.int32)
    plan = plans(planner, Bandit(), state)
    shares = np.stack([(plan.weights * (plan.candidates == a)).sum(axis=1) for a in range(3)])
    drawn = np.stack([(plan.candidates == a).mean(axis=1) for a in range(3)])
    assert np.all(np.abs(shares.mean(axis=1) - 1 / 3) < 0.005)
    # In each row: what is left is the luck of the draw, without the noise's spread.
    assert shares.std() < 0.6 * drawn.std()


def test_reflection_is_symmetric():
    # As likely from a to b as from b to a: the law of both, starting evenly, is an even one of
    # pairs that may be swapped. Clipping would pile up at the bounds.
    class Even(eqx.Module):
        loc: jax.Array

        def sample(self, *, key):
            return jr.uniform(key, self.loc.shape, minval=-1.0)

        def log_prob(self, action):
            return jnp.zeros(())

    noise, number = GaussianNoise(0.9), 40_000

    @quick_jit
    def run(key):
        policy = Even(jnp.zeros((1,)))
        noisy, ratio = jax.vmap(lambda k: noise(policy, key=k))(key)
        plain = jax.vmap(lambda k: policy.sample(key=jr.split(k)[0]))(jr.clone(key))
        return plain[:, 0], noisy[:, 0], ratio

    plain, noisy, ratio = map(np.asarray, run(jr.split(jr.key(0), number)))
    table = np.histogram2d(plain, noisy, bins=4, range=[[-1, 1], [-1, 1]])[0]
    assert np.all(ratio == 0) and table.sum() == number
    spread = np.sqrt(table + table.T)
    assert np.all(np.abs(table - table.T) < 4.5 * spread + 1e-9)
    even = number / 4
    assert np.all(np.abs(table.sum(axis=0) - even) < 4.5 * np.sqrt(even))


def test_actions_may_be_trees():
    class Push(eqx.Module):
        """A direction and a force."""

        loc: jax.Array

        def sample(self, *, key):
            dkey, fkey = jr.split(key)
            force = self.loc + jr.normal(fkey, self.loc.shape)
            return {"right": jr.bernoulli(dkey, 0.5), "force": force}

        def log_prob(self, action):
            return jnp.sum(norm.logpdf(action["force"], self.loc)) + jnp.log(0.5)

    class Cart(AbstractProposalModel[jax.Array]):
        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            after = node + jnp.where(action["right"][:, None], 1.0, -1.0) * action["force"]
            one = jnp.ones(node.shape[0])
            return after, -jnp.sum(after**2, axis=1), one, one == 0

        def propose(self, node, *, key):
            return Push(jnp.zeros_like(node)), jnp.zeros(node.shape[0])

    state = np.arange(6, dtype=np.float32).reshape(3, 2)
    plan = plans(ParticleSearch(5, 1, 0.1, resample_every=None, readout="argmax"), Cart(), state)
    right, force = plan.candidates["right"], plan.candidates["force"]
    assert right.shape == (3, 5) and force.shape == (3, 5, 2)
    after = state[:, None] + np.where(right, 1.0, -1.0)[..., None] * force
    np.testing.assert_allclose(plan.advantages, -np.sum(after**2, axis=2), rtol=1e-5)
    best = np.argmax(plan.advantages, axis=1)
    assert np.array_equal(plan.action["right"], right[np.arange(3), best])
    assert np.array_equal(plan.action["force"], force[np.arange(3), best])


def test_equal_candidates_count_together():
    class Two(AbstractProposalModel[jax.Array]):
        """Three of four particles do `[0, 0]`, but `[0, 1]` is worth a little more."""

        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            zero = jnp.zeros(node.shape[0])
            return node, 0.1 * action[:, 1], zero, zero == 0

        def propose(self, node, *, key):
            return Coin(node), jnp.zeros(node.shape[0])

    class Coin(eqx.Module):
        loc: jax.Array

        def sample(self, *, key):
            return jnp.where(jr.bernoulli(key, 0.25), jnp.array([0.0, 1.0]), 0.0)

        def log_prob(self, action):
            return jnp.zeros(())

    planner = ParticleSearch(16, 1, resample_every=None, readout="argmax")
    plan = plans(planner, Two(), np.zeros((50, 1), np.float32))
    share = np.sum(plan.weights * plan.candidates[..., 1], axis=1)
    assert np.array_equal(plan.action[:, 1], (share > 0.5).astype(np.float32))
    assert np.sum(plan.candidates[:, :, 1].any(axis=1) & (share < 0.5)) > 20


class Burdened(AbstractPriorModel[tuple[jax.Array, jax.Array]]):
    """`Bandit` with an array beside its state that has no entries."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after, reward, discount, last = Bandit().step(node[0], action, key=key)
        return (after, node[1]), reward, discount, last

    def predict(self, node, *, key):
        return Bandit().predict(node[0], key=key)


def test_arrays_without_entries_change_nothing():
    planner, state = ParticleSearch(3, 2, resample_every=1), np.zeros((4,), np.int32)
    plain = search(planner, Bandit(), state)
    burdened = search(planner, Burdened(), (state, np.zeros((4, 0), np.float32)))
    np.testing.assert_array_equal(plain.weights, burdened.weights)
    np.testing.assert_array_equal(plain.action, burdened.action)
