r"""How long does a step search, how long does it learn, and what would pass between hosts that do
one each?

One JSON line a case: the CPU seconds of collecting and of learning on one CPU device (the least of
several, of this process alone), their `ratio`, that of their matrix products, `flops_ratio`, and
the megabytes of the actor and of the rows of a step, which would pass between hosts. The replay is
not filled first, for to learn from empty rows takes as long. What follows for acting and learning
on different hosts: `cluster_model.py`.

A preset that is too much for a CPU is measured in a smaller size: what is collected is scaled up by
`--envs` and `--unroll`, what is learned by `--updates` and `--batch`, as if both were linear in
them.

    uv run python benchmarks/train_apart.py othello/quick spo/quick
    uv run python benchmarks/train_apart.py othello/standard --envs 8 --unroll 1 \
        --updates 2 --batch 32
"""

import argparse
import dataclasses
import json
import time
from typing import Any

import jax
import jax.random as jr
from train_devices import configured

from zero_app import Launch, start_jax
from zero_app._run._app import built
from zero_train import act, init, Loop, LoopState, matrix_flops
from zero_train._loop import actor_arrays
from zero_train._step import collect_half, learn_half


_HALVES = {
    "collecting": (collect_half, ("envs", "unroll")),
    "learning": (learn_half, ("updates", "batch")),
}


def row(case: str, changes: dict[str, int], repeats: int) -> dict[str, Any]:
    """The line of a case."""
    app, whole = configured(case, None)
    config = dataclasses.replace(whole, **changes)
    loop = built(app, config, 1)
    state, spent, flops, scale = init(loop, key=jr.key(config.seed)), {}, {}, {}
    for name, (half, sizes) in _HALVES.items():
        scale[name] = 1.0
        for size in sizes:
            scale[name] *= getattr(whole, size) / getattr(config, size)
        flops[name] = scale[name] * matrix_flops(lambda s, half=half: half(loop, None, s), state)
        seconds = []
        for _ in range(repeats + 1):
            began = time.process_time()
            state, _ = jax.block_until_ready(half(loop, None, state))
            seconds.append(time.process_time() - began)
        spent[name] = scale[name] * min(seconds[1:])  # the first one compiles
    between = jax.eval_shape(
        lambda state: (actor_arrays(loop, state.agent), _rows(loop, state)), state
    )
    actor, rows = (sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(x)) for x in between)
    return {
        "question": "train_apart",
        "case": case,
        **changes,
        **{f"{name}_s": round(seconds, 3) for name, seconds in spent.items()},
        "ratio": round(spent["collecting"] / spent["learning"], 2),
        "flops_ratio": round(flops["collecting"] / flops["learning"], 2),
        "actor_mb": round(actor / 1e6, 2),
        "rows_mb": round(scale["collecting"] * rows / 1e6, 2),
    }


def _rows(loop: Loop, state: LoopState) -> Any:
    actor = loop.agent.actor(state.agent, explore=True)
    return act(loop, actor, state.episodes, key=state.key)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="+", help="APP/PRESET")
    parser.add_argument("--repeats", type=int, default=3)
    sizes = [size for _, sizes in _HALVES.values() for size in sizes]
    for size in sizes:
        parser.add_argument(f"--{size}", type=int, help="in place of the preset's")
    given = parser.parse_args()
    start_jax(Launch(devices=1))
    changes = {size: getattr(given, size) for size in sizes if getattr(given, size) is not None}
    for case in given.cases:
        print(json.dumps(row(case, changes, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
