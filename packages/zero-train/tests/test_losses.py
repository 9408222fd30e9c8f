"""Losses of one example beside the published values, plain loops and rlax."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from zero_train import losses


BATCH, ACTIONS, ATOMS, QUANTILES = 64, 4, 7, 5
#: At any distances from each other.
SUPPORT = np.array([-3, -2.5, -1, 0, 0.25, 2, 3], np.float32)
FRACTIONS = (np.arange(QUANTILES, dtype=np.float32) + 0.5) / QUANTILES


@pytest.fixture(scope="module")
def batch():
    """Steps of one or two players, to final states too."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=(BATCH, *shape)).astype(np.float32)  # noqa: E731
    return dict(
        reward=normal(),
        discount=rng.choice(np.array([0.9, -0.9, 0.0], np.float32), BATCH),
        action=rng.integers(ACTIONS, size=BATCH).astype(np.int32),
        value=2 * normal(),
        old_value=2 * normal(),
        qvalues=3 * normal(ACTIONS),
        next_qvalues=3 * normal(ACTIONS),
        selector=normal(ACTIONS),
        log_prob=normal() - 1,
        old_log_prob=normal() - 1,
        advantage=normal(),
        logits=normal(ACTIONS, ATOMS),
        next_logits=normal(ACTIONS, ATOMS),
        quantiles=normal(ACTIONS, QUANTILES),
        next_quantiles=normal(ACTIONS, QUANTILES + 1),
    )


