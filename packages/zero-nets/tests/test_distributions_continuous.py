"""Densities against SciPy and numerical integrals, in and at the edges of their bounds."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from zero_nets import ClippedBeta, Gaussian, TanhGaussian


EDGE = 1e-3
# Rows of location, scale and bounds: centred, narrow, wide, far off, long bounds and short ones.
SQUASHED = np.array(
    [
        (0.0, 1.0, -1.0, 1.0),
        (0.7, 0.05, -1.0, 1.0),
        (0.3, 3.0, -2.0, 0.5),
        (-5.0, 1.5, -1.0, 1.0),
        (2.0, 0.6, 0.0, 400.0),
        (-0.1, 0.4, 0.10, 0.11),
    ]
)
# Rows of shape parameters and bounds: one peak, a peak at a bound, flat, two peaks, steep.
STRETCHED = np.array(
    [
        (2.0, 3.0, 0.0, 1.0),
        (5.0, 1.0, -1.0, 1.0),
        (1.0, 1.0, -3.0, 2.0),
        (0.6, 0.8, -1.0, 1.0),
        (300.0, 900.0, 0.0, 10.0),
    ]
)


def _rows(function, cls, parameters, *others):
    """`function(distribution, other)` for every row of parameters and its row of others."""
    dtype = jnp.result_type(float)
    columns = [jnp.asarray(column, dtype) for column in np.transpose(parameters)]
    size = len(columns)
    call = jax.vmap(lambda *args: function(cls(*args[:size]), *args[size:]))
    return jax.tree.map(np.asarray, jax.jit(call)(*columns, *others))


def _log_probs(cls, parameters, actions):
    """Of every row's distribution at its row of actions, [rows, actions]."""
    actions = jnp.asarray(actions, jnp.result_type(float))
    return _rows(lambda d, row: jax.vmap(d.log_prob)(row), cls, parameters, actions)


def _one(cls, *parameters):
    return cls(*(jnp.asarray(x, jnp.float32) for x in parameters))


def _squashed_log_prob(y, loc, scale, low, high):
    """By the definition, in float64."""
    half, middle = (high - low) / 2, (high + low) / 2
    inner = np.clip(y, low + EDGE, high - EDGE)
    x = np.arctanh((inner - middle) / half)
    inside = scipy.stats.norm.logpdf(x, loc, scale)
    inside -= np.log(half) + np.log1p(-(((inner - middle) / half) ** 2))
    reach = np.arctanh(1 - EDGE / half)
    below = scipy.stats.norm.logcdf(-reach, loc, scale) - np.log(EDGE)
    above = scipy.stats.norm.logsf(reach, loc, scale) - np.log(EDGE)
    return np.where(y <= low + EDGE, below, np.where(y >= high - EDGE, above, inside))


def test_goldens():
    """Worked out by hand, to the sixth digit."""
    actions = [[0.5, -0.9991, -1, -7, 0.9991, 1, 7], [1, -2, 2, -1.9995, 1.9995, -9, 9]]
    found = _log_probs(TanhGaussian, [(0, 1, -1, 1), (0, 1, -2, 2)], actions)
    expected = [[-0.782125] + [-2.627079] * 6, [-1.475272] + [-4.083383] * 6]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_squashed_density():
    low, high = SQUASHED[:, 2:3], SQUASHED[:, 3:]
    y = low + (high - low) * np.linspace(-0.1, 1.1, 2000)
    # Float32 may round what is at a jump to either side of it.
    jumps = np.minimum(np.abs(y - low - EDGE), np.abs(y - high + EDGE))
    y = np.where(jumps > 1e-6 * np.maximum(np.abs(low), np.abs(high)), y, (low + high) / 2)
    y = y.astype(np.float32)
    found = _log_probs(TanhGaussian, SQUASHED, y)
    for row, parameters in enumerate(SQUASHED):
        expected = _squashed_log_prob(y[row].astype(np.float64), *parameters)
        np.testing.assert_allclose(found[row], expected, rtol=3e-5, atol=3e-5)


