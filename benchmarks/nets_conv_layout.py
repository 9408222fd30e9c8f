"""Is a channels-last convolution faster than `equinox.nn.Conv2d`, forward and in the gradient?

Four JSON lines, milliseconds, minima; `cpu_ms` is the process's CPU time over all threads, which
says something on a busy machine too.

- `layout`: one 3x3 convolution with bias under `jax.vmap`, Equinox's own, channels first, beside
  `zero_nets.Conv`. Then the AlphaZero network with as many channels and three blocks, with and
  without normalisation. Everything in one process, taking turns.
- `torsos`: the DQN and IMPALA networks on 84x84x4 images, batch 32, beside the same layers of
  `equinox.nn`, channels first. No other size.
- `fusion`: six such convolutions, in processes with and without XLA's YNNPACK fusion, which
  jaxlib 0.10.2 brought to the CPU. Null where jaxlib does not know the flag.
- `loop`: an update of the network at top level, and as one of two inside `jax.lax.scan`. At most
  two runs: on a CPU they take seconds.

    python benchmarks/nets_conv_layout.py --channels 32 --batch 256 --board 8
"""

import argparse
import json
import os
import subprocess
import sys
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
    cases: dict[str, tuple[eqx.Module, jax.Array]] = {
        "equinox": (theirs, x.transpose(0, 3, 1, 2)),
        "zero_nets": (ours, x),
    }
    for norm in ("none", "layer"):
        net = eqx.filter_jit(zero_nets.AlphaZeroNet)(
            (board, board, 2), board * board + 1, channels=channels, norm=norm, key=ckey
        )
        cases[f"tower_{norm}"] = (net, planes)
    return directions(cases)


class EquinoxCNN(eqx.Module):
    """The layers of a `zero_nets.CNN`, channels first."""

    convs: tuple[eqx.nn.Conv2d, ...]
    mlp: zero_nets.MLP

    def __call__(self, x: jax.Array) -> jax.Array:
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        return self.mlp(x.reshape(-1))


class EquinoxResNet(eqx.Module):
    """The layers of a `zero_nets.VisualResNet`, channels first."""

    groups: tuple
    linear: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        pool = eqx.nn.MaxPool2d(3, 2, padding=1)
        for conv, blocks in self.groups:
            x = pool(conv(x))
            for first, last in blocks:
                x = x + last(jax.nn.relu(first(jax.nn.relu(x))))
        return jax.nn.relu(self.linear(jax.nn.relu(x).reshape(-1)))


def torsos() -> dict[str, tuple[Callable, tuple]]:
    """Name -> a compiled function and its arguments."""
    key = jr.key(0)
    shape = (84, 84, 4)
    x = jr.normal(key, (32, *shape))
    cnn = zero_nets.CNN(shape, key=key)
    assert cnn.mlp is not None
    resnet = zero_nets.VisualResNet(shape, key=key)

    def conv(ours: zero_nets.Conv) -> eqx.nn.Conv2d:
        size, _, depth, width = ours.weight.shape
        return eqx.nn.Conv2d(depth, width, size, ours.stride, padding=ours.padding, key=key)

    groups = tuple(
        (conv(first.conv), tuple((conv(b.convs[0]), conv(b.convs[1])) for b in blocks))
        for first, blocks in resnet.groups
    )
    first_channels = x.transpose(0, 3, 1, 2)
    return directions(
        {
            "dqn_equinox": (EquinoxCNN(tuple(map(conv, cnn.convs)), cnn.mlp), first_channels),
            "dqn_zero_nets": (cnn, x),
            "impala_equinox": (EquinoxResNet(groups, resnet.linear), first_channels),
            "impala_zero_nets": (resnet, x),
        },
        inputs_too=False,
    )


