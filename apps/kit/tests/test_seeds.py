"""Runs of several seeds, by one command."""

import contextlib
import dataclasses
import os
import pathlib
import signal

import pytest

import zero_app
from zero_app import (
    AbstractConfig,
    App,
    EvaluationResult,
    Launch,
    Options,
    read_lines,
    run,
    RunError,
    train,
    UsageError,
    View,
)
from zero_app._run._options import of_seeds

from .nim import shared_loop


pytestmark = pytest.mark.usefixtures("no_charts")


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    seed: int = 3
    steps: int = 2
    evaluate_every: int = 2


def evaluation(config, loop, files):
    return lambda step, player: EvaluationResult([{"seed": config.seed}], {})


@pytest.fixture
def built():
    """The configurations of the loops that were built."""
    return []


@pytest.fixture
def go(built):
    """Trains on Nim by the command."""

    def build(config):
        built.append(config)
        return shared_loop()

    app = App("nim", "Nim.", {"tiny": Config()}, build, evaluation, lambda run: ({}, []))
    return lambda out, *words: run(app, ["train", f"--out={out}", *words])


def logs(folder):
    return (folder / "metrics.jsonl").read_bytes(), (folder / "evaluations.jsonl").read_bytes()


def test_each_seed_has_a_run_as_if_alone(go, built, tmp_path, capsys):
    go(tmp_path / "seeds", "--seeds", "2")
    assert len(built) == 1
    assert "The runs of the seeds are in" in capsys.readouterr().out
    go(tmp_path / "alone", "--seed", "4")
    assert sorted(path.name for path in (tmp_path / "seeds").iterdir()) == ["seed-3", "seed-4"]
    first, second = (logs(tmp_path / "seeds" / f"seed-{seed}") for seed in (3, 4))
    assert first != second == logs(tmp_path / "alone")


def test_a_stopped_command_goes_on_with_the_seeds_that_are_missing(go, tmp_path, monkeypatch):
    update = View.update

    def stopping(view, number, metrics, timings):
        update(view, number, metrics, timings)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(View, "update", stopping)
        go(tmp_path / "seeds", "--seeds", "7", "1")
    assert [path.name for path in (tmp_path / "seeds").iterdir()] == ["seed-7"]
    assert len(read_lines(tmp_path / "seeds" / "seed-7" / "metrics.jsonl")) == 1
    go(tmp_path / "seeds", "--seeds", "7", "1", "--resume")
    ended = logs(tmp_path / "seeds" / "seed-7")
    go(tmp_path / "seeds", "--seeds", "7", "1", "--resume")
    assert logs(tmp_path / "seeds" / "seed-7") == ended
    go(tmp_path / "alone", "--seed", "7")
    assert logs(tmp_path / "alone") == ended


def test_a_signal_in_the_last_evaluation_of_a_seed_ends_the_command(go, tmp_path, monkeypatch):
    """Also where it gives up that evaluation, which is then still to come."""
    evaluating, heard = View.waiting, []

    @contextlib.contextmanager
    def stopping(view, what, expected):
        with evaluating(view, what, expected):
            yield
        if "evaluating the player" in what and not heard:
            heard.append(what)
            os.kill(os.getpid(), signal.SIGTERM)

    for seconds, finished in ((20, True), (-1, False)):
        out = tmp_path / str(seconds)
        heard.clear()
        with monkeypatch.context() as patched:
            patched.setattr("zero_app._run._train._AFTER_SIGNAL", seconds)
            patched.setattr(View, "waiting", stopping)
            if not finished:
                patched.setattr("zero_app._run._train.ended", lambda future, then: False)
            go(out, "--seeds", "2", "--evaluate-every=100")
        (seed,) = out.iterdir()
        assert (seed / "finished").exists() == bool(read_lines(seed / "evaluations.jsonl"))
        assert (seed / "finished").exists() == finished
        go(out, "--seeds", "2", "--evaluate-every=100", "--resume")
        assert all((seed / "finished").exists() for seed in out.iterdir())
        assert [x["step"] for x in read_lines(seed / "evaluations.jsonl")] == [2]


def test_what_cannot_be_trained_is_refused_before_anything_is(go, built, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "seeds" / "seed-1").mkdir(parents=True)
    (tmp_path / "seeds" / "seed-1" / "mine.txt").write_text("")
    for out, words, said in (
        ("new", ["--seeds", "1", "0", "1"], "--seeds 1 0 1 was given; give each seed once."),
        ("new", ["--seeds", "0"], "--seeds 0 was given; give how many, at most 1000, or several."),
        ("run", ["--seeds", "2"], "run holds a run; give --seeds another --out"),
        ("new", ["--seeds", "1001"], "--seeds 1001 was given; give how many, at most 1000"),
        ("new", ["--seeds", "0", "-1"], "--seed -1 was given; give 0 to 4294967295"),
        ("seeds", ["--seeds", "0", "1"], "seed-1 is not empty, and holds no run"),
    ):
        with pytest.raises((UsageError, RunError), match=said):
            go(tmp_path / out, *words)
    assert not built and not (tmp_path / "seeds" / "seed-0").exists()


def test_several_processes_train_one_seed():
    launch = Launch(coordinator="10.0.0.1:9876", process_id=0, num_processes=2)
    options = Options(out=pathlib.Path("seeds"), launch=launch)
    with pytest.raises(UsageError, match="--seeds was given to several processes; give each run"):
        of_seeds(Config(), options, (0, 1))


def test_a_run_is_read_from_python(tmp_path):
    app = App("nim", "Nim.", {"tiny": Config()}, lambda config: shared_loop())
    trained = train(app, Config(), Options(out=tmp_path / "run"))
    read = zero_app.open(tmp_path / "run")
    assert trained == read and read.config["seed"] == 3
    assert list(read.log.index) == [1, 2]
    assert {"loss", "positions", "seconds"} <= set(read.log.columns)
    assert read.log.loss[2] == read_lines(tmp_path / "run" / "metrics.jsonl")[1]["loss"]
    (axes,) = read.plot().axes
    (row,) = read.evaluations
    assert axes.get_ylabel() == "score" and list(axes.lines[0].get_ydata()) == [row["score"]]
    assert len(read.plot("loss", "gradient_norm").axes) == 2
    with pytest.raises(ValueError, match="run has no nothing yet"):
        read.plot("nothing")
    with pytest.raises(UsageError, match="holds no run .no config.json.; give the folder"):
        zero_app.open(tmp_path)
