"""Configurations beside each other, each with several seeds."""

import csv
import itertools
import json
import pathlib
import re
import xml.etree.ElementTree
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image
from scipy import stats

from zero_app import App, RunError, StoredRun, UsageError
from zero_app._run._compare import Compare, last_evaluation, over_seeds
from zero_app._run._curves import _middle, evaluation_charts, training_charts
from zero_app._run._groups import grouped, run_folders
from zero_app._run._report import Series
from zero_app._run._tables import as_document, Table
from zero_train import aggregate, performance_profile, probability_of_improvement


_APP = App("any", "Any.", {}, lambda config: pytest.fail())
_SEEDS, _STEPS, _EPISODES = range(3), (4, 8), 20
_LEVELS = {"slow": 0.0, "fast": 1.0}


def _lines(path: pathlib.Path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(folder: pathlib.Path, config: dict, returns: np.ndarray, steps=_STEPS) -> None:
    """A run with these returns, `[steps, episodes]`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"env": "brax/ant", "envs": 2, **config}))
    every, seed = range(1, 9), config["seed"]
    metrics = [{"step": n, "loss": 1 / (n + seed), "positions": 9 * n + seed} for n in every]
    _lines(folder / "metrics.jsonl", metrics)
    _lines(folder / "timings.jsonl", [{"step": n, "seconds": 360.0 + 36 * seed} for n in every])
    means = [
        {"step": n, "return_mean": x.mean(), "episodes": len(x)}
        for n, x in zip(steps, returns, strict=True)
    ]
    errors = [x.std(ddof=1) / np.sqrt(len(x)) for x in returns]
    rows = [row | {"return_se": error} for row, error in zip(means, errors, strict=True)]
    _lines(folder / "evaluations.jsonl", rows)
    about = [{"step": n, "positions": 9 * n + seed} for n in steps]
    lists = [{"return": x.tolist(), "length": [*range(len(x))]} for x in returns]
    _lines(folder / "episodes.jsonl", [a | b for a, b in zip(about, lists, strict=True)])


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Folders of three seeds of two configurations, and their returns, `[seeds, steps, games]`."""
    monkeypatch.chdir(tmp_path)
    draw, returns = np.random.default_rng(0).normal, {}
    for name, level in _LEVELS.items():
        returns[name] = draw(level, 1, (len(_SEEDS), len(_STEPS), _EPISODES))
        returns[name] += draw(0, 0.3, (len(_SEEDS), 1, 1))
        for seed in _SEEDS:
            # How often it is saved changes nothing.
            config = {"seed": seed, "rate": level, "checkpoint_every": seed}
            _run(pathlib.Path(name, f"seed-{seed}"), config, returns[name][seed])
    return returns


def _groups(*given: str):
    return grouped([(one, StoredRun.read(path)) for one in given for path in run_folders(one)])


def test_the_runs_of_a_folder_stay_together(two):
    """Where the other one has fewer seeds of the same configuration."""
    for name, seeds in (("old", 2), ("new", 4)):
        for seed in range(seeds):
            config = {"seed": seed, "rate": 2.0}
            _run(pathlib.Path(name, f"seed-{seed}"), config, np.ones((len(_STEPS), 2)))
    groups = _groups("old", "new")
    assert {name: len(runs) for name, runs in groups.items()} == {"old": 2, "new": 4}
    # Single runs that are given one by one are of one group.
    each = [f"new/seed-{i}" for i in range(4)]
    assert [len(runs) for runs in _groups(*each, "slow").values()] == [4, 3]


def _numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"[-+]?\d+\.?\d*(?:e[-+]\d+)?", cell)]


