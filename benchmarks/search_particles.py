"""What does weighing and resampling add to the rollouts of a particle search?

`ParticleSearch` beside the least that any such planner has to do: the same rollouts in a bare
`lax.scan`, with the same number of model steps, evaluations and draws, and nothing weighed,
resampled, masked or checked. A cheap model: a pendulum, its policy and value one network of two
hidden layers; `--ballast` makes its states as large as a simulator's. Both in one process, taking
turns. One JSON line for each batch and rule:

- `search_ms`, `rollout_ms`: the least milliseconds of planning one move in all rows.
- `ratio`: the median over runs of search by rollout; 1 would be a search that is free.
- `compile_s`: tracing, lowering and compiling, of both.

    uv run python benchmarks/search_particles.py
    uv run python benchmarks/search_particles.py --batches 1024 --ballast 1000
"""

import argparse
import json
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _turns import clocked, ratio, take_turns
from jaxtyping import PRNGKeyArray

from zero_nets import TanhGaussian
from zero_search import AbstractProposalModel, ParticleSearch


class Pendulum(AbstractProposalModel[jax.Array]):
    """A state is an angle, 0 upright, a velocity, and ballast that only comes along."""

    network: eqx.nn.MLP

    def __init__(self, width: int, *, key: PRNGKeyArray):
        self.network = eqx.nn.MLP(3, 3, width, 2, key=key)

    def root(self, state, obs, *, key):
        return state

    def step(self, state, action, *, key):
        angle, velocity = state[:, 0], state[:, 1]
        torque = 2 * action[:, 0]
        away = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = away**2 + 0.1 * velocity**2 + 0.001 * torque**2
        velocity = jnp.clip(velocity + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8, 8)
        on = jnp.ones_like(cost)
        after = jnp.stack([angle + 0.05 * velocity, velocity], axis=1)
        return jnp.concatenate([after, state[:, 2:]], axis=1), -cost, on, on == 0

    def propose(self, state, *, key):
        def one(s: jax.Array) -> tuple[TanhGaussian, jax.Array]:
            loc, spread, value = self.network(jnp.stack([jnp.cos(s[0]), jnp.sin(s[0]), s[1]]))
            return TanhGaussian(loc[None], jax.nn.softplus(spread)[None] + 0.1, -1.0, 1.0), value

        return jax.vmap(one)(state)


def rollout(model: Pendulum, planner: ParticleSearch, state: jax.Array, key: jax.Array) -> Any:
    """As many rows as particles, no two with anything in common after their root."""
    draw = jax.vmap(lambda policy, k: policy.sample(key=k))

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state, action, total = carry
        step_keys, action_keys = jr.split(key, (2, state.shape[0]))
        state, reward, _, _ = model.step(state, action, key=step_keys)
        policy, value = model.propose(state, key=step_keys)
        return (state, draw(policy, action_keys), total + reward), value

    root_key, action_key, key = jr.split(key, 3)
    policy, value = model.propose(state, key=jr.split(root_key, state.shape[0]))
    each = lambda x: jnp.repeat(x, planner.num_particles, axis=0)
    state, policy, total = each(state), jax.tree.map(each, policy), 0 * each(value)
    first = draw(policy, jr.split(action_key, state.shape[0]))
    carry, values = jax.lax.scan(step, (state, first, total), jr.split(key, planner.depth))
    return first, carry[2] + values[-1] - each(value)


def measure(rule: dict[str, Any], batch: int, options: argparse.Namespace) -> dict:
    size = {"num_particles": options.particles, "depth": options.depth}
    planner = ParticleSearch(**size, **rule)
    model = Pendulum(options.width, key=jr.key(0))
    state = jr.uniform(jr.key(1), (batch, 2 + options.ballast), minval=-1.0, maxval=1.0)
    search = lambda s, k: planner.plan(model, s, None, key=jr.split(k, batch))[0]
    functions = {"search": search, "rollout": lambda s, k: rollout(model, planner, s, k)}
    compile_s, calls = {}, {}
    for name, function in functions.items():
        start = time.perf_counter()
        compiled = jax.jit(function).lower(state, jr.key(2)).compile()
        compile_s[name] = round(time.perf_counter() - start, 2)
        in_a_row = lambda key, f=compiled: [f(state, key) for _ in range(options.calls)]
        calls[name] = lambda run, f=in_a_row: clocked(f, jr.key(run)) / options.calls
    times = take_turns(calls, options.runs)
    least = {f"{name}_ms": round(1e3 * min(x), 3) for name, x in times.items()}
    return least | {"ratio": round(ratio(times, "search", "rollout"), 3), "compile_s": compile_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 16])
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--ballast", type=int, default=0, help="numbers in a state, beside two")
    parser.add_argument("--calls", type=int, default=5, help="in a row, for one time")
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    rules = {
        "never": {"resample_every": None},
        f"every {options.depth}": {"resample_every": options.depth},
        "every 1": {"resample_every": 1},
        "below 0.5": {"resample_every": None, "resample_below": 0.5},
    }
    for batch in options.batches:
        for name, rule in rules.items():
            about = {"question": "cost", "device": jax.devices()[0].device_kind, "batch": batch}
            about |= {"particles": options.particles, "depth": options.depth, "resample": name}
            about |= {"ballast": options.ballast}
            print(json.dumps(about | measure(rule, batch, options)), flush=True)


if __name__ == "__main__":
    main()
