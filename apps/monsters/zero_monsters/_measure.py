"""Measures a player: returns of rollouts, win rates, regret and speed."""

import functools as ft
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray

from zero_envs import Monsters, MonstersState, Transition
from zero_train import AbstractActor

from ._planners import GAMMA
from .oracle import MonstersOracle


#: The number of steps of a rollout. A new episode starts after every end.
NUM_STEPS = 32
_ROLLOUTS_AT_ONCE = 250


def measure(
    env: Monsters, oracle: MonstersOracle, actor: AbstractActor, *, rollouts: int, key: PRNGKeyArray
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Plays `rollouts` rollouts, at least 2. Rollout `i` depends only on `key` and `i`.

    **Returns:** `rollouts`; `return_mean` and `return_se`, the mean sum of rewards in a rollout and
    its standard error; `win_rate` and `loss_rate`, the fractions of rollouts whose first episode is
    won, and lost; `regret_mean`, the mean difference, in discounted value, between the best action
    and the chosen one; and `moves_per_second` of many parallel rollouts, without compilation.
    Beside these, of every rollout its `return`, and whether its first episode is `won` and `lost`.
    """
    rows, size = np.arange(rollouts, dtype=np.int32), min(rollouts, _ROLLOUTS_AT_ONCE)
    # The last chunk is filled up with the first rollouts, so that one compiled program plays all.
    chunks = np.resize(rows, (-(-rollouts // size), size))
    played, seconds = [], []
    # The first call compiles, so the first chunk is played again for its time.
    for chunk in (*chunks, chunks[0]):
        start = time.perf_counter()
        played.append(jax.block_until_ready(_play(env, actor, jnp.asarray(chunk), key)))
        seconds.append(time.perf_counter() - start)

    state, action, transition = jax.tree.map(
        lambda *parts: np.concatenate(parts, axis=1)[:, :rollouts], *played[:-1]
    )
    returns = transition.reward.sum(axis=0, dtype=np.float64)
    ended = transition.last.any(axis=0)
    first = transition.reward[np.argmax(transition.last, axis=0), rows]
    won, lost = ended & (first > 0), ended & (first < 0)
    decisions = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), state)
    regret = oracle.regret(decisions, action.reshape(-1), gamma=GAMMA)
    row = {
        "rollouts": rollouts,
        "return_mean": float(returns.mean()),
        "return_se": float(returns.std(ddof=1) / math.sqrt(rollouts)),
        "win_rate": float(np.mean(won)),
        "loss_rate": float(np.mean(lost)),
        "regret_mean": float(regret.mean()),
        "moves_per_second": size * len(chunks) * NUM_STEPS / sum(seconds[1:]),
    }
    return row, {"return": returns, "won": won.astype(np.int32), "lost": lost.astype(np.int32)}


@eqx.filter_jit
def _play(
    env: Monsters, actor: AbstractActor, rows: Int[Array, " rows"], key: PRNGKeyArray
) -> tuple[MonstersState, Int[Array, "steps rows"], Transition]:
    """The states, actions and transitions, `[steps, rows]`."""

    def keys(consumer: int, step: Int[Array, ""] | int) -> Key[Array, " rows"]:
        mine = jr.fold_in(jr.fold_in(key, consumer), step)
        return jax.vmap(jr.fold_in, in_axes=(None, 0))(mine, rows)

    choose = jax.vmap(lambda last, *states: jax.tree.map(ft.partial(jnp.where, last), *states))

    # `zero_train.rollout` adds a row for every final state, which would count as a step.
    def body(carry, step):
        state, memory = carry
        obs = jax.vmap(env.observe)(state)
        action, _, memory = actor.act(state, obs, memory, key=keys(0, step))
        after, transition = jax.vmap(env.step)(state, action, key=keys(1, step))
        fresh = jax.vmap(env.init)(key=keys(2, step + 1))
        after = choose(transition.last, fresh, after)
        memory = actor.advance(memory, action, transition)
        return (after, memory), (state, action, transition)

    state = jax.vmap(env.init)(key=keys(2, 0))
    steps = jnp.arange(NUM_STEPS, dtype=jnp.int32)
    return jax.lax.scan(body, (state, actor.init(state)), steps)[1]
