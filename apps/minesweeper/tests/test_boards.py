"""Boards of the report: guesses there are, and what a network thinks of them."""

import json
import re

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Minesweeper
from zero_minesweeper._boards import guesses, opinions
from zero_minesweeper._pictures import FILE, pictures


ENV = Minesweeper(3, 4, 3, max_states=32)


@pytest.fixture(scope="module")
def found():
    return guesses(ENV, 3, key=jr.key(0))


def test_nothing_is_known_to_be_safe_there(found):
    assert len({board.tobytes() for board, _ in found}) == len(found) == 3
    for board, risk in found:
        hidden = board < 0
        assert not hidden.all() and (risk[hidden] > 0).all() and (risk[~hidden] == 0).all()
        assert risk.sum() == pytest.approx(3, abs=1e-5)


def test_opinions_are_the_networks(found, judge, tmp_path):
    rows = opinions(ENV, found, judge)
    says = eqx.filter_jit(judge.network)
    for (board, risk), row in zip(found, rows, strict=True):
        logits, value, mines = says({"board": jnp.asarray(board), "num_mines": jnp.int32(3)})
        believed = np.where(board < 0, 1 / (1 + np.exp(-np.asarray(mines))), 0)
        np.testing.assert_allclose(row["believed"], believed, atol=1e-4)
        np.testing.assert_allclose(row["exact"], risk, atol=1e-4)
        assert row["value"] == pytest.approx(float(value), abs=1e-4)
        order = np.argsort(-np.asarray(logits), kind="stable")
        assert row["cell"] == next(i for i in order if board.flat[i] < 0)
    (tmp_path / FILE).write_text(json.dumps(rows))
    drawn = list(pictures(tmp_path))
    assert len(drawn) == 3
    for row, svg in zip(rows, drawn, strict=True):
        assert svg.count("<text") == 24 and svg.count("stroke") == 2
        number = f"{100 * row['exact'][0][0]:.0f}" if row["board"][0][0] < 0 else None
        assert number is None or re.search(rf">{number}</text>", svg)


def test_a_run_without_boards_has_no_pictures(tmp_path):
    assert list(pictures(tmp_path)) == []
