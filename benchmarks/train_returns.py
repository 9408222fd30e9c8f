"""Are our multistep returns and losses at least as fast as rlax's?

Both on the same random windows, vmapped and jitted, taking turns in one process. Ours know where
episodes end by their final rows; rlax has nothing for that and returns one row less. One JSON line
a function:

- `zero_us`, `rlax_us`: the least microseconds of a call, as whatever else runs can only add some.
- `ratio`: rlax's by ours; above 1 ours is faster.

    uv run python benchmarks/train_returns.py
    uv run python benchmarks/train_returns.py --batch 64 --rows 512 --only lambda_returns
"""

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import rlax
from _turns import clocked, take_turns

from zero_train import losses, returns


Function = Callable[..., Any]


def windows(batch: int, rows: int) -> dict[str, jax.Array]:
    """Random episodes of 20 steps on average."""
    rkey, dkey, vkey, lkey, ratio_key, qkey = jr.split(jr.key(0), 6)
    shape = (batch, rows)
    return {
        "r": jr.normal(rkey, shape),
        "d": 0.99 * jr.bernoulli(dkey, 0.95, shape),
        "v": jr.normal(vkey, shape),
        "last": jr.bernoulli(lkey, 0.05, shape),
        "log_ratio": 0.3 * jr.normal(ratio_key, shape),
        "q": jr.normal(qkey, shape),
    }


def of_windows() -> Iterator[tuple[str, Function, Function]]:
    """Name, our function and rlax's, of one window."""
    yield (
        "lambda_returns",
        lambda r, d, v, last, **_: returns.lambda_returns(r, d, v, last, lambda_=0.95),
        lambda r, d, v, **_: rlax.lambda_returns(r[:-1], d[:-1], v[1:], 0.95),
    )
    yield (
        "truncated_gae",
        lambda r, d, v, last, **_: returns.truncated_gae(r, d, v, last, lambda_=0.95)[0],
        lambda r, d, v, **_: rlax.truncated_generalized_advantage_estimation(
            r[:-1], d[:-1], 0.95, v
        ),
    )
    for n in (3, 10, 50):

        def ours(r, d, v, last, *, n=n, **_):
            return returns.n_step_returns(r, d, v, last, n=n)

        def theirs(r, d, v, *, n=n, **_):
            return rlax.n_step_bootstrapped_returns(r[:-1], d[:-1], v[1:], n)

        yield f"n_step_returns, n={n}", ours, theirs
    yield (
        "retrace_returns",
        lambda r, d, v, q, log_ratio, last, **_: returns.retrace_returns(
            r, d, q, v, log_ratio, last, lambda_=0.95
        ),
        lambda r, d, v, q, log_ratio, **_: rlax.retrace_continuous(
            q[:-1], q[1:-1], v[1:], r[:-1], d[:-1], log_ratio[1:-1], 0.95
        ),
    )
    yield (
        "vtrace",
        lambda r, d, v, log_ratio, last, **_: jnp.stack(returns.vtrace(r, d, v, log_ratio, last)),
        lambda r, d, v, log_ratio, **_: jnp.stack(
            rlax.vtrace_td_error_and_advantage(
                v[:-1], v[1:], r[:-1], d[:-1], jnp.exp(log_ratio[:-1])
            )[:2]
        ),
    )


def of_steps(batch: int, atoms: int) -> tuple[Function, Function, dict[str, jax.Array]]:
    """The gradient of the categorical TD loss, ours and rlax's, of one step."""
    support = np.linspace(-10, 10, atoms, dtype=np.float32)
    keys = jr.split(jr.key(1), 3)
    data = {
        "logits": jr.normal(keys[0], (batch, atoms)),
        "following": jr.normal(keys[1], (batch, atoms)),
        "r": jr.normal(keys[2], (batch,)),
    }

    def ours(logits, following, r):
        return losses.categorical_td_loss(logits, support, r, jnp.float32(0.99), following)

    def theirs(logits, following, r):
        z = jnp.asarray(support)
        return rlax.categorical_td_learning(z, logits, r, 0.99, z, following)

    def gradient(loss: Function) -> Function:
        return lambda logits, **others: jax.grad(loss)(logits, **others)

    return gradient(ours), gradient(theirs), data


def measure(
    ours: Function, theirs: Function, data: dict[str, jax.Array], runs: int
) -> dict[str, float]:
    """Least times of both, taking turns."""
    both = {"zero": ours, "rlax": theirs}
    calls = {name: jax.jit(jax.vmap(lambda x, f=f: f(**x))) for name, f in both.items()}
    turns = {name: lambda _, call=call: clocked(call, data) for name, call in calls.items()}
    times = take_turns(turns, runs)
    zero, rlax = (1e6 * min(times[name]) for name in both)
    return {"zero_us": round(zero), "rlax_us": round(rlax), "ratio": round(rlax / zero, 2)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--only", help="measure what begins like this")
    options = parser.parse_args()
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    data = windows(options.batch, options.rows)
    sizes = {"batch": options.batch, "rows": options.rows}
    questions = [(name, sizes, ours, theirs, data) for name, ours, theirs in of_windows()]
    for atoms in (51, 601):
        sizes = {"batch": options.batch // 4, "atoms": atoms}
        case = of_steps(sizes["batch"], atoms)
        questions.append(("gradient of categorical_td_loss", sizes, *case))
    for name, sizes, ours, theirs, data in questions:
        if not options.only or name.startswith(options.only):
            result = measure(ours, theirs, data, options.runs)
            print(json.dumps({"function": name} | sizes | result | about), flush=True)


if __name__ == "__main__":
    main()
