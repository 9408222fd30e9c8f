"""The report: a page that stands alone and has every curve."""

import json
import re
import shutil

import pytest

from zero_app import plus_minus, write_report
from zero_spo._app import APP


CHARTS = (
    "Return",
    "Episode length",
    "Effective sample size",
    "KL of the weights, over its bound",
    "Particles alive",
    "Improvement",
    "Temperature",
    "KL of the improved policy, over its bound",
    "KL of the policy, over its bound",
    "Multipliers",
    "Value loss",
    "Mean value",
)


@pytest.fixture
def page(tiny_run) -> str:
    return (tiny_run / "report.html").read_text()


def test_every_chart_is_there(page):
    for title in CHARTS:
        assert re.search(rf">\s*{re.escape(title)}\s*<", page), title
    assert page.count("<figure>") == page.count("<svg") >= len(CHARTS)
    assert "nothing yet" not in page
    for label in ("depth 1", "depth 2", "target", "mean", "stddev"):
        assert re.search(rf"<text[^>]*>{label}</text>", page), label
    assert "depth 3" not in page


def test_a_page_stands_alone(page):
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<script|<link|<img|src=|@import|url\(http", page)
    links = re.findall(r'(?:href|xlink:href)="([^"]*)"', page)
    assert all(link.startswith("#") for link in links)


def test_the_last_return_is_told(tiny_run, page):
    row = json.loads((tiny_run / "evaluations.jsonl").read_text().splitlines()[-1])
    assert f"<b>{plus_minus(row['return_mean'], row['return_se'], 2)}</b>" in page
    assert "spo pendulum: pendulum" in page


def test_a_run_that_has_hardly_begun(tiny_run, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert write_report(APP, empty).read_text().count("nothing yet") >= 8
    for name in ("config.json", "metrics.jsonl"):
        shutil.copy(tiny_run / name, empty)
    first, second, *_ = (tiny_run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (empty / "metrics.jsonl").write_text(first + second[: len(second) // 2])
    page = write_report(APP, empty).read_text()
    # Nothing was evaluated and no step timed; of search and learning there is one step.
    assert 2 <= page.count("nothing yet") <= 4
    assert "depth 2" in page


def test_a_run_without_a_search_has_no_charts_of_one(tiny_run, tmp_path):
    folder = tmp_path / "mpo"
    shutil.copytree(tiny_run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"agent": "mpo"}))
    page = write_report(APP, folder).read_text()
    assert "spo mpo pendulum: mpo" in page
    assert "Effective sample size" not in page and "Temperature" in page


def test_of_many_depths_the_first_and_the_last_are_among_those_shown(tiny_run, tmp_path):
    folder = tmp_path / "deep"
    shutil.copytree(tiny_run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"depth": 9}))
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    deep = {f"ess_fraction_{i}": 0.5 for i in range(1, 10)}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r | deep) + "\n" for r in rows))
    page = write_report(APP, folder).read_text()
    found = sorted(set(re.findall(r">depth (\d)<", page)))
    assert found[0] == "1" and found[-1] == "9" and len(found) == 6
