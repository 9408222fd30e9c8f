"""Sweeps: what is tried, what is found, and workers that stop."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import optuna
import pytest

from zero_app import read_lines, run, UsageError, View
from zero_app._run import _sweep

from .swept import APP, Config, worth


pytestmark = pytest.mark.usefixtures("no_charts")

GRID = ("--sampler=grid", "--over", "rate=0.1,0.5", "kind=a,b", "--trials=4")


def go(out, *words):
    run(APP, ["sweep", f"--out={out}", *words])


def trials(out):
    study = optuna.load_study(study_name=out.name, storage=f"sqlite:///{out / 'sweep.db'}")
    return study.get_trials()


def test_a_grid_is_tried_once_and_the_same_command_finds_it_done(tmp_path, capsys):
    out = tmp_path / "grid"
    go(out, *GRID)
    tried = [(x.params["rate"], x.params["kind"]) for x in trials(out)]
    assert sorted(tried) == [(0.1, "a"), (0.1, "b"), (0.5, "a"), (0.5, "b")]
    best = Config(**json.loads((out / "best.json").read_text()))
    assert best == Config(rate=0.5, kind="b")
    for trial in trials(out):
        row = read_lines(out / f"trial-{trial.number}" / "evaluations.jsonl")[-1]
        expected = worth(dataclasses.replace(Config(), **trial.params)) + 2
        assert row["return_mean"] == trial.value == pytest.approx(expected)
    capsys.readouterr()
    go(out, *GRID)
    assert len(trials(out)) == 4
    assert "--rate 0.5, --kind b" in capsys.readouterr().out


def test_the_best_configuration_is_trained_with_flags_on_top(tmp_path):
    (tmp_path / "best.json").write_text(json.dumps(dataclasses.asdict(Config(rate=0.7))))
    words = ["train", f"--config={tmp_path / 'best.json'}", "--layers=3"]
    run(APP, [*words, f"--out={tmp_path / 'run'}"])
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert Config(**stored) == Config(rate=0.7, layers=3)
    (tmp_path / "other.json").write_text('{"rate": 1.0}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "two.json").write_text("{}\n{}")
    run(APP, ["train", f"--config={tmp_path / 'run'}", "--resume", f"--out={tmp_path / 'run'}"])
    for words, said in (
        (["--config=nowhere.json"], "--config nowhere.json is missing; give the config.json"),
        (
            [f"--config={tmp_path / 'two.json'}"],
            "two.json cannot be read: .*; give the config.json",
        ),
        ([f"--config={tmp_path}"], "has no config.json; give the config.json of a run"),
        ([f"--config={tmp_path / 'other.json'}"], "other.json is none of `nim train`: it lacks"),
        ([f"--config={tmp_path / 'list.json'}"], "list.json is none of `nim train`: it is no JSON"),
        (["--config=x", "--preset=tiny"], "--preset and --config were given; give one of them"),
    ):
        with pytest.raises(UsageError, match=said):
            run(APP, ["train", *words, f"--out={tmp_path / 'new'}"])


def test_a_grid_has_no_more_trials_than_points(tmp_path):
    out = tmp_path / "grid"
    go(out, "--sampler=grid", "--over", "kind=a,b", "--trials=1")
    assert len(trials(out)) == 1
    go(out, "--sampler=grid", "--over", "kind=a,b")
    assert sorted(x.params["kind"] for x in trials(out)) == ["a", "b"]


def test_trials_that_fail_say_why_and_are_not_tried_again(tmp_path, monkeypatch, capsys):
    def refused(*_, **__):
        raise UsageError("8 devices do not divide it.")

    monkeypatch.setattr(_sweep, "train", refused)
    out = tmp_path / "failing"
    with pytest.raises(UsageError, match="no trial was trained to its end; the lines above say"):
        go(out, "--over", "rate=0:1", "--trials=2")
    assert [x.state.name for x in trials(out)] == ["FAIL", "FAIL"]
    assert "trial 1 failed: 8 devices do not divide it." in capsys.readouterr().err


def test_an_evaluation_is_worth_its_first_line():
    rows = [
        {"step": 1, "score": 0.1},
        {"step": 2, "opponent": "step 1", "score": 0.5},
        {"step": 2, "opponent": "random", "loss_rate": 0.2},
        {"step": 2, "opponent": "other", "score": 0.7},
    ]
    assert _sweep.value_of(rows) == [-0.2]
    assert _sweep.value_of([]) == _sweep.value_of([{"step": 1, "moved": 3.0}]) == []


def test_a_trial_of_several_seeds_is_worth_their_mean(tmp_path):
    out = tmp_path / "seeds"
    go(out, "--over", "rate=0.25:0.5", "--trials=1", "--seeds", "2", "6")
    (trial,) = trials(out)
    assert trial.value == pytest.approx(trial.params["rate"] + 1 + 0.004 + 2)
    assert sorted(x.name for x in (out / "trial-0").iterdir()) == ["seed-2", "seed-6"]


def test_the_time_of_a_sweep_is_that_of_all_seeds_together(tmp_path, monkeypatch):
    stops, known = [], vars(_sweep)["train"]

    def train(app, config, options, preset, *, stop, told):
        stops.append(stop)
        return known(app, config, options, preset, stop=stop, told=told)

    monkeypatch.setattr(_sweep, "train", train)
    go(tmp_path / "timed", "--over", "kind=a", "--trials=1", "--seeds", "2", "6", "--minutes=1")
    assert len(stops) == 2 and stops[0] is stops[1] and stops[0]._timer.interval < 60


def test_a_grid_has_all_points_that_differ(tmp_path):
    """However near they are to each other."""
    rates = [1.0, 1.000001, 1.000002, 1.000003]
    out = tmp_path / "near"
    go(out, "--sampler=grid", "--over", f"rate={','.join(map(str, rates))}", "--trials=4")
    assert sorted(x.params["rate"] for x in trials(out)) == rates


def test_a_point_that_two_workers_enqueue_is_tried_once(tmp_path, monkeypatch):
    enqueue = optuna.Study.enqueue_trial

    def twice(study, point, attributes=None):
        for _ in range(1 if attributes else 2):
            enqueue(study, point, attributes)

    monkeypatch.setattr(optuna.Study, "enqueue_trial", twice)
    out = tmp_path / "twice"
    go(out, *GRID)
    done = [(x.params["rate"], x.params["kind"]) for x in trials(out) if x.value is not None]
    assert sorted(done) == [(0.1, "a"), (0.1, "b"), (0.5, "a"), (0.5, "b")]


@pytest.mark.parametrize("name", ["{b}", "{}", "lr?"])
def test_a_folder_that_no_database_can_be_in_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="give a name without"):
        go(tmp_path / name, "--over", "kind=a", "--trials=1")
    with pytest.raises(UsageError, match="cannot be used .*give another --storage"):
        go(
            tmp_path / "out",
            "--over",
            "kind=a",
            "--trials=1",
            f"--storage=sqlite:///{tmp_path}/{{b}}",
        )
    assert {path.name for path in tmp_path.iterdir()} <= {"out"}


def test_a_trial_below_the_median_is_ended(tmp_path):
    out = tmp_path / "pruned"
    # The median is known after five trials; they come in this order.
    study = optuna.create_study(
        study_name=out.name, storage=f"sqlite:///{tmp_path / 'sweep.db'}", direction="maximize"
    )
    for rate in (0.9, 0.8, 0.9, 0.8, 0.9, 0.1):
        study.enqueue_trial({"rate": rate})
    go(out, "--over", "rate=0.1:0.9", "--trials=6", f"--storage=sqlite:///{tmp_path / 'sweep.db'}")
    assert [x.state.name for x in study.get_trials()] == ["COMPLETE"] * 5 + ["PRUNED"]
    assert len(read_lines(out / "trial-5" / "evaluations.jsonl")) == 1


def test_a_stopped_sweep_goes_on_with_its_trial(tmp_path, monkeypatch, capsys):
    out, update, seen = tmp_path / "stopped", View.update, []

    def stopping(view, number, metrics, timings):
        update(view, number, metrics, timings)
        seen.append(number)
        if len(seen) == 3:  # the first step of the second trial
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(View, "update", stopping)
        go(out, *GRID)
    assert "the same command goes on" in capsys.readouterr().out
    assert len(read_lines(out / "trial-1" / "metrics.jsonl")) == 1
    go(out, *GRID)
    states = [x.state.name for x in trials(out)]
    assert sorted(states) == ["COMPLETE"] * 4 + ["FAIL"]
    tried = {tuple(x.params.values()) for x in trials(out) if x.state.name == "COMPLETE"}
    assert len(tried) == 4
    assert sorted(x.name for x in out.glob("trial-*")) == [f"trial-{i}" for i in range(4)]
    assert len(read_lines(out / "trial-1" / "starts.jsonl")) == 2
    complete = [x for x in trials(out) if x.state.name == "COMPLETE"]
    assert all([*x.intermediate_values] == [1, 2] for x in complete)


def test_a_signal_in_the_last_evaluation_of_a_trial_stops_the_sweep(tmp_path, monkeypatch, capsys):
    """Of a grid that is then asked for with fewer trials, every point is still tried once."""
    out, evaluation, seen = tmp_path / "stopped", View.evaluation, []

    def stopping(*given):
        evaluation(*given)
        seen.append(given)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(View, "evaluation", stopping)
        go(out, *GRID)
    assert len(seen) == 2 and "the same command goes on" in capsys.readouterr().out
    go(out, *GRID[:-1], "--trials=2")
    assert [x.state.name for x in trials(out)].count("COMPLETE") == 2
    go(out, *GRID)
    done = [tuple(x.params.values()) for x in trials(out) if x.state.name == "COMPLETE"]
    assert sorted(done) == [(0.1, "a"), (0.1, "b"), (0.5, "a"), (0.5, "b")]


REFUSED = (
    ("", "--over is missing; give NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C"),
    ("rate", "--over rate was given; give NAME=LOW:HIGH"),
    ("rte=0:1", "training has no flag --rte; did you mean --rate?"),
    ("seed=0,1", "--over seed=0,1 was given; give --seeds"),
    ("rate=0:1 rate=0:2", "and --rate twice; give each flag once"),
    ("rate=1:0", "a range is LOW:HIGH of two numbers, the lower one first"),
    ("rate=log:0:1", "a range of logarithms begins above 0"),
    ("rate=0:much", "--over rate=0:much was given; much is not a number"),
    ("layers=1:2.5", "--over layers=1:2.5 was given; 2.5 is not a whole number"),
    ("envs=0:64", "--over envs=0:64 was given: --envs 0 was given; give at least 1"),
    ("kind=a,c", "--over kind=a,c was given: --kind 'c' was given; give one of a, b"),
    ("kind=a:b", "--kind 'a:b' was given; give one of a, b"),
    ("depth=1:2", "--over depth=1:2 was given, and --depth has no effect with --kind a; leave it"),
)


@pytest.mark.parametrize("over, said", REFUSED)
def test_what_training_would_refuse_is_refused_before_the_first_trial(over, said, tmp_path):
    with pytest.raises(UsageError) as e:
        go(tmp_path / "new", "--over", *over.split())
    assert said in str(e.value) and not (tmp_path / "new").exists()


def test_values_that_fit_to_some_of_another_flag_are_tried(tmp_path, capsys):
    """`--envs 16` is no multiple of `--shards 32`, and is one of 8 and 16."""
    out = tmp_path / "pairs"
    over = ("envs=16,32", "shards=8,32")
    go(out, "--over", *over, "--sampler=grid", "--trials=4")
    states = {(x.params["envs"], x.params["shards"]): x.state.name for x in trials(out)}
    assert states == {
        (16, 8): "COMPLETE",
        (16, 32): "FAIL",
        (32, 8): "COMPLETE",
        (32, 32): "COMPLETE",
    }
    assert "--envs 16 does not divide into --shards 32" in capsys.readouterr().err
    for other in ("rate=0:1", "shards=8,32"):  # of which none fits
        with pytest.raises(
            UsageError, match="--over envs=12,16 was given: --envs 12 does not divid"
        ):
            go(tmp_path / "new", "--over", "envs=12,16", other)


def test_a_flag_that_some_trials_use_is_swept_or_given(tmp_path):
    for words in (["depth=1:2", "kind=a,b"], ["depth=1:2", "--kind=b"], ["kind=a,b", "--depth=2"]):
        out = tmp_path / words[1]
        go(out, "--over", *words, "--trials=1")
        assert trials(out)[0].state.name == "COMPLETE"
    with pytest.raises(UsageError, match="^--depth has no effect with --kind a; leave it out.$"):
        go(tmp_path / "new", "--over", "rate=0:1", "--depth=2")


def test_one_storage_holds_one_sweep_of_a_name(tmp_path):
    out = tmp_path / "sweep"
    go(out, "--over", "rate=0:1", "--trials=1")
    for words, said in (
        (["--over", "rate=0:2"], "has a sweep called sweep over something else; give another"),
        (["--over", "rate=0:1", "--seeds=2"], "has a sweep called sweep of other seeds"),
        (["--over", "rate=0:1", "--layers=2"], "has a sweep called sweep with other flags"),
        (["--over", "rate=0:1", "--storage=nothing"], "--storage cannot be used"),
        (["--over", "rate=0:1", "--sampler=grid"], "with --sampler grid; give a list"),
    ):
        with pytest.raises(UsageError, match=said):
            go(out, "--trials=2", *words)
    with pytest.raises(UsageError, match="--over was given twice; give all values after one"):
        go(out, "--over", "rate=0:1", "--over", "kind=a,b")
    (tmp_path / "new" / "trial-0").mkdir(parents=True)
    with pytest.raises(UsageError, match="new has trials, and sqlite:.* none of them; give anoth"):
        go(tmp_path / "new", "--over", "rate=0:1")
    run(APP, ["train", f"--out={tmp_path / 'run'}", "--steps=1"])
    with pytest.raises(UsageError, match="run holds a run; give a sweep another --out"):
        go(tmp_path / "run", "--over", "rate=0:1")


@pytest.fixture
def postgresql():
    """The URL of a database of PostgreSQL, which does not run as root."""
    # A folder of pytest's is its user's alone.
    folder = pathlib.Path(tempfile.mkdtemp())
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres", "postgres")
    binaries = next(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    init = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "sweeper"]
    subprocess.run(init, check=True, **quiet)
    serve = [binaries / "postgres", "-D", data, "-k", folder, "-h", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(serve, **quiet)
    try:
        ready = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-U", "sweeper"]
        while subprocess.run(ready, check=False, **quiet).returncode:
            assert server.poll() is None
            time.sleep(0.2)
        yield f"postgresql+psycopg://sweeper@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # a plain end would wait for its clients
        server.wait()
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.skipif(
    not pathlib.Path("/usr/lib/postgresql").exists(), reason="PostgreSQL is not installed"
)
def test_two_workers_share_a_sweep_and_one_takes_up_what_the_other_left(tmp_path, postgresql):
    """Every trial is trained once, though one of the two is killed in its first one."""
    out, length = (
        tmp_path / "shared",
        ["--steps=400", "--evaluate-every=400", "--checkpoint-every=100"],
    )
    words = ["sweep", f"--out={out}", f"--storage={postgresql}", *GRID, *length]
    workers = []
    for number in (0, 1):
        workers.append(subprocess.Popen([sys.executable, "-m", "apps.kit.tests.swept", *words]))
        while not (out / f"trial-{number}" / "metrics.jsonl").exists():
            assert workers[-1].poll() is None
            time.sleep(0.2)
    killed, other = workers
    killed.kill()
    killed.wait()
    assert other.wait(timeout=900) == 0
    found = optuna.load_study(study_name="shared", storage=postgresql).get_trials()
    done = [x for x in found if x.state.name == "COMPLETE"]
    assert [x.state.name for x in found].count("FAIL") == 1
    tried = sorted((x.params["rate"], x.params["kind"]) for x in done)
    assert tried == [(0.1, "a"), (0.1, "b"), (0.5, "a"), (0.5, "b")]
    (again,) = [x.user_attrs["trial"] for x in done if "trial" in x.user_attrs]
    assert again in (0, 1)
    assert [len(read_lines(out / f"trial-{i}" / "metrics.jsonl")) for i in range(4)] == [400] * 4
    best = Config(**json.loads((out / "best.json").read_text()))
    assert best == Config(rate=0.5, kind="b", steps=400, evaluate_every=400, checkpoint_every=100)