def test_squashed_density_integrates_to_one(float64):
    """With tails that are lost or counted twice it does not: the third's are a fifth of all, the
    fourth's nearly four fifths."""
    low, high = SQUASHED[:, 2:3], SQUASHED[:, 3:]
    edges = np.exp(_log_probs(TanhGaussian, SQUASHED, SQUASHED[:, 2:]))
    # Evenly spaced before the squashing, so that the steep ends are resolved.
    reach = np.arctanh(1 - 2 * EDGE / (high - low))
    x = reach * np.linspace(-1, 1, 20_001)[1:-1]
    y = (low + high) / 2 + (high - low) / 2 * np.tanh(x)
    inside = scipy.integrate.trapezoid(np.exp(_log_probs(TanhGaussian, SQUASHED, y)), y, axis=1)
    np.testing.assert_allclose(inside + EDGE * np.sum(edges, axis=1), 1, atol=2e-4)
    assert EDGE * np.sum(edges[2]) > 0.15 and EDGE * np.sum(edges[3]) > 0.75


def test_squashed_gradients(float64):
    """In location, scale and action: inside, at the edges and past them."""
    loc, scale, low, high = np.repeat(SQUASHED, 7, axis=0).T
    action = low + np.tile([-0.2, 0.0, 0.3, 0.5, 0.8, 1.0, 1.2], 6) * (high - low)

    def log_prob(loc, scale, action, low, high):
        return TanhGaussian(loc, scale, low, high).log_prob(action)

    gradients = jax.jit(jax.vmap(jax.grad(log_prob, (0, 1, 2))))(loc, scale, action, low, high)
    for i, gradient in enumerate(gradients):
        up, down = ([loc, scale, action] for _ in range(2))
        step = 1e-6 * np.maximum(np.abs((loc, scale, action)[i]), 0.1)
        up[i], down[i] = up[i] + step, down[i] - step
        change = np.stack([_squashed_log_prob(y, m, s, low, high) for m, s, y in (up, down)])
        expected = (change[0] - change[1]) / (2 * step)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)


def test_squashed_tails_keep_their_slope():
    """JAX's derivative of `log_ndtr` in float32 is 3 times too small at -1e4 and 1e5 times at -1e5:
    with it a narrow policy would hardly be drawn to an action at a bound far from it."""
    z = -np.array([0.0, 1.0, 5.0, 9.9, 10.1, 30.0, 1e3, 1e4, 1e5])
    scale = np.float32(1e-3)
    reach = np.arctanh(1 - EDGE)
    # So that the lower edge is z standard deviations from the mean.
    loc = (-reach - z * scale).astype(np.float32)

    def log_prob(loc):
        return TanhGaussian(loc, jnp.asarray(scale), -1.0, 1.0).log_prob(jnp.array(-1.0))

    gradient = jax.jit(jax.vmap(jax.grad(log_prob)))(loc)
    exact = (-reach - loc.astype(np.float64)) / scale
    mills = np.sqrt(2 / np.pi) / scipy.special.erfcx(-exact / np.sqrt(2))
    # The distance of the mean to the edge is rounded, to 2e-4 standard deviations.
    np.testing.assert_allclose(gradient, -mills / scale, rtol=5e-4)


def test_no_gradient_is_nan():
    """Nor infinite, at, in and past the bounds and for extreme parameters."""
    actions = [-1e6, -1.0, -0.999, 0.0, 0.999, 1.0, 1e6]
    grid = np.meshgrid([-50.0, 0.0, 50.0], [1e-3, 1.0, 50.0], actions)
    given = np.stack([x.reshape(-1) for x in grid]).astype(np.float32)

    def total(loc, scale, action):
        total = jnp.zeros(())
        classes: tuple[Any, ...] = (TanhGaussian, ClippedBeta)
        for cls, a in zip(classes, (loc, jnp.abs(loc) + scale), strict=True):
            p, q = cls(a, scale, -1.0, 1.0), cls(2 * a, 3 * scale, -1.0, 1.0)
            total += p.log_prob(action) + p.entropy() + p.mode() + p.kl(q)
        return total

    found = jax.jit(jax.vmap(jax.value_and_grad(total, (0, 1, 2))))(*given)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))


