import re

import numpy as np

from zero_app import curve, plus_minus, Series
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


def test_percentages_that_differ_by_less_than_one_are_told_apart():
    svg = draw([Series("", [1, 2, 3], [0.98, 0.99, 1.0])], percent=True)
    written = re.findall(r"<text[^>]*>(.*?)</text>", svg or "")
    ticks = [text for text in written if text.endswith("%")]
    assert "98.5 %" in ticks and len({*ticks}) == len(ticks) > 3


def test_an_error_that_is_not_known_is_not_drawn():
    rows = [{"step": 1, "return_mean": -3.0, "return_se": np.nan, "episodes": 1}]
    series = curve(rows, "return_mean", error="return_se")
    assert series.error is not None and np.isnan(series.error).all()
    assert draw([series]) is not None and plus_minus(-3.0, np.nan) == "-3"
