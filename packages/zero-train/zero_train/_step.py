"""The training loop: collect rows, store them, learn from replay; on one set of devices or two."""

import dataclasses
import functools as ft
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from zero_envs import Hosted

from ._agent import AbstractActor, Experience
from ._checks import check_kind
from ._collect import collect, Episodes, start
from ._dispatch import dispatched
from ._hosted import begun, blank_rows, close, collected_on_host, lower_deciding
from ._learning import with_arrays
from ._loop import (
    act,
    actor_arrays,
    counts,
    failures,
    Handover,
    handover_of,
    learn,
    Loop,
    LoopState,
    Numbers,
    shardings,
    step_keys,
    take_in,
    updates_apart,
)
from ._mesh import by_rows, places, row_keys, send, split_places


#: `fill` gives up after so many collections, and once the buffer could be full several times.
_MAX_FILLS, _MAX_TIMES = 1_000, 10
#: So many unrolled updates of convolutions at most are one program; with one in each the two cores
#: of a CPU made a step of four 10 to 20 % slower.
_UNROLLED = 4
_SIZES = ("num_envs", "capacity", "batch_size", "num_shards")


def init(loop: Loop, *, key: PRNGKeyArray, player: AbstractActor | None = None) -> LoopState:
    """Fresh parameters and environments and an empty buffer, laid out over the mesh.

    With `loop.actor_devices`, the first rows are collected as well. With a `player`, an actor of
    the loop's agent, the agent begins with its networks.
    """
    check_kind("init", Loop, "a zero_train.Loop", loop=loop)
    # The player's arrays may be on another device than those of the mesh.
    state = _fresh((loop, jax.device_get(player)), key)
    if isinstance(loop.env, Hosted):
        return begun(loop, state)
    if not loop.actor_devices:
        return state
    return _act_ahead(loop, send(state, shardings(loop, state)))


def template(loop: Loop, player: AbstractActor | None = None) -> LoopState:
    """The shapes, dtypes and places of the state of `init` with these arguments, which a checkpoint
    is restored into."""
    shapes = _fresh.eval_shape((loop, player), jr.key(0))
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(place, shapes, shardings(loop, shapes))