def test_bounds_are_no_parameters():
    def log_prob(low, high):
        action = jnp.array(0.4)
        squashed = TanhGaussian(jnp.array(0.3), jnp.array(1.0), low, high)
        stretched = ClippedBeta(jnp.array(2.0), jnp.array(3.0), low, high)
        return squashed.log_prob(action) + stretched.log_prob(action)

    assert jax.jit(jax.grad(log_prob, (0, 1)))(-1.0, 2.0) == (0, 0)


def test_stretched_density():
    low, high = STRETCHED[:, 2:3], STRETCHED[:, 3:]
    # First and last two: past a bound and at it.
    inside = low + (high - low) * np.linspace(0, 1, 501)[1:-1]
    y = np.concatenate([low - 1, low, inside, high, high + 1], axis=1).astype(np.float32)
    found = _log_probs(ClippedBeta, STRETCHED, y)
    entropy = _rows(lambda d: d.entropy(), ClippedBeta, STRETCHED)
    for row, (alpha, beta, low, high) in enumerate(STRETCHED):
        reference = (alpha, beta, low, high - low)
        expected = scipy.stats.beta.logpdf(y[row, 2:-2].astype(np.float64), *reference)
        # lgamma(1200) is 7300, whose neighbour among 32-bit floats lies 5e-4 away.
        np.testing.assert_allclose(found[row, 2:-2], expected, rtol=2e-5, atol=5e-4)
        np.testing.assert_allclose(entropy[row], scipy.stats.beta.entropy(*reference), atol=5e-4)
    # Where the density is 0 or infinite its log is finite.
    assert np.all(np.isfinite(found))
    np.testing.assert_array_equal(found[:, [0, -1]], found[:, [1, -2]])


def test_stretched_mode():
    cases = np.array(
        [
            (2.0, 4.0, 0.25),
            (1.0, 4.0, 0.0),
            (4.0, 0.5, 1.0),
            (0.2, 0.5, 0.0),
            (0.5, 0.2, 1.0),
            (1.0, 1.0, 0.5),
            (0.5, 0.5, 0.0),
        ]
    )
    modes = _rows(lambda d: d.mode(), lambda a, b: ClippedBeta(a, b, -1.0, 3.0), cases[:, :2])
    np.testing.assert_allclose(modes, -1 + 4 * cases[:, 2], atol=1e-6)
    for alpha, beta, mode in cases:
        # Nothing is likelier, up to what the clip at the bounds leaves out.
        x = np.append(np.linspace(1e-7, 1 - 1e-7, 101), np.clip(mode, 1e-7, 1 - 1e-7))
        log_density = scipy.stats.beta.logpdf(x, alpha, beta)
        assert np.all(log_density <= log_density[-1] + 1e-6)


def _squashed_cdf(y, loc, scale, low, high):
    x = np.arctanh(np.clip((2 * y - low - high) / (high - low), -1 + 1e-16, 1 - 1e-16))
    return scipy.stats.norm.cdf(x, loc, scale)


def _stretched_cdf(y, alpha, beta, low, high):
    return scipy.stats.beta.cdf(y, alpha, beta, low, high - low)


@pytest.mark.parametrize(
    ("cls", "parameters", "cdf"),
    [
        (Gaussian, SQUASHED[:, :2], scipy.stats.norm.cdf),
        (TanhGaussian, SQUASHED, _squashed_cdf),
        (ClippedBeta, STRETCHED, _stretched_cdf),
    ],
)
def test_samples(cls, parameters, cdf):
    """By Kolmogorov and Smirnov's test. The seed is fixed: a row in 1000 would fail by chance."""

    def draws(distribution, index):
        keys = jr.split(jr.fold_in(jr.key(3), index), 4000)
        return jax.vmap(lambda key: distribution.sample(key=key))(keys)

    samples = _rows(draws, cls, parameters, jnp.arange(len(parameters)))
    for row, sample in zip(parameters, samples, strict=True):
        assert scipy.stats.kstest(sample.astype(np.float64), cdf, tuple(row)).pvalue > 1e-3
        if cls is not Gaussian:
            low, high = row[2:].astype(np.float32)
            assert low <= sample.min() and sample.max() <= high