def test_the_table_is_what_the_seeds_say(two):
    groups = _groups("slow", "fast")
    table = last_evaluation(groups, over_seeds(groups))
    first, other = (two[name][:, -1].mean(axis=-1) for name in ("slow", "fast"))
    assert [row[:4] for row in table.rows] == [
        ["return", "slow", "3", "8"],
        ["return", "fast", "3", "8"],
    ]
    for row, scores in zip(table.rows, (first, other), strict=True):
        middle = aggregate(scores[:, None]).interquartile_mean
        shown = [float(x) for x in (middle.value, middle.low, middle.high)]
        assert _numbers(row[4]) == pytest.approx(shown, rel=1e-3)
        assert middle.value == pytest.approx(scores.mean())  # of three nothing is left out
    # Nothing is said of seeds of one configuration.
    assert table.rows[0][5:] == ["", "", ""]
    welch: Any = stats.ttest_ind(other, first, equal_var=False)
    ends = welch.confidence_interval()
    more, half = _numbers(table.rows[1][5])
    assert (more - half, more + half) == pytest.approx((ends.low, ends.high), abs=0.011)
    assert table.rows[1][6] == f"{welch.pvalue:.2g}"
    better = np.mean([x > y for x, y in itertools.product(other, first)])
    chance = probability_of_improvement(other[:, None], first[:, None])
    expected = [better, float(chance.low), float(chance.high)]
    assert _numbers(table.rows[1][7]) == pytest.approx(expected, rel=1e-3)
    assert "seeds" in table.note


def test_fewer_losses_are_an_improvement(two):
    for name in _LEVELS:
        for seed in _SEEDS:
            row = {"step": 8, "games": 9, "loss_rate": 0.1 + seed / 100 + (name == "slow") / 2}
            _lines(pathlib.Path(name, f"seed-{seed}", "evaluations.jsonl"), [row])
    groups = _groups("slow", "fast")
    row = last_evaluation(groups, over_seeds(groups)).rows[1]
    assert row[5].startswith("-0.5") and row[7] == "1 (1 to 1)"


def test_bands_and_profiles_are_those_of_the_seeds(two):
    groups = _groups("slow", "fast")
    returns, profile = evaluation_charts(groups, over_seeds(groups))
    for number, name in enumerate(groups):
        means = two[name].mean(axis=-1).T
        middle = aggregate(means[..., None]).interquartile_mean
        series = returns.series["steps"][number]
        assert series.band is not None
        assert (series.label, series.x) == (name, [*_STEPS])
        for found, wanted in zip(
            (series.y, *series.band), (middle.value, middle.low, middle.high), strict=True
        ):
            np.testing.assert_allclose(found, wanted)
        # Over other axes a point is at the mean of the seeds.
        assert returns.series["positions"][number].x == [9 * step + 1 for step in _STEPS]
        assert returns.series["hours"][number].x == pytest.approx([0.11 * n for n in _STEPS])
        shares = profile.series["return"][number]
        last = two[name][:, -1]
        for x, y in zip(shares.x, shares.y, strict=True):  # a step has the shares of both sides
            assert np.mean(last > x) - 1e-9 <= y <= np.mean(last >= x) + 1e-9
        assert (shares.y[0], shares.y[-1]) == (1, np.mean(last > shares.x[-1]))
        low, high = np.asarray(shares.band)
        assert np.all(low <= shares.y) and np.all(shares.y <= high)
    (loss, *_) = training_charts(groups)
    expected = [np.mean([1 / (n + seed) for seed in _SEEDS]) for n in range(1, 9)]
    assert loss.series["steps"][0].y == pytest.approx(expected)


def test_runs_without_episodes_compare_by_their_means(two):
    groups = _groups("slow", "fast")
    before = last_evaluation(groups, over_seeds(groups)).rows
    pathlib.Path("slow", "seed-1", "episodes.jsonl").unlink()
    *_, profile = evaluation_charts(groups, over_seeds(groups))
    assert last_evaluation(groups, over_seeds(groups)).rows == before
    assert "of the runs" in profile.caption
    for series, returns in zip(profile.series["return"], two.values(), strict=True):
        assert series.band is not None
        # Every other point is the end of a step.
        x, y, low, high = (np.array(line[::2]) for line in (series.x, series.y, *series.band))
        means = returns[:, -1].mean(axis=-1)
        wanted = performance_profile(means[:, None], x, num_resamples=20_000)
        for found, line in ((y, wanted.value), (low, wanted.low), (high, wanted.high)):
            np.testing.assert_allclose(found, line)


