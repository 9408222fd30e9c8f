"""Aggregates over runs and tasks, against scipy, rliable and the exact bootstrap."""

import itertools

import numpy as np
import pytest
from scipy import stats

from zero_train import (
    aggregate,
    Estimate,
    interquartile_mean,
    normalise_scores,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)


X = np.array(
    [
        [0.225, 0.474, 1.028],
        [0.221, 0.393, 0.972],
        [0.461, 0.689, 0.759],
        [-0.053, 0.375, 0.908],
        [-0.265, 0.456, 0.651],
        [0.054, 0.391, 0.837],
    ]
)
Y = np.array(
    [
        [0.169, 0.664, 0.866],
        [-0.161, 0.681, 0.889],
        [-0.007, 0.616, 0.873],
        [0.159, 0.506, 0.909],
        [-0.047, 0.467, 0.704],
    ]
)


# ---- point estimates


@pytest.mark.parametrize("runs, tasks", [(1, 1), (1, 3), (2, 2), (3, 3), (5, 2), (7, 11)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(runs, tasks):
    scores = np.random.default_rng(runs).standard_cauchy((4, runs, tasks))
    expected = [stats.trim_mean(x.reshape(-1), 0.25) for x in scores]
    np.testing.assert_allclose(interquartile_mean(scores), expected, rtol=1e-12)


def test_aggregates_are_rliables():
    """`uv pip install rliable==1.2.0 "pandas<3"`, then with `np.random.seed(0)`:

    `f = lambda s: np.array([metrics.aggregate_mean(s), metrics.aggregate_median(s),
    metrics.aggregate_iqm(s), metrics.aggregate_optimality_gap(s)])` and
    `library.get_interval_estimates({"x": X}, f, reps=50000)`.
    """
    found = aggregate(X, num_resamples=50_000)
    both = [found.mean, found.median, found.interquartile_mean, found.optimality_gap]
    np.testing.assert_allclose([x.value for x in both], [0.476444, 0.463, 0.4874, 0.525111], 1e-5)
    np.testing.assert_allclose([x.low for x in both], [0.4003, 0.3968, 0.4208, 0.4509], atol=3e-3)
    np.testing.assert_allclose([x.high for x in both], [0.5514, 0.562, 0.5646, 0.6006], atol=3e-3)


def test_the_probability_of_improvement_is_rliables():
    """`library.get_interval_estimates({"xy": [X, Y]}, lambda x, y: np.array(
    [metrics.probability_of_improvement(x, y)]), reps=20000)` after the above."""
    found = probability_of_improvement(X, Y)
    # It moves in steps of 1 / (6 * 5 * 3).
    np.testing.assert_allclose(found.value, 0.455556, 1e-5)
    np.testing.assert_allclose((found.low, found.high), (0.2667, 0.6556), atol=1.5 / 90)


def test_the_performance_profile_is_rliables():
    """`library.create_performance_profile({"x": X}, np.linspace(0, 1, 5), reps=20000)` after the
    above."""
    found = performance_profile(X, np.linspace(0, 1, 5), num_resamples=20_000)
    np.testing.assert_allclose(found.value, np.array([16, 13, 7, 5, 1]) / 18)
    np.testing.assert_allclose(found.low, [0.7778, 0.6667, 0.3333, 0.1667, 0.0], atol=1e-4)
    np.testing.assert_allclose(found.high, [1.0, 0.8333, 0.5, 0.3333, 0.1667], atol=1e-4)


def test_ties_are_half_an_improvement():
    x, y = np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 0.0], [3.0, 0.0]])
    u = [stats.mannwhitneyu(a, b).statistic / 6 for a, b in zip(x.T, y.T, strict=True)]
    assert probability_of_improvement(x, y).value == pytest.approx(np.mean(u))
    assert probability_of_improvement(x, x).value == 0.5


# ---- intervals


