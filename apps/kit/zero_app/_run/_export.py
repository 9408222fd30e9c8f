"""`export`: a trained player for use without this package."""

import contextlib
import dataclasses
import inspect
import pathlib
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from zero_envs import AbstractEnvironment, Hosted, Observation
from zero_train import (
    AbstractActor,
    ActorCriticActor,
    DistributionActor,
    evaluate_batch,
    masked,
    PlanningActor,
    PolicyActor,
    RecurrentNetwork,
    RememberingPlanner,
)

from .._command._config import Count
from .._command._errors import UsageError
from ._app import App, Trained
from ._checkpoint import is_key
from ._disk import children, write_whole
from ._evaluation import num_players, searching, who
from ._players import AbstractPlayerCommand, named, save_player


_NETWORK, _PARAMETERS = "network.stablehlo", "player.safetensors"


@dataclasses.dataclass(frozen=True)
class Export(AbstractPlayerCommand):
    """Write a trained player for use without this package.

    The folder gets its parameters (safetensors), its network without a search (StableHLO, which JAX
    alone runs) and a README.md that says how to call it.
    """

    out: pathlib.Path = pathlib.Path("exported")
    """The folder, which is made if it is missing, and must be empty."""
    batch: Count | None = None
    """Positions that the network takes at a time; by default any number."""
    simulations: Count | None = None
    """Also write the whole decision, a search of so many simulations a move, and the game that it
    plays; by default for one game at a time."""
    platforms: tuple[Literal["cpu", "cuda", "rocm", "tpu"], ...] = ("cpu", "cuda", "tpu")
    """What the network runs on."""

    def __call__(self, app: App[Any]) -> None:
        if not self.platforms:
            raise UsageError("--platforms is empty; give at least one, or leave it out.")
        if self.out.is_file() or children(self.out):
            raise UsageError(f"--out {self.out} is not empty; give another folder.")
        trained = self.load(app)
        exported = export_network(trained, self.batch, self.platforms)
        programs, more, number = {}, "", self.simulations
        if number is not None:
            programs = export_decision(trained, number, self.batch or 1, self.platforms)
            more = _readme_of_decision(programs, number)
        made = not self.out.exists()
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            write_whole(self.out / _NETWORK, bytes(exported.serialize()))
            save_player(self.out / _PARAMETERS, app, trained)
            for name, program in programs.items():
                write_whole(self.out / f"{name}.stablehlo", bytes(program.serialize()))
            write_whole(self.out / "README.md", _readme(app, trained, exported, more))
        except OSError:
            for path in children(self.out):  # it was empty
                path.unlink()
            if made:
                with contextlib.suppress(OSError):
                    self.out.rmdir()
            raise
        print(f"The player is in {self.out}; its README.md says how to call it")


def export_network(
    trained: Trained[Any], batch: int | None, platforms: tuple[str, ...]
) -> jax.export.Exported:
    """The network of a player: from the features of a batch (`None` for any number), and which
    actions are legal, to what the README of `export` lists."""
    env = trained.loop.env
    seen = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    network, treedef = _network(trained.player), jax.tree.structure(seen)

    def call(*arrays: Array) -> dict[str, Array]:
        return network(jax.tree.unflatten(treedef, arrays))

    rows = jax.export.symbolic_shape("batch")[0] if batch is None else batch
    shapes = [jax.ShapeDtypeStruct((rows, *x.shape), x.dtype) for x in jax.tree.leaves(seen)]
    try:
        return jax.export.export(jax.jit(call), platforms=platforms)(*shapes)
    except Exception as e:  # JAX has no common class of what it cannot do with unknown shapes
        if batch is not None:
            raise
        raise UsageError(
            "this network cannot be exported for any number of positions: "
            f"{' '.join(str(e).split())[:200]}; give --batch."
        ) from e


def _network(player: AbstractActor) -> Callable[[Observation], dict[str, Array]]:
    if isinstance(player, DistributionActor):
        return lambda obs: _parts(player.policies(obs))
    evaluate = None
    if isinstance(player, PolicyActor | ActorCriticActor):
        evaluate = player.evaluate
    remembers = isinstance(getattr(player, "planner", None), RememberingPlanner)
    if remembers or isinstance(getattr(player, "network", None), RecurrentNetwork):
        raise UsageError("the player has a memory, and only networks without are exported.")
    if isinstance(player, PlanningActor):
        evaluate = getattr(player.model, "evaluate", None)
    if evaluate is None:
        raise UsageError(
            f"a {type(player).__name__} has no network that is known, and cannot be exported."
        )

    def call(obs: Observation) -> dict[str, Array]:
        if obs.legal is not None and isinstance(_first(evaluate, obs), jax.ShapeDtypeStruct):
            logits, value = evaluate_batch(evaluate, obs)
            return {"logits": logits, "value": value}
        policy, value = jax.vmap(evaluate)(obs)
        return {**_parts(jax.vmap(masked)(policy, obs.legal)), "value": value}

    return call


