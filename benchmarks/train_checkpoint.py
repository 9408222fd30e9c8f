"""How long does a checkpoint stop training, and how long until it is on disk?

A state of `--gigabytes` is stepped as training steps it: a step is donated the state, writes a part
of it, and computes for about `--step` seconds. The state is saved `--saves` times by threads, and
as often while training waits, which is the peer. One JSON line, with the medians of

- `step_s`, `step_writing_s`: a step, and one while a checkpoint is written;
- `stood_still_s`: how long saving stopped the steps;
- `lost_s`: that, and by how much the steps were slower until the checkpoint was written;
- `written_s`: until it was on disk;
- `synchronous_s`, `synchronous_cpu_s`: how long a save stops the steps that waits until then, and
  the processor seconds that it takes;
- `stood_still_percent`, `lost_percent`: of the interval between two such checkpoints that training
  chooses without `--checkpoint-every`.

    uv run python benchmarks/train_checkpoint.py [--gigabytes 1] [--step 0.2] [--folder FOLDER]
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from zero_app import Checkpoints
from zero_app._run._pacing import LEAST_REST, REST


State = dict[str, Any]


def _state(gigabytes: float) -> State:
    """Replay that no disk can compress, and parameters."""
    rows = int(gigabytes * 1e9 / 4 / 1024 / 8)
    replay = [jr.bits(jr.key(i), (rows, 1024), jnp.uint32) for i in range(8)]
    return {"replay": replay, "params": jnp.eye(512), "step": jnp.zeros((), jnp.int32)}


def _stepped(seconds: float, state: State) -> tuple[Callable[[State], State], State]:
    """A step that computes for about so long, and the state after two of them."""

    def build(turns: int) -> Callable[[State], State]:
        def step(state: State) -> State:
            turn = lambda _, x: jnp.tanh(x @ x + 0.1)
            params = jax.lax.fori_loop(0, turns, turn, state["params"])
            row = state["step"] % state["replay"][0].shape[0]
            replay = [part.at[row].add(jnp.uint32(1)) for part in state["replay"]]
            return {"replay": replay, "params": params, "step": state["step"] + 1}

        return jax.jit(step, donate_argnums=0)

    trial, turns = build(50), 50
    for _ in range(2):
        began = time.perf_counter()
        state = jax.block_until_ready(trial(state))
        turns = max(1, round(50 * seconds / (time.perf_counter() - began)))
    step = build(turns)
    return step, jax.block_until_ready(step(state))


def measured(folder: pathlib.Path, given: argparse.Namespace) -> dict[str, Any]:
    """The line."""
    step, state = _stepped(given.step, _state(given.gigabytes))
    checkpoints = Checkpoints(folder, keep=1)
    names = "step_s", "step_writing_s", "stood_still_s", "lost_s", "written_s"
    names = *names, "synchronous_s", "synchronous_cpu_s"
    found: dict[str, list[float]] = {name: [] for name in names}

    def stepped() -> float:
        nonlocal state
        began = time.perf_counter()
        state = jax.block_until_ready(step(state))
        return time.perf_counter() - began

    for save in range(given.saves + 1):
        quiet = [stepped() for _ in range(given.quiet)]
        usual, began = statistics.median(quiet), time.perf_counter()
        checkpoints.save(2 * save, state, wait=False)
        stood_still, slow = time.perf_counter() - began, []
        while checkpoints.latest != 2 * save:
            slow.append(stepped())
        checkpoints.finish()
        written = time.perf_counter() - began
        began, used = time.perf_counter(), time.process_time()
        checkpoints.save(2 * save + 1, state)
        waited, used = time.perf_counter() - began, time.process_time() - used
        if save == 0:
            continue  # it imports Orbax
        found["step_s"] += quiet
        found["step_writing_s"] += slow
        found["stood_still_s"].append(stood_still)
        found["lost_s"].append(stood_still + sum(x - usual for x in slow))
        found["written_s"].append(written)
        found["synchronous_s"].append(waited)
        found["synchronous_cpu_s"].append(used)
    line: dict[str, Any] = {"question": "train_checkpoint", "device": jax.devices()[0].device_kind}
    line["gigabytes"] = round(sum(x.nbytes for x in jax.tree.leaves(state)) / 1e9, 3)
    line |= {name: round(statistics.median(values), 3) for name, values in found.items()}
    interval = max(LEAST_REST, REST * line["written_s"])
    for name in ("stood_still", "lost"):
        line[f"{name}_percent"] = round(100 * line[f"{name}_s"] / interval, 2)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--step", type=float, default=0.2, help="seconds of a step")
    parser.add_argument("--quiet", type=int, default=10, help="steps between two saves")
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to measure")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(json.dumps(measured(pathlib.Path(folder), given)), flush=True)


if __name__ == "__main__":
    main()
