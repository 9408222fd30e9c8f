"""Afterstates judged by all of their outcomes."""

from typing import Generic

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from .._check import check_kinds, check_prediction, check_range
from .._model import State
from .._sample import safe_softmax
from ._model import AbstractAfterstateModel, AbstractChanceModel, Afterstate


class ExpectedModel(AbstractAfterstateModel[State, Afterstate], Generic[State, Afterstate]):
    """`model` whose afterstates are worth the mean over all outcomes of what its evaluator says.

    That is exactly one step ahead: the value of an afterstate is
    `sum(p * (reward + gamma * discount * value))`, where otherwise a search knows of an action what
    the few outcomes say that it has visited, the most probable ones. The price is as many
    evaluations, in one batch, for every new afterstate as there are outcomes.

    **Arguments:**

    - `model`: judges states.
    - `gamma`: that of the planner.
    """

    model: AbstractChanceModel[State, Afterstate]
    gamma: float = 1.0

    def __check_init__(self):
        check_kinds("ExpectedModel", AbstractChanceModel, model=self.model)
        check_range("ExpectedModel", 0, 1, gamma=self.gamma)

    def afterstate(self, state: State, action: Int[Array, " batch"]) -> Afterstate:
        return self.model.afterstate(state, action)

    def outcome_logits(self, afterstate: Afterstate) -> Float[Array, "batch outcomes"]:
        return self.model.outcome_logits(afterstate)

    def resolve(
        self, afterstate: Afterstate, outcome: Int[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return self.model.resolve(afterstate, outcome)

    def predict(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        return self.model.predict(state, key=key)

    def afterstate_value(
        self, afterstate: Afterstate, *, key: Key[Array, " batch"]
    ) -> Float[Array, " batch"]:
        probs = safe_softmax(self.model.outcome_logits(afterstate).astype(jnp.float32))
        batch, number = probs.shape
        every = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), afterstate)
        outcomes = jnp.tile(jnp.arange(number, dtype=jnp.int32), batch)
        state, reward, discount, _ = self.model.resolve(every, outcomes)
        keys = jax.vmap(lambda k: jr.split(k, number))(key).reshape(-1)
        logits, value = self.model.predict(state, key=keys)
        check_prediction(logits, value, batch * number, None)
        future = jnp.where(discount == 0, 0.0, discount * value.astype(jnp.float32))
        worth = (reward + self.gamma * future).reshape(batch, number)
        return jnp.sum(jnp.where(probs > 0, probs * worth, 0.0), axis=1)