def test_the_bootstrap_draws_runs_anew_within_every_task():
    """Three runs of two tasks can be redrawn in 3 ** 6 equally likely ways: all of them."""
    scores = np.array([[0.0, 10.0], [1.0, 13.0], [5.0, 11.0]])
    draws = np.array(list(itertools.product(range(3), repeat=6))).reshape(-1, 3, 2)
    redrawn = np.take_along_axis(scores[None], draws, axis=1)
    for confidence in (0.5, 0.9):
        found = stratified_bootstrap(
            interquartile_mean, scores, confidence=confidence, num_resamples=100_000
        )
        tail = (1 - confidence) / 2
        exact = np.quantile(interquartile_mean(redrawn), [tail, 1 - tail])
        np.testing.assert_allclose((found.low, found.high), exact, atol=0.11)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    """Normal scores around a mean of their own in every task, symmetric: the true value is 0.

    Redrawing runs of any task for any other would cover it always, not in 95 %.
    """
    rng, trials, covered = np.random.default_rng(0), 300, 0
    for _ in range(trials):
        scores = rng.normal([-3.0, -1.0, 1.0, 3.0], 1.0, (40, 4))
        found = stratified_bootstrap(interquartile_mean, scores, num_resamples=600, seed=rng)
        covered += bool(found.low <= 0 <= found.high)
    assert stats.binomtest(covered, trials, 0.95).pvalue > 1e-2


def test_curves_are_aggregated_point_by_point():
    curve = np.random.default_rng(0).normal(size=(3, 5, 4))
    found = aggregate(curve, num_resamples=300).interquartile_mean
    assert found.value.shape == (3,)
    for i in range(3):
        alone = aggregate(curve[i], num_resamples=300).interquartile_mean
        # Less than one block: the same draws for every point.
        np.testing.assert_allclose(
            (found.value[i], found.low[i], found.high[i]), (alone.value, alone.low, alone.high)
        )


def test_the_seed_alone_decides():
    def bounds(seed) -> tuple[float, float]:
        found = aggregate(X, num_resamples=500, seed=seed).mean
        return float(found.low), float(found.high)

    rng = np.random.default_rng(3)
    assert bounds(3) == bounds(3) == bounds(rng) != bounds(rng)


def test_a_difference_of_algorithms_has_an_interval_too():
    difference = lambda x, y: interquartile_mean(x) - interquartile_mean(y)
    found = stratified_bootstrap(difference, X + 5, X[:4])
    assert found.low < found.value < found.high and found.low > 4
    assert isinstance(found, Estimate)


def test_one_run_has_no_interval():
    found = aggregate(X[:1]).mean
    assert found.value == pytest.approx(X[0].mean())
    assert np.isnan(found.low) and np.isnan(found.high)


# ---- normalising


def test_normalised_scores_go_from_the_lowest_to_the_highest_of_all():
    found = normalise_scores({"x": X, "y": Y})
    both = np.concatenate([found["x"], found["y"]])
    np.testing.assert_array_equal(both.min(axis=0), 0)
    np.testing.assert_array_equal(both.max(axis=0), 1)
    # Linear in every task: differences keep their proportions across the algorithms.
    before, after = X[:5] - Y, found["x"][:5] - found["y"]
    np.testing.assert_allclose(after / after[0], before / before[0])
    found = normalise_scores({"x": X}, minimum=np.zeros(3), maximum=np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(found["x"] * np.array([1.0, 2.0, 4.0]), X)


# ---- refusals


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: aggregate(np.array([[1.0, np.nan]])), r"scores\[0, 1\] is nan"),
        # Sorted, a NaN would be the best score, and left out with the best quarter.
        (lambda: interquartile_mean(np.array([[1, 2, 3, np.nan]])), r"scores\[0, 3\] is nan"),
        (lambda: aggregate(np.array([[1.0], [-np.inf]])), r"scores\[1, 0\] is -inf"),
        (lambda: aggregate(np.zeros((0, 3))), r"shape \(0, 3\)"),
        (lambda: aggregate(X, confidence=95.0), "confidence=95.0"),
        (lambda: aggregate(X, num_resamples=0), "num_resamples=0"),
        (lambda: probability_of_improvement(X, Y[:, :2]), "given 3 and 2 tasks"),
        (lambda: normalise_scores({"x": X, "y": Y[:, :2]}), "3 of x, 2 of y"),
        (lambda: normalise_scores({}), "no algorithm"),
        (lambda: normalise_scores({"x": X}, minimum=np.full(3, -np.inf)), "task 0 goes from -inf"),
        (lambda: aggregate(X, target=np.nan), r"aggregate\(target=nan"),
        (lambda: stratified_bootstrap(np.mean), "no scores"),
        (lambda: stratified_bootstrap(np.mean, X, num_resamples=9), "must keep all axes before"),
        (lambda: normalise_scores({"x": X * [1, 0, 1]}), "task 1 goes from 0.0 to 0.0"),
    ],
)
def test_bad_scores_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
