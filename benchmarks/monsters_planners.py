"""The planners of `monsters plan`: which rule suits them, what they cost, how much they overrate.

JSON lines, of one `--question`:

- `rule`: the return and the regret of `--rollouts` rollouts by each of several selection rules.
- `time`: `moves_per_second` of `--rows` games at once, compilation apart; and `times_frozen`, how
  many times as long a move takes as one of `frozen` with as many simulations: the median over
  paired runs, which other work on the machine disturbs less.
- `optimism`: the mean of the plan's `value`, the highest Q-value, minus that of the state, and
  minus that of the action it `chose`, each exact (gamma 0.99) and with its standard error over
  games; and the mean `regret` of the choice.

The last two are on the same states: those that best play comes to, fresh starts following the ends.

    uv run python benchmarks/monsters_planners.py --question time
    uv run python benchmarks/monsters_planners.py --question optimism --rows 125
    uv run python benchmarks/monsters_planners.py --question rule --simulations 200 --seed 1000
"""

import argparse
import functools as ft
import json
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _turns import clocked, ratio, take_turns

from zero_app import UsageError
from zero_envs import Monsters, MonstersState
from zero_monsters._measure import measure
from zero_monsters._planners import build_planner, GAMMA, PLANNERS, planning_actor
from zero_monsters.oracle import MonstersOracle
from zero_search import PlainQ, Plan, PUCT
from zero_train import PlanningActor


#: What costs are compared with.
BASE = "frozen"
#: Moves of a game whose states are planned for.
STEPS = 16
#: Exploration constants; and what an untried action is worth, `None` for values scaled to [0, 1].
RULES = [(0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (1.0, 1.0), (2.0, 1.0)]
RULES += [(c, None) for c in (0.5, 1.0, 2.0, 4.0)]

Planned = Callable[[MonstersState, jax.Array], Plan]


def met(env: Monsters, oracle: MonstersOracle, rows: int, seed: int) -> MonstersState:
    """States of best play, `[STEPS, rows]`."""
    init = jax.jit(jax.vmap(lambda key: env.init(key=key)))
    step = jax.jit(jax.vmap(lambda state, action, key: env.step(state, action, key=key)[0]))
    choose = jax.vmap(lambda over, *states: jax.tree.map(ft.partial(jnp.where, over), *states))
    key, states = jr.key(seed), []
    state = init(jr.split(key, rows))
    for i in range(STEPS):
        states.append(state)
        best = jnp.asarray(np.argmax(oracle.qvalues(state, gamma=GAMMA), axis=1), jnp.int32)
        move_key, init_key = jr.split(jr.fold_in(key, i))
        state = step(state, best, jr.split(move_key, rows))
        state = choose(state.over, init(jr.split(init_key, rows)), state)
    return jax.tree.map(lambda *x: jnp.stack(x), *states)


def compiled(env: Monsters, planner: str, simulations: int, rows: int) -> Planned:
    """Plans of a batch. Raises a `UsageError` where there are too few simulations."""
    actor = planning_actor(env, planner, simulations)

    @jax.jit
    def plan(state, key):
        carry = actor.planner.init(actor.model, state)
        return actor.planner.plan(actor.model, state, carry, key=jr.split(key, rows))[0]

    return plan


def times(plans: dict[str, Planned], states: MonstersState, runs: int) -> dict[str, dict]:
    """The same work for all, in turns."""
    rows = states.pieces.shape[1]

    def once(plan: Planned, number: int) -> float:
        state = jax.tree.map(lambda x: x[number % STEPS], states)
        return clocked(lambda: plan(state, jr.key(number)))

    seconds = take_turns({name: ft.partial(once, plan) for name, plan in plans.items()}, runs)
    return {
        name: {
            "moves_per_second": round(rows / statistics.median(seconds[name])),
            "times_frozen": round(ratio(seconds, name, BASE), 3),
        }
        for name in plans
    }


def optimism(plan: Planned, oracle: MonstersOracle, states: MonstersState) -> dict[str, float]:
    """What the plans say, minus what is so."""
    value, chose, regret = [], [], []
    for i in range(STEPS):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        found = jax.tree.map(np.asarray, plan(state, jr.key(i)))
        exact, action = oracle.qvalues(state, gamma=GAMMA), found.action[:, None]
        own = np.take_along_axis(exact, action, axis=1)[:, 0]
        value.append(found.value - exact.max(axis=1))
        chose.append(np.take_along_axis(found.qvalues, action, axis=1)[:, 0] - own)
        regret.append(exact.max(axis=1) - own)
    line: dict[str, float] = {}
    for name, x in (("value", value), ("chose", chose), ("regret", regret)):
        # Moves of one game are alike.
        games = np.mean(x, axis=0)
        line |= {name: games.mean(), f"{name}_se": games.std(ddof=1) / math.sqrt(len(games))}
    return {"states": np.size(value)} | {name: round(float(x), 4) for name, x in line.items()}


def rules(env: Monsters, oracle: MonstersOracle, options: Any) -> Iterator[dict[str, Any]]:
    """What each planner gets by each rule."""
    for simulations in options.simulations:
        for name in options.planners:
            actor = planning_actor(env, name, simulations)
            for c, untried in RULES:
                rule = PUCT(c) if untried is None else PUCT(c, PlainQ(untried))
                found, _ = measure(
                    env,
                    oracle,
                    PlanningActor(build_planner(name, simulations, selection=rule), actor.model),
                    rollouts=options.rollouts,
                    key=jr.key(options.seed),
                )
                about = {"planner": name, "simulations": simulations, "c": c, "untried": untried}
                yield about | found


def questions(env: Monsters, oracle: MonstersOracle, options: Any) -> Iterator[dict[str, Any]]:
    """What each planner's plans cost, or say."""
    states = met(env, oracle, options.rows, options.seed)
    for simulations in options.simulations:
        plans = {}
        for name in dict.fromkeys([BASE, *options.planners]):
            try:
                plans[name] = compiled(env, name, simulations, options.rows)
            except UsageError:
                continue
        about = {"rows": options.rows, "simulations": simulations}
        if options.question == "time":
            about["device"] = jax.default_backend()
            for name, found in times(plans, states, options.runs).items():
                yield {"planner": name} | about | found
        else:
            for name in options.planners:
                if name in plans:
                    yield {"planner": name} | about | optimism(plans[name], oracle, states)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--question", choices=["rule", "time", "optimism"], required=True)
    parser.add_argument("--planners", nargs="+", default=PLANNERS)
    parser.add_argument("--simulations", nargs="+", type=int, default=[50, 200, 800])
    parser.add_argument("--rows", type=int, default=250, help="games at once")
    parser.add_argument("--runs", type=int, default=5, help="timed")
    parser.add_argument("--rollouts", type=int, default=125)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    env = Monsters()
    oracle = MonstersOracle(env)
    answers = rules if options.question == "rule" else questions
    for line in answers(env, oracle, options):
        print(json.dumps({"question": options.question} | line), flush=True)


if __name__ == "__main__":
    main()
