import re

import numpy as np

from zero_app import Series
from zero_app._run._chart import draw
from zero_app._run._report import smoothed


def test_smoothing_is_the_mean_of_the_neighbours():
    y = np.random.default_rng(1).normal(size=30)
    expected = [np.mean(y[max(i - 2, 0) : i + 3]) for i in range(30)]
    np.testing.assert_allclose(smoothed(y.tolist(), 5), expected, rtol=1e-12, atol=1e-12)


def test_labels_are_text_as_it_is():
    """No formula is read into them, and none is hidden."""
    labels = ["_old", "x$\\foo$", "$", "a_b", "\\$"]
    series = [Series(label, [0, 1], [i, i]) for i, label in enumerate(labels)]
    svg = draw([*series, Series("no points", [], [])], levels=[("_$\\bar$", 1.0)])
    written = re.findall(r"<text[^>]*>(.*?)</text>", svg or "")
    assert [text for text in written if text in labels] == labels and "_$\\bar$" in written
    assert "no points" not in written


def test_a_long_run_makes_no_longer_chart():
    long, short = (
        draw([Series("", list(range(n)), np.sin(np.arange(n)).tolist())]) for n in (50_000, 600)
    )
    assert long is not None and short is not None
    assert len(long) < 1.2 * len(short)
