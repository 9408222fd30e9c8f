"""The perfect player of a small game."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PyTree

from zero_app import UsageError
from zero_envs import AbstractDiscreteEnvironment, AbstractEnvironment, Observation
from zero_train import PolicyActor


#: The most positions that a game may have.
POSITIONS = 20_000
# Positions whose moves are made together.
_ROWS = 512


def perfect(env: AbstractEnvironment) -> PolicyActor:
    """The player that draws one of the best moves of each position. It looks at all positions
    first, `POSITIONS` at most, of a game without chance or hidden parts.

    **Raises:** [`zero_app.UsageError`][] for any other game.
    """
    states = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(0), 16))
    first = np.asarray(_numbers(jax.vmap(env.observe)(states)))
    if env.hidden or (first != first[0]).any():
        raise _refused("with chance or hidden parts")

    assert isinstance(env, AbstractDiscreteEnvironment)  # no agent plays another one for two
    # A position is known by what is observed there, and positions are numbered as they are found.
    numbers = {first[0].tobytes(): 0}
    seen, rows = [first[0]], list[np.ndarray]()
    new = [jax.tree.map(lambda x: np.asarray(x[0]), states)]
    while new:
        group, new = new[:_ROWS], new[_ROWS:]
        filled = group + group[:1] * (_ROWS - len(group))  # so that one program fits all groups
        stacked = jax.tree.map(lambda *x: np.stack(x), *filled)
        legal, reward, discount, over, after, observed = jax.device_get(_moves(env, stacked))
        row = np.stack([np.where(legal, reward, -np.inf), np.where(over, 0, discount), 0 * reward])
        for i, action in np.argwhere(legal[: len(group)] & ~over[: len(group)]):
            found = numbers.setdefault(observed[i, action].tobytes(), len(numbers))
            row[2, i, action] = found
            if found == len(seen):
                seen.append(observed[i, action])
                new.append(jax.tree.map(lambda x, place=(i, action): x[place], after))
        if len(seen) > POSITIONS:
            raise _refused(f"of more than {POSITIONS} positions")
        rows.append(row[:, : len(group)])

    reward, discount, child = np.concatenate(rows, axis=1)
    values, settled = np.zeros(len(seen)), False
    returns = reward
    while not settled:
        returns = reward + discount * values[child.astype(int)]
        settled = bool((returns.max(axis=1) == values).all())
        values = returns.max(axis=1)
    logits = np.where(returns == values[:, None], 0.0, -1e9)
    table = (jnp.asarray(x, jnp.float32) for x in (np.stack(seen), logits, values))
    return PolicyActor(jax.tree_util.Partial(_looked_up, *table), temperature=1.0)


@jax.jit(static_argnums=0)
def _moves(env: AbstractDiscreteEnvironment, states: PyTree[Array]) -> tuple[Any, ...]:
    """All actions of each state: which are legal, and what each of them leads to."""
    actions, key = jnp.arange(env.num_actions, dtype=jnp.int32), jr.key(0)
    step = lambda state: jax.vmap(lambda action: env.step(state, action, key=key))(actions)
    after, moved = jax.vmap(step)(states)
    observed = _numbers(jax.vmap(jax.vmap(env.observe))(after), axes=2)
    legal = jax.vmap(env.observe)(states).legal
    return legal, moved.reward, moved.discount, moved.last, after, observed


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
