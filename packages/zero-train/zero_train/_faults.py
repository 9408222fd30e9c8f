"""Moves that no game allows. Compiled code cannot raise, so they are marked there, and whoever
looks at the results raises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from zero_envs import (
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    Transition,
)


#: What can be wrong, by number; 0 is nothing.
ACTION, TRANSITION, ALONE = 1, 2, 3

_MESSAGES = {
    ACTION: "an action was NaN or out of the environment's range ({what}). The actors without a "
    "search play -1 where their policy is NaN: look at the network's parameters and at the actor.",
    TRANSITION: "a reward was not finite or a discount not between -1 and 1 ({what}): look at the "
    "environment with `zero_envs.testing.check_environment`.",
    ALONE: "the move never passed to an opponent ({what}), because no discount was negative: give "
    "a game of two players, or let an actor play this one with `evaluate`.",
}


def faults(
    env: AbstractEnvironment | None,
    action: PyTree[Array],
    reward: Float[Array, "*axes"],
    discount: Float[Array, "*axes"],
) -> Int[Array, "*axes"]:
    """What is wrong with each move, by number.

    Any integer that is not negative is an action of an unknown environment. Continuous actions
    have to be finite; environments clip them.
    """
    bound: Any = np.int32(np.iinfo(np.int32).max)
    if isinstance(env, AbstractDiscreteEnvironment):
        bound = env.num_actions
    elif isinstance(env, AbstractFactoredEnvironment):
        bound = np.asarray(env.num_values, np.int32)

    def playable(x: Array) -> Bool[Array, "*axes"]:
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        good = jnp.isfinite(x) if is_float else (x >= 0) & (x < bound)
        return jnp.all(good, axis=tuple(range(reward.ndim, good.ndim)))

    known = jnp.isfinite(reward) & (jnp.abs(discount) <= 1)
    fault = jnp.where(known, 0, TRANSITION)
    for leaf in jax.tree.leaves(action):
        fault = jnp.where(playable(leaf), fault, ACTION)
    return fault.astype(jnp.int32)


def move_faults(
    actor: str,
    action: PyTree[Array],
    transition: Transition,
    env: AbstractEnvironment | None = None,
) -> Int[Array, " batch"]:
    """What is wrong with the moves that an actor hears of; raises where that is known.

    A row with `last` starts anew in any case, and its action may be filler.
    """
    fault = faults(env, action, transition.reward, transition.discount)
    fault = jnp.where(transition.last, 0, fault)
    check_faults(f"{actor}.advance", fault)
    return fault


def check_faults(call: str, fault: Int[Array, "*axes"], rows: str = "rows") -> None:
    """Raises a `ValueError` of one line, unless nothing is wrong or `jax.jit` is tracing."""
    if isinstance(fault, Tracer):
        return
    numbers = np.asarray(fault)
    for number, message in _MESSAGES.items():
        if count := int((numbers == number).sum()):
            what = f"{count} of {numbers.size} {rows}"
            raise ValueError(f"{call}: {message.format(what=what)}")
