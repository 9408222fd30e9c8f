"""The arithmetic behind docs/cluster-model.md, against sums done by hand."""

import importlib.util
import pathlib
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def model() -> Any:
    path = pathlib.Path(__file__).parents[1] / "benchmarks" / "cluster_model.py"
    spec: Any = importlib.util.spec_from_file_location("cluster_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


def test_a_step_is_the_sum_of_its_parts(model):
    """Two devices of 100 operations a second at half of that, a second a launch, four a turn."""
    cluster = model.Cluster("two", 2, 1, 100.0, 1.0, 4.0, 3.0, bandwidth=8.0, near=0, memory=1)
    compiled = model.Compiled(once=5, move=2, simulation=10, loops=(1, 2), update=7)
    shards = model.Shards(turns=(2.0, 0.5), straggler={2: 1.5})
    work = model.Work(
        games=6,
        moves=4,
        simulations=3,
        updates=2,
        batch=10,
        evaluation_flops=50.0,
        row_flops=30.0,
        gradient=16.0,
        rows=0.0,
        state=600.0,
        evaluated=8,
        evaluate_every=10,
    )
    assumed = model.Assumed(0.5, copy=200.0, disk=60.0, plies=5)
    found = model.step(cluster, work, shards, compiled, assumed)
    checkpoints = found.pop("checkpoints")
    assert checkpoints == pytest.approx(sum(found.values()) * 3 / 260)
    assert found == pytest.approx(
        {
            "launches": 4 * 3 * 10 + 5 + 4 * 2,
            "turns": 4 * 3 * (2 * (1 + 4) + 0.5 * (2 + 4)),
            "search FLOPs": 4 * 3 * 3 * 50 / 50,
            "stragglers": 0.5 * 156,
            "update launches": 2 * 7,
            "update FLOPs": 2 * 5 * 30 / 50,
            "sums": 2 * (3 + 3 + 2 * 16 / 8),
            "evaluation": 5 * 8 * (10 + 13) / 10,
        }
    )


def test_checkpoints_by_the_clock_stop_training_for_a_twentieth_at_most(model):
    assert model.stopped(copying=0.6, writing=2) == pytest.approx(0.6 / 60)
    assert model.stopped(copying=6, writing=50) == pytest.approx(6 / 1120)


def test_devices_that_only_act_gain_where_not_all_is_shared(model):
    # All is shared: two of three devices act for 10 s each, one learns for 10 s.
    assert model.in_turns(20, 10, 3) == model.apart(20, 10, 3) == 10
    # Nothing is shared but the devices: the longer half is all that is left.
    assert model.in_turns(0, 0, 8, (4, 1)) == 5 and model.apart(0, 0, 8, (4, 1)) == 4
    # Searching costs 20 of 21; at half the price it costs 10, and learning 1 as before.
    assert model.saved_on_weaker(20, 2) == pytest.approx(21 / 11)


def test_parameters_in_parts_save_the_optimisers_memory_and_cost_gathers(model):
    """80 bytes on two hosts of two devices, 10 bytes a second by memory and 4 by the links."""
    near = dict(latency=3.0, bandwidth=4.0, near=1.0, memory=10.0)
    cluster = model.Cluster("two hosts", 4, 2, 1.0, 1.0, 1.0, **near)
    assert model.kept_whole(cluster, 80) == 3 + (3 + 2 * 80 / 4) + 7 * 80 / 10
    # Five arrays: a gather of each in an update, and in one of two for the search.
    gathers, scatter, among = 1.5 * (5 * 1 + 80 / 4), 1 + 80 / 4, 3 + 2 * 40 / 4
    parts = 3 + gathers + scatter + among + 7 * 40 / 10
    assert model.kept_in_parts(cluster, 80, arrays=5, updates=2) == parts
    targets = model.kept_in_parts(cluster, 80, arrays=5, updates=2, targets=True)
    assert targets == parts + 5 * 1 + 80 / 4


def test_the_latency_of_nccl(model):
    assert model.nccl_latency(1) == pytest.approx(21.2e-6)
    assert model.nccl_latency(32) == pytest.approx((21.2 + 2 * 5 * 8.5) * 1e-6)


@pytest.mark.slow
def test_the_command_of_the_page_prints_its_tables(model, monkeypatch, capsys):
    """With the real configuration, the update of which is traced to count its operations."""
    monkeypatch.setattr("sys.argv", ["cluster_model.py"])
    monkeypatch.syspath_prepend(str(pathlib.Path(model.__file__).parent))
    model.main()
    printed = capsys.readouterr().out
    docs = pathlib.Path(__file__).parents[1] / "docs"
    for page, start in (("cluster-model.md", "| a step"), ("devices.md", "| faster from")):
        shown = [line for line in (docs / page).read_text().splitlines() if line.startswith(start)]
        assert shown and all(line in printed for line in shown)
