"""A wrapper that truncates episodes after a number of steps."""

from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ._environment import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractHiddenEnvironment,
    AbstractObservedEnvironment,
    check_count,
    Fallible,
    Observation,
    State,
    Transition,
)
from ._filtered import Filtered
from ._hosted import Hosted


_LOST = (
    AbstractHiddenEnvironment
    | AbstractObservedEnvironment
    | Filtered
    | AbstractChanceEnvironment
    | Fallible
    | Hosted
)


class TimeLimitState(eqx.Module, Generic[State]):
    """The state of the wrapped environment and the number of steps, `max_steps` if it is final."""

    inner: State
    steps: Int[Array, ""]


class TimeLimit(AbstractDiscreteEnvironment[TimeLimitState[State]], Generic[State]):
    """Truncates the episodes of `env` after `max_steps` steps.

    The step that reaches the limit has `last` and keeps the discount of `env`, so agents bootstrap
    from the next state. If the episode terminates in that step, its discount is 0. The number of
    remaining steps is not observed. It has `num_players`, `max_return` and `random` where `env` has
    them. Hidden, chance, fallible and hosted environments are refused, because the wrapper does not
    have their methods.
    """

    env: AbstractDiscreteEnvironment[State]
    max_steps: int
    num_actions: int = eqx.field(init=False)
    hidden: bool = eqx.field(init=False)

    def __post_init__(self):
        if not isinstance(self.env, AbstractDiscreteEnvironment):
            raise ValueError(f"TimeLimit(env={self.env!r}): give a discrete environment.")
        self.num_actions, self.hidden = self.env.num_actions, self.env.hidden

    def __check_init__(self):
        check_count("TimeLimit", max_steps=self.max_steps)
        if isinstance(self.env, _LOST):
            raise ValueError(
                f"TimeLimit({type(self.env).__name__}): an environment that has `resample`, "
                "`outcome_logits`, `observation_log_prob`, `failed` or `open` would lose them; "
                "count the steps in its own state."
            )

    @property
    def num_players(self) -> int:
        env: Any = self.env
        return env.num_players

    @property
    def max_return(self) -> float:
        env: Any = self.env
        return env.max_return

    @property
    def random(self) -> bool:
        env: Any = self.env
        return env.random

    def init(self, *, key: PRNGKeyArray) -> TimeLimitState[State]:
        return TimeLimitState(self.env.init(key=key), jnp.zeros((), jnp.int32))

    def step(
        self, state: TimeLimitState[State], action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[TimeLimitState[State], Transition]:
        over = state.steps >= self.max_steps
        inner, transition = self.env.step(state.inner, action, key=key)
        inner = jax.tree.map(lambda old, new: jnp.where(over, old, new), state.inner, inner)
        last = over | transition.last | (state.steps + 1 >= self.max_steps)
        # Every end uses up the limit, so the state alone shows that it is final.
        steps = jnp.where(last, self.max_steps, state.steps + 1).astype(jnp.int32)
        reward, discount = (
            jnp.where(over, 0.0, x) for x in (transition.reward, transition.discount)
        )
        return TimeLimitState(inner, steps), Transition(reward, discount, last)

    def observe(self, state: TimeLimitState[State]) -> Observation:
        return self.env.observe(state.inner)
