"""Is a channels-last convolution faster than `equinox.nn.Conv2d`, forward and in the gradient?

One 3x3 convolution with bias under `jax.vmap`: Equinox's own, channels first, beside
`zero_nets.Conv`. Then the AlphaZero network with as many channels and three blocks, with and
without normalisation. Everything in one process, taking turns; minima. `cpu_ms` is the process's
CPU time over all threads: unlike `ms` it says something on a busy machine. One JSON line.

    python benchmarks/nets_conv_layout.py --channels 32 --batch 256 --board 8
"""

import argparse
import json
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import zero_nets


def subjects(channels: int, batch: int, board: int) -> dict[str, tuple[Callable, tuple]]:
    """Name -> a compiled function and its arguments."""
    ckey, xkey = jr.split(jr.key(0))
    theirs = eqx.nn.Conv2d(channels, channels, 3, padding="SAME", key=ckey)
    ours = zero_nets.Conv(channels, channels, key=ckey)
    x = jr.normal(xkey, (batch, board, board, channels))
    planes = jr.bernoulli(xkey, 0.3, (batch, board, board, 2))
    cases = {
        "equinox": (theirs, x.transpose(0, 3, 1, 2)),
        "zero_nets": (ours, x),
    }
    for norm in ("none", "layer"):
        net = eqx.filter_jit(zero_nets.AlphaZeroNet)(
            (board, board, 2), board * board + 1, channels=channels, norm=norm, key=ckey
        )
        cases[f"tower_{norm}"] = (net, planes)

    def forward(params, static, x):
        return jax.vmap(eqx.combine(params, static))(x)

    def loss(params, static, x):
        return sum(jnp.mean(y**2) for y in jax.tree.leaves(forward(params, static, x)))

    compiled = {}
    for name, (module, inputs) in cases.items():
        params, static = eqx.partition(module, eqx.is_array)
        # The gradient by the inputs too, as for a layer inside a tower; boards have none.
        argnums = (0, 2) if jnp.issubdtype(inputs.dtype, jnp.floating) else 0
        for what, function in (("forward", forward), ("gradient", jax.grad(loss, argnums))):
            jitted = jax.jit(function, static_argnums=1)
            compiled[f"{name}_{what}"] = (jitted, (params, static, inputs))
    return compiled


def measure(compiled: dict[str, tuple[Callable, tuple]], runs: int) -> dict[str, dict[str, float]]:
    """The least wall and CPU milliseconds of each, taking turns."""
    for function, arguments in compiled.values():
        jax.block_until_ready(function(*arguments))
    wall = {name: float("inf") for name in compiled}
    cpu = dict(wall)
    for _ in range(runs):
        for name, (function, arguments) in compiled.items():
            started, spent = time.perf_counter(), time.process_time()
            jax.block_until_ready(function(*arguments))
            cpu[name] = min(cpu[name], 1e3 * (time.process_time() - spent))
            wall[name] = min(wall[name], 1e3 * (time.perf_counter() - started))
    return {name: {"ms": round(wall[name], 2), "cpu_ms": round(cpu[name], 2)} for name in compiled}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--board", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    line = {
        "question": "channels-last convolution against equinox.nn.Conv2d",
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "channels": options.channels,
        "batch": options.batch,
        "board": options.board,
    }
    times = measure(subjects(options.channels, options.batch, options.board), options.runs)
    print(json.dumps(line | times))


if __name__ == "__main__":
    main()
