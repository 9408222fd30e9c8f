"""Discrete distributions against enumeration, illegal actions and rows of filler included."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
import scipy.stats

from zero_nets import BoardSymmetries, Categorical, ConcatenateOneHot, EpsilonGreedy, MultiDiscrete


# All legal; some illegal; one legal; near certainty, to underflow; nothing legal.
LOGITS = np.array(
    [
        [0.3, -1.0, 2.0, 0.0],
        [-np.inf, 0.5, -np.inf, 1.5],
        [-np.inf, -np.inf, 3.0, -np.inf],
        [0.0, -200.0, 1.0, -np.inf],
        [-np.inf] * 4,
    ],
    np.float32,
)


def _softmax(logits):
    weights = np.exp(np.asarray(logits, np.float64))
    return weights / max(np.sum(weights), 1e-300)


def _kl(p, q):
    return np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0]))


@eqx.filter_jit
def _drawn(distribution, keys):
    return jax.vmap(lambda key: distribution.sample(key=key))(keys)


def _frequencies(distribution, num, *, seed=0):
    """How often each value is drawn, and the values."""
    samples = _drawn(distribution, jr.split(jr.key(seed), num))
    return np.unique(np.asarray(samples), axis=0, return_counts=True)


def _check_frequencies(distribution, expected, *, num=4000):
    """A chi-squared test, and nothing else ever drawn: `expected` maps values to probabilities."""
    values, counts = _frequencies(distribution, num)
    found = dict(zip(map(tuple, values.reshape(len(values), -1)), counts, strict=True))
    assert set(found) <= set(expected)
    observed = [found.get(value, 0) for value in expected]
    wanted = num * np.array(list(expected.values()))
    assert len(expected) == 1 or scipy.stats.chisquare(observed, wanted).pvalue > 1e-3


def test_categorical():
    @jax.jit
    @jax.vmap
    def whole(logits):
        d = Categorical(logits)
        actions = jnp.arange(-1, 5)
        return d.probs, jax.vmap(d.log_prob)(actions), d.mode(), d.entropy()

    for logits, (probs, log_probs, mode, entropy) in zip(
        LOGITS, zip(*whole(LOGITS), strict=True), strict=True
    ):
        expected = _softmax(logits)
        np.testing.assert_allclose(probs, expected, rtol=1e-6, atol=1e-40)
        filler = np.all(logits == -np.inf)
        known = logits if filler else scipy.special.log_softmax(logits.astype(np.float64))
        # There is no action -1, and none after the last.
        np.testing.assert_allclose(log_probs, [-np.inf, *known, -np.inf], rtol=1e-5)
        assert mode == np.argmax(expected)
        assert entropy == pytest.approx(0 if filler else scipy.stats.entropy(expected), abs=1e-6)


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint8, jnp.int32])
def test_every_dtype_of_integers_is_an_action(dtype, unhooked):
    found = Categorical(jnp.zeros(4)).log_prob(jnp.asarray(1, dtype))
    np.testing.assert_allclose(found, np.log(0.25), rtol=1e-6)


def test_categorical_kl():
    def kl(logits, other):
        return Categorical(logits).kl(Categorical(other))

    pairs = list(itertools.product(range(5), repeat=2))
    p, q = (jnp.asarray(LOGITS[list(rows)]) for rows in zip(*pairs, strict=True))
    found, gradients = jax.jit(jax.vmap(jax.value_and_grad(kl, (0, 1))))(p, q)
    for value, i, j in zip(found, *zip(*pairs, strict=True), strict=True):
        mine, theirs = _softmax(LOGITS[i]), _softmax(LOGITS[j])
        if np.any((LOGITS[i] > -np.inf) & (LOGITS[j] == -np.inf)):
            assert value == np.inf
        else:
            assert value == pytest.approx(_kl(mine, theirs), abs=1e-5)
    # A plain p * (log p - log q) is NaN in every row with a -inf, and so is its gradient.
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    # Far below the rounding of a log-probability.
    for size in (1e-2, 1e-3, 1e-4):
        near = (LOGITS[0] + size * np.arange(LOGITS[0].size)).astype(np.float32)
        exact = _kl(_softmax(LOGITS[0]), _softmax(near))
        assert jax.jit(kl)(LOGITS[0], near) == pytest.approx(exact, rel=1e-2)


def test_categorical_gradients(float64):
    """Against finite differences in float64; and where something is illegal, never NaN."""

    def functions(logits, other):
        d = Categorical(logits)
        return jnp.stack([d.log_prob(jnp.array(2)), d.entropy(), d.kl(Categorical(other))])

    base, other = np.array([0.3, -np.inf, 2.0, 0.0]), jnp.array([1.0, 0.0, -1.0, 0.5])
    jacobian = jax.jit(jax.jacobian(functions))(jnp.asarray(base), other)
    evaluate = jax.jit(functions)
    for i in (0, 2, 3):
        step = 1e-6 * np.eye(4)[i]
        change = evaluate(base + step, other) - evaluate(base - step, other)
        np.testing.assert_allclose(jacobian[:, i], change / 2e-6, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(jacobian[:, 1], 0)
    # The action 2 is illegal in one of these rows.
    found = jax.jit(jax.vmap(jax.jacobian(functions, (0, 1))))(LOGITS, LOGITS[::-1])
    assert all(np.all(np.isfinite(leaf)) for leaf in found)


def test_categorical_samples():
    for logits in LOGITS[:4]:
        probs = _softmax(logits)
        expected = {(i,): p for i, p in enumerate(probs) if p > 1e-40}
        _check_frequencies(Categorical(jnp.asarray(logits)), expected)
    np.testing.assert_array_equal(_frequencies(Categorical(jnp.asarray(LOGITS[4])), 9)[0], [0])
    # distreqx would say -76: its actions are int8.
    many = Categorical(jnp.asarray(np.where(np.arange(200) == 180, 99, 0).astype(np.float32)))
    draw = jax.jit(lambda d: (d.mode(), d.sample(key=jr.key(0))))
    np.testing.assert_array_equal(draw(many), 180)


@eqx.filter_jit
def _greedy(distribution, other):
    """Log-probabilities of both, and what else the first one says."""
    actions = jnp.arange(distribution.qvalues.size)
    mine, theirs = (jax.vmap(x.log_prob)(actions) for x in (distribution, other))
    return mine, theirs, distribution.mode(), distribution.entropy(), distribution.kl(other)


@pytest.mark.parametrize(
    ("epsilon", "probs"),
    [
        # Three legal actions, the best value twice.
        (0.0, [0.5, 0, 0, 0.5, 0]),
        (0.3, [0.45, 0, 0.1, 0.45, 0]),
        (1.0, [1 / 3, 0, 1 / 3, 1 / 3, 0]),
    ],
)
def test_epsilon_greedy(epsilon, probs):
    qvalues = jnp.asarray(np.array([2.0, -np.inf, -1.0, 2.0, -np.inf], np.float32))
    different = jnp.asarray(np.array([-np.inf, 0.5, 0.1, -np.inf, 2.0], np.float32))
    distribution = EpsilonGreedy(qvalues, epsilon)
    other = EpsilonGreedy(different, 0.5)
    log_probs, theirs, mode, entropy, kl = _greedy(distribution, other)
    np.testing.assert_allclose(np.exp(log_probs), probs, rtol=1e-6)
    assert mode == 0
    assert entropy == pytest.approx(scipy.stats.entropy(probs), rel=1e-6)
    theirs, mine = np.exp(theirs), np.array(probs)
    expected = np.inf if np.any((mine > 0) & (theirs == 0)) else _kl(mine, theirs)
    assert kl == pytest.approx(expected, rel=1e-5)
    _check_frequencies(distribution, {(i,): p for i, p in enumerate(probs) if p > 0})


def test_epsilon_greedy_of_filler():
    distribution = EpsilonGreedy(jnp.asarray(np.full(5, -np.inf, np.float32)), jnp.asarray(0.1))
    log_probs, _, mode, entropy, _ = _greedy(distribution, distribution)
    assert mode == 0 and entropy == 0 and np.asarray(log_probs)[1] == -np.inf
    np.testing.assert_array_equal(_frequencies(distribution, 4000)[0], [0])


SIZES = (2, 1, 4)
JOINT = list(itertools.product(*map(range, SIZES)))


def test_multi_discrete():
    """Against the joint distribution, enumerated, of components of different sizes."""
    given = np.array(
        [[0.5, -0.5, 3.0, 0.1, -np.inf, 1.0, 0.4], [-np.inf, 1.0, -9.0, 0.0, 0.2, -0.3, 0.6]],
        np.float32,
    )

    @jax.jit
    @jax.vmap
    def whole(logits):
        d = MultiDiscrete(logits, SIZES)
        return jax.vmap(d.log_prob)(jnp.asarray(JOINT)), d.entropy(), d.mode()

    for logits, log_probs, entropy, mode in zip(given, *whole(given), strict=True):
        parts = [_softmax(part) for part in np.split(logits, np.cumsum(SIZES)[:-1])]
        joint = np.array([np.prod([p[i] for p, i in zip(parts, a, strict=True)]) for a in JOINT])
        np.testing.assert_allclose(np.exp(log_probs), joint, rtol=1e-5)
        assert np.sum(np.exp(log_probs)) == pytest.approx(1, rel=1e-5)
        assert entropy == pytest.approx(scipy.stats.entropy(joint), rel=1e-5)
        assert tuple(mode.tolist()) == JOINT[np.argmax(joint)]
        distribution = MultiDiscrete(jnp.asarray(logits), SIZES)
        _check_frequencies(distribution, {a: p for a, p in zip(JOINT, joint, strict=True) if p > 0})
    p, q = (MultiDiscrete(jnp.asarray(logits), SIZES) for logits in given)
    # The second cannot do what the first can, the other way round it is finite.
    kl = eqx.filter_jit(lambda p, q: p.kl(q))
    np.testing.assert_array_equal(np.isinf(kl(p, q)), [True, False, False])
    third = np.where(np.arange(7) == 4, np.float32(0.3), given[0])
    kl = kl(q, MultiDiscrete(jnp.asarray(third), SIZES))
    parts = (([-np.inf, 1.0], [0.5, -0.5]), ([0.0, 0.2, -0.3, 0.6], [0.1, 0.3, 1.0, 0.4]))
    expected = [_kl(_softmax(mine), _softmax(theirs)) for mine, theirs in parts]
    np.testing.assert_allclose(kl, [expected[0], 0, expected[1]], rtol=1e-5)


def test_multi_discrete_gradients():
    """No component's depends on another, and illegal and missing actions leave no NaN."""

    def functions(logits):
        d = MultiDiscrete(logits, SIZES)
        return jnp.stack([d.log_prob(jnp.array([1, 0, 2])), d.entropy(), jnp.sum(d.kl(d))])

    logits = np.array([0.5, -0.5, 3.0, 0.1, -np.inf, 1.0, 0.4], np.float32)
    jacobian = jax.jit(jax.jacobian(functions))(logits)
    parts = [_softmax(part) for part in np.split(np.asarray(logits), np.cumsum(SIZES)[:-1])]
    expected = np.array([0, 1, 1, 0, 0, 1, 0]) - np.concatenate(parts)
    np.testing.assert_allclose(jacobian[0], expected, atol=1e-6)
    assert np.all(np.isfinite(jacobian))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EpsilonGreedy(jnp.zeros(3), 1.5), r"`epsilon` is 1.5; it must .* \[0, 1\]"),
        (lambda: EpsilonGreedy(jnp.zeros(3), -0.1), "`epsilon` is -0.1"),
        (
            lambda: MultiDiscrete(jnp.zeros(6), (3, 4)),
            r"have shape \(6,\); `num_actions=\(3, 4\)` needs \(7,\)",
        ),
        (lambda: MultiDiscrete(jnp.zeros(3), (3, 0)), r"`num_actions` is \(3, 0\)"),
        (lambda: MultiDiscrete(jnp.zeros(0), ()), r"`num_actions` is \(\)"),
        (
            lambda: Categorical(jnp.zeros(3)).kl(Categorical(jnp.zeros(4))),
            "KL divergence of 3 actions to 4",
        ),
        (
            lambda: MultiDiscrete(jnp.zeros(4), (1, 3)).kl(MultiDiscrete(jnp.zeros(4), (2, 2))),
            r"KL divergence of \(1, 3\) actions to \(2, 2\)",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_actions_may_be_of_few_bits(dtype):
    """JAX compares five of eight bits with a number of 256 actions as if it were 0."""
    logits = jnp.linspace(0, 1, 256, dtype=jnp.float32)
    pairs = MultiDiscrete(jnp.concatenate([logits, logits]), (256, 256))
    given, same = jnp.asarray([5, 100], dtype), jnp.asarray([5, 100], jnp.int32)
    for distribution in (Categorical(logits), EpsilonGreedy(logits, 0.1)):
        assert distribution.log_prob(given[0]) == distribution.log_prob(same[0]) > -10
    assert pairs.log_prob(given) == pairs.log_prob(same) > -20
    hot = ConcatenateOneHot((300, 300))
    vector = jnp.zeros(1, jnp.float32)
    np.testing.assert_array_equal(hot(vector, given), hot(vector, same))
    beyond: Any = np.int64(2**32 + 5)  # which JAX would cut to 5
    assert Categorical(logits).log_prob(beyond) == -np.inf
    symmetries = BoardSymmetries(16, 16, 256)
    turned = symmetries.action(jnp.asarray(5, dtype), 0)
    assert turned == 5 and turned.dtype == dtype