def directions(
    cases: dict[str, tuple[eqx.Module, jax.Array]], *, inputs_too: bool = True
) -> dict[str, tuple[Callable, tuple]]:
    """Each forward, and its gradient, by floating-point inputs too if wanted."""

    def forward(params, static, x):
        return jax.vmap(eqx.combine(params, static))(x)

    def loss(params, static, x):
        return sum(jnp.mean(y**2) for y in jax.tree.leaves(forward(params, static, x)))

    compiled = {}
    for name, (module, inputs) in cases.items():
        params, static = eqx.partition(module, eqx.is_array)
        # The gradient by the inputs too, as for a layer inside a tower; boards have none.
        floating = jnp.issubdtype(inputs.dtype, jnp.floating)
        argnums = (0, 2) if inputs_too and floating else 0
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


def stack(channels: int, batch: int, board: int) -> dict[str, tuple[Callable, tuple]]:
    """Six convolutions, forward and gradient: what XLA can fuse and what it cannot."""
    keys = jr.split(jr.key(0), 7)
    layers = [zero_nets.Conv(channels, channels, key=key) for key in keys[:-1]]
    x = jr.normal(keys[-1], (batch, board, board, channels))

    def forward(layers, x):
        for layer in layers:
            x = jax.nn.relu(jax.vmap(layer)(x))
        return x

    gradient = jax.grad(lambda layers, x: jnp.mean(forward(layers, x) ** 2))
    return {
        "forward": (jax.jit(forward), (layers, x)),
        "gradient": (jax.jit(gradient), (layers, x)),
    }


def without_fusion(options: argparse.Namespace) -> dict[str, dict[str, float]] | None:
    """The `stack` question in a process of its own, whose XLA does not fuse."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_experimental_ynn_fusion_type="
    sizes = [
        f"--{name}={getattr(options, name)}" for name in ("channels", "batch", "board", "runs")
    ]
    done = subprocess.run(
        [sys.executable, __file__, "--question=stack", *sizes],
        env={**os.environ, "XLA_FLAGS": flags.strip()},
        capture_output=True,
        text=True,
    )
    return None if done.returncode else json.loads(done.stdout)


def loops(channels: int, batch: int, board: int) -> dict[str, tuple[Callable, tuple]]:
    """One update at top level, and two in a scan."""
    net = eqx.filter_jit(zero_nets.AlphaZeroNet)(
        (board, board, 2), board * board + 1, channels=channels, key=jr.key(0)
    )
    planes = jr.bernoulli(jr.key(1), 0.3, (batch, board, board, 2))

    def update(net):
        def loss(net):
            return sum(jnp.mean(y**2) for y in jax.vmap(net)(planes))

        return jax.tree.map(lambda x, g: x - 1e-3 * g, net, jax.grad(loss)(net))

    def scanned(net):
        return jax.lax.scan(lambda net, _: (update(net), None), net, length=2)[0]

    return {"update": (jax.jit(update), (net,)), "two_in_scan": (jax.jit(scanned), (net,))}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--board", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--question", choices=["layout", "torsos", "fusion", "loop", "stack"])
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("channels", "batch", "board")}
    if options.question == "stack":
        print(json.dumps(measure(stack(**sizes), options.runs)))
        return
    questions = {
        "layout": (
            "channels-last convolution against equinox.nn.Conv2d",
            lambda: measure(subjects(**sizes), options.runs),
        ),
        "torsos": (
            "image torsos against the same layers of equinox.nn",
            lambda: measure(torsos(), options.runs),
        ),
        "fusion": (
            "six convolutions with and without YNNPACK fusion",
            lambda: {
                "default": measure(stack(**sizes), options.runs),
                "without": without_fusion(options),
            },
        ),
        "loop": (
            "an update at top level against two in a scan",
            lambda: measure(loops(**sizes), min(options.runs, 2)),
        ),
    }
    for name, (question, ask) in questions.items():
        if options.question in (None, name):
            about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
            given = {} if name == "torsos" else sizes
            print(json.dumps({"question": question} | about | given | ask()), flush=True)


if __name__ == "__main__":
    main()
