"""A run from start to finish: what it logs, and its player."""

import json
import math

import jax
import pytest

from zero_app import read_lines
from zero_minesweeper._app import APP
from zero_minesweeper._eval import Eval
from zero_minesweeper._report import FOLLOWED
from zero_minesweeper._table import TableArguments


def test_the_loss_is_the_sum_of_its_parts(tiny_run, small_config):
    lines = read_lines(tiny_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert all(math.isfinite(x) for x in line.values())
        parts = line["policy_loss"] + small_config.value_weight * line["value_loss"]
        parts += small_config.mine_weight * line["auxiliary_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-4)


def test_evaluations_are_of_the_network_alone_and_inside_the_search(
    tiny_run, scalars, check_episodes
):
    check_episodes(tiny_run)
    rows = read_lines(tiny_run / "evaluations.jsonl")
    assert [row["agent"] for row in rows] == [*FOLLOWED, *FOLLOWED, "random"]
    assert [row["boards"] for row in rows] == [8, 8, 32, 32, 32]
    assert [row["needless_risks"] for row in rows if row["agent"] == "belief"] == [0, 0]
    assert rows[-1]["needless_risks"] > 0
    shown = scalars(tiny_run)
    for name, first in (("network_win_rate", 0), ("win_rate", 1)):
        rates = {2: rows[first]["win_rate"], 4: rows[2 + first]["win_rate"]}
        assert shown[name] == pytest.approx(rates)


def test_boards_are_the_runs_unless_others_are_given(tiny_run, small_config):
    """One network serves boards of every size."""
    command = Eval(str(tiny_run))
    seat = TableArguments().at(APP, command, ["network"])
    assert (seat.env.rows, seat.env.columns, seat.env.num_mines, seat.env.max_states) == (
        3,
        4,
        2,
        32,
    )
    assert seat.config.player_simulations == small_config.player_simulations
    # Also where no agent needs its network.
    assert TableArguments().at(APP, command, ["rules"]).env == seat.env
    other = TableArguments(rows=4, mines=3).at(APP, command, ["network"])
    assert (other.env.rows, other.env.columns, other.env.num_mines) == (4, 4, 3)
    state = other.env.init(key=jax.random.key(0))
    agent = other.agent("network")
    state, obs = jax.tree.map(lambda x: x[None], (state, other.env.observe(state)))
    keys = jax.random.split(jax.random.key(0), 1)
    action, _, _ = agent.act(state, obs, agent.init(state), key=keys)
    assert 0 <= int(action[0]) < 16


def test_eval_of_a_run(minesweeper, tiny_run):
    code, out, _ = minesweeper("eval", tiny_run, "--agent", "network", "--boards", 8, "--json")
    row = json.loads(out)
    assert code == 0 and row["agent"] == "network" and row["boards"] == 8
