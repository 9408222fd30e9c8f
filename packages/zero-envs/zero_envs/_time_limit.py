"""Cutting episodes off after a number of steps."""

from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ._environment import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractHiddenEnvironment,
    Fallible,
    Observation,
    State,
    Transition,
)


class TimeLimitState(eqx.Module, Generic[State]):
    """The wrapped environment's state and how many steps were taken; all of them once final."""

    inner: State
    steps: Int[Array, ""]


class TimeLimit(AbstractDiscreteEnvironment[TimeLimitState[State]], Generic[State]):
    """Truncates the episodes of `env` after `max_steps` steps.

    The step that reaches the limit has `last` and keeps the discount `env` gave it, so the value of
    what comes next is still bootstrapped. An episode that ends by itself there has discount 0. The
    player does not see how many steps are left. Hidden, chance and fallible environments are
    refused: without their `resample`, `outcome_logits` or `failed` the result could do less than
    what it wraps.
    """

    env: AbstractDiscreteEnvironment[State]
    max_steps: int
    num_actions: int
    hidden: bool

    def __init__(self, env: AbstractDiscreteEnvironment[State], max_steps: int):
        if max_steps < 1:
            raise ValueError(f"TimeLimit(max_steps={max_steps}): an episode has at least 1 step.")
        self.env = env
        self.max_steps = max_steps
        self.num_actions = env.num_actions
        self.hidden = env.hidden

    def __check_init__(self):
        if isinstance(self.env, AbstractHiddenEnvironment | AbstractChanceEnvironment | Fallible):
            raise ValueError(
                f"TimeLimit({type(self.env).__name__}): an environment that has `resample`, "
                "`outcome_logits` or `failed` would lose them; count the steps in its own state."
            )

    def init(self, *, key: PRNGKeyArray) -> TimeLimitState[State]:
        """A fresh episode with all its steps to go."""
        return TimeLimitState(self.env.init(key=key), jnp.zeros((), jnp.int32))

    def step(
        self, state: TimeLimitState[State], action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[TimeLimitState[State], Transition]:
        """Steps the wrapped environment."""
        over = state.steps >= self.max_steps
        inner, transition = self.env.step(state.inner, action, key=key)
        inner = jax.tree.map(lambda old, new: jnp.where(over, old, new), state.inner, inner)
        last = over | transition.last | (state.steps + 1 >= self.max_steps)
        # Any end uses up the limit, so the state alone says that it is final.
        steps = jnp.where(last, self.max_steps, state.steps + 1).astype(jnp.int32)
        zero = jnp.zeros_like(transition.reward)
        transition = Transition(
            reward=jnp.where(over, zero, transition.reward),
            discount=jnp.where(over, zero, transition.discount),
            last=last,
        )
        return TimeLimitState(inner, steps), transition

    def observe(self, state: TimeLimitState[State]) -> Observation:
        """What the wrapped environment shows."""
        return self.env.observe(state.inner)
