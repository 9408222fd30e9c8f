"""The report: what it compares with is exact, and what was measured is all there."""

import json
import re

import numpy as np
import pytest

from zero_app import write_report
from zero_envs import Monsters
from zero_monsters._app import APP
from zero_monsters._report import OPTIMUM


def _lines(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _evaluation(step, planner, simulations, value, leaf="network") -> dict:
    return {
        "step": step,
        "world": "moving",
        "planner": planner,
        "simulations": simulations,
        "rollouts": 500,
        "return_mean": value,
        "return_se": 0.05,
        "win_rate": 0.5 + value / 10,
        "loss_rate": 0.4 - value / 20,
        "regret_mean": 0.3 - value / 20,
        "leaf": leaf,
    }


def write_run(folder, steps: int) -> None:
    """A run's files, with the shapes that curves of a real one have."""
    rng = np.random.default_rng(0)
    names = ("policy_loss", "target_entropy", "value_loss", "policy_entropy", "value_error")
    metrics = [
        {name: 1 + np.exp(-step / 40) + 0.05 * rng.normal() for name in names}
        | {"step": step, "games": 40 * step, "positions": 216 * step}
        for step in range(1, steps + 1)
    ]
    timings = [
        {"step": row["step"], "seconds": 1.5, "positions_per_second": 200, "games_per_second": 40}
        for row in metrics
    ]
    evaluations = []
    for step in range(50, steps + 1, 50):
        evaluations.append(_evaluation(step, "chance", 50, 4.4 - 100 / step))
        evaluations.append(_evaluation(step, "network", 0, 3.5 - 200 / step))
    if steps >= 50:
        evaluations.append(_evaluation(steps, "hindsight-3", 50, 1.25))
        evaluations.append(_evaluation(steps, "chance", 50, 1.125, leaf="zero"))
    folder.mkdir(exist_ok=True)
    config = {"world": "moving", "planner": "chance", "gamma": 0.85, "note": "<b>&"}
    (folder / "config.json").write_text(json.dumps(config))
    _lines(folder / "metrics.jsonl", metrics)
    _lines(folder / "timings.jsonl", timings)
    _lines(folder / "evaluations.jsonl", evaluations)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder, 200)
    return write_report(APP, folder).read_text()


@pytest.mark.parametrize("world", OPTIMUM)
def test_the_optimum_is_what_is_best(world, oracle_of):
    oracle = oracle_of(Monsters(moving=world == "moving"))
    returned, won, lost = OPTIMUM[world]
    assert oracle.rollout(32) == pytest.approx(returned, abs=5.1e-4)
    best = oracle.episode(32)
    assert (best.win_rate, best.loss_rate) == pytest.approx((won, lost), abs=5.1e-5)


def test_every_curve_is_there(page):
    assert page.count("<figure>") == page.count("<svg") == 10
    for label in ("chance, 50 simulations", "network alone", "optimum", "loss", "floor"):
        assert re.search(rf"<text[^>]*>{label}</text>", page), label
    # Who was measured at the end alone has no curve.
    assert not re.search(r"<text[^>]*>hindsight-3", page)


def test_the_last_evaluation_is_a_table(page):
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    assert [row for row in rows if row] == [
        ["optimum", "", "", "4.589", "94.7 %", "5.2 %", "0"],
        ["chance", "50", "network", "3.900 ± 0.098", "89.0 %", "20.5 %", "0.1050"],
        ["network alone", "", "", "2.500 ± 0.098", "75.0 %", "27.5 %", "0.1750"],
        ["hindsight-3", "50", "network", "1.250 ± 0.098", "62.5 %", "33.8 %", "0.2375"],
        ["chance", "50", "zero", "1.125 ± 0.098", "61.3 %", "34.4 %", "0.2437"],
    ]
    assert "Last evaluation, at step 200" in page
    assert "<b>3.900 ± 0.098</b>" in page and "<b>89.0 %</b>" in page
    assert "&lt;b&gt;&amp;" in page


def test_the_same_run_gives_the_same_page(page, tmp_path):
    write_run(tmp_path / "first", 200)
    assert write_report(APP, tmp_path / "first").read_text() == page


def test_a_run_that_has_hardly_begun(tmp_path):
    assert write_report(APP, tmp_path).read_text().count("nothing yet") == 10
    write_run(tmp_path, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "policy_lo')
    page = write_report(APP, tmp_path).read_text()
    assert page.count("nothing yet") == 4 and "Last evaluation" not in page
