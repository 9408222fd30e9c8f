"""The programs that are compiled: steps of apps, searches, and steps of environments."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from zero_envs import Game2048, make, Othello
from zero_search import BeliefModel, ParticleSearch, TreeSearch
from zero_train import _step, EnvironmentModel, template


HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))  # the other benchmarks, whose searches are compiled
#: The loop of the simulations is known by its number of turns, which nothing else has.
TURNS = 61
#: In cases of that kind so many devices hold an agent together.
TOGETHER = 4


def programs(case: str, mesh: Mesh) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The programs of a case by their names, lowered, with what is expected of each."""
    make = search_programs if case in SEARCHES else app_programs
    return (env_programs if case in ENVIRONMENTS else make)(case, mesh)


# The step of an app.


def configuration(name: Any, devices: int) -> tuple[Any, Any]:
    """An app and its configuration for so many devices; `NAME-apart` acts on half of them."""
    from zero_app import Launch, Options
    from zero_app._run._options import following
    from zero_cli._apps import APPS
    from zero_cli._config import presets as agent_presets
    from zero_cli._worlds import build_world
    from zero_spo._config import presets

    app, _, kind = name.partition("-")
    if name in AGENTS:
        world = build_world(AGENTS[name])
        made = agent_presets(world.name, name, world.size)
        record, config = APPS["zero"], made["standard"]
        config = dataclasses.replace(config, reanalyse=0.25)
        if name == "muzero":
            # Smaller, so that the hidden states of one turn are not taken for a whole tree.
            config = dataclasses.replace(config, channels=64, blocks=2)
    elif app == "ppo":
        record, config = APPS["spo"], presets("cartpole", "ppo")["quick"]
    elif app == "spo":
        record, config = APPS["spo"], presets("pendulum", "spo")["reference"]
    elif app == "ant":
        record, config = APPS["spo"], presets("brax/ant", "spo")["reference"]
    else:
        record = APPS[app]
        presets_of: Any = record.presets
        config = presets_of.get("standard") or presets_of["default"]
    acting = devices // 2 if kind == "apart" else 0
    # As `--devices` does it, with at least one environment and one row a device.
    rows = {name: max(getattr(config, name), devices) for name in ("envs", "batch")}
    config = dataclasses.replace(config, actor_devices=acting, **rows)
    return record, following(config, Options(out=HERE, launch=Launch(devices=devices)))


