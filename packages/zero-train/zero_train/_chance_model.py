"""From a chance environment and an evaluator to a model with dice."""

from typing import Any, Generic, TypeVar

import jax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from zero_envs import AbstractChanceEnvironment
from zero_search import AbstractChanceModel

from ._model import evaluate_batch, Evaluator


State = TypeVar("State")


class ChanceEnvironmentModel(AbstractChanceModel[State, PyTree[Array]], Generic[State]):
    """The batch-native twin of a chance environment, with an evaluator for its leaves.

    For [`zero_search.ChanceSearch`][]; other planners draw one outcome a step from it.

    **Attributes:**

    - `env`: a chance environment that hides nothing.
    - `evaluate`: as in [`zero_train.EnvironmentModel`][].
    """

    env: AbstractChanceEnvironment[Any]
    evaluate: Evaluator

    def __check_init__(self):
        name = type(self.env).__name__
        if not isinstance(self.env, AbstractChanceEnvironment):
            raise ValueError(
                f"ChanceEnvironmentModel(env={name}) does not know the probabilities of its dice; "
                "give an AbstractChanceEnvironment, or use EnvironmentModel"
            )
        if self.env.hidden:
            raise ValueError(
                f"ChanceEnvironmentModel(env={name}): its state holds what the player cannot see, "
                "and planners may not see it either"
            )

    def afterstate(self, state: State, action: Int[Array, " batch"]) -> PyTree[Array]:
        return jax.vmap(self.env.afterstate)(state, action)

    def outcome_logits(self, afterstate: PyTree[Array]) -> Float[Array, "batch outcomes"]:
        return jax.vmap(self.env.outcome_logits)(afterstate)

    def resolve(
        self, afterstate: PyTree[Array], outcome: Int[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        state, transition = jax.vmap(self.env.resolve)(afterstate, outcome)
        return state, transition.reward, transition.discount, transition.last

    def predict(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        del key
        return evaluate_batch(self.evaluate, jax.vmap(self.env.observe)(state))