def test_samples_stay_clear_of_infinity():
    """Of two sharp peaks: draws that float32 rounds to 0 and to 1 have an infinite density."""

    def draw(key):
        distribution = _one(ClippedBeta, 0.01, 0.01, 0.0, 1.0)
        sample = distribution.sample(key=key)
        return sample, distribution.log_prob(sample)

    samples, log_probs = jax.jit(jax.vmap(draw))(jr.split(jr.key(0), 1000))
    assert jnp.min(samples) == np.float32(1e-7) and jnp.max(samples) == np.float32(1 - 1e-7)
    assert np.all(np.isfinite(log_probs))


def test_gaussian():
    loc, scale, _, _ = SQUASHED.T.astype(np.float32)
    action = np.linspace(-9, 9, 6, dtype=np.float32)
    reference = loc.astype(np.float64), scale.astype(np.float64)
    distribution = Gaussian(jnp.asarray(loc), jnp.asarray(scale))
    found = distribution.log_prob(jnp.asarray(action))
    expected = np.sum(scipy.stats.norm.logpdf(action, *reference))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    expected = np.sum(scipy.stats.norm.entropy(*reference))
    np.testing.assert_allclose(distribution.entropy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(distribution.mode(), loc)


def test_squashed_entropy():
    """By the integral of its definition, over the Gaussian."""
    parameters = np.array([(0.0, 1.0), (1.5, 0.1), (0.5, 0.001), (-20.0, 0.7), (0.4, 2.0)])
    found = _rows(lambda d: d.entropy(), lambda m, s: TanhGaussian(m, s, -2.0, 4.0), parameters)
    z = np.linspace(-12, 12, 20_001)
    for entropy, (loc, scale) in zip(found, parameters, strict=True):
        x = loc + scale * z
        slope = np.log(3.0) + 2 * (np.log(2) - x - np.logaddexp(0, -2 * x))
        surprise = slope - scipy.stats.norm.logpdf(x, loc, scale)
        expected = scipy.integrate.trapezoid(scipy.stats.norm.pdf(z) * surprise, z)
        np.testing.assert_allclose(entropy, expected, atol=2e-5 if scale <= 1 else 4e-3)


@pytest.mark.parametrize(
    ("cls", "family", "support"),
    [
        (Gaussian, scipy.stats.norm, (-np.inf, np.inf)),
        (lambda a, b: TanhGaussian(a, b, -1.0, 3.0), scipy.stats.norm, (-np.inf, np.inf)),
        (lambda a, b: ClippedBeta(a, b, -1.0, 3.0), scipy.stats.beta, (0, 1)),
    ],
)
def test_kl(cls, family, support):
    """KL(self || other) by the integral of its definition, which no squashing changes."""
    parameters = [(0.3, 0.5), (2.0, 3.0), (4.0, 1.5)]
    others = [(0.2, 0.7), (4.0, 1.5), (2.0, 3.0)]
    given = [jnp.asarray(column, jnp.float32) for column in zip(*others, strict=True)]
    found = _rows(lambda d, *other: d.kl(cls(*other)), cls, parameters, *given)
    for kl, mine, theirs in zip(found, parameters, others, strict=True):
        p, q = family(*mine), family(*theirs)
        expected, _ = scipy.integrate.quad(
            lambda x, p=p, q=q: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), *support, limit=200
        )
        assert kl == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("cls", "low", "high"),
    [
        (Gaussian, None, None),
        (TanhGaussian, np.array([-1.0, 0.0, -5.0]), np.array([1.0, 4.0, 5.0])),
        (ClippedBeta, np.array([-1.0, 0.0, -5.0]), np.array([1.0, 4.0, 5.0])),
    ],
)
def test_dimensions_are_independent(cls, low, high):
    """Each of three dimensions as by itself, log-probabilities and entropies added up."""
    parameters = np.random.default_rng(0).uniform(0.5, 2.0, (4, 3)).astype(np.float32)
    bounds = () if low is None else (low, high)
    a, b, c, d = map(jnp.asarray, parameters)
    action = jnp.asarray([-1.0, 1.2, 3.0])

    @jax.jit
    def whole():
        p, q = cls(a, b, *bounds), cls(c, d, *bounds)
        return p.log_prob(action), p.entropy(), p.kl(q), p.mode()

    def single(a, b, c, d, action, *bounds):
        p, q = cls(a, b, *bounds), cls(c, d, *bounds)
        return p.log_prob(action), p.entropy(), p.kl(q), p.mode()

    log_prob, entropy, kl, mode = jax.jit(jax.vmap(single))(a, b, c, d, action, *bounds)
    expected = jnp.sum(log_prob), jnp.sum(entropy), kl, mode
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), whole(), expected)