def compare(batch, ours, theirs, *names):
    """Two functions of one example, over the batch."""
    given = [jnp.asarray(batch[name]) for name in names]
    with jax.numpy_dtype_promotion("standard"):  # rlax multiplies by booleans
        found, expected = jax.jit(lambda *x: (jax.vmap(ours)(*x), jax.vmap(theirs)(*x)))(*given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def loop(batch, ours, oracle, *names):
    """A function of one example, and the same in NumPy, in double precision."""
    found = jax.jit(jax.vmap(ours))(*[jnp.asarray(batch[name]) for name in names])
    numbers = [batch[name].astype(np.float64 if name != "action" else int) for name in names]
    expected = [oracle(*row) for row in zip(*numbers, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def ratio(x):
    return jnp.log(jnp.float32(x)), jnp.float32(0)


@pytest.mark.parametrize(
    "loss, rho, advantage, expected",
    (
        (ft.partial(losses.ppo_clip_loss, epsilon=0.2), 1.5, 2.0, -2.4),
        (ft.partial(losses.ppo_clip_loss, epsilon=0.2), 0.5, -1.0, 0.8),
        (ft.partial(losses.dpo_loss, alpha=2.0, beta=0.6), 1.5, 2.0, -2.924234),
        (ft.partial(losses.dpo_loss, alpha=2.0, beta=0.6), 0.5, -1.0, 0.701457),
        (losses.dpo_loss, 0.5, -1.0, 0.701457),
    ),
)
def test_reference_values(loss, rho, advantage, expected):
    assert float(loss(*ratio(rho), jnp.float32(advantage))) == pytest.approx(expected, abs=1e-5)


PPO = "log_prob", "old_log_prob", "advantage"


def test_ppo_clip(batch):
    """Clipped on the side where it would gain, and only there."""

    def theirs(log_prob, old, advantage):
        rho = jnp.exp(log_prob - old)
        return rlax.clipped_surrogate_pg_loss(rho[None], advantage[None], 0.2)

    compare(batch, ft.partial(losses.ppo_clip_loss, epsilon=0.2), theirs, *PPO)


def test_ppo_penalty(batch):
    def oracle(log_prob, old, advantage, kl):
        return -(np.exp(log_prob - old) * advantage - 0.7 * kl)

    loop(batch, ft.partial(losses.ppo_penalty_loss, beta=0.7), oracle, *PPO, "value")


def test_dpo(batch):
    def oracle(log_prob, old, advantage):
        rho = np.exp(log_prob - old)
        if advantage >= 0:
            drift = max(0, (rho - 1) * advantage - 1.5 * np.tanh((rho - 1) * advantage / 1.5))
        else:
            gain = np.log(rho) * advantage
            drift = max(0, gain - 0.4 * np.tanh(gain / 0.4))
        return -(rho * advantage - drift)

    loop(batch, ft.partial(losses.dpo_loss, alpha=1.5, beta=0.4), oracle, *PPO)


def test_clipped_value(batch):
    def oracle(value, old, target):
        clipped = old + min(max(value - old, -0.3), 0.3)
        return max((value - target) ** 2, (clipped - target) ** 2) / 2

    ours = ft.partial(losses.clipped_value_loss, epsilon=0.3)
    loop(batch, ours, oracle, "value", "old_value", "reward")


def of_error(error, huber):
    return 0.5 * error**2 if huber is None else rlax.huber_loss(error, huber)


HUBER = pytest.mark.parametrize("huber", (None, 0.5, 2.0))


@HUBER
def test_td_learning(batch, huber):
    def theirs(*x):
        return of_error(rlax.td_learning(*x), huber)

    ours = ft.partial(losses.td_learning_loss, huber=huber)
    compare(batch, ours, theirs, "value", "reward", "discount", "old_value")


@HUBER
def test_q_learning(batch, huber):
    names = "qvalues", "action", "reward", "discount", "next_qvalues"
    ours = ft.partial(losses.q_learning_loss, huber=huber)
    compare(batch, ours, lambda *x: of_error(rlax.q_learning(*x), huber), *names)
    ours = ft.partial(losses.double_q_learning_loss, huber=huber)
    theirs = lambda *x: of_error(rlax.double_q_learning(*x), huber)  # noqa: E731
    compare(batch, ours, theirs, *names, "selector")


def test_munchausen(batch):
    """The next value as the expectation under the softmax policy, with its entropy."""

    def oracle(q, action, reward, discount, target_q, next_q):
        policy, following = (np.exp(x / 0.5 - (x / 0.5).max()) for x in (target_q, next_q))
        policy, following = policy / policy.sum(), following / following.sum()
        bonus = 0.8 * min(max(0.5 * np.log(policy[action]), -1.5), 0)
        soft = sum(p * (x - 0.5 * np.log(p)) for p, x in zip(following, next_q, strict=True))
        return (reward + bonus + discount * soft - q[action]) ** 2 / 2

    ours = ft.partial(losses.munchausen_q_learning_loss, temperature=0.5, scale=0.8, minimum=-1.5)
    names = "qvalues", "action", "reward", "discount", "next_qvalues", "selector"
    loop(batch, ours, oracle, *names)


def test_munchausen_without_its_bonus_and_cold_is_q_learning(batch):
    names = "qvalues", "action", "reward", "discount", "next_qvalues"

    def ours(q, action, reward, discount, following):
        return losses.munchausen_q_learning_loss(
            q, action, reward, discount, q, following, temperature=1e-4, scale=0.0
        )

    compare(batch, ours, losses.q_learning_loss, *names)


def projected(values, probs, atoms):
    """Every value deals its probability to its two neighbours."""
    out = np.zeros(len(atoms))
    for value, p in zip(values, probs, strict=True):
        value = min(max(value, atoms[0]), atoms[-1])
        high = next(i for i, atom in enumerate(atoms) if atom >= value)
        low = max(high - 1, 0)
        share = 1.0 if high == low else (value - atoms[low]) / (atoms[high] - atoms[low])
        out[low] += p * (1 - share)
        out[high] += p * share
    return out


def test_projection():
    """Beside a loop; the atoms themselves, in any order, stay what they are; the mean is kept."""
    rng = np.random.default_rng(1)
    inside = rng.uniform(-3, 3, (20, 9)).astype(np.float32)
    probs = rng.dirichlet(np.ones(9), 20).astype(np.float32)
    project = jax.jit(jax.vmap(lambda v, p: losses.categorical_projection(v, p, SUPPORT)))
    for values in (inside, 3 * inside):
        expected = [projected(v, p, SUPPORT) for v, p in zip(values, probs, strict=True)]
        np.testing.assert_allclose(project(values, probs), expected, atol=1e-6)
    np.testing.assert_allclose(project(inside, probs) @ SUPPORT, (inside * probs).sum(1), atol=1e-5)
    order = rng.permutation(ATOMS)
    same = losses.categorical_projection(
        jnp.asarray(SUPPORT[order]), jnp.asarray(probs[0, :7]), SUPPORT
    )
    np.testing.assert_allclose(np.asarray(same)[order], probs[0, :7], atol=1e-7)


DEPRECATED = pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")


@DEPRECATED
def test_categorical_td(batch):
    atoms = jnp.asarray(SUPPORT)

    def ours(logits, reward, discount, following):
        return losses.categorical_td_loss(logits[0], SUPPORT, reward, discount, following[0])

    def theirs(logits, reward, discount, following):
        return rlax.categorical_td_learning(atoms, logits[0], reward, discount, atoms, following[0])

    compare(batch, ours, theirs, "logits", "reward", "discount", "next_logits")


@DEPRECATED
@pytest.mark.parametrize("double", (True, False))
def test_categorical_q_learning(batch, double):
    """With Q-values of another network to choose by, or the expectations."""
    atoms = jnp.asarray(SUPPORT)

    def ours(logits, action, reward, discount, following, selector):
        if not double:
            selector = jax.nn.softmax(following) @ atoms
        return losses.categorical_double_q_learning_loss(
            logits, SUPPORT, action, reward, discount, following, selector
        )

    def theirs(logits, action, reward, discount, following, selector):
        if double:
            return rlax.categorical_double_q_learning(
                atoms, logits, action, reward, discount, atoms, following, selector
            )
        return rlax.categorical_q_learning(
            atoms, logits, action, reward, discount, atoms, following
        )

    names = "logits", "action", "reward", "discount", "next_logits", "selector"
    compare(batch, ours, theirs, *names)


def test_atoms_that_are_impossible_stay_so():
    """And after the last move a row without any is no NaN."""
    logits, support = jnp.asarray([0.3, 0.0, -0.2]), np.asarray([-1.0, 0.0, 1.0], np.float32)
    action, reward, discount = jnp.int32(0), jnp.float32(0.0), jnp.float32(1.0)

    def double(following, discount):
        return losses.categorical_double_q_learning_loss(
            logits[None], support, action, reward, discount, following[None], jnp.zeros(1)
        )

    following = jnp.log(jnp.asarray([0.5, 0.5, 0.0]))
    wanted = losses.categorical_td_loss(logits, support, reward, discount, following)
    np.testing.assert_allclose(double(following, discount), wanted, rtol=1e-6)
    assert jnp.isfinite(double(jnp.full(3, -jnp.inf), 0 * discount))


@HUBER
def test_quantile_regression(batch, huber):
    def ours(quantiles, target):
        return losses.quantile_regression_loss(quantiles[0], FRACTIONS, target[0], huber=huber)

    def theirs(quantiles, target):
        fractions = jnp.asarray(FRACTIONS)
        return rlax.quantile_regression_loss(quantiles[0], fractions, target[0], huber or 0.0)

    compare(batch, ours, theirs, "quantiles", "next_quantiles")


@HUBER
def test_quantile_q_learning(batch, huber):
    """rlax has the actions in the last axis and takes quantiles to choose by."""

    def ours(quantiles, action, reward, discount, following):
        selector = jnp.mean(following, axis=1)
        return losses.quantile_q_learning_loss(
            quantiles, FRACTIONS, action, reward, discount, following, selector, huber=huber
        )

    def theirs(quantiles, action, reward, discount, following):
        return rlax.quantile_q_learning(
            quantiles.T,
            jnp.asarray(FRACTIONS),
            action,
            reward,
            discount,
            following.T,
            following.T,
            huber or 0.0,
        )

    compare(batch, ours, theirs, "quantiles", "action", "reward", "discount", "next_quantiles")


def test_quantile_regression_finds_the_quantiles():
    """Where the loss of 1000 samples is least, they lie as asked for."""
    samples = jnp.asarray(np.random.default_rng(2).gumbel(size=1000), jnp.float32)
    fractions = jnp.array([0.1, 0.5, 0.9], np.float32)
    gradient = jax.jit(jax.grad(losses.quantile_regression_loss))
    expected = np.quantile(samples, fractions).astype(np.float32)
    # Samples are 1/1000 each: at most a few of them from the balance.
    assert np.abs(gradient(jnp.asarray(expected), fractions, samples)).max() < 0.003
    for step in (-0.2, 0.2):
        slope = gradient(jnp.asarray(expected + np.float32(step)), fractions, samples)
        assert (np.sign(slope) == np.sign(step)).all()


def test_masked_mean():
    x, weights = (
        jnp.array([1, np.nan, 3, np.inf], np.float32),
        jnp.array([0.5, 0, 0.25, 0], np.float32),
    )
    assert float(losses.masked_mean(x, weights)) == pytest.approx(1.25 / 0.75)
    assert float(losses.masked_mean(x[:, None], jnp.zeros((4, 1)))) == 0
    gradient = jax.grad(lambda y: losses.masked_mean(jnp.exp(y), weights))(jnp.zeros(4))
    np.testing.assert_allclose(gradient, np.asarray(weights) / 0.75)


def test_standardise():
    rng = np.random.default_rng(3)
    x, weights = rng.normal(5, 3, (8, 6)), rng.integers(0, 2, (8, 6))
    counted = x[weights == 1]
    wanted = np.where(weights == 1, (x - counted.mean()) / counted.std(), 0)
    # What does not count may be anything: times a weight of 0, a NaN would reach the gradient.
    x[weights == 0] = np.nan
    found = losses.standardise(jnp.float32(x), jnp.array(weights, jnp.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    equal = losses.standardise(jnp.full(5, 2.0), jnp.ones(5))
    assert equal.tolist() == [0] * 5


def test_actions_may_be_of_eight_bits():
    """JAX compares five of eight bits with a number of 256 actions as if it were 0."""
    qvalues = jnp.arange(256, dtype=jnp.float32)
    zero = jnp.float32(0)
    of = lambda dtype: losses.q_learning_loss(qvalues, dtype(5), zero, zero, qvalues)  # noqa: E731
    assert of(jnp.int8) == of(jnp.int32) == 12.5
