"""Collecting where the simulators run on the host, between two compiled programs."""

import dataclasses
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractWorlds, HostStep

from ._agent import AbstractActor, Experience
from ._collect import decide, Decision, Episodes, move_keys, Totals, written
from ._dispatch import dispatched
from ._loop import acting, Loop, LoopState, shardings, step_keys
from ._mesh import row_keys


#: Folded into the key of a collection, as the times of its rows are, to make that of simulators.
_OPENING = 2**31 - 1


def begun(loop: Loop, state: LoopState) -> LoopState:
    """A fresh state, at the first observations of simulators that are opened for it."""
    worlds, number = _opened(loop, state), _number()
    _env(loop).live.keep(number, worlds)
    shown = worlds.reset(), np.full(loop.num_envs, number, np.int32)
    where = shardings(loop, state).episodes
    seen, numbers = jax.device_put(shown, (where.state, where.worlds))
    episodes = dataclasses.replace(state.episodes, state=seen, worlds=numbers)
    return dataclasses.replace(state, episodes=episodes)


def collected_on_host(
    loop: Loop, state: LoopState
) -> tuple[Episodes, list[tuple[Experience, Totals]], np.int32]:
    """Acts `unroll_length` times, as [`zero_train.collect`][] does. The host waits for the actions
    of each time, and for nothing else.

    Where the simulators are not at this state, such as after it was saved and restored, new ones
    are opened: the first row is then the final one of every running episode, cut short, whose total
    is left out.

    **Returns:** the episodes, the row of each time with the totals of the episodes that end in it,
    and the number of the simulators.
    """
    if isinstance(state.step, Tracer):
        raise ValueError(
            f"{_env(loop).name}: its simulators run on the host, so a step can be neither "
            "compiled nor mapped; call it outside of jax.jit and jax.vmap."
        )
    live, at = _env(loop).live, np.asarray(state.episodes.worlds)
    found = live.pop(int(at[0]), None) if (at == at[0]).all() else None
    worlds = _opened(loop, state) if found is None else found
    deciding = _deciding.bound((loop, state.agent))
    writing = _writing.bound((loop, state.agent))
    episodes, rows = state.episodes, []
    try:
        for time in range(loop.unroll_length):
            decision = deciding(_seen(state, episodes, time))
            cut = np.full(loop.num_envs, time == 0 and found is None)
            if cut[0]:
                move = _still(worlds.reset(), loop.num_envs)
            else:
                move = worlds.step(np.asarray(decision.action))
            episodes, row = writing((episodes, move, cut), decision)
            rows.append(row)
    except BaseException:
        worlds.close()
        raise
    live.keep(number := _number(), worlds)
    return episodes, rows, np.int32(number)


def lower_deciding(loop: Loop, _: None, state: LoopState) -> Any:
    """Lowers what decides on the actions, for a state or its template."""
    return _deciding.lower((loop, state.agent), _seen(state, state.episodes, 0))


def _seen(state: LoopState, episodes: Episodes, time: int) -> tuple[Any, ...]:
    return episodes, state.key, state.step, np.int32(time)


@dispatched
def _deciding(fixed: tuple[Loop, PyTree[Array]], given: tuple[Any, ...]) -> Decision:
    (loop, agent), (episodes, key, step, time) = fixed, given
    local = lambda actor, episodes, key, indices: decide(
        loop.env, actor, episodes, move_keys(key, time, indices)[0]
    )
    actor, akey = loop.agent.actor(agent, explore=True), step_keys(key, step)[0]
    return acting(loop, local, actor, episodes, akey)


@dispatched
def _writing(
    fixed: tuple[Loop, PyTree[Array]],
    given: tuple[Episodes, HostStep, Bool[Array, " envs"]],
    decision: Decision,
) -> tuple[Episodes, tuple[Experience, Totals]]:
    loop, agent = fixed

    def local(actor: AbstractActor, parts: Any, _: None, indices: Array) -> Any:
        del indices
        episodes, move, cut, decision = parts
        moved = move.state, move.transition()
        return written(loop.env, actor, episodes, decision, *moved, cut)

    return acting(loop, local, loop.agent.actor(agent, explore=True), (*given, decision), None)


def blank_rows(
    loop: Loop,
    actor: AbstractActor,
    episodes: Episodes,
    indices: Int[Array, " envs"],
    key: PRNGKeyArray,
) -> Experience:
    """Rows `[envs, time]` of the shapes of those that are collected."""
    decision = decide(loop.env, actor, episodes, row_keys(key, indices))
    moved = _still(episodes.state, loop.num_envs)
    parts = decision, moved.state, moved.transition(), episodes.ended
    row = written(loop.env, actor, episodes, *parts)[1][0]
    return jax.tree.map(lambda x: jnp.stack([x] * loop.unroll_length, axis=1), row)


def _env(loop: Loop) -> Any:
    return loop.env


def _number() -> int:
    """A number that no other simulators have, also not those of another process whose state is
    restored."""
    return secrets.randbits(31)


def _opened(loop: Loop, state: LoopState) -> AbstractWorlds:
    """New simulators for a state."""
    key = jr.fold_in(step_keys(state.key, state.step)[0], _OPENING)
    return _env(loop).open(loop.num_envs, key=key)


def _still(state: PyTree, rows: int) -> HostStep:
    """A step in which nothing happens but that all begin anew."""
    zeros = np.zeros(rows, np.float32)
    return HostStep(state, zeros, zeros, np.zeros(rows, np.bool_))
