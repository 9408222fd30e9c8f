"""What planning over beliefs returns in the worlds of the field, and how many decisions a second.

    python benchmarks/belief_worlds.py --world rocksample-7-8 --simulations 200 --playout 20

A JSON line: the mean discounted return of so many episodes with its standard error, the depth of
the trees, and decisions a second, while more than half of the rows go on. Leaves are worth 0,
or with `--playout` the return of so many random actions in a state drawn from the belief, or with
`--leaves mdp` what they would be worth if nothing were hidden, with `--leaves blind` if nothing
were seen any more, or with `--leaves normal` if the belief in a place were always normal. With
`--run` a trained player plans, by its own search, or with 0 simulations plays what its network says
at once; a network of parts may have been trained in a world of another size.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bounds import blind_bound, mdp_bound, normal_worth

from zero_envs import Filtered, FilteredState, make, ParticleFilter
from zero_search import AbstractPriorModel, Plan, PlayoutModel, TreeSearch, Widening
from zero_train import AbstractActor, EnvironmentModel, PlanningActor, PolicyActor


class World(AbstractPriorModel[FilteredState]):
    """The world below a filtered one: its true state, whatever is believed."""

    env: Filtered
    gamma: float

    def root(self, state: Any, obs: Any, *, key: Any) -> Any:
        return jax.vmap(lambda x, k: self.env.resample(x, key=k))(state, key)

    def step(self, node: Any, action: Any, *, key: Any) -> Any:
        state, transition = jax.vmap(self.env.env.step)(node.state, action, key=key)
        node = FilteredState(state, node.belief, node.obs)
        return node, transition.reward, self.gamma * transition.discount, transition.last

    def predict(self, node: Any, *, key: Any) -> Any:
        legal: Any = jax.vmap(self.env.env.observe)(node.state).legal
        return jnp.where(legal, 0.0, -jnp.inf), jnp.zeros(legal.shape[0])


class Judged(EnvironmentModel):
    """A model whose leaves are worth what a function says of their beliefs."""

    worth: Callable[[Any], jax.Array] | None = None

    def predict(self, node: Any, *, key: Any) -> Any:
        logits, _ = super().predict(node, key=key)
        assert self.worth is not None
        return logits, jax.vmap(self.worth)(node.belief)


def player_of(given: argparse.Namespace) -> tuple[Filtered, AbstractActor]:
    env: Any = make(given.world)
    if given.particles:
        env = Filtered(env.env, ParticleFilter(given.particles))
    if given.run:
        if given.particles:
            raise SystemExit("--particles changes what a trained player saw; leave it out")
        from zero_app import load
        from zero_cli._apps import app_of

        player: Any = load(*app_of(given.run)).player
        if not given.simulations:
            return env, PolicyActor(player.model.evaluate)
        model = dataclasses.replace(player.model, env=env)
        planner = dataclasses.replace(player.planner, num_simulations=given.simulations)
        return env, PlanningActor(planner, model, lambda plan: plan)
    blind = lambda obs: (jnp.zeros(env.num_actions), jnp.zeros(()))
    model: Any = EnvironmentModel(env, blind, given.gamma)
    if given.leaves != "zero":
        judges = {"mdp": mdp_bound, "blind": blind_bound, "normal": normal_worth}
        worth = judges[given.leaves](env.env, given.gamma)
        model = Judged(env, blind, given.gamma, worth=worth)
    if given.playout:
        model = PlayoutModel(model, given.playout, playouts_in=World(env, given.gamma))
    parts: dict[str, Any] = dict(widening=Widening(*given.widening), max_depth=given.max_depth)
    planner = TreeSearch.alphazero(given.simulations, c=given.c, **parts)
    return env, PlanningActor(planner, model, lambda plan: plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--world", default="rocksample-7-8")
    parser.add_argument("--run", default="")
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--c", type=float, default=20.0)
    parser.add_argument("--widening", type=float, nargs=2, default=[2.0, 0.5])
    parser.add_argument("--max-depth", type=int)
    parser.add_argument("--playout", type=int, default=0)
    parser.add_argument("--leaves", choices=["zero", "mdp", "blind", "normal"], default="zero")
    parser.add_argument("--particles", type=int, default=0, help="0 for the world's own filter")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.leaves != "zero" and (given.playout or given.run):
        parser.error("--leaves judges leaves by itself; leave --playout and --run out")
    if given.leaves != "zero" and not 0 < given.gamma < 1:
        parser.error("--leaves knows bounds for --gamma between 0 and 1 alone")
    if not (given.simulations or given.run):
        parser.error("--simulations 0 plays a network alone; give --run")
    env, player = player_of(given)
    keys = lambda key: jr.split(key, given.batch)

    @eqx.filter_jit
    def start(key: Any) -> Any:
        return jax.vmap(lambda k: env.init(key=k))(keys(key))

    @eqx.filter_jit
    def turn(state: Any, over: Any, key: Any) -> Any:
        plan_key, step_key = jr.split(key)
        obs = jax.vmap(env.observe)(state)
        action, plan, _ = player.act(state, obs, player.init(state), key=keys(plan_key))
        state, transition = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(
            state, action, keys(step_key)
        )
        reward = jnp.where(over, 0.0, transition.reward)
        depth = jnp.mean(plan.stats["depth"]) if isinstance(plan, Plan) else 0.0
        return state, over | transition.last, reward, depth

    returns, seconds, decisions, depths = [], 0.0, 0, []
    for part in range(math.ceil(given.runs / given.batch)):
        key = jr.fold_in(jr.key(given.seed), part)
        state, over, total = start(key), jnp.zeros(given.batch, bool), np.zeros(given.batch)
        for i in range(given.steps):
            begin = time.perf_counter()
            there = int(given.batch - jnp.sum(over))
            state, over, reward, depth = jax.block_until_ready(
                turn(state, over, jr.fold_in(key, i))
            )
            # The first one compiles, and rows that have ended are planned for nothing.
            if (part or i) and there > given.batch / 2:
                seconds, decisions = seconds + time.perf_counter() - begin, decisions + there
            total += given.gamma**i * np.asarray(reward)
            depths.append(float(depth))
            if bool(jnp.all(over)):
                break
        returns.append(total)
    every = np.concatenate(returns)[: given.runs]
    print(
        json.dumps(
            {
                **vars(given),
                "mean": round(float(every.mean()), 3),
                "error": round(float(every.std(ddof=1) / math.sqrt(every.size)), 3),
                "depth": round(float(np.mean(depths)), 2),
                "decisions_a_second": round(decisions / seconds, 1) if seconds else None,
                "device": jax.devices()[0].device_kind,
            }
        )
    )


if __name__ == "__main__":
    main()
