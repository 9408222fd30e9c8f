"""Checks of moves. Compiled code cannot raise, so it marks a wrong move with a number, and the
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

from ._agent import Experience


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
    env: AbstractEnvironment | None, action: PyTree[Array], move: Transition | Experience
) -> Int[Array, "*axes"]:
    """The number of what is wrong with each move, 0 if nothing is. Any leading axes.

    Without an environment, and where actions are continuous, floating-point numbers have to be
    finite and integers must not be negative. Environments clip continuous actions.
    """
    bound: Any = None
    if isinstance(env, AbstractDiscreteEnvironment):
        bound = env.num_actions
    elif isinstance(env, AbstractFactoredEnvironment):
        bound = np.asarray(env.num_values, np.int32)

    def playable(x: Array) -> Bool[Array, "*axes"]:
        if bound is not None:
            good = (x >= 0) & (x < bound)
        else:
            good = jnp.isfinite(x) if jnp.issubdtype(x.dtype, jnp.floating) else x >= 0
        return jnp.all(good, axis=tuple(range(move.reward.ndim, good.ndim)))

    known = jnp.isfinite(move.reward) & (jnp.abs(move.discount) <= 1)
    fault = jnp.where(known, 0, TRANSITION)
    for leaf in jax.tree.leaves(action):
        fault = jnp.where(playable(leaf), fault, ACTION)
    return fault.astype(jnp.int32)


def move_faults(actor: str, action: PyTree[Array], transition: Transition) -> Int[Array, " batch"]:
    """The number of what is wrong with each move that an actor is told of. Raises outside of jit.

    A row with `last` starts anew in any case, and its action may be filler.
    """
    fault = faults(None, action, transition)
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