def app_programs(name: str, mesh: Mesh) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The programs of a step, lowered, with what is expected of each."""
    app, config = configuration(name, mesh.size)
    if name.endswith("-fsdp"):
        mesh = Mesh(mesh.devices.reshape(-1, TOGETHER), ("data", "fsdp"))
    loop = dataclasses.replace(app.build(config), mesh=mesh, actor_devices=config.actor_devices)
    state = template(loop)
    share = sum(_bytes(x.sharding.shard_shape(x.shape), x.dtype) for x in jax.tree.leaves(state))
    params = getattr(state.agent, "params", None)
    params = state.agent.online if params is None else params
    gradient = sum(_bytes(x.shape, x.dtype) for x in jax.tree.leaves(params))
    learns = {"gradient": gradient * config.updates, "updates": config.updates}
    if not config.actor_devices:
        for half, expected in (("collect", {}), ("learn", learns)):
            lowered = getattr(_step, f"{half}_half").lower(loop, None, state)
            yield half, lowered, expected | {"share": share}
        return
    handover: Any = state.handover
    collected = state.episodes, state.key, state.step
    yield "act", _step._actor_program.lower(loop, handover.actor, *collected), {}
    given = handover.rows, handover.key, handover.staleness
    stored = state.agent, state.buffer
    yield "learn", _step._learner_program.lower((loop, True), given, *stored), learns


# The search in every mode.


def search_programs(name: str, mesh: Mesh) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """A search of so many turns, lowered, and beside it the bare environment and evaluator."""
    place = NamedSharding(mesh, P())
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    for program, (model, state, run) in SEARCHES[name]().items():
        params, static = eqx.partition(model, eqx.is_array)
        jitted = jax.jit(lambda params, *a, s=static, run=run: run(eqx.combine(params, s), *a))
        lowered = jitted.lower(*jax.tree.map(shape, (params, state, jr.key(4))))
        yield program, lowered, {"search": True}


def _othello(planner: Any, batch: int = 1024) -> dict[str, tuple[Any, Any, Callable]]:
    import search_vs_mctx as bench

    model = bench.game("othello", None, slim=True)
    state = jax.eval_shape(lambda: bench.positions(model, batch))
    return {"search": (model, state, _plan(planner)), "floor": (model, state, bench.floor(TURNS))}


def _plan(planner: Any) -> Callable[..., Any]:
    def run(model: Any, state: Any, key: jax.Array) -> Any:
        carry, keys = planner.init(model, state), jr.split(key, jax.tree.leaves(state)[0].shape[0])
        return planner.plan(model, state, carry, key=keys)

    return run


def _bits(decisive_moves: bool = False) -> dict[str, Any]:
    """As `search-puct`, on the environment of the app."""
    env, weights = Othello(), jnp.ones((128, 66))

    def evaluate(obs: Any) -> tuple[jax.Array, jax.Array]:
        out = obs.features.reshape(128).astype(jnp.float32) @ weights
        return out[:65], jnp.tanh(out[65])

    state = jax.eval_shape(jax.vmap(lambda key: env.init(key=key)), jr.split(jr.key(0), 1024))
    planner = TreeSearch.muzero(TURNS)
    model = EnvironmentModel(env, evaluate, decisive_moves=decisive_moves)
    return {"search": (model, state, _plan(planner))}


def _chance() -> dict[str, Any]:
    env = Game2048()
    evaluate = lambda obs: (jnp.zeros(env.num_actions), jnp.zeros(()))
    state = jax.eval_shape(jax.vmap(lambda key: env.init(key=key)), jr.split(jr.key(0), 256))
    planner = TreeSearch(TURNS, outcomes="weighted")
    return {"search": (EnvironmentModel(env, evaluate), state, _plan(planner))}


def _filters() -> dict[str, Any]:
    """Over the beliefs of an exact filter, with known odds of observations and with drawn ones."""
    env: Any = make("rocksample-7-8")
    evaluate = lambda obs: (jnp.zeros(env.num_actions), jnp.zeros(()))
    state = jax.eval_shape(jax.vmap(lambda key: env.init(key=key)), jr.split(jr.key(0), 256))
    model, drawn = EnvironmentModel(env, evaluate), TreeSearch(TURNS, outcomes="drawn")
    return {
        "known": (model, state, _plan(TreeSearch(TURNS))),
        "drawn": (model, state, _plan(drawn)),
    }


def _belief() -> dict[str, Any]:
    from search_belief import Field, Minefield, SIDE

    state = jax.eval_shape(lambda: Field(*[jnp.zeros((64, SIDE * SIDE), bool)] * 2))
    return {"search": (BeliefModel(Minefield(), 64), state, _plan(TreeSearch(TURNS)))}


def _particles() -> dict[str, Any]:
    from search_particles import Pendulum

    planner = ParticleSearch(num_particles=16, depth=TURNS)
    model = Pendulum(64, key=jr.key(0))
    return {"search": (model, jax.ShapeDtypeStruct((256, 3), jnp.float32), _plan(planner))}


SEARCHES = {
    "search-puct": lambda: _othello(TreeSearch.muzero(TURNS)),
    # With what finished games prove.
    "search-proofs": lambda: _othello(TreeSearch.muzero(TURNS, max_return=1.0)),
    "search-gumbel": lambda: _othello(TreeSearch.gumbel(TURNS)),
    # Each walk is a kernel.
    "search-fused": lambda: _othello(TreeSearch.muzero(TURNS, kernels="pallas")),
    "search-fused-gumbel": lambda: _othello(TreeSearch.gumbel(TURNS, kernels="pallas")),
    # Of two actions, so that the rounds are one loop.
    "search-rounds": lambda: _othello(
        TreeSearch.gumbel(2 * TURNS, max_num_considered_actions=2, in_rounds=True), batch=512
    ),
    "search-leaves": lambda: _othello(TreeSearch.alphazero(8 * TURNS, num_leaves=8), batch=128),
    "search-reuse": lambda: _othello(TreeSearch.alphazero(TURNS, reuse=True)),
    "search-bits": _bits,
    "search-decisive": lambda: _bits(decisive_moves=True),
    "search-chance": _chance,
    "search-belief": _belief,
    "search-filters": _filters,
    "search-particles": _particles,
}
ENVIRONMENTS = ("env-othello",)
STEPS = ("othello", "monsters", "minesweeper", "spo", "ant")
KINDS = "", "-apart", "-fsdp"
#: Agents that learn a model, and what they play.
AGENTS = {"muzero": "pgx/connect_four", "stochastic": "cartpole", "sampled": "pendulum"}
CASES = (
    *(f"{name}{kind}" for kind in KINDS for name in STEPS),
    *AGENTS,
    "ppo",
    *SEARCHES,
    *ENVIRONMENTS,
)


# The step of an environment.


def env_programs(name: str, mesh: Mesh) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """A step of 1024 games, lowered."""
    env: Any = make(name.removeprefix("env-"))
    place = NamedSharding(mesh, P())
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    keys = jr.split(jr.key(0), 1024)
    state = jax.eval_shape(jax.vmap(lambda key: env.init(key=key)), keys)
    step = jax.jit(jax.vmap(lambda state, action, key: env.step(state, action, key=key)))
    yield "step", step.lower(*jax.tree.map(shape, (state, jnp.zeros(1024, jnp.int32), keys))), {}


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    size = dtype.itemsize if hasattr(dtype, "itemsize") else np.dtype(dtype).itemsize
    return int(np.prod(shape, dtype=np.int64)) * size
