"""Acting in a batch of environments and writing down what happened."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment, Fallible, Transition

from ._actor import AbstractActor
from ._experience import Experience
from ._faults import check_faults, faults
from ._rows import row_keys, select_rows, split_rows


class Actors(eqx.Module):
    """Environments being acted in, between two calls of [`zero_train.collect`][].

    **Attributes:**

    - `state`: the environments' states.
    - `carry`: the actor's carry.
    - `ended`: the state is final; the next row will say so and reset.
    - `failures`: episodes that were cut short because the simulation broke down; `None` where it
        cannot, which only a [`zero_envs.Fallible`][] environment's can.
    """

    state: PyTree[Array]
    carry: PyTree[Array]
    ended: Bool[Array, " envs"]
    failures: Int[Array, " envs"] | None = None


def start(env: AbstractEnvironment, actor: AbstractActor, *, keys: Key[Array, " envs"]) -> Actors:
    """Fresh environments, one a key."""
    state = jax.vmap(lambda key: env.init(key=key))(keys)
    failures = jnp.zeros(keys.shape, jnp.int32) if isinstance(env, Fallible) else None
    return Actors(state, actor.init(state), jnp.zeros(keys.shape, bool), failures)


def collect(
    env: AbstractEnvironment,
    actor: AbstractActor,
    actors: Actors,
    *,
    rows: Int[Array, " envs"],
    key: PRNGKeyArray,
    num_steps: int,
) -> tuple[Actors, Experience]:
    """Acts `num_steps` times in every environment, resetting the finished ones.

    Every step writes one row an environment: an ordinary one, or, after a transition with
    `last`, the true final observation (`Experience.last`), whereupon the environment restarts
    with fresh randomness. The observation is always the one *before* the action.

    Where the simulation breaks down (a [`zero_envs.Fallible`][] environment) there is no such step:
    the row before it becomes the final one of a truncated episode, which restarts, and is counted.

    **Arguments:**

    - `rows`: global index of each environment, from which its randomness derives.
    - `key`: consumed; a new one for every call.
    - `num_steps`: rows to write for each environment.

    **Returns:** the environments, and [`zero_train.Experience`][] of `[envs, time]`.

    **Raises:** `ValueError` where an actor's action is NaN or out of the environment's range, a
    reward is not finite or a discount is not between -1 and 1. Under `jax.jit` the reward of such
    a row is NaN instead, so that no update that meets it is finite.
    """

    def body(actors: Actors, time: Array) -> tuple[Actors, Experience]:
        keys = row_keys(jr.fold_in(key, time), rows)
        akeys, skeys, ikeys = split_rows(keys, 3)
        obs = jax.vmap(env.observe)(actors.state)
        action, record, carry = actor.act(actors.state, obs, actors.carry, key=akeys)
        step = jax.vmap(lambda state, action, key: env.step(state, action, key=key))
        next_state, transition = step(actors.state, action, skeys)

        ended, failures = actors.ended, actors.failures
        if isinstance(env, Fallible) and failures is not None:
            failed = jax.vmap(env.failed)(next_state) & ~ended
            ended = ended | failed
            failures = failures + failed.astype(jnp.int32)
        # Resetting is rare and may be dear, so it only runs where some row needs it.
        next_state = jax.lax.cond(
            jnp.any(ended),
            lambda: select_rows(ended, jax.vmap(lambda key: env.init(key=key))(ikeys), next_state),
            lambda: next_state,
        )
        zero = jnp.zeros_like(transition.reward)
        fault = faults(env, action, transition)
        reward = jnp.where(fault > 0, jnp.nan, transition.reward)
        reward = jnp.where(ended, zero, reward)
        discount = jnp.where(ended, zero, transition.discount)
        row = Experience(obs, action, reward, discount, ended, record)
        heard = Transition(reward, discount, transition.last | ended)
        carry = actor.advance(carry, action, next_state, heard)
        return Actors(next_state, carry, transition.last & ~ended, failures), row

    actors, experience = jax.lax.scan(body, actors, jnp.arange(num_steps, dtype=jnp.int32))
    experience = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), experience)
    _check("collect", env, experience)
    return actors, experience


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
    """Acts in `num_envs` fresh environments for `num_steps` rows each, with auto-reset.

    **Returns:** [`zero_train.Experience`][] of `[envs, time]`; see [`zero_train.collect`][].

    **Raises:** `ValueError` as [`zero_train.collect`][] does.
    """
    experience = _rollout(env, actor, num_steps, num_envs, key)
    _check("rollout", env, experience)
    return experience


@eqx.filter_jit
def _rollout(
    env: AbstractEnvironment,
    actor: AbstractActor,
    num_steps: int,
    num_envs: int,
    key: PRNGKeyArray,
) -> Experience:
    ikey, ckey = jr.split(key)
    rows = jnp.arange(num_envs, dtype=jnp.int32)
    actors = start(env, actor, keys=row_keys(ikey, rows))
    return collect(env, actor, actors, rows=rows, key=ckey, num_steps=num_steps)[1]
