import numpy as np

from zero_train.app import Series
from zero_train.app._chart import draw
from zero_train.app._report import smoothed


def test_smoothing_is_the_mean_of_the_neighbours():
    y = np.random.default_rng(1).normal(size=30)
    expected = [np.mean(y[max(i - 2, 0) : i + 3]) for i in range(30)]
    np.testing.assert_allclose(smoothed(y.tolist(), 5), expected, rtol=1e-12, atol=1e-12)


def test_a_long_run_makes_no_longer_chart():
    long, short = (
        draw([Series("", list(range(n)), np.sin(np.arange(n)).tolist())]) for n in (50_000, 600)
    )
    assert long is not None and short is not None
    assert len(long) < 1.2 * len(short)