def fill(loop: Loop, state: LoopState) -> LoopState:
    """Collects and stores, without learning, until the buffer is ready. It gives up after 1 000
    collections, or as many as fill the buffer ten times, whichever is more.

    Under `jax.vmap` or `jax.jit` it is one `while` loop of XLA, in which each state of a batch
    collects until its own buffer is ready.
    """
    check_kind("fill", LoopState, "what `zero_train.init` or `step` returned", state=state)
    capacity = getattr(loop.buffer, "capacity", 0)
    number = max(_MAX_FILLS, -(-_MAX_TIMES * capacity // loop.unroll_length))
    sizes = (f"{x}={getattr(loop.buffer, x)}" for x in _SIZES if hasattr(loop.buffer, x))
    said = (
        f"the {type(loop.buffer).__name__} ({', '.join(sizes)}) cannot be sampled after "
        f"{number * loop.unroll_length} rows of each environment, whose episodes may be longer "
        "than what it keeps; give it more capacity or a smaller batch."
    )
    ready = lambda state: loop.buffer.ready(state.buffer)
    if isinstance(ready(state), Tracer):
        most = state.step + number
        going_on = lambda state: ~ready(state) & (state.step < most)
        state = jax.lax.while_loop(going_on, ft.partial(_collected, loop), state)
        checked = eqx.error_if(state.step, ~ready(state), said)
        return dataclasses.replace(state, step=checked)
    for _ in range(number):
        if bool(ready(state)):
            return state
        state = _collected(loop, state)
    if not bool(ready(state)):
        close(state)
        raise ValueError(said)
    return state


def _collected(loop: Loop, state: LoopState) -> LoopState:
    """A state after one collection without learning."""
    if loop.actor_devices:
        return _step_side_by_side(loop, state, learns=False)[0]
    return collect_half(loop, None, state)[0]


def step(loop: Loop, state: LoopState) -> tuple[LoopState, Numbers]:
    """Collects, stores, then `num_updates` times samples, augments and updates.

    Two jitted calls: one collects and stores, which [`zero_train.fill`][] uses too, and one
    learns, or on a CPU one for every few updates of convolutions; `state` is donated. The host
    waits for none of them. An [`zero_train.AbstractBlockAgent`][] is shown the new rows before the
    first update. Where the agent's update returns priorities, the buffer is given them before the
    next batch is drawn.

    Of a [`zero_envs.Hosted`][] environment the first call is two programs for each of the
    `unroll_length` times, between which the host steps the simulators. They go from state to
    state, until [`zero_train.close`][] closes those of the last one. Where none are at a state,
    because it was restored, stepped before or closed, new ones are opened, and its running episodes
    are cut short.

    With `loop.actor_devices` the two calls run at the same time, on devices of their own. The rows
    that are stored and learned from are those of the step before. After the updates the actor is
    copied to the acting devices, so that the next step collects with the newest. No result depends
    on how long anything takes.

    **Returns:** the state, and metrics: means over the updates, what the agent says of the new
    rows, `positions` (ordinary rows stored) and `games` (episodes finished in them) of this step,
    and `failures`, the episodes cut short so far because the simulation broke down, where it can.
    Of a [`zero_envs.Hosted`][] environment also `cut`: the running episodes that were cut short in
    this step because no simulators were at the state.
    With `loop.actor_devices` also `staleness`: how many gradient updates the agent was ahead, when
    the first batch was drawn, of the actor that had collected the newest rows.
    """
    check_kind("step", LoopState, "what `zero_train.init`, `fill` or `step` returned", state=state)
    if loop.actor_devices:
        return _step_side_by_side(loop, state)
    state, collected = collect_half(loop, None, state)
    state, learned = learn_half(loop, None, state)
    return state, learned | collected


def _check_world(loop: Loop, actor: AbstractActor) -> None:
    """Raises where the agent plans over the states of another environment."""
    env: Any = getattr(getattr(actor, "model", None), "env", None)
    if env is None or eqx.tree_equal(env, loop.env) is True:
        return
    planned, played = (
        jax.eval_shape(lambda env=env: env.init(key=jr.key(0))) for env in (env, loop.env)
    )
    if not eqx.tree_equal(planned, played):
        raise ValueError(
            f"`Loop(env={type(loop.env).__name__}, agent=...)`: the agent plans over "
            f"{type(env).__name__}, whose states are others; give both the same environment."
        )


# It runs once, and to optimise it takes three times as long to compile, for the same bits.
@ft.partial(dispatched, xla_backend_optimization_level=1)
def _fresh(fixed: tuple[Loop, AbstractActor | None], key: PRNGKeyArray) -> LoopState:
    """A state before anything has been collected, with `loop.actor_devices` on those that learn:
    one program has one set of devices."""
    loop, player = fixed
    akey, ekey, lkey = jr.split(key, 3)
    networks = {} if player is None else {"actor": player}
    if networks and "actor" not in inspect.signature(loop.agent.init).parameters:
        name = type(loop.agent).__name__
        raise ValueError(f"{name} cannot start from a trained player: its `init` takes no `actor`.")
    agent = loop.agent.init(key=akey, **networks)
    indices = jnp.arange(loop.num_envs, dtype=jnp.int32)
    actor = loop.agent.actor(agent, explore=True)
    _check_world(loop, actor)
    keys = row_keys(ekey, indices)
    own = {"num_steps": loop.unroll_length, "opening_plies": loop.opening_plies}
    episodes = start(loop.env, actor, keys=keys, **own)
    if isinstance(loop.env, Hosted):
        unroll = lambda: blank_rows(loop, actor, episodes, indices, lkey)
    else:
        unroll = lambda: collect(loop.env, actor, episodes, indices=indices, key=lkey, **own)[1]
    rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(unroll))
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), rows)
    zero = jnp.zeros((), jnp.int32)
    state = LoopState(agent, episodes, loop.buffer.init(example), lkey, zero)
    if loop.actor_devices:
        handover = Handover(actor_arrays(loop, agent), rows, lkey, zero)
        state = dataclasses.replace(state, handover=handover)
    learner = dataclasses.replace(loop, mesh=loop.learner_mesh, actor_devices=0)
    return jax.lax.with_sharding_constraint(state, shardings(learner, state))


