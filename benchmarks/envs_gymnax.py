"""How many steps of CartPole a second: gymnax's own, the same through the adapter, and ours.

One JSON line for each number of environments. Each is stepped `STEPS` times with actions drawn
beforehand, and begins anew where an episode ends: gymnax does so in its `step`, and around the
others' steps this script does, with as much work. Only steps, observations and resets are timed.
The three take turns in one process. Each is given by the median of its rates in steps a second, and
`over_*` is the median ratio of a turn, of the adapter to the other.

    uv run python benchmarks/envs_gymnax.py
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import jax.random as jr
from _turns import clocked, ratio, take_turns

from zero_envs import CartPole, make


STEPS = 500
NAME = "CartPole-v1"


def ours(env: Any, actions: jax.Array, key: jax.Array) -> Any:
    """Observations, rewards and ends of each step of one environment."""

    def step(state: Any, given: Any) -> Any:
        action, key = given
        skey, rkey = jr.split(key)
        after, transition = env.step(state, action, key=skey)
        seen = env.observe(after).features
        begin = env.init(key=rkey)
        after = jax.tree.map(lambda new, x: jnp.where(transition.last, new, x), begin, after)
        return after, (seen, transition)

    return jax.lax.scan(step, env.init(key=key), (actions, jr.split(key, STEPS)))[1]


def theirs(actions: jax.Array, key: jax.Array) -> Any:
    env, params = gymnax.make(NAME)

    def step(state: Any, given: Any) -> Any:
        action, key = given
        seen, after, reward, over, cut, info = env.step(key, state, action, params)
        return after, (info["final_observation"], reward, over, cut)

    return jax.lax.scan(step, env.reset(key, params)[1], (actions, jr.split(key, STEPS)))[1]


def timed(play: Callable[..., Any], *args: jax.Array) -> Callable[[int], float]:
    """The seconds that all steps take, compilation apart."""
    run = jax.jit(jax.vmap(play))
    return lambda _: clocked(run, *args)


def lines(options: Any) -> Iterator[dict[str, Any]]:
    for envs in options.envs:
        key, akey = jr.split(jr.key(options.seed))
        given = jr.randint(akey, (envs, STEPS), 0, 2), jr.split(key, envs)
        adapter, own = make(f"gymnax/{NAME}"), CartPole()
        runs = {
            "adapter": timed(lambda *x, env=adapter: ours(env, *x), *given),
            "gymnax": timed(theirs, *given),
            "zero": timed(lambda *x, env=own: ours(env, *x), *given),
        }
        spent = take_turns(runs, options.turns)
        rates = {
            name: round(envs * STEPS / statistics.median(seconds))
            for name, seconds in spent.items()
        }
        faster = {f"over_{x}": round(ratio(spent, x, "adapter"), 2) for x in ("gymnax", "zero")}
        yield {"envs": envs} | rates | faster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--envs", nargs="+", type=int, default=[1024, 128])
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    for line in lines(options):
        print(json.dumps({"question": "envs_gymnax"} | line | about), flush=True)


if __name__ == "__main__":
    main()
