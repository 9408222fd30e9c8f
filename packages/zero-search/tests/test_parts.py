"""Noise and temperature."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_search import DirichletNoise, PUCT, sample_action, Temperature, TreeSearch

from .helpers import Jitted, RandomTree


def test_noise_mixes_probabilities_of_legal_actions_only(getkey):
    # Mean and variance of the mixture are the Dirichlet's, by number of legal actions.
    rows, fraction, total = 4000, 0.25, 3.0
    legal = jnp.asarray([[True, True, False, True, False], [False, True, True, False, False]])
    logits = jnp.where(legal, jnp.asarray([[1.0, 0.0, 9.0, 2.0, 9.0]]), -jnp.inf)
    logits = jnp.repeat(logits, rows, axis=0)
    noise = DirichletNoise(fraction, total=total)
    noisy = jax.jit(lambda x, k: noise(x, key=k))(logits, jr.split(getkey(), 2 * rows))
    probs = np.asarray(jnp.exp(noisy)).reshape(2, rows, 5)
    assert np.allclose(probs.sum(-1), 1, atol=1e-5)
    assert not np.any(np.isfinite(np.asarray(noisy)) != np.repeat(np.asarray(legal), rows, axis=0))
    prior = np.asarray(jax.nn.softmax(logits))[::rows]
    for row, count in ((0, 3), (1, 2)):
        on = np.asarray(legal[row])
        mean = (1 - fraction) * prior[row, on] + fraction / count
        assert np.allclose(probs[row][:, on].mean(0), mean, atol=0.01)
        spread = fraction**2 * (count - 1) / count**2 / (total + 1)
        assert np.allclose(probs[row][:, on].var(0), spread, rtol=0.15)


def test_temperature_sharpens_by_its_exponent(getkey):
    weights = jnp.asarray([[0.5, 0.3, 0.2, 0.0]])
    many = jnp.repeat(weights, 8000, axis=0)
    for heat in (1.0, 0.5):
        drawn = sample_action(many, heat, key=jr.split(getkey(), 8000))
        share = np.bincount(np.asarray(drawn), minlength=4) / 8000
        expected = np.asarray(weights[0]) ** (1 / heat)
        assert np.allclose(share, expected / expected.sum(), atol=0.03)
        assert share[3] == 0


def test_no_temperature_draws_what_has_no_weight(getkey):
    weights = jnp.repeat(jnp.asarray([[0.0, 0.7, 0.3]]), 500, axis=0)
    drawn = sample_action(weights, jnp.float32(jnp.inf), key=jr.split(getkey(), 500))
    count = np.bincount(np.asarray(drawn), minlength=3)
    assert count[0] == 0 and count[1:].min() > 200


def test_temperature_zero_takes_the_first_largest(getkey):
    weights = jnp.asarray([[0.2, 0.4, 0.4], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    first, second = jr.split(getkey(), 3), jr.split(getkey(), 3)
    assert sample_action(weights, 0.0, key=first).tolist() == [1, 0, 2]
    cold = jnp.asarray([1e-6, 1e-6, 1e-6])
    assert sample_action(weights.at[0, 2].set(0.39), cold, key=second).tolist() == [1, 0, 2]


def test_temperature_follows_the_move_number():
    schedule = Temperature(first=1.0, then=0.25, moves=3)
    assert schedule(jnp.arange(5, dtype=jnp.int32)).tolist() == [1, 1, 1, 0.25, 0.25]


def test_an_entry_is_drawn_by_weight_and_never_one_without():
    from zero_search._sample import inverted

    weights = np.array([0.0, 0.3, 0.0, 0.1, 0.6, 0.0], np.float32)
    share = np.append(np.linspace(0.0, 0.99, 100, dtype=np.float32), np.float32(1 - 2**-24))
    drawn = inverted(jnp.tile(weights, (len(share), 1)), jnp.asarray(share))
    running = np.cumsum(weights.astype(np.float64))
    expected = np.searchsorted(running, share * running[-1], side="right")
    near = np.min(np.abs(running - share[:, None]), axis=1) < 1e-6
    np.testing.assert_array_equal(np.asarray(drawn)[~near], expected[~near])
    assert set(np.asarray(drawn)) == {1, 3, 4}


def test_a_running_sum_that_falls_leads_to_no_entry_without_weight(monkeypatch):
    # As rounding may make it where a device adds in parallel.
    from zero_search._sample import inverted

    sums = jnp.asarray([[0.0, 0.5, 0.4, 1.0]])
    monkeypatch.setattr(jnp, "cumsum", lambda x, axis: sums)
    weights = jnp.asarray([[0.0, 0.5, 0.0, 0.5]])
    assert inverted(weights, jnp.asarray([0.45])).tolist() == [1]
    assert inverted(weights, jnp.asarray([0.55])).tolist() == [3]


def test_a_prior_of_another_temperature_is_that_of_scaled_logits():
    logits = jnp.asarray([[1.0, -jnp.inf, 3.0, -8.0], [-jnp.inf] * 4, [1e38, 0.0, -1e38, 1e38]])
    for heat in (0.01, 0.5, 2.0):
        prior = np.asarray(PUCT(prior_temperature=heat).prepare(logits))[:, 0]
        scaled = np.array([1.0, -np.inf, 3.0, -8.0]) / heat
        weights = np.exp(scaled - scaled.max())
        assert np.allclose(prior[0], weights / weights.sum(), rtol=1e-5)
        # Nothing is legal, or a logit is as large as any: no NaN comes of it.
        assert np.allclose(prior[1:], [[0, 0, 0, 0], [0.5, 0, 0, 0.5]])


def test_a_search_by_that_prior_is_the_search_of_scaled_logits():
    plans = []
    for sharpness, heat in ((3.0, 3.0), (1.0, 1.0)):
        model = RandomTree(num_actions=4, discounts=(-1.0,), sharpness=sharpness)
        planner = TreeSearch(32, PUCT(1.5, prior_temperature=heat))
        plans.append(Jitted(planner, model).fresh(model.start(8)))
    assert np.array_equal(plans[0].visits, plans[1].visits)
    assert np.allclose(plans[0].value, plans[1].value, atol=1e-6)