@pytest.mark.parametrize("bounds", [(), (-1.0, 2.0)])
def test_decouple(bounds):
    cls: Any = TanhGaussian if bounds else Gaussian
    policy, target = _one(cls, 0.5, 2.0, *bounds), _one(cls, -1.0, 3.0, *bounds)
    by_mean, by_std = policy.decouple(target)
    assert (by_mean.loc, by_mean.scale, by_std.loc, by_std.scale) == (0.5, 3.0, -1.0, 2.0)
    # A KL divergence to either is of one parameter's change alone.
    assert target.kl(by_mean) == pytest.approx(0.5 * (1.5 / 3) ** 2, rel=1e-6)
    assert target.kl(by_std) == pytest.approx(np.log(2 / 3) + 9 / 8 - 0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("cls", "parameters", "message"),
    [
        (Gaussian, ([0.0, 0.0], [1.0, -1.0]), r"`scale` is \[1.0, -1.0\]; it must be positive"),
        (TanhGaussian, (0.0, 0.0, -1.0, 1.0), "`scale` is 0.0; it must be positive"),
        (TanhGaussian, (0.0, 1.0, 1.0, -1.0), "`minimum` is 1.0 and `maximum` -1.0"),
        (TanhGaussian, (0.0, 1.0, 0.0, 0.002), "must be more than 0.002 above"),
        (TanhGaussian, (0.0, 1.0, -np.inf, 1.0), "must be finite"),
        (ClippedBeta, (0.0, 1.0, 0.0, 1.0), "`alpha` is 0.0; it must be positive"),
        (ClippedBeta, (1.0, -2.0, 0.0, 1.0), "`beta` is -2.0; it must be positive"),
        (ClippedBeta, (1.0, 2.0, 1.0, 1.0), "`minimum` is 1.0 and `maximum` 1.0"),
    ],
)
def test_bad_parameters(cls, parameters, message):
    with pytest.raises(ValueError, match=message):
        _one(cls, *parameters)


@pytest.mark.parametrize("cls", [Gaussian, TanhGaussian, ClippedBeta])
def test_bad_calls(cls):
    bounds = () if cls is Gaussian else (-1.0, 1.0)
    distribution = _one(cls, [1.0, 1.0], [1.0, 1.0], *bounds)
    # It would broadcast, and count the one dimension twice.
    with pytest.raises(ValueError, match=r"`action` has shape \(1,\), expected \(2,\)"):
        distribution.log_prob(jnp.zeros(1))
    if bounds:
        with pytest.raises(ValueError, match="bounded by .*; a KL divergence needs equal"):
            distribution.kl(_one(cls, [1.0, 1.0], [1.0, 1.0], -1.0, 2.0))
