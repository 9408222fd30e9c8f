"""The report: what is known stands beside what was measured, and that is all there."""

import json
import re

import numpy as np
import pytest

from zero_app import write_report
from zero_minesweeper._app import APP


def _lines(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _evaluation(step: int, agent: str, wins: float) -> dict:
    return {
        "step": step,
        "agent": agent,
        "boards": 250,
        "win_rate": wins,
        "win_se": 0.005,
        "win_rate_raw": wins,
        "return_mean": 90 * wins,
        "return_se": 0.5,
        "needless_risks": 3 if agent == "network" else 0,
    }


def write_run(folder, steps: int, rows: int = 10) -> None:
    """A run's files, with the shapes that curves of a real one have."""
    rng = np.random.default_rng(0)
    names = ("loss", "policy_loss", "target_entropy", "value_loss", "policy_entropy")
    names += ("value_error", "auxiliary_loss")
    metrics = [
        {name: 1 + np.exp(-step / 40) + 0.05 * rng.normal() for name in names}
        | {"step": step, "games": 40 * step, "positions": 2000 * step}
        for step in range(1, steps + 1)
    ]
    timings = [
        {"step": row["step"], "seconds": 4.5, "positions_per_second": 450, "games_per_second": 5}
        for row in metrics
    ]
    evaluations = []
    for step in range(50, steps + 1, 50):
        evaluations.append(_evaluation(step, "network", 0.75 - 10 / step))
        evaluations.append(_evaluation(step, "belief", 0.86 - 1 / step))
    if steps >= 50:
        evaluations.append(_evaluation(steps, "tiebreak", 0.8563))
    folder.mkdir(exist_ok=True)
    config = {"rows": rows, "columns": 10, "mines": 10, "note": "<b>&"}
    (folder / "config.json").write_text(json.dumps(config))
    _lines(folder / "metrics.jsonl", metrics)
    _lines(folder / "timings.jsonl", timings)
    _lines(folder / "evaluations.jsonl", evaluations)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder, 200)
    return write_report(APP, folder).read_text()


def test_every_curve_is_there(page):
    assert page.count("<figure>") == page.count("<svg") > 7
    for label in ("network", "belief", "bound", "hand-written"):
        assert re.search(rf"<text[^>]*>{label}</text>", page), label
    # Who was measured at the end alone has no curve.
    assert not re.search(r"<text[^>]*>tiebreak", page)
    assert "10 x 10, 10 mines" in page and "&lt;b&gt;&amp;" in page


def test_the_last_evaluation_is_a_table(page):
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    assert [row for row in rows if row] == [
        ["upper bound", "0.8711", "78.43", "", ""],
        ["network", "0.7000 ± 0.0098", "63.00 ± 0.98", "3", ""],
        ["belief", "0.8550 ± 0.0098", "76.95 ± 0.98", "0", "0.857, 78"],
        ["tiebreak", "0.8563 ± 0.0098", "77.07 ± 0.98", "0", "0.857, 78"],
    ]
    assert "Last evaluation, at step 200" in page and "<b>0.8550 ± 0.0098</b>" in page


def test_nothing_is_known_of_other_boards(tmp_path):
    write_run(tmp_path, 100, rows=9)
    page = write_report(APP, tmp_path).read_text()
    assert "9 x 10, 10 mines" in page and "bound" not in page and "0.857" not in page


def test_a_run_that_has_hardly_begun(tmp_path):
    assert "nothing yet" in write_report(APP, tmp_path).read_text()
    write_run(tmp_path, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "policy_lo')
    assert "Last evaluation" not in write_report(APP, tmp_path).read_text()
