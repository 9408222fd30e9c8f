"""Runs beside each other."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from zero_app import App, StoredRun, UsageError
from zero_app._run._compare import _compared, _Figure, Compare, last_figures
from zero_app._run._disk import write_whole
from zero_app._run._groups import differences
from zero_app._run._measures import LOST, WON


_APP = App("any", "Any.", {}, lambda config: pytest.fail())


def _lines(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(folder, rate: float, returns: np.ndarray) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"seed": 0, "env": "x", "rate": rate}))
    steps = range(1, 11)
    _lines(
        folder / "metrics.jsonl", [{"step": n, "loss": 1 / n, "positions": 9 * n} for n in steps]
    )
    _lines(folder / "timings.jsonl", [{"step": n, "seconds": 360.0} for n in steps])
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    old = {"step": 5, "return_mean": 99.0, "return_se": 0.1, "episodes": 2}
    row = {"return_mean": returns.mean(), "return_se": error, "episodes": len(returns)}
    _lines(folder / "evaluations.jsonl", [old, {"step": 10, **row}])


@pytest.fixture
def two(tmp_path):
    draw = np.random.default_rng(0).normal
    samples = draw(1.0, 2.0, 40), draw(2.0, 1.0, 12)
    for rate, (name, returns) in enumerate(zip("ab", samples, strict=True)):
        _run(tmp_path / name, rate, returns)
    return tmp_path, samples


def _read(folder):
    return {name: [StoredRun.read(folder / name)] for name in "ab"}


def test_the_significance_is_that_of_the_samples(two):
    folder, (first, second) = two
    rows = last_figures(_read(folder))
    expected: Any = stats.ttest_ind(first, second, equal_var=False)
    assert rows[0][:3] == ["return", "a", "10"] and rows[0][4:] == ["", ""]
    more, half = map(float, rows[1][4].split(" ± "))
    low, high = stats.ttest_ind(second, first, equal_var=False).confidence_interval()
    assert (more - half, more + half) == pytest.approx((low, high), abs=0.01)
    assert rows[1][5] == f"{expected.pvalue:.2g}"


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e99])
def test_scores_of_any_size_are_compared(scale):
    first, other = (_Figure(1, x * scale, 0.1 * scale, 10) for x in (1, 2))
    assert _compared(first, other)[1] == f"{2 * stats.t.sf(1 / math.hypot(0.1, 0.1), 18):.2g}"


def test_only_what_both_were_measured_by_is_compared(two):
    folder, _ = two
    score = {"step": 10, "games": 100, "score": 0.5, "score_low": 0.402, "score_high": 0.598}
    for name, opponents in (("a", ["random", "step 5"]), ("b", ["random", "uct"])):
        rows = [{**score, "opponent": opponent} for opponent in opponents]
        _lines(folder / name / "evaluations.jsonl", rows)
    rows = last_figures(_read(folder))
    assert [(row[0], row[1]) for row in rows] == [
        ("score: against random", "a"),
        ("score: against random", "b"),
        ("score: against uct", "b"),
    ]
    # 100 games of which half are won.
    assert rows[0][3] == "0.500 ± 0.099" and rows[1][5] == "1" and rows[2][4:] == ["", ""]


def test_a_score_without_an_interval_is_a_share_of_the_games(two):
    folder, _ = two
    _lines(folder / "a" / "evaluations.jsonl", [{"step": 10, "games": 100, "score": 0.5}])
    assert last_figures(_read(folder))[0][3] == "0.500 ± 0.099"  # by Student's t


def test_entries_that_differ(two):
    folder, _ = two
    (folder / "b" / "config.json").write_text('{"seed": 0, "env": "<y>", "new": 1, "rate": 0}')
    assert differences(_read(folder)) == [["env", "x", "<y>"], ["new", "absent", "1"]]


def test_the_page_and_what_is_printed(two, capsys):
    folder, _ = two
    Compare((f"{folder}/a", f"{folder}/b"), out=folder / "page.html")(_APP)
    said, page = capsys.readouterr().out, (folder / "page.html").read_text()
    for part in ("rate", "return", "Welch's t test"):
        assert part in said and part in page
    # The return and the loss, each over steps, positions and hours.
    assert [page.count(f'<figure class="over-{axis}">') for axis in ("steps", "hours")] == [2, 2]
    assert page.count("<svg") == 6 and "<script" not in page


def test_what_runs_are_called_and_hold_is_text(two, capsys):
    """In names of folders, keys and values: no markup of pages, of the terminal or of charts."""
    folder, _ = two
    evil = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>[/b]$\\frac{\x1b[2J"
    called = "<script>\"'[b]$\\frac{"
    for name in "ab":
        mine = (folder / name).rename(folder / f"{called}{name}")
        (mine / "config.json").write_text(json.dumps({"env": evil, evil: name}))
        _lines(mine / "metrics.jsonl", [{"step": n, "loss": n, evil: n} for n in range(9)])
        row = {"games": 9, "score": 0.5, "score_low": 0.4, "score_high": 0.6, evil: evil}
        _lines(mine / "evaluations.jsonl", [{"step": 9, "agent": evil, "opponent": evil, **row}])
    Compare((f"{folder}/{called}a", f"{folder}/{called}b"), out=folder / "page.html")(_APP)
    page, said = (folder / "page.html").read_text(), capsys.readouterr().out
    assert "<script" not in page and "<img" not in page
    assert page.count("&lt;script&gt;") > 9 and "[/b]$\\frac{" in page
    assert "[/b]" in said and "\x1b" not in said


def test_what_cannot_be_written_is_named(tmp_path):
    """And not the file beside it, which is renamed in the end."""
    with pytest.raises(FileNotFoundError) as info:
        write_whole(tmp_path / "none" / "page.html", "")
    assert info.value.filename == str(tmp_path / "none" / "page.html")


@pytest.mark.parametrize(
    "out, message",
    [
        ("a/evaluations.jsonl", "--out .*evaluations.jsonl was given; .* ends with .html"),
        ("none/c.html", "--out .*none/c.html was given, and there is no folder .*none"),
    ],
)
def test_a_page_replaces_nothing_but_a_page(two, out, message):
    folder, _ = two
    before = (folder / "a" / "evaluations.jsonl").read_text()
    with pytest.raises(UsageError, match=message):
        Compare((f"{folder}/a", f"{folder}/b"), out=folder / out)(_APP)
    assert (folder / "a" / "evaluations.jsonl").read_text() == before


@pytest.mark.parametrize(
    "names, message",
    [
        (["a"], "1 run was given; give the folders of two or more."),
        (["a", "none"], r"none holds no run \(no config.json\)"),
        (["a", "../{}/a"], "the same run was given twice"),
    ],
)
def test_refusals(two, names, message):
    folder, _ = two
    with pytest.raises(UsageError, match=message):
        runs = tuple(f"{folder}/{name.format(folder.name)}" for name in names)
        Compare(runs, out=folder / "page.html")(_APP)
    assert not (folder / "page.html").exists()


@pytest.mark.parametrize("measure", [WON, LOST])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_games_that_all_ended_alike_has_an_interval(measure, share):
    row = {"rollouts": 40, measure.name: share}
    assert 0.01 < measure.error_of(row) < 0.05 and all(measure.bars(row))
    assert not measure.shown(row).endswith("± 0")
    # Of many games it is that of all estimates.
    many = {"rollouts": 10**6, measure.name: 0.25}
    assert measure.error_of(many) == pytest.approx((0.25 * 0.75 / 1e6) ** 0.5, rel=1e-4)
