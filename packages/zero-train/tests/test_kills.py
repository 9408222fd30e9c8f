"""A run that is killed at random moments ends as one that was left alone."""

import os
import random
import time
from collections.abc import Callable

import jax
import numpy as np
import pytest

from zero_train import Checkpoints
from zero_train.app import App, load

from .processes import build, Config
from .test_processes import Run


#: How often the run is killed. Each kill costs the start of a process.
KILLS = int(os.environ.get("KILLS", "100"))


def _trains(run: Run) -> Callable[[], bool]:
    return lambda: "the first step begins" in run.said(0)


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_is_bitwise_the_same(tmp_path):
    """In starting, collecting, updating, evaluating and saving, which every step does here."""

    def begin(name: str, *flags: str, **disturb: str) -> Run:
        again = ["--resume"] if (tmp_path / name / "config.json").exists() else []
        flags = (f"--steps={30 * KILLS}", "--evaluate-every=50", *again, *flags)
        return Run(tmp_path / name, 1, *flags, devices=1, disturb={0: disturb})

    randomly, starting, half_written = random.Random(0), 0.0, 0
    stores = [Checkpoints(tmp_path / "run" / name) for name in ("checkpoints", "parameters")]
    for kill in range(KILLS):
        began = time.monotonic()
        run = begin("run", "--checkpoint-every=1", SLEEP="0.03")
        if kill % 4:
            run.until(_trains(run))
            starting = time.monotonic() - began
            time.sleep(randomly.uniform(0, 1))
        else:
            time.sleep(randomly.uniform(0, starting))
        run.kill()
        assert run.processes[0].wait() == -9, run.everything()
        assert "damaged" not in run.everything()
        newest = stores[0].latest
        assert newest is None or newest in stores[1].steps()
        half_written += any(list(store.directory.glob(".*.tmp")) for store in stores)
    print(f"{KILLS} kills, {half_written} of them in writing, before step {stores[0].latest}")
    runs = begin("run", "--checkpoint-every=0"), begin("whole")
    for run in runs:
        assert run.ended(3600) == [0], run.everything()
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        one, other = ((run.folder / name).read_bytes() for run in runs)
        assert one == other
    app = App("nim", "Nim.", {"tiny": Config()}, build)
    found, wanted = (jax.tree.leaves(load(app, run.folder).player) for run in runs)
    for x, y in zip(found, wanted, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
