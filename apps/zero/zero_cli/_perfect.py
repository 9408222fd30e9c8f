"""Opponents of any game: the perfect player of a small one or of Connect Four, and UCT."""

from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PyTree

import zero_app
from zero_app import UsageError
from zero_envs import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    Observation,
    PgxEnvironment,
)
from zero_train import AbstractActor, PolicyActor


#: The most positions that a game may have.
POSITIONS = 20_000
# Moves that are made together.
_MOVES = 4096


def perfect(env: AbstractEnvironment) -> AbstractActor:
    """The player that draws one of the best moves of each position. It looks at all positions
    first, `POSITIONS` at most, of a game without chance or hidden parts; Connect Four is solved
    while it is played.

    **Raises:** [`zero_app.UsageError`][] for any other game.
    """
    assert isinstance(env, AbstractDiscreteEnvironment)  # no agent plays another one for two
    if _is_connect_four(env):
        from ._connect_four import player, Solver

        return player(Solver())
    states = jax.vmap(env.init)(key=jr.split(jr.key(0), 16))
    first = np.asarray(_numbers(jax.vmap(env.observe)(states)))
    if env.hidden or isinstance(env, AbstractChanceEnvironment) or (first != first[0]).any():
        raise _refused("with chance or hidden parts")
    # A position is known by what is observed there, and positions are numbered as they are found.
    numbers, seen = {first[0].tobytes(): 0}, [first[0]]
    rewards, discounts, children = ([] for _ in range(3))
    new = [jax.tree.map(lambda x: np.asarray(x[0]), states)]
    size = max(1, _MOVES // env.num_actions)
    while new:
        group, new = new[:size], new[size:]
        filled = group + group[:1] * (size - len(group))  # so that one program fits all groups
        stacked = jax.tree.map(lambda *x: np.stack(x), *filled)
        legal, moved, after, observed, certain = jax.device_get(_moves(env, stacked))
        if (legal & ~certain).any():
            raise _refused("with chance or hidden parts")
        goes_on = legal & ~moved.last
        child = np.zeros(legal.shape, int)
        for i, action in np.argwhere(goes_on[: len(group)]):
            found = numbers.setdefault(observed[i, action].tobytes(), len(numbers))
            child[i, action] = found
            if found == len(seen):
                seen.append(observed[i, action])
                new.append(jax.tree.map(lambda x, place=(i, action): x[place], after))
        if len(seen) > POSITIONS:
            raise _refused(f"of more than {POSITIONS} positions")
        rewards.append(np.where(legal, moved.reward, -np.inf)[: len(group)])
        discounts.append(np.where(goes_on, moved.discount, 0.0)[: len(group)])
        children.append(child[: len(group)])

    reward, discount, child = (np.concatenate(x) for x in (rewards, discounts, children))
    values, returns = np.zeros(len(seen)), reward
    for _ in seen:  # no line of play is longer, unless positions repeat
        before, returns = values, reward + discount * values[child]
        values = returns.max(axis=1)
        if (values == before).all():
            break
    logits = np.where(returns == values[:, None], 0.0, -1e9)
    table = (jnp.asarray(x, jnp.float32) for x in (np.stack(seen), logits, values))
    return PolicyActor(jax.tree_util.Partial(_looked_up, *table), temperature=1.0)


def uct(env: AbstractEnvironment, *, num_playouts: int) -> AbstractActor:
    """[`zero_app.uct`][], which plays Connect Four on the host if the extra `judges` is installed,
    as that takes a tenth of the time."""
    if _is_connect_four(env) and find_spec("numba") is not None:
        from ._connect_four import uct

        return uct(num_playouts)
    assert isinstance(env, AbstractDiscreteEnvironment)  # no agent plays another one for two
    return zero_app.uct(env, num_playouts=num_playouts)


def _is_connect_four(env: AbstractEnvironment) -> bool:
    return isinstance(env, PgxEnvironment) and env.game.id == "connect_four"


@eqx.filter_jit
def _moves(env: AbstractDiscreteEnvironment, states: PyTree[Array]) -> tuple[Any, ...]:
    """All actions of each state: which are legal, what each of them leads to and what is observed
    there, and whether that is the same with other random numbers."""
    actions = jnp.arange(env.num_actions, dtype=jnp.int32)

    def made(seed: int) -> tuple[Any, Any, Array]:
        key = jr.key(seed)
        step = lambda state: jax.vmap(lambda action: env.step(state, action, key=key))(actions)
        after, moved = jax.vmap(step)(states)
        return after, moved, _numbers(jax.vmap(jax.vmap(env.observe))(after), axes=2)

    after, moved, observed = made(0)
    _, again, other = made(1)
    certain = jnp.all(observed == other, axis=-1) & (moved.reward == again.reward)
    certain &= moved.discount == again.discount
    return jax.vmap(env.observe)(states).legal, moved, after, observed, certain


def _numbers(obs: Observation, axes: int = 1) -> Float[Array, "*axes numbers"]:
    """All numbers of the features of observations with so many axes in front."""
    leaves = jax.tree.leaves(obs.features)
    flat = [x.reshape(*x.shape[:axes], -1).astype(jnp.float32) for x in leaves]
    return jnp.concatenate(flat, axis=axes)


def _looked_up(
    seen: Float[Array, "positions numbers"],
    logits: Float[Array, "positions actions"],
    values: Float[Array, " positions"],
    obs: Observation,
) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
    place = jnp.argmax(jnp.all(seen == _numbers(obs, axes=0)[None], axis=1))
    return logits[place], values[place]


def _refused(what: str) -> UsageError:
    return UsageError(
        f"--opponent perfect plays no game {what}; give random, or another trained player."
    )
