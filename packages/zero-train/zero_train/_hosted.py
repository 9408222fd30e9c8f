"""Collecting where the simulators run on the host, between two compiled programs."""

import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment, AbstractWorlds, HostStep, Transition

from ._agent import AbstractActor, Experience
from ._collect import Episodes, move_keys, Totals, written
from ._dispatch import dispatched
from ._evaluation import check_untraced, decide, Decision, opened
from ._loop import acting, Loop, LoopState, shardings, step_keys
from ._mesh import row_keys


#: Folded into the key of a collection, as the times of its rows are, to make that of simulators.
_OPENING = 2**31 - 1


#: The simulators of running episodes, with their environment, by the number that
#: [`zero_train.Episodes`][] has of them.
_LIVE: dict[int, tuple[AbstractEnvironment, AbstractWorlds]] = {}


def begun(loop: Loop, state: LoopState) -> LoopState:
    """A fresh state, at the first observations of simulators that are opened for it."""
    check_untraced(loop.env, state)
    worlds = _opened(loop, state)
    with _kept(loop, worlds) as number:
        seen = jax.tree.map(np.array, worlds.reset())
    where = shardings(loop, state).episodes
    shown = seen, np.full(loop.num_envs, number, np.int32)
    seen, numbers = jax.device_put(shown, (where.state, where.worlds))
    episodes = dataclasses.replace(state.episodes, state=seen, worlds=numbers)
    return dataclasses.replace(state, episodes=episodes)


def close(state: LoopState) -> None:
    """Closes the simulators that are at a state of a [`zero_envs.Hosted`][] environment, if there
    are any. A state that is stepped all the same gets new ones, as one that was restored does."""
    worlds = state.episodes.worlds
    # A state that was donated has none: those of the next one are at that.
    if worlds is None or (isinstance(worlds, jax.Array) and worlds.is_deleted()):
        return
    if (found := _at(np.asarray(worlds))) is not None:
        found[1].close()


def collected_on_host(
    loop: Loop, state: LoopState
) -> tuple[Episodes, list[tuple[Experience, Totals]], tuple[np.int32, np.int32]]:
    """Acts `unroll_length` times, as [`zero_train.collect`][] does. The host waits for the actions
    of each time, and for nothing else.

    Where no simulators are at this state, such as after it was saved and restored, new ones are
    opened: the first row is then the final one of every running episode, cut short, whose total is
    left out.

    **Returns:** the episodes, the row of each time with the totals of the episodes that end in it,
    the number of the simulators, and that of the episodes that were cut short.
    """
    check_untraced(loop.env, state)
    env, worlds = _at(np.asarray(state.episodes.worlds)) or (None, None)
    # An environment with a NaN equals nothing, not even itself.
    if worlds is not None and env is not loop.env and not eqx.tree_equal(env, loop.env):
        worlds.close()
        worlds = None
    cut = np.zeros(loop.num_envs, np.bool_)
    if lost := worlds is None:
        worlds, cut = _opened(loop, state), ~np.asarray(state.episodes.ended)
    deciding = _deciding.bound((loop, state.agent))
    writing = _writing.bound((loop, state.agent))
    episodes, rows = state.episodes, []
    with _kept(loop, worlds) as number:
        for time in range(loop.unroll_length):
            decision = deciding(_seen(state, episodes, time))
            anew = time == 0 and lost
            if anew:
                move = _still(worlds.reset(), loop.num_envs)
            else:
                move = worlds.step(np.asarray(decision.action))
            move = jax.tree.map(np.array, move)
            given = episodes, (move.state, move.transition()), np.full(loop.num_envs, anew)
            episodes, row = writing(given, decision)
            rows.append(row)
    return episodes, rows, (number, cut.sum(dtype=np.int32))


def lower_deciding(loop: Loop, _: None, state: LoopState) -> Any:
    """Lowers what decides on the actions, for a state or its template."""
    return _deciding.lower((loop, state.agent), _seen(state, state.episodes, 0))


def _seen(state: LoopState, episodes: Episodes, time: int) -> tuple[Any, ...]:
    return episodes, state.key, state.step, np.int32(time)


@dispatched
def _deciding(fixed: tuple[Loop, PyTree[Array]], given: tuple[Any, ...]) -> Decision:
    (loop, agent), (episodes, key, step, time) = fixed, given
    local = lambda actor, episodes, key, indices: decide(
        loop.env, actor, episodes.state, episodes.carry, move_keys(key, time, indices)[0]
    )
    actor, akey = loop.agent.actor(agent, explore=True), step_keys(key, step)[0]
    return acting(loop, local, actor, episodes, akey)


@dispatched
def _writing(
    fixed: tuple[Loop, PyTree[Array]],
    given: tuple[Episodes, tuple[PyTree[Array], Transition], Bool[Array, " envs"]],
    decision: Decision,
) -> tuple[Episodes, tuple[Experience, Totals]]:
    loop, agent = fixed

    def local(actor: AbstractActor, parts: Any, _: None, indices: Array) -> Any:
        del indices
        episodes, (state, transition), cut, decision = parts
        return written(loop.env, actor, episodes, decision, state, transition, cut)

    return acting(loop, local, loop.agent.actor(agent, explore=True), (*given, decision), None)


def blank_rows(
    loop: Loop,
    actor: AbstractActor,
    episodes: Episodes,
    indices: Int[Array, " envs"],
    key: PRNGKeyArray,
) -> Experience:
    """Rows `[envs, time]` of the shapes of those that are collected."""
    keys = row_keys(key, indices)
    decision = decide(loop.env, actor, episodes.state, episodes.carry, keys)
    moved = _still(episodes.state, loop.num_envs)
    parts = decision, moved.state, moved.transition(), episodes.ended
    row = written(loop.env, actor, episodes, *parts)[1][0]
    return jax.tree.map(lambda x: jnp.stack([x] * loop.unroll_length, axis=1), row)


@contextlib.contextmanager
def _kept(loop: Loop, worlds: AbstractWorlds) -> Iterator[np.int32]:
    """A new number, which these simulators have afterwards. Where an error ends it, they are
    closed."""
    # It is none of another process either, whose state may be restored here.
    number = np.int32(secrets.randbits(31))
    try:
        yield number
    except BaseException:
        worlds.close()
        raise
    _LIVE[int(number)] = loop.env, worlds


def _at(numbers: Int[np.ndarray, " envs"]) -> tuple[AbstractEnvironment, AbstractWorlds] | None:
    """Takes out the simulators of a number, if all rows have the same and there are any."""
    return _LIVE.pop(int(numbers[0]), None) if (numbers == numbers[0]).all() else None


def _opened(loop: Loop, state: LoopState) -> AbstractWorlds:
    """New simulators for a state."""
    key = jr.fold_in(step_keys(state.key, state.step)[0], _OPENING)
    return opened(loop.env, loop.num_envs, key)


def _still(state: PyTree, rows: int) -> HostStep:
    """A step in which nothing happens but that all begin anew."""
    zeros = np.zeros(rows, np.float32)
    return HostStep(state, zeros, zeros, np.zeros(rows, np.bool_))
