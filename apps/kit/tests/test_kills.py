"""A run that is killed, and told to stop, at random moments ends as one that was left alone."""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable

import jax
import numpy as np
import pytest

from zero_app import App, Checkpoints, load

from .processes import build, Config
from .test_processes import Run, SMALLEST


#: How often the run of Nim is killed; those of the apps a tenth of it. After each fourth kill it is
#: told to stop as well. Each costs the start of a process.
KILLS = int(os.environ.get("KILLS", "100"))
_EVERY = 5  # steps between two evaluations
_LIFE = 60  # steps that a process may do before it is killed


def app_of(name: str) -> App:
    """The app; those besides Nim are not installed where this package is tested alone."""
    if name == "nim":
        return App("nim", "Nim.", {"tiny": Config()}, build)
    return pytest.importorskip("zero_cli._apps").APPS[name]


def _steps(run: Run) -> int:
    """How many steps the run has logged."""
    file = run.folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _trains(run: Run) -> Callable[[], bool]:
    return lambda: "the first step begins" in run.said(0)


def _logged(run: Run, steps: int) -> Callable[[], bool]:
    return lambda: _steps(run) >= steps


def _at_a_step(run: Run, randomly: random.Random, *, evaluated: bool) -> None:
    """Waits for a random moment after some more steps, the last of which may be evaluated."""
    last = _steps(run) + randomly.randrange(1, 20)
    if evaluated:
        last = _EVERY * (last // _EVERY + 1)
    run.until(_logged(run, last))
    time.sleep(randomly.uniform(0, 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_run_that_is_interrupted_at_random_moments_is_bitwise_the_same(tmp_path, name):
    """In starting and compiling, collecting, updating, evaluating, and saving, which every step
    does here."""
    app, (program, flags) = app_of(name), SMALLEST[name]
    kills = KILLS if name == "nim" else max(1, KILLS // 10)
    four, stops = [signal.SIGKILL] * 4, itertools.cycle([signal.SIGTERM, signal.SIGINT])
    lives = [number for _ in range(kills // 4) for number in (*four, next(stops))]
    lives += four[: kills % 4]
    # `spo` counts the steps of all environments.
    steps = _LIFE * len(lives) * (8 * 8 if name == "spo" else 1)
    cache = {"CACHE": str(tmp_path / "cache")}

    def begin(folder: str, *own: str, **disturb: str) -> Run:
        again = ["--resume"] if (tmp_path / folder / "config.json").exists() else []
        words = "--preset=tiny", f"--steps={steps}", f"--evaluate-every={_EVERY}", *flags.split()
        given = {"devices": 1, "disturb": {0: cache | disturb}, "program": program}
        return Run(tmp_path / folder, 1, *words, *again, *own, **given)

    randomly, starting, hit = random.Random(0), 10.0, dict.fromkeys(("start", "eval", "save"), 0)
    stores = [Checkpoints(tmp_path / "run" / kind) for kind in ("checkpoints", "parameters")]
    for life, number in enumerate(lives):
        began = time.monotonic()
        run = begin("run", "--checkpoint-every=1", SLEEP="0.03")  # which Nim heeds
        if life % 3 == 0:
            time.sleep(randomly.uniform(0, starting))
        else:
            run.until(_trains(run))
            starting = time.monotonic() - began
            _at_a_step(run, randomly, evaluated=life % 3 == 1)
        trained = _trains(run)()
        run.processes[0].send_signal(number)
        code = run.processes[0].wait(600)
        run.kill()
        assert "damaged" not in run.everything()
        newest = stores[0].latest
        assert newest is None or newest in stores[1].steps()
        if number == signal.SIGKILL:
            assert code == -number, run.everything()
            hit["start"] += not trained
            evaluated = run.folder / "evaluations.jsonl"
            lines = f'"step": {_steps(run)},'
            due = trained and _steps(run) % _EVERY == 0
            hit["eval"] += due and lines not in evaluated.read_text()
            hit["save"] += any(list(store.directory.glob(".*.tmp")) for store in stores)
        elif trained:
            assert (code, newest) == (0, _steps(run)), run.everything()
        else:  # Python itself may not have started
            assert code in (0, 130, -number), run.everything()
    print(f"{name}: {kills} kills, of them {hit}, before step {stores[0].latest}")
    runs = begin("run", "--checkpoint-every=0"), begin("whole")
    for run in runs:
        assert run.ended(3600) == [0], run.everything()
    for file in ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl"):
        one, other = ((run.folder / file).read_bytes() for run in runs)
        assert one == other and one.count(b"\n") >= _LIFE * len(lives) // _EVERY
    found, wanted = (jax.tree.leaves(load(app, run.folder).player) for run in runs)
    for x, y in zip(found, wanted, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
