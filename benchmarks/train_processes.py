"""What does training with several processes cost, and does it compute the same?

Real processes on this machine, with gloo on loopback, share the same virtual CPU devices and train
a small AlphaZero on Nim, whose step is so short that what the host adds shows. One JSON line for
each number of processes:

- `least_ms`, `median_ms`: of a step as `train` times it, metrics and episodes on the host;
    `cpu_ms`: the CPU milliseconds of all processes, a mean. `beyond_one_ms`: the least step less
    that of one process.
- `agreed_ms`, `episodes_ms`: the least of the two parts of a step that are only there with several
    processes: asking whether all shall stop, and gathering the episodes that ended. `started_ms`:
    the least in which the host has started both halves of a step.
- `collecting`, `learning`: what their compiled programs send: the collectives in loops and beside
    them, each as often as it runs, and the bytes of all. Acting is a loop; rows are counted at its
    end.
- `sum_ms`: the least of a sum of one number over the same devices.
- `difference`: whether the metrics of the first 20 steps are those of one process `bitwise`, or the
    largest difference, over the value itself or 0.001.

    uv run python benchmarks/train_processes.py --processes 1 2 4 --devices 8
"""

import argparse
import importlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from zero_app import Launch, start_jax


_COMPARED = 20
_TIMES = "seconds", "agreed", "started", "episodes"


def work(devices: int, processes: int, process: int, port: int, steps: int) -> dict[str, Any]:
    """What one process of them finds."""
    many = {"coordinator": f"127.0.0.1:{port}", "process_id": process, "num_processes": processes}
    start_jax(Launch(devices=devices, **(many if processes > 1 else {})))
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from jax.sharding import NamedSharding, PartitionSpec as P

    from zero_app import StopSignal
    from zero_app._run._app import built
    from zero_cli._apps import APPS
    from zero_cli._config import presets
    from zero_train import episode_metrics, fill, init, step, template, together
    from zero_train._step import collect_half, learn_half

    config = presets("zero_envs.testing:Nim", "alphazero", 8)["tiny"]
    loop = built(APPS["zero"], config, devices)
    like = template(loop)
    sent = {
        name: _sent(half.lower(loop, None, like).compile().as_text())
        for name, half in (("collecting", collect_half), ("learning", learn_half))
    }
    places = NamedSharding(loop.mesh, P("data"))
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(loop.mesh, P()))
    together("compiled")  # gloo waits for 30 s at most
    state, stop = fill(loop, init(loop, key=jr.key(config.seed))), StopSignal()
    found: dict[str, list[float]] = {name: [] for name in _TIMES}
    metrics, began_cpu = [], 0.0
    for done in range(steps):
        if done == _COMPARED:
            began_cpu = time.process_time()
        start = time.perf_counter()
        stop.agreed(done)
        agreed = time.perf_counter()
        state, new = step(loop, state)
        started = time.perf_counter()
        new = jax.device_get(new)
        stepped = time.perf_counter()
        new |= episode_metrics(state.episodes)
        ended = time.perf_counter()
        spent = ended - start, agreed - start, started - agreed, ended - stepped
        for name, seconds in zip(_TIMES, spent, strict=True):
            found[name].append(seconds)
        metrics.append({name: float(value) for name, value in new.items()})
    used = (time.process_time() - began_cpu) / (steps - _COMPARED)
    sums, one = [], jax.jit(lambda: jnp.ones(devices), out_shardings=places)()
    for _ in range(200):
        start = time.perf_counter()
        jax.block_until_ready(total(one))
        sums.append(time.perf_counter() - start)
    return found | {"sum": sums, "cpu": used, "metrics": metrics[:_COMPARED], "sent": sent}


def _sent(text: str) -> dict[str, int]:
    """What the program sends in its loops, and beside them."""
    sys.path.append(str(pathlib.Path(__file__).parent / "accelerators"))
    hlo = importlib.import_module("hlo")
    block = hlo.parse(text)
    count = lambda block: sum(times for _, times in hlo.collectives(block))
    in_loops = sum(count(one) * (one.turns or 1) for one in block.inside)
    size = sum(one.size * times for one, times in hlo.collectives(block))
    return {"in_loops": in_loops, "beside": count(block) - in_loops, "bytes": size}


def run(devices: int, processes: int, steps: int) -> list[dict[str, Any]]:
    """What each of so many processes found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, __file__, "--worker", str(devices), str(processes)]
    started = [
        subprocess.Popen([*words, str(i), str(port), str(steps)], stdout=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    said = [process.communicate()[0] for process in started]
    return [json.loads(text.splitlines()[-1]) for text in said]


def difference(one: Sequence[dict[str, float]], other: Sequence[dict[str, float]]) -> str | float:
    """Between the metrics of two runs."""
    if repr(one) == repr(other):  # NaN is equal to NaN here
        return "bitwise"
    pairs = [(x[name], y[name]) for x, y in zip(one, other, strict=True) for name in x]
    return max(abs(x - y) / max(abs(x), 1e-3) for x, y in pairs if x == x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--devices", type=int, default=8, help="of all processes together")
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args()
    first: dict[str, Any] | None = None
    for processes in given.processes:
        found = run(given.devices, processes, given.steps)
        least = {name: 1e3 * min(found[0][name]) for name in (*_TIMES, "sum")}
        first = first or {"least": least["seconds"], "metrics": found[0]["metrics"]}
        row = {
            "question": "train_processes",
            "devices": given.devices,
            "processes": processes,
            "steps": given.steps,
            "least_ms": round(least["seconds"], 2),
            "median_ms": round(1e3 * statistics.median(found[0]["seconds"]), 2),
            "cpu_ms": round(1e3 * sum(one["cpu"] for one in found), 2),
            "beyond_one_ms": round(least["seconds"] - first["least"], 2),
            **{
                f"{name}_ms": round(least[name], 3)
                for name in ("agreed", "started", "episodes", "sum")
            },
            **found[0]["sent"],
            "difference": difference(first["metrics"], found[0]["metrics"]),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(work(*map(int, sys.argv[2:]))))
    else:
        main()
