"""Models that know the probabilities of their own dice. Batch-native, as all models are."""

import abc
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from .._model import AbstractPriorModel, State


Afterstate = TypeVar("Afterstate")


class AbstractChanceModel(AbstractPriorModel[State], Generic[State, Afterstate]):
    """A model in which chance moves after every action: state, action, afterstate, outcome, state.

    `Afterstate` is any pytree of `[batch, ...]`; nothing in it is random. What `step` draws from
    is these methods' own law, so every other planner can use the model too.
    """

    @abc.abstractmethod
    def afterstate(self, state: State, action: Int[Array, " batch"]) -> Afterstate:
        """What lies between the action and the dice."""

    @abc.abstractmethod
    def outcome_logits(self, afterstate: Afterstate) -> Float[Array, "batch outcomes"]:
        """Log-probabilities of the outcomes, up to a constant a row; `-inf` for impossible ones.

        Where a single outcome is possible, nothing is left to chance and
        [`zero_search.ChanceSearch`][] spends no node on it.
        """

    @abc.abstractmethod
    def resolve(
        self, afterstate: Afterstate, outcome: Int[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """What an outcome leads to.

        **Returns:** `(next_state, reward, discount, last)` of the whole move, action and outcome,
        as [`zero_search.AbstractModel.step`][] does. It may be called with any outcome.
        """

    def step(
        self, state: State, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """Draws an outcome and resolves it."""
        afterstate = self.afterstate(state, action)
        outcome = draw_outcome(self.outcome_logits(afterstate), key=key)
        return self.resolve(afterstate, outcome)


class AbstractAfterstateModel(AbstractChanceModel[State, Afterstate], Generic[State, Afterstate]):
    """A chance model that also judges afterstates, as a learned one does.

    Antonoglou et al. 2022, "Planning in stochastic environments with a learned model".
    """

    @abc.abstractmethod
    def afterstate_value(
        self, afterstate: Afterstate, *, key: Key[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """The value for the player who acted, reward of the move included."""


def draw_outcome(
    logits: Float[Array, "batch outcomes"], *, key: Key[Array, " batch"]
) -> Int[Array, " batch"]:
    """An outcome a row, from the probabilities."""
    return jax.vmap(jr.categorical)(key, logits).astype(jnp.int32)
