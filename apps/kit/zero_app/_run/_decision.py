"""A player with its search, and the game that it plays, as programs for any process."""

import dataclasses
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from zero_envs import Hosted
from zero_search import SampledSearch
from zero_train import PlanningActor, RememberingPlanner

from .._command._errors import UsageError
from ._app import Trained
from ._evaluation import who, with_simulations


def export_decision(
    trained: Trained[Any], simulations: int, batch: int, platforms: tuple[str, ...]
) -> dict[str, jax.export.Exported]:
    """The programs of a batch of games, each of which is a list of arrays: `start` makes games of a
    key, `search` plans a move of each, and `step` makes moves. Keys are two numbers of uint32.

    A search begins anew at every move: no tree is kept.
    """
    env, player = trained.loop.env, trained.player
    planner: Any = getattr(player, "planner", None)
    if not isinstance(player, PlanningActor) or not hasattr(planner, "num_simulations"):
        raise UsageError(f"{who(player)} is not exported with simulations; leave the flag out.")
    if isinstance(env, Hosted):
        raise UsageError(
            f"the simulator of {env.name} runs on the host, and is no program that could be "
            "exported with simulations; leave the flag out."
        )
    if isinstance(planner, RememberingPlanner):
        raise UsageError("the player has a memory, and only searches without are exported.")
    actor: Any = with_simulations(player, simulations)
    # Kernels are one platform's, and these programs are for several.
    planner = actor.planner
    if isinstance(planner, SampledSearch):
        planner = dataclasses.replace(planner, planner=_plain(planner.planner))
    else:
        planner = _plain(planner)
    keys = lambda key: jr.split(jr.wrap_key_data(key), batch)
    begun = lambda key: jax.vmap(lambda key: env.init(key=key))(keys(key))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    like = jax.eval_shape(begun, key)

    def state_of(arrays: tuple[Array, ...]) -> Any:
        wrap = lambda like, x: jr.wrap_key_data(x) if _is_key(like) else x
        return jax.tree.map(wrap, like, jax.tree.unflatten(jax.tree.structure(like), arrays))

    def start(key: Array) -> list[Array]:
        return _bare(begun(key))

    def search(key: Array, *arrays: Array) -> dict[str, Any]:
        state = state_of(arrays)
        obs = jax.vmap(env.observe)(state)
        memory = planner.init(actor.model, state)
        plan, _ = planner.plan(actor.model, state, memory, obs=obs, key=keys(key))
        names = ("action", "candidates", "visits", "weights", "qvalues", "value")
        return {name: getattr(plan, name) for name in names}

    def step(key: Array, action: Any, *arrays: Array) -> tuple[list[Array], dict[str, Array]]:
        state = state_of(arrays)
        move = jax.vmap(lambda state, action, key: env.step(state, action, key=key))
        state, transition = move(state, action, keys(key))[:2]
        names = ("reward", "discount", "last")
        return _bare(state), {name: getattr(transition, name) for name in names}

    export = lambda function: jax.export.export(jax.jit(function), platforms=platforms)
    state = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.eval_shape(start, key)]
    searched = export(search)(key, *state)
    action = jax.eval_shape(search, key, *state)["action"]
    programs = {"start": export(start)(key), "search": searched}
    return programs | {"step": export(step)(key, action, *state)}


def _plain(planner: Any) -> Any:
    known = {field.name for field in dataclasses.fields(planner)}
    plain = {"reuse": False, "kernels": "plain"}
    return dataclasses.replace(planner, **{k: v for k, v in plain.items() if k in known})


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _bare(state: Any) -> list[Array]:
    return [jr.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(state)]


def readme_of_decision(programs: dict[str, jax.export.Exported], simulations: int) -> str:
    """What README.md says of these programs."""
    batch, arrays = programs["search"].out_avals[0].shape[0], len(programs["start"].out_avals)
    return f"""## With its search

`search.stablehlo` is the whole decision, of {simulations} simulations a move, `start.stablehlo` and
`step.stablehlo` are the game. A state is {arrays} arrays, of {batch} game(s) at a time.

```python
import numpy as np
from jax import export

programs = {{}}
for name in ("start", "search", "step"):
    with open(f"{{name}}.stablehlo", "rb") as file:
        programs[name] = export.deserialize(bytearray(file.read())).call
state = programs["start"](np.uint32([0, 0]))
for move in range(3):
    plan = programs["search"](np.uint32([1, move]), *state)
    state, after = programs["step"](np.uint32([2, move]), plan["action"], *state)
    print(plan["action"], plan["visits"], plan["value"], after["reward"], after["last"])
```

| `search` returns | what it is |
|---|---|
| `action` | the move to play |
| `candidates` | the actions that were weighed, and of each: |
| `visits`, `weights`, `qvalues` | the simulations that took it, the improved policy, its value |
| `value` | the value of the position, for the player to move |

A game that is over (`last`) is not to be stepped again: begin another one.

"""
