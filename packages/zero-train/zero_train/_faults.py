"""Moves that no game allows. Compiled code cannot raise, so it marks them with a number, and the
functions that return or read the results raise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PyTree

from zero_envs import (
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    Transition,
)

from ._experience import Experience


#: The numbers of what can be wrong. 0 means that nothing is.
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
    move: Transition | Experience,
) -> Int[Array, "*axes"]:
    """The number of what is wrong with each move, of any leading axes.

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
        return jnp.all(good, axis=tuple(range(move.reward.ndim, good.ndim)))

    known = jnp.isfinite(move.reward) & (jnp.abs(move.discount) <= 1)
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
    """The number of what is wrong with each move that an actor hears of. Raises outside of jit.

    A row with `last` starts anew in any case, and its action may be filler.
    """
    fault = faults(env, action, transition)
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
