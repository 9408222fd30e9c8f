import json
import re

import numpy as np
import pytest

from zero_app import write_report
from zero_othello._app import APP


def _lines(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _evaluation(step: int, opponent: str, score: float, simulations: int = 0) -> dict:
    wins = max(round(100 * score - 2), 0)
    return {
        "step": step,
        "opponent": opponent,
        "games": 100,
        "wins": wins,
        "draws": 4,
        "losses": 96 - wins,
        "score": score,
        "score_low": max(score - 0.07, 0.0),
        "score_high": min(score + 0.05, 1.0),
        "simulations": simulations,
    }


def write_run(folder, steps: int) -> None:
    """A run's files, with the shapes that curves of a real one have."""
    rng = np.random.default_rng(0)
    noise = lambda: float(rng.normal())  # noqa: E731
    metrics, timings = [], []
    for step in range(1, steps + 1):
        fade = float(np.exp(-step / 80))
        metrics.append(
            {
                "step": step,
                "policy_loss": 1.6 + 1.2 * fade + 0.05 * noise(),
                "target_entropy": 1.2 + 0.5 * fade + 0.03 * noise(),
                "value_loss": 0.25 + 0.25 * fade + 0.02 * noise(),
                "policy_entropy": 1.5 + 0.8 * fade + 0.03 * noise(),
                "value_error": 0.6 + 0.35 * fade + 0.02 * noise(),
                "games": 9 * step,
                "positions": 512 * step,
            }
        )
        timings.append(
            {
                "step": step,
                "seconds": 1.9,
                "positions_per_second": 270 + 12 * noise() if step > 1 else 20,
                "games_per_second": 4.6 + 0.7 * noise() if step > 1 else 0.4,
            }
        )
    ladder = range(40, steps + 1, 40)
    elo = {step: 700 * (1 - float(np.exp(-step / 120))) for step in ladder}
    evaluations = []
    for step in ladder:
        for opponent, against in (("random", 0.0), ("positional", 480.0), ("step 40", 200.0)):
            score = 1 / (1 + 10 ** ((against - elo[step]) / 400))
            evaluations.append(_evaluation(step, opponent, score))
    players = [
        {"name": "random", "step": None, "elo": 0.0, "se": 0.0},
        {"name": "positional", "step": None, "elo": 480.0, "se": 21.0},
        *({"name": f"step {s}", "step": s, "elo": e, "se": 24.0} for s, e in elo.items()),
    ]
    folder.mkdir(exist_ok=True)
    config = {
        "seed": 0,
        "search": "gumbel",
        "learning_rate": 2e-3,
        "note": "<b>&",
        "symmetries": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    _lines(folder / "metrics.jsonl", metrics)
    _lines(folder / "timings.jsonl", timings)
    _lines(folder / "evaluations.jsonl", evaluations)
    (folder / "elo.json").write_text(json.dumps({"players": players}))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder, 160)
    return write_report(APP, folder).read_text()


def test_every_curve_and_table_is_there(page):
    assert page.count("<figure>") == page.count("<svg") == 8
    for words in ("160", "1,440", "81,920", "5:04", "Elo ladder", "anchor", "positional"):
        assert f">{words}<" in page, words
    assert "Last evaluation, at step 160" in page
    assert ">0.002<" in page and ">gumbel<" in page
    for label in ("loss", "floor", "random", "positional"):  # in the charts' legends
        assert re.search(rf"<text[^>]*>{label}</text>", page), label


def test_the_same_run_gives_the_same_page(page, tmp_path):
    write_run(tmp_path / "first", 160)
    assert write_report(APP, tmp_path / "first").read_text() == page


def test_a_run_that_has_hardly_begun(tmp_path):
    assert write_report(APP, tmp_path).read_text().count("nothing yet") == 8
    write_run(tmp_path, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "policy_lo')
    assert write_report(APP, tmp_path).read_text().count("nothing yet") == 2