def test_which_runs_are_taken_together(two):
    """Those of one configuration, from wherever; a second run of a seed is no other seed."""
    each = [f"{name}/seed-{seed}" for name in _LEVELS for seed in _SEEDS]
    folders = lambda groups: {
        name: [str(run.folder) for run in runs] for name, runs in groups.items()
    }
    assert folders(_groups(*each)) == {"rate=0.0": each[:3], "rate=1.0": each[3:]}
    assert folders(_groups(each[0], "fast")) == {"seed-0": each[:1], "fast": each[3:]}
    assert folders(_groups("fast")) == {"fast": each[3:]}
    assert folders(_groups(*each[:2])) == {"slow/seed-0 and 1 more": each[:2]}
    pathlib.Path("slow").rename("old")
    _run(pathlib.Path("slow", "seed-0"), {"seed": 0, "rate": 0.0}, two["slow"][0])
    assert folders(_groups("old", "slow")) == {
        "old": [f"old/seed-{seed}" for seed in _SEEDS],
        "slow": ["slow/seed-0"],
    }
    # Numbers are in order.
    pathlib.Path("old", "seed-2").rename("old/seed-10")
    assert [path.name for path in run_folders("old")] == ["seed-0", "seed-1", "seed-10"]


def test_a_single_run_beside_several_has_no_interval(two):
    groups = _groups("slow/seed-0", "fast")
    alone, several = last_evaluation(groups, over_seeds(groups)).rows
    mean, others = two["slow"][0, -1].mean(), two["fast"][:, -1].mean()
    assert alone[4] == f"{mean:.4g}" and "(" in several[4]
    assert several[5:] == [f"+{others - mean:.4g}", "1"]


def test_only_shared_evaluations_count(two, capsys):
    """A run that goes on, or was told to stop, has others than those before it."""
    _cut = lambda path, keep: path.write_text("".join(path.read_text().splitlines(True)[:keep]))
    for name in ("evaluations", "episodes"):
        _cut(pathlib.Path("slow", "seed-1", f"{name}.jsonl"), 1)
    groups = _groups("slow", "fast")
    assert [row[3] for row in last_evaluation(groups, over_seeds(groups)).rows] == ["4", "8"]
    pathlib.Path("slow", "seed-1", "evaluations.jsonl").unlink()
    with pytest.raises(UsageError, match="no step at which all 3 runs of slow were evaluated"):
        Compare(("slow", "fast"))(_APP)
    assert not pathlib.Path("compare.html").exists()
    for seed in _SEEDS:
        for name in _LEVELS:
            pathlib.Path(name, f"seed-{seed}", "evaluations.jsonl").unlink(missing_ok=True)
    Compare(("slow", "fast"))(_APP)
    assert "No run has been evaluated yet" in capsys.readouterr().out


def test_more_runs_than_colours_compare_where_configurations_are_few(two):
    for seed in range(3, 6):
        _run(pathlib.Path(f"slow/seed-{seed}"), {"seed": seed, "rate": 0.0}, two["slow"][0])
    assert [len(runs) for runs in _groups("slow", "fast").values()] == [6, 3]
    for rate in range(2, 7):
        _run(pathlib.Path(f"more/{rate}"), {"seed": 0, "rate": rate}, two["slow"][0])
    with pytest.raises(UsageError, match="runs of 7 configurations were given; give those of at m"):
        _groups("slow", "fast", "more")


