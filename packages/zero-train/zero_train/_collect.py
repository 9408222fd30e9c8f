"""Acting in a batch of environments and writing down what happened."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment, Fallible, Hosted, Observation, Transition

from ._actors import RandomActor
from ._agent import AbstractActor, Experience
from ._checks import check_count
from ._dispatch import plain
from ._evaluation import check_parts, decide, Decision
from ._faults import check_faults, faults
from ._mesh import row_keys, select_rows, split_rows
from ._processes import to_writer


class Totals(eqx.Module):
    """The rewards and steps of episodes: the undiscounted sum of rewards, from the view of whoever
    moved first (with one player: the return), and the number of steps. Both are 0 where no episode
    ended, and do not count the random actions with which one may begin."""

    returns: Float[Array, "*rows"]
    lengths: Int[Array, "*rows"]


class Episodes(eqx.Module):
    """The running episodes of a batch of environments, between two calls of
    [`zero_train.collect`][].

    **Attributes:**

    - `ended`: the state is final; the next row will say so and reset.
    - `sign`: +1 where whoever moved first in the episode moves next, -1 elsewhere.
    - `so_far`: the rewards and steps of the running episodes.
    - `finished`: the episodes that ended in the rows `[envs, time]` of the last call, each at its
        final row. Those cut short because the simulation broke down are left out.
        [`zero_train.episode_metrics`][] summarises them.
    - `failures`: episodes that were cut short because the simulation broke down; `None` unless the
        environment is [`zero_envs.Fallible`][].
    - `worlds`: a number of the simulators that are at this state, the same in each row; `None`
        unless the environment is [`zero_envs.Hosted`][].
    """

    state: PyTree[Array]
    carry: PyTree[Array]
    ended: Bool[Array, " envs"]
    sign: Float[Array, " envs"]
    so_far: Totals
    finished: Totals
    failures: Int[Array, " envs"] | None = None
    worlds: Int[Array, " envs"] | None = None


def start(
    env: AbstractEnvironment,
    actor: AbstractActor,
    *,
    keys: Key[Array, " envs"],
    num_steps: int = 0,
    opening_plies: int = 0,
) -> Episodes:
    """Fresh environments, one a key. With the `num_steps` of the collections to come, the episodes
    have the same shapes before and after them. `opening_plies` is as for [`zero_train.collect`][].
    """
    state = begin(env, keys, opening_plies)
    rows = (*keys.shape, num_steps)
    zeros = jnp.zeros(keys.shape, jnp.int32)
    return Episodes(
        state=state,
        carry=actor.init(state),
        ended=jnp.zeros(keys.shape, bool),
        sign=jnp.ones(keys.shape, jnp.float32),
        so_far=Totals(jnp.zeros(keys.shape, jnp.float32), zeros),
        finished=Totals(jnp.zeros(rows, jnp.float32), jnp.zeros(rows, jnp.int32)),
        failures=zeros if isinstance(env, Fallible) else None,
        worlds=zeros if isinstance(env, Hosted) else None,
    )


def episode_metrics(episodes: Episodes) -> dict[str, float]:
    """The episodes that ended in the last collection, as numbers to log: `episode_count`,
    `episode_return_mean`, `_min`, `_median` and `_max`, and the same of `episode_length`. Empty
    where none ended.

    In a game of two players the return is that of whoever moved first.

    With more than one process, all of them must call it after every collection, or none. The first
    one, which logs, returns the numbers of the episodes of all; the others return none. Nothing is
    compiled and no device takes part: what ended goes by the service that connected the processes.
    """
    finished = episodes.finished
    ended = np.stack([_here(finished.returns), _here(finished.lengths)], axis=-1, dtype=np.float64)
    ended = ended[(ended[..., 1] > 0) & ~np.isnan(ended[..., 0])]
    if not getattr(finished.returns, "is_fully_addressable", True):  # on several hosts
        ended = np.frombuffer(b"".join(to_writer("episode_metrics", ended.tobytes())))
    if not ended.size:
        return {}
    summaries = {"mean": np.mean, "min": np.min, "median": np.median, "max": np.max}
    returns, lengths = ended.reshape(-1, 2).T
    return {"episode_count": returns.size} | {
        f"episode_{name}_{summary}": float(compute(x))
        for name, x in (("return", returns), ("length", lengths))
        for summary, compute in summaries.items()
    }


def _here(rows: Array | np.ndarray) -> np.ndarray:
    """The rows of this process, in the order of the whole."""
    if isinstance(rows, np.ndarray) or rows.is_fully_addressable:
        return np.asarray(rows)
    shards = sorted(rows.addressable_shards, key=lambda shard: shard.index[0].start)
    return np.concatenate([shard.data for shard in shards])


def collect(
    env: AbstractEnvironment,
    actor: AbstractActor,
    episodes: Episodes,
    *,
    indices: Int[Array, " envs"],
    key: PRNGKeyArray,
    num_steps: int,
    opening_plies: int = 0,
) -> tuple[Episodes, Experience]:
    """Acts `num_steps` times in every environment, resetting the finished ones.

    Every step writes one row an environment: an ordinary one, or, after a transition with
    `last`, the true final observation (`Experience.last`), whereupon the environment restarts
    with fresh randomness. The observation is always the one *before* the action.

    Where the simulation breaks down (a [`zero_envs.Fallible`][] environment) there is no such step:
    the row before it becomes the final one of a truncated episode, which restarts, and is counted.

    Every episode begins after a number of uniformly random actions, drawn from 0 to
    `opening_plies`, or fewer where the next one would end it. They are not written, and an actor
    with a memory does not hear of them. They need discrete actions.

    The randomness of an environment derives from its global index, in `indices`. Under `jax.jit`
    the reward of a wrong move is NaN, so that no update that meets it is finite.
    """

    def body(episodes: Episodes, time: Array) -> tuple[Episodes, tuple[Experience, Totals]]:
        akeys, skeys, ikeys = move_keys(key, time, indices)
        decision = decide(env, actor, episodes.state, episodes.carry, akeys)
        next_state, transition = jax.vmap(env.step)(episodes.state, decision.action, key=skeys)
        cut = jnp.zeros_like(episodes.ended)
        if isinstance(env, Fallible):
            cut = jax.vmap(env.failed)(next_state)
        # Resetting is rare and may be dear, so it only runs where some row needs it. Its keys go in
        # as bits: under `jax.vmap` a cond reads its operands twice, which would be reuse of keys.
        anew, bits = episodes.ended | cut, jr.key_data(ikeys)
        fresh = lambda: begin(env, jr.wrap_key_data(bits, impl=jr.key_impl(ikeys)), opening_plies)
        next_state = jax.lax.cond(
            jnp.any(anew), lambda: select_rows(anew, fresh(), next_state), lambda: next_state
        )
        return written(env, actor, episodes, decision, next_state, transition, cut)

    times = jnp.arange(num_steps, dtype=jnp.int32)
    episodes, rows = jax.lax.scan(body, episodes, times)
    experience, finished = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    _check("collect", env, experience)
    return dataclasses.replace(episodes, finished=finished), experience


def move_keys(
    key: PRNGKeyArray, time: Array, indices: Int[Array, " envs"]
) -> tuple[Key[Array, " envs"], ...]:
    """The keys of each environment at a time: to act, to step and to begin anew."""
    return split_rows(row_keys(jr.fold_in(key, time), indices), 3)


def written(
    env: AbstractEnvironment,
    actor: AbstractActor,
    episodes: Episodes,
    decision: Decision,
    next_state: PyTree[Array],
    transition: Transition,
    cut: Bool[Array, " envs"],
) -> tuple[Episodes, tuple[Experience, Totals]]:
    """What comes after the step of the environments: the episodes, and the row that is written,
    with the totals of the episodes that end in it.

    **Arguments:**

    - `next_state`: a fresh one where the row is a final one, and in the rows to `cut`.
    - `cut`: the row is the final one of an episode that was cut short.
    """
    action, failures, so_far = decision.action, episodes.failures, episodes.so_far
    ended = episodes.ended
    finished = Totals(jnp.where(ended, so_far.returns, 0.0), jnp.where(ended, so_far.lengths, 0))
    if failures is not None:
        failures = failures + (cut & ~ended).astype(jnp.int32)
    ended = ended | cut
    zero = jnp.zeros_like(transition.reward)
    fault = faults(env, action, transition)
    reward = jnp.where(fault > 0, jnp.nan, transition.reward)
    reward = jnp.where(ended, zero, reward)
    discount = jnp.where(ended, zero, transition.discount)
    row = Experience(decision.obs, action, reward, discount, ended, decision.record)
    heard = Transition(reward, discount, transition.last | ended)
    carry = actor.advance(decision.carry, action, heard)
    sign, length = episodes.sign, so_far.lengths
    value = so_far.returns + sign * reward.astype(jnp.float32)
    after = dataclasses.replace(
        episodes,
        state=next_state,
        carry=carry,
        ended=transition.last & ~ended,
        sign=jnp.where(ended, 1.0, jnp.where(discount < 0, -sign, sign)),
        so_far=Totals(jnp.where(ended, 0.0, value), jnp.where(ended, 0, length + 1)),
        failures=failures,
    )
    return after, (row, finished)


def _check(call: str, env: AbstractEnvironment, rows: Experience) -> None:
    if not isinstance(rows.reward, Tracer):
        check_faults(call, jnp.where(rows.last, 0, faults(env, rows.action, rows)))


def rollout(
    env: AbstractEnvironment,
    actor: AbstractActor,
    *,
    num_steps: int,
    num_envs: int,
    key: PRNGKeyArray,
) -> Experience:
    """Acts in `num_envs` fresh environments for `num_steps` rows each, with auto-reset. See
    [`zero_train.collect`][]."""
    check_parts("rollout", env, actor=actor)
    check_count("rollout", num_steps=num_steps, num_envs=num_envs)
    experience = _rollout(*plain((env, actor, num_steps, num_envs)), key)
    _check("rollout", env, experience)
    return experience


@eqx.filter_jit
def _rollout(
    env: AbstractEnvironment, actor: AbstractActor, num_steps: int, num_envs: int, key: PRNGKeyArray
) -> Experience:
    ikey, ckey = jr.split(key)
    indices = jnp.arange(num_envs, dtype=jnp.int32)
    episodes = start(env, actor, keys=row_keys(ikey, indices))
    return collect(env, actor, episodes, indices=indices, key=ckey, num_steps=num_steps)[1]


def begin(env: AbstractEnvironment, keys: Key[Array, " rows"], opening_plies: int) -> PyTree[Array]:
    """Fresh states, one a key, each after a number of random moves drawn from 0 to
    `opening_plies`."""
    if opening_plies == 0:
        return jax.vmap(env.init)(key=keys)
    nkeys, okeys = split_rows(keys, 2)
    plies = jax.vmap(lambda key: jr.randint(key, (), 0, opening_plies + 1))(nkeys)
    return opened(env, okeys, plies, opening_plies)[0]


def opened(
    env: AbstractEnvironment, keys: Key[Array, " rows"], plies: Int[Array, " rows"], most_plies: int
) -> tuple[PyTree[Array], Bool[Array, " rows"]]:
    """Fresh states, each after its own number of random moves, `plies`, at most `most_plies`.

    **Returns:** the states, none of them final, and which openings were cut short, each before a
    move that would have ended the episode.
    """
    ikeys, pkeys = split_rows(keys, 2)

    def ply(i: Array, loop: tuple) -> tuple:
        state, ended = loop
        akeys, skeys = split_rows(jax.vmap(jr.fold_in, (0, None))(pkeys, i), 2)
        obs: Observation = jax.vmap(env.observe)(state)
        action, _, _ = RandomActor().act(state, obs, None, key=akeys)
        next_state, transition = jax.vmap(env.step)(state, action, key=skeys)
        ended = ended | (transition.last & (i < plies))
        return select_rows(ended | (i >= plies), state, next_state), ended

    state = jax.vmap(env.init)(key=ikeys)
    return jax.lax.fori_loop(0, most_plies, ply, (state, jnp.zeros(keys.shape, bool)))
