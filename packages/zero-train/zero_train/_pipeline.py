"""Acting and learning at the same time, on devices of their own.

Two programs run side by side: one collects, the other learns from what was collected the step
before. The host starts them and sends on what they made for each other; it waits for neither.
"""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, Num, PRNGKeyArray, PyTree

from ._actor import AbstractActor
from ._collect import Actors
from ._learning import with_arrays
from ._loop_state import Handover, Harvest, Loop, LoopState, Released
from ._mesh import places, send
from ._phases import act, count, digest, failures, learn, store, totals


def release(loop: Loop, agent: PyTree[Array], updates: Int[Array, ""]) -> Released:
    """What acting devices need of an agent's state: its actor, not its optimiser."""
    return Released(eqx.filter(loop.agent.actor(agent, explore=True), eqx.is_array), updates)


def act_ahead(loop: Loop, state: LoopState) -> LoopState:
    """Collects rows: they are on their way to the learner now, and those before them dropped."""
    before = _handover(state)
    acted = _act(loop, before.released, state.actors, state.key, state.step)
    actors, key, step, harvest = acted
    handover = dataclasses.replace(before, harvest=_deliver(loop, harvest))
    return LoopState(state.agent, actors, state.buffer, key, step, handover)


def collect_ahead(loop: Loop, state: LoopState) -> LoopState:
    """Collects rows, and meanwhile stores those before them."""
    before, after = _handover(state), act_ahead(loop, state)
    given = before.harvest, before.updates
    agent, buffer, released = _store(loop, given, state.agent, state.buffer)
    return _handed_over(loop, after, agent, buffer, released, before.updates)


def step_ahead(loop: Loop, state: LoopState) -> tuple[LoopState, dict[str, Num[Array, ""]]]:
    """Collects rows, and meanwhile stores those before them and learns."""
    before, after = _handover(state), act_ahead(loop, state)
    learned = _learn(loop, before.harvest, state.agent, state.buffer, before.updates)
    agent, buffer, updates, released, metrics = learned
    after = _handed_over(loop, after, agent, buffer, released, updates)
    return after, metrics | failures(after.actors)


def _handed_over(
    loop: Loop,
    after: LoopState,
    agent: PyTree[Array],
    buffer: PyTree[Array],
    released: Released,
    updates: Int[Array, ""],
) -> LoopState:
    """What has acted, with what the learner made meanwhile and lets go."""
    released = send(released, places(loop.actor_mesh, P(), released))
    handover = Handover(released, _handover(after).harvest, updates)
    return dataclasses.replace(after, agent=agent, buffer=buffer, handover=handover)


def _deliver(loop: Loop, harvest: Harvest) -> Harvest:
    """To the learning devices."""
    to = loop.learner_mesh
    rows = send(harvest.rows, places(to, P("data"), harvest.rows))
    note = harvest.key, harvest.updates
    return Harvest(rows, *send(note, places(to, P(), note)))


def _dispatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jits `function(loop, given, *changed)`, and donates what is changed.

    `eqx.filter_jit` would wait until the program has ended.
    """

    @ft.partial(jax.jit, static_argnums=0, donate_argnums=3)
    def program(static: Any, arrays: PyTree[Array], given: PyTree[Array], changed: tuple) -> Any:
        leaves, structure = static
        loop = eqx.combine(arrays, jax.tree.unflatten(structure, leaves))
        return function(loop, given, *changed)

    @ft.wraps(function)
    def dispatch(loop: Loop, given: PyTree[Array], *changed: PyTree[Array]) -> Any:
        arrays, static = eqx.partition(loop, eqx.is_array)
        leaves, structure = jax.tree.flatten(static)
        return program((tuple(leaves), structure), arrays, given, changed)

    return dispatch


@_dispatched
def _act(
    loop: Loop, released: Released, actors: Actors, key: PRNGKeyArray, step: Int[Array, ""]
) -> tuple[Actors, PRNGKeyArray, Int[Array, ""], Harvest]:
    actor = _revive(loop, released.actor)
    actors, rows = act(loop, actor, actors, key=jr.fold_in(key, 2 * step))
    harvest = Harvest(rows, jr.fold_in(key, 2 * step + 1), released.updates)
    return actors, jr.clone(key), step + 1, harvest


@_dispatched
def _store(
    loop: Loop,
    given: tuple[Harvest, Int[Array, ""]],
    agent: PyTree[Array],
    buffer: PyTree[Array],
) -> tuple[PyTree[Array], PyTree[Array], Released]:
    harvest, updates = given
    agent, _ = digest(loop, agent, harvest.rows)
    # An agent may have learned something from the rows alone, such as how to normalise.
    whole = agent, release(loop, agent, updates)
    whole = jax.lax.with_sharding_constraint(whole, places(loop.learner_mesh, P(), whole))
    agent, released = whole
    return agent, store(loop, buffer, harvest.rows), released


@_dispatched
def _learn(
    loop: Loop,
    harvest: Harvest,
    agent: PyTree[Array],
    buffer: PyTree[Array],
    updates: Int[Array, ""],
) -> tuple[PyTree[Array], PyTree[Array], Int[Array, ""], Released, dict[str, Num[Array, ""]]]:
    staleness = (updates - harvest.updates).astype(jnp.float32)
    buffer = store(loop, buffer, harvest.rows)
    agent, seen = digest(loop, agent, harvest.rows)
    agent, buffer, metrics = learn(loop, agent, buffer, key=harvest.key)
    updates = updates + loop.num_updates
    whole = agent, updates, release(loop, agent, updates)
    whole = jax.lax.with_sharding_constraint(whole, places(loop.learner_mesh, P(), whole))
    agent, updates, released = whole
    metrics = metrics | seen | totals(count(harvest.rows)) | {"staleness": staleness}
    return agent, buffer, updates, released, metrics


def _revive(loop: Loop, arrays: PyTree[Array]) -> AbstractActor:
    """The actor whose arrays are these."""
    build = lambda: loop.agent.actor(loop.agent.init(key=jr.key(0)), explore=True)
    return with_arrays(build, arrays)


def _handover(state: LoopState) -> Handover:
    if state.handover is None:
        raise ValueError(
            "the state is one of a loop without actor_devices; make one with "
            "`zero_train.init` of this loop."
        )
    return state.handover