def _first(evaluate: Any, obs: Observation) -> Any:
    """The shape of the policy of one observation."""
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), obs)
    return jax.eval_shape(evaluate, one)[0]


def _parts(policy: Any) -> dict[str, Array]:
    """The likeliest action of each policy, and its parameters."""
    actions = jax.vmap(lambda one: one.mode())(policy)
    return {"action": actions, **{name: jnp.asarray(x) for name, x in named(policy)}}


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
    model: Any = player.model
    # Kernels are one platform's, and these programs are for several.
    planner = searching(planner, simulations, reuse=False, kernels="plain")
    keys = lambda key: jr.split(jr.wrap_key_data(key), batch)
    begun = lambda key: jax.vmap(lambda key: env.init(key=key))(keys(key))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    like = jax.eval_shape(begun, key)

    def state_of(arrays: tuple[Array, ...]) -> Any:
        wrap = lambda like, x: jr.wrap_key_data(x) if is_key(like) else x
        return jax.tree.map(wrap, like, jax.tree.unflatten(jax.tree.structure(like), arrays))

    def start(key: Array) -> list[Array]:
        return _bare(begun(key))

    def search(key: Array, *arrays: Array) -> dict[str, Any]:
        state = state_of(arrays)
        obs = jax.vmap(env.observe)(state)
        memory = planner.init(model, state)
        plan, _ = planner.plan(model, state, memory, obs=obs, key=keys(key))
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


def _bare(state: Any) -> list[Array]:
    return [jr.key_data(x) if is_key(x) else x for x in jax.tree.leaves(state)]


def _readme(app: App[Any], trained: Trained[Any], exported: jax.export.Exported, more: str) -> str:
    env = trained.loop.env
    seen = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    inputs = [(name.replace(".", "_"), x) for name, x in named(seen)]
    outputs = named(jax.tree.unflatten(exported.out_tree, exported.out_avals))
    rows = exported.in_avals[0].shape[0]
    some = rows if isinstance(rows, int) else 1
    blank = "\n".join(
        f'{name} = np.{"ones" if name == "legal" else "zeros"}({(some, *x.shape)}, "{x.dtype}")'
        for name, x in inputs
    )
    given = ", ".join(name for name, _ in inputs)
    about = _meanings(env, trained)
    table = lambda rows: "\n".join(
        f"| `{name}` | `[{', '.join(map(str, x.shape))}]` | {x.dtype} | {about(name)} |"
        for name, x in rows
    )
    header = "| name | shape | type | what it is |\n|---|---|---|---|\n"
    return f"""# A player of {getattr(trained.config, "env", app.name)}

Written by `{app.command} export` from step {trained.step} of its training, with JAX
{jax.__version__}.

- `{_NETWORK}`: its network without a search, with the parameters inside, for
  {", ".join(exported.platforms)}. `pip install jax flatbuffers` is enough to call it, also with
  later versions of JAX.
- `{_PARAMETERS}`: the parameters by name, for any library that reads safetensors. Its metadata has
  config.json and what made them. `{app.command} eval` and others take this file in place of a run.

```python
import numpy as np
from jax import export

with open("{_NETWORK}", "rb") as file:
    network = export.deserialize(bytearray(file.read()))
{blank}
out = network.call({given})
print({{name: x.shape for name, x in out.items()}})
```

`{rows}` is the number of positions. What goes in, in this order:

{header}{table([(name, jax.ShapeDtypeStruct((rows, *x.shape), x.dtype)) for name, x in inputs])}

What comes out:

{header}{table(outputs)}

{more}## What the features are

{_said(type(env).observe)}

The environment, {type(env).__name__}:

{_said(type(env))}
"""


def _said(thing: Any) -> str:
    return (inspect.getdoc(thing) or "It is not documented.").strip()


def _meanings(env: AbstractEnvironment, trained: Trained[Any]) -> Callable[[str], str]:
    gamma = getattr(trained.loop.agent, "gamma", 1.0)
    worth = "the expected return" + ("" if gamma == 1 else f", discounted by {gamma} a move")
    if num_players(env) > 1:
        worth += ", of the player to move"
    known = {
        "legal": "which actions may be played; give true for all in a position that is over",
        "logits": "the logits of all actions: `-inf` for those that are not legal",
        "value": worth,
        "action": "the likeliest action",
    }
    return lambda name: known.get(
        name, "what the player to move sees" if name.startswith("features") else "of the policy"
    )


def _readme_of_decision(programs: dict[str, jax.export.Exported], simulations: int) -> str:
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