@pytest.mark.parametrize(
    "given, message",
    [
        ((), "no run was given; give the folders of two or more"),
        (("slow", "slow/seed-1"), "the same run was given twice, .*slow/seed-1; give"),
        (("slow", "other"), "different environments were given, brax/ant and pgx/hex, whose"),
        (("slow", "nothing"), r"nothing holds no run \(no config.json\); give folders of runs"),
    ],
)
def test_refusals(two, given, message):
    _run(pathlib.Path("other"), {"seed": 0, "env": "pgx/hex"}, two["slow"][0])
    pathlib.Path("nothing", "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match=message) as raised:
        Compare(given)(_APP)
    assert "\n" not in str(raised.value) and not pathlib.Path("compare.html").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"tables": "a.txt"}, "--tables a.txt was given; give a file that ends with .md or .tex"),
        ({"data": "a.json"}, "--data a.json was given; give a file that ends with .csv or .par"),
        ({"data": "no/a.csv"}, "--data no/a.csv was given, and there is no folder no"),
        ({"figures": "slow/seed-0/config.json"}, "--figures .*config.json was given; give a fol"),
        ({"figures": "no/where"}, "--figures no/where was given; give a folder"),
    ],
)
def test_files_that_cannot_be_written(two, flags, message):
    given: Any = {name: pathlib.Path(path) for name, path in flags.items()}
    with pytest.raises(UsageError, match=message):
        Compare(("slow", "fast"), **given)(_APP)
    assert not pathlib.Path("compare.html").exists()


