"""Are our distributions at least as fast as distreqx's, or as the formulas written out?

A call draws an action for each example, and takes its log-probability and the entropy; the
gradient is that of their sum. All vmapped and jitted, on the same parameters, taking turns in one
process. One JSON line a pair and direction:

- `zero_ms`, `peer_ms`: the least milliseconds of a call.
- `ratio`: the median over runs of the peer's time by ours; above 1 ours is faster.

Of a squashed Gaussian distreqx has neither the edges nor an entropy, so the entropy has a pair of
its own, with the usual estimate by one sample; of a Beta nobody draws, as both do it by
`jax.random.beta`.

    uv run python benchmarks/nets_distributions.py
    uv run python benchmarks/nets_distributions.py --batch 1024 --only Categorical
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import distreqx.bijectors as bijectors
import distreqx.distributions as dx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
from _turns import clocked, ratio, take_turns

import zero_nets


Function = Callable[..., Any]
Pair = tuple[str, str, Function, Function]


def _total(distribution: Any, action: Any, entropy: Any) -> jax.Array:
    return distribution.log_prob(lax.stop_gradient(action)) + entropy


def _ours(distribution: zero_nets.AbstractDistribution, key: jax.Array) -> jax.Array:
    return _total(distribution, distribution.sample(key=key), distribution.entropy())


def _theirs(distribution: Any, key: jax.Array) -> jax.Array:
    return _total(distribution, distribution.sample(key), distribution.entropy())


def _written_out(loc: jax.Array, scale: jax.Array, key: jax.Array) -> jax.Array:
    action = lax.stop_gradient(loc + scale * jr.normal(key, loc.shape))
    log_normaliser = jnp.log(scale) + math.log(2 * math.pi) / 2
    log_prob = -(((action - loc) / scale) ** 2) / 2 - log_normaliser
    return jnp.sum(log_prob) + jnp.sum(0.5 + log_normaliser)


def _squashed(loc: jax.Array, scale: jax.Array, key: jax.Array) -> jax.Array:
    distribution = zero_nets.TanhGaussian(loc, scale, -1.0, 1.0)
    return _total(distribution, distribution.sample(key=key), jnp.zeros(()))


def _squashed_peer(loc: jax.Array, scale: jax.Array, key: jax.Array) -> jax.Array:
    distribution = dx.Independent(dx.Transformed(dx.Normal(loc, scale), bijectors.Tanh()))
    action = jnp.clip(distribution.sample(key), -0.999, 0.999)
    return _total(distribution, action, jnp.zeros(()))


def _one_sample(loc: jax.Array, scale: jax.Array, key: jax.Array) -> jax.Array:
    base = dx.Normal(loc, scale)
    slope = bijectors.Tanh().forward_log_det_jacobian(base.sample(key))
    return jnp.sum(base.entropy() + slope)


def _stretched(distribution: Any, loc: jax.Array) -> jax.Array:
    return _total(distribution, jax.nn.sigmoid(loc), distribution.entropy())


def pairs() -> Iterator[Pair]:
    """Names of both, and the two functions of one example's `loc`, `scale` and key, or logits."""
    yield (
        "Gaussian",
        "written out",
        lambda loc, scale, key: _ours(zero_nets.Gaussian(loc, scale), key),
        _written_out,
    )
    yield ("TanhGaussian", "distreqx", _squashed, _squashed_peer)
    yield (
        "TanhGaussian.entropy",
        "one sample",
        lambda loc, scale, _: zero_nets.TanhGaussian(loc, scale, -1.0, 1.0).entropy(),
        _one_sample,
    )
    yield (
        "ClippedBeta",
        "distreqx",
        lambda loc, scale, _: _stretched(zero_nets.ClippedBeta(1 + scale, 2 + scale, 0, 1), loc),
        lambda loc, scale, _: _stretched(dx.Independent(dx.Beta(1 + scale, 2 + scale)), loc),
    )
    yield (
        "Categorical",
        "distreqx",
        lambda logits, key: _ours(zero_nets.Categorical(logits), key),
        lambda logits, key: _theirs(dx.Categorical(logits), key),
    )


def measure(ours: Function, peer: Function, args: tuple[jax.Array, ...], runs: int) -> dict:
    """Milliseconds of both, taking turns."""
    calls = {"zero": lambda _: clocked(ours, *args), "peer": lambda _: clocked(peer, *args)}
    times = take_turns(calls, runs)
    least = {f"{name}_ms": round(1e3 * min(x), 3) for name, x in times.items()}
    return least | {"ratio": round(ratio(times, "peer", "zero"), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Distributions beside distreqx's.")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--dims", type=int, default=8)
    parser.add_argument("--actions", type=int, default=65)
    parser.add_argument("--runs", type=int, default=51)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    loc_key, scale_key, logits_key, key = jr.split(jr.key(0), 4)
    loc = jr.normal(loc_key, (args.batch, args.dims))
    scale = jnp.exp(jr.normal(scale_key, loc.shape))
    logits = jr.normal(logits_key, (args.batch, args.actions))
    keys = jr.split(key, args.batch)
    for name, peer_name, ours, peer in pairs():
        if args.only and name not in args.only:
            continue
        given = (logits, keys) if name == "Categorical" else (loc, scale, keys)
        values = [jax.vmap(f) for f in (ours, peer)]
        learnt = tuple(range(len(given) - 1))
        gradients = [jax.grad(lambda *a, f=f: jnp.sum(f(*a)), learnt) for f in values]
        for direction, (mine, theirs) in (("value", values), ("gradient", gradients)):
            result = measure(jax.jit(mine), jax.jit(theirs), given, args.runs)
            line = {"distribution": name, "peer": peer_name, "of": direction}
            print(json.dumps(line | {"batch": args.batch} | result), flush=True)


if __name__ == "__main__":
    main()