# The halves in turns. They are two programs because the search is most of what is compiled, and
# `fill` needs it as well.


def _lowers(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function a `.lower`, as jitted ones have."""

    def named(function: Any) -> Any:
        function.lower = lower
        return function

    return named


def _lower_collecting(loop: Loop, _: None, state: LoopState) -> Any:
    lower = lower_deciding if isinstance(loop.env, Hosted) else _collect_half.lower
    return lower(loop, None, state)


@_lowers(_lower_collecting)
def collect_half(loop: Loop, _: None, state: LoopState) -> tuple[LoopState, Numbers]:
    """The first half of a [`zero_train.step`][]: collects and stores, and counts the step.

    `collect_half.lower(loop, None, template(loop)).compile()` compiles it ahead, or of a
    [`zero_envs.Hosted`][] environment what decides on the actions, which is the most of it.
    """
    handover_of(loop, state)
    if not isinstance(loop.env, Hosted):
        return _collect_half(loop, None, state)
    episodes, rows, numbers = collected_on_host(loop, state)
    return _store(loop, (rows, numbers), dataclasses.replace(state, episodes=episodes))


@dispatched
def _collect_half(loop: Loop, _: None, state: LoopState) -> tuple[LoopState, Numbers]:
    akey = step_keys(state.key, state.step)[0]
    actor = loop.agent.actor(state.agent, explore=True)
    episodes, rows = act(loop, actor, state.episodes, key=akey)
    return _stored(loop, state, episodes, rows)


@dispatched
def _store(
    loop: Loop, given: tuple[list[Any], tuple[Array, Array]], state: LoopState
) -> tuple[LoopState, Numbers]:
    """Stores what was collected on the host: the rows of each time, the number of the simulators,
    and that of the episodes that were cut short."""
    rows, (number, cut) = given
    experience, finished = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *rows)
    worlds = jnp.full(loop.num_envs, number, jnp.int32)
    episodes = dataclasses.replace(state.episodes, finished=finished, worlds=worlds)
    state, metrics = _stored(loop, state, episodes, experience)
    return state, metrics | {"cut": cut}


def _stored(
    loop: Loop, state: LoopState, episodes: Episodes, rows: Experience
) -> tuple[LoopState, Numbers]:
    agent, buffer, metrics = take_in(loop, state.agent, state.buffer, rows)
    state = LoopState(agent, episodes, buffer, jr.clone(state.key), state.step + 1)
    state = jax.lax.with_sharding_constraint(state, shardings(loop, state))
    return state, metrics | counts(rows) | failures(episodes)


@dispatched
def _updates(
    loop: Loop, indices: Int[Array, " updates"], state: LoopState
) -> tuple[LoopState, Numbers]:
    """These updates of a step."""
    lkey = step_keys(state.key, state.step - 1)[1]
    agent, buffer, metrics = learn(loop, state.agent, state.buffer, indices, key=lkey)
    state = LoopState(agent, state.episodes, buffer, jr.clone(state.key), state.step)
    return jax.lax.with_sharding_constraint(state, shardings(loop, state)), metrics


def _programs(loop: Loop, agent: PyTree) -> list[Int[np.ndarray, " updates"]]:
    """The indices of the updates of each call: all in one, or a few in each, because many unrolled
    ones take as many times as long to compile."""
    number = loop.num_updates
    if updates_apart(loop, agent):
        number = max(n for n in range(1, _UNROLLED + 1) if loop.num_updates % n == 0)
    return np.split(np.arange(loop.num_updates, dtype=np.int32), loop.num_updates // number)


@_lowers(lambda loop, _, state: _updates.lower(loop, _programs(loop, state.agent)[0], state))
def learn_half(loop: Loop, _: None, state: LoopState) -> tuple[LoopState, Numbers]:
    """The second half of a [`zero_train.step`][], after `collect_half`: samples and updates. It is
    compiled ahead as that is. On a CPU each call makes a few updates of convolutions."""
    each = []
    for indices in _programs(loop, state.agent):
        state, metrics = _updates(loop, indices, state)
        each.append(metrics)
    return state, each[0] if len(each) == 1 else _means(each)


@jax.jit
def _means(each: list[Numbers]) -> Numbers:
    return jax.tree.map(lambda *x: jnp.mean(jnp.stack(x)), *each)


# The halves side by side: the host starts both, and sends on what each made for the other.


def _step_side_by_side(
    loop: Loop, state: LoopState, *, learns: bool = True
) -> tuple[LoopState, Numbers]:
    before, after = handover_of(loop, state), _act_ahead(loop, state)
    given = before.rows, before.key, before.staleness
    learned = _learner_program((loop, learns), given, state.agent, state.buffer)
    agent, buffer, actor, staleness, metrics = learned
    actor = send(actor, places(loop.actor_mesh, P(), actor))
    handover = dataclasses.replace(handover_of(loop, after), actor=actor, staleness=staleness)
    after = dataclasses.replace(after, agent=agent, buffer=buffer, handover=handover)
    return after, metrics | failures(after.episodes)


def _act_ahead(loop: Loop, state: LoopState) -> LoopState:
    """Collects rows and sends them to the learning devices, in place of those before them."""
    before, mesh = handover_of(loop, state), loop.learner_mesh
    acted = _actor_program(loop, before.actor, state.episodes, state.key, state.step)
    episodes, key, step, rows, lkey = acted
    rows, lkey = send(rows, places(mesh, by_rows(mesh), rows)), send(lkey, places(mesh, P(), lkey))
    handover = dataclasses.replace(before, rows=rows, key=lkey)
    return LoopState(state.agent, episodes, state.buffer, key, step, handover)


@dispatched
def _actor_program(
    loop: Loop, arrays: PyTree[Array], episodes: Episodes, key: PRNGKeyArray, step: Int[Array, ""]
) -> tuple[Episodes, PRNGKeyArray, Int[Array, ""], Experience, PRNGKeyArray]:
    build = lambda: loop.agent.actor(loop.agent.init(key=jr.key(0)), explore=True)
    akey, lkey = step_keys(key, step)
    episodes, rows = act(loop, with_arrays(build, arrays), episodes, key=akey)
    return episodes, jr.clone(key), step + 1, rows, lkey


@dispatched
def _learner_program(
    fixed: tuple[Loop, bool],
    given: tuple[Experience, PRNGKeyArray, Int[Array, ""]],
    agent: PyTree[Array],
    buffer: PyTree[Array],
) -> tuple[PyTree[Array], PyTree[Array], PyTree[Array], Int[Array, ""], Numbers]:
    (loop, learns), (rows, key, staleness) = fixed, given
    agent, buffer, metrics = take_in(loop, agent, buffer, rows)
    metrics["staleness"] = staleness.astype(jnp.float32)
    if learns:
        indices = jnp.arange(loop.num_updates, dtype=jnp.int32)
        agent, buffer, learned = learn(loop, agent, buffer, indices, key=key)
        metrics = learned | metrics | counts(rows)
    # Of an agent's state the acting devices need the actor, and not the optimiser.
    staleness = jnp.asarray(loop.num_updates if learns else 0, jnp.int32)
    mesh, small = loop.learner_mesh, (actor_arrays(loop, agent), staleness)
    small = jax.lax.with_sharding_constraint(small, places(mesh, P(), small))
    agent = jax.lax.with_sharding_constraint(agent, split_places(mesh, agent))
    return agent, buffer, *small, metrics