def test_parquet_needs_a_package(two, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--data a.parquet needs the package pyarrow; begin the"):
        Compare(("slow", "fast"), data=pathlib.Path("a.parquet"))(_APP)


def test_every_file_opens_again(two, capsys):
    files: Any = {"tables": pathlib.Path("t.md"), "figures": pathlib.Path("figures")}
    for data in ("a.csv", "a.parquet"):
        Compare(("slow", "fast"), data=pathlib.Path(data), **files)(_APP)
    said = capsys.readouterr().out
    for part in ("The data are a.csv", "The tables are t.md", "The figures are in figures"):
        assert part in said
    with open("a.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    keys = "configuration", "run", "seed", "step", "positions", "episode"
    expected = [
        dict(zip(keys, (name, f"{name}/seed-{seed}", seed, step, 9 * step + seed, i), strict=True))
        | {"return": two[name][seed, _STEPS.index(step), i], "length": i}
        for name, seed, step, i in itertools.product(two, _SEEDS, _STEPS, range(_EPISODES))
    ]
    assert rows == [{key: str(value) for key, value in row.items()} for row in expected]
    assert pyarrow.parquet.read_table("a.parquet").to_pylist() == expected
    names = {path.name for path in pathlib.Path("figures").iterdir()}
    assert {"return-over-steps.pdf", "profile-of-return.svg", "loss-over-hours.png"} <= names
    assert len(names) == 3 * (3 + 1 + 3)
    for path in pathlib.Path("figures").iterdir():
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.size == (1120, 540)
        elif path.suffix == ".svg":
            assert xml.etree.ElementTree.parse(path).getroot().tag.endswith("svg")
            assert "var(--" not in path.read_text() and "#2f6fb3" in path.read_text()
        else:
            assert path.read_bytes().startswith(b"%PDF") and b"%%EOF" in path.read_bytes()[-9:]
    page = pathlib.Path("compare.html").read_text()
    assert page.count("<svg") == 3 + 1 + 3 and page.count('<figure class="over-hours">') == 2
    assert "Interquartile means over seeds" in page and "differ, and not that" not in page
    assert "## Last evaluation" in pathlib.Path("t.md").read_text()


def test_equal_charts_are_equal_files(two):
    for folder in ("one", "other"):
        Compare(("slow", "fast"), figures=pathlib.Path(folder), formats=("svg", "pdf"))(_APP)
    for path in pathlib.Path("one").iterdir():
        assert path.read_bytes() == pathlib.Path("other", path.name).read_bytes()


def test_data_of_runs_that_kept_no_episodes_is_refused(two):
    for name, seed in itertools.product(_LEVELS, _SEEDS):
        pathlib.Path(name, f"seed-{seed}", "episodes.jsonl").unlink()
    with pytest.raises(UsageError, match="a.csv would be empty: no run has an episodes.jsonl"):
        Compare(("slow", "fast"), data=pathlib.Path("a.csv"))(_APP)
    assert not pathlib.Path("a.csv").exists()


def test_tables_are_text_in_every_language():
    table = Table("A_b", ["", "50%|x"], [["a\\b", "± <1> $x_1$ {~^}#&"]], "So *it* is.")
    assert as_document([table], ".md") == (
        "## A\\_b\n\n"
        "|  | 50%\\|x |\n"
        "| --- | ---: |\n"
        "| a\\\\b | ± \\<1\\> \\$x\\_1\\$ \\{\\~^\\}\\#\\& |\n\n"
        "So \\*it\\* is.\n"
    )
    assert as_document([table], ".tex") == (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{table}\n"
        "\\centering\n"
        "\\caption{A\\_b. So *it* is.}\n"
        "\\begin{tabular}{lr}\n"
        "\\toprule\n"
        " & 50\\%\\textbar{}x \\\\\n"
        "\\midrule\n"
        "a\\textbackslash{}b & $\\pm$ \\textless{}1\\textgreater{} \\$x\\_1\\$ "
        "\\{\\textasciitilde{}\\textasciicircum{}\\}\\#\\& \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )
    assert "\n" not in Table("", ["a\nb"], []).markdown().splitlines()[2]


# ---- the episodes themselves


def test_results_of_runs_are_their_episodes(two):
    first, *others = (
        run.results(name) for name, runs in _groups("slow", "fast").items() for run in runs
    )
    results = first.merge(*others)
    steps, curve = results.curves("brax", "return")["fast"]
    assert results.tasks("brax") == ["ant"] and [*steps] == [2 * step for step in _STEPS]
    np.testing.assert_allclose(curve[..., 0], two["fast"].mean(axis=-1).T)
    scores = results.scores("brax", "return", last=True)
    np.testing.assert_allclose(scores["slow"][:, 0], two["slow"][:, -1].mean(axis=-1))
    key, result = next(iter(results.entries.items()))
    assert key.run == "seed_0" and result.elapsed_time == 360 * _STEPS[0]
    assert result.metrics["length"] == tuple(range(_EPISODES))


def test_results_say_whom_they_are_about(two):
    folder = pathlib.Path("slow", "seed-0")
    about = {"step": 4, "positions": 9, "opponent": "random", "simulations": 8}
    _lines(folder / "episodes.jsonl", [{**about, "score": [1, 0.5], "seat": [0, 1]}])
    ((_, result),) = StoredRun.read(folder).results().entries.items()
    assert result.metrics == {
        "score: 8 simulations, against random": (1, 0.5),
        "seat: 8 simulations, against random": (0, 1),
    }


@pytest.mark.parametrize(
    "line, message",
    [
        ({"return": [1, "2"]}, "line 1 of .*episodes.jsonl has more than numbers in return"),
        ({"return": [1, True]}, "has more than numbers in return"),
        ({"return": [1, float("nan")]}, "has more than numbers in return"),
        ({"return": [1], "length": [1, 2]}, "has no lists of one length"),
        ({"return": 1}, "has no lists of one length"),
        ({"return": []}, "has no lists of one length"),
        ({"return": [1], "positions": "x"}, 'has "x" as its positions, not a whole number'),
        ({"return": [1], "opponent": 1}, "has 1 as its opponent, not a text"),
    ],
)
def test_a_line_that_is_something_else_is_named(two, line, message):
    _lines(pathlib.Path("fast", "seed-2", "episodes.jsonl"), [{"step": 8, **line}])
    for command in (
        Compare(("slow", "fast")),
        Compare(("slow", "fast"), data=pathlib.Path("a.csv")),
    ):
        with pytest.raises(RunError, match=message) as raised:
            command(_APP)
        assert "\n" not in str(raised.value)
    assert not pathlib.Path("compare.html").exists()


def test_curves_that_do_not_overlap_have_no_middle():
    late, early = Series("a", [3, 4], [1.0, 2.0]), Series("a", [1], [5.0])
    for curves in ([late, early], [early, late]):
        assert len(_middle(curves).x) == 0
