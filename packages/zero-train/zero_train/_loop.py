"""Collect, store, learn: one jitted step over a mesh, or two side by side."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Num, PRNGKeyArray, PyTree

from ._collect import Actors, collect, start
from ._experience import Experience
from ._loop_state import Handover, Harvest, Loop, LoopState, shardings
from ._mesh import send
from ._phases import act, count, digest, failures, learn, store, totals
from ._pipeline import act_ahead, collect_ahead, release, step_ahead
from ._rows import row_keys


#: `fill` gives up after so many collections: no game is that long.
_MAX_FILLS = 1_000


def init(loop: Loop, *, key: PRNGKeyArray) -> LoopState:
    """Fresh parameters, environments and an empty buffer, laid out over the mesh.

    With `loop.actor_devices`, the first rows are on their way to the buffer already.
    """
    # One program has one set of devices: all is made where it is learned from, then sent.
    learner = dataclasses.replace(loop, mesh=loop.learner_mesh, actor_devices=0)
    state = jax.jit(_build(loop), out_shardings=shardings(learner, _shape(loop)))(key)
    if not loop.actor_devices:
        return state
    return act_ahead(loop, send(state, shardings(loop, state)))


def template(loop: Loop) -> LoopState:
    """Shapes, dtypes and places of a state, without one: what a checkpoint is restored into."""
    shape = _shape(loop)
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(place, shape, shardings(loop, shape))


def fill(loop: Loop, state: LoopState) -> LoopState:
    """Collects and stores, without learning, until the buffer is ready.

    **Raises:** `ValueError` where the buffer is not ready even after every environment could have
    filled it many times over: it never will be.
    """
    for _ in range(_MAX_FILLS):
        if bool(loop.buffer.ready(state.buffer)):
            return state
        state = collect_ahead(loop, state) if loop.actor_devices else _collect(loop, state)
    raise ValueError(
        f"the buffer {loop.buffer} is not ready after {_MAX_FILLS * loop.unroll_length} rows of "
        f"{loop.num_envs} environments; give it more room or a smaller batch."
    )


def step(loop: Loop, state: LoopState) -> tuple[LoopState, dict[str, Num[Array, ""]]]:
    """Collects, stores, then `num_updates` times samples, augments and updates.

    One jitted call; `state` is donated. An [`zero_train.AbstractBlockAgent`][] is shown the new
    rows before the first update. Where the agent's update returns priorities, the buffer
    is given them before the next batch is drawn.

    With `loop.actor_devices` there are two calls that run at the same time, on devices of their
    own: what is stored and learned from is what the step before collected. After the updates the
    actor is copied to the acting devices, so that the next step collects with the newest. The host
    waits for nothing, and nothing depends on how long anything takes.

    **Returns:** the state, and metrics: means over the updates, what the agent says of the new
    rows, `positions` (ordinary rows stored) and `games` (episodes finished in them) of this step,
    and `failures`, the episodes cut short so far because the simulation broke down, where it can.
    With `loop.actor_devices` also `staleness`: how many gradient updates the agent was ahead, when
    the first batch was drawn, of the actor that had collected the newest rows.
    """
    return step_ahead(loop, state) if loop.actor_devices else _step(loop, state)


def compiled_step(
    loop: Loop, state: LoopState
) -> Callable[[LoopState], tuple[LoopState, dict[str, Num[Array, ""]]]]:
    """[`zero_train.step`][] of this loop for states like this one, compiled now and not at its
    first call. With `loop.actor_devices` it is compiled when it is called all the same.
    """
    if loop.actor_devices:
        return ft.partial(step, loop)
    lower: Callable[..., Any] = _step.lower  # pyright: ignore[reportFunctionMemberAccess]
    return ft.partial(lower(loop, state).compile(), loop)


@eqx.filter_jit(donate="all-except-first")
def _step(loop: Loop, state: LoopState) -> tuple[LoopState, dict[str, Num[Array, ""]]]:
    actors, buffer, rows = collect_and_store(loop, state)
    agent, seen = digest(loop, state.agent, rows)
    key = jr.fold_in(state.key, 2 * state.step + 1)
    agent, buffer, metrics = learn(loop, agent, buffer, key=key)
    metrics = metrics | seen | totals(count(rows)) | failures(actors)
    return _next(loop, state, agent, actors, buffer), metrics


@eqx.filter_jit(donate="all-except-first")
def _collect(loop: Loop, state: LoopState) -> LoopState:
    actors, buffer, rows = collect_and_store(loop, state)
    agent, _ = digest(loop, state.agent, rows)
    return _next(loop, state, agent, actors, buffer)


def collect_and_store(loop: Loop, state: LoopState) -> tuple[Actors, PyTree[Array], Experience]:
    """The part of a step that runs on every device by itself, without communication.

    For a loop without `actor_devices`.

    **Returns:** the actors, the buffer, and the rows of `[envs, time]` that are in it now.
    """
    if state.handover is not None:
        raise ValueError(
            "the state is one of a loop with actor_devices; make one with `zero_train.init` of "
            "this loop."
        )
    actor = loop.agent.actor(state.agent, explore=True)
    key = jr.fold_in(state.key, 2 * state.step)
    actors, rows = act(loop, actor, state.actors, key=key)
    return actors, store(loop, state.buffer, rows), rows


def _next(
    loop: Loop, state: LoopState, agent: PyTree[Array], actors: Actors, buffer: PyTree[Array]
) -> LoopState:
    state = LoopState(agent, actors, buffer, jr.clone(state.key), state.step + 1)
    return jax.lax.with_sharding_constraint(state, shardings(loop, state))


def _shape(loop: Loop) -> LoopState:
    return jax.eval_shape(_build(loop), jr.key(0))


def _build(loop: Loop) -> Callable[[PRNGKeyArray], LoopState]:
    def build(key: PRNGKeyArray) -> LoopState:
        akey, ekey, lkey = jr.split(key, 3)
        agent = loop.agent.init(key=akey)
        rows = jnp.arange(loop.num_envs, dtype=jnp.int32)
        actor = loop.agent.actor(agent, explore=True)
        actors = start(loop.env, actor, keys=row_keys(ekey, rows))
        unroll = lambda: collect(
            loop.env, actor, actors, rows=rows, key=lkey, num_steps=loop.unroll_length
        )
        blank = lambda num_axes: jax.tree.map(
            lambda x: jnp.zeros(x.shape[num_axes:], x.dtype), jax.eval_shape(unroll)[1]
        )
        zero = jnp.zeros((), jnp.int32)
        state = LoopState(agent, actors, loop.buffer.init(blank(2)), lkey, zero)
        if not loop.actor_devices:
            return state
        harvest = Harvest(blank(0), lkey, zero)
        handover = Handover(release(loop, agent, zero), harvest, zero)
        return dataclasses.replace(state, handover=handover)

    return build
