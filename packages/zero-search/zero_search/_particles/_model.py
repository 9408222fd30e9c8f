"""Models whose policy can be drawn from and weighed. Batch-native, as all models are."""

import abc
from typing import Any, Generic, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from .._check import batch_size, check_prediction, check_proposal
from .._expand import LARGEST, masked_prediction
from .._model import AbstractModel, AbstractPriorModel, State


@runtime_checkable
class Proposal(Protocol):
    """A policy over the actions of ONE state, as the distributions of zero-nets are; so is any
    pytree with these methods."""

    def sample(self, *, key: PRNGKeyArray) -> PyTree[Array]:
        """One action."""
        ...

    def log_prob(self, action: Any) -> Float[Array, ""]:
        """The log-probability, or log-density, of one action: summed over its dimensions."""
        ...


class AbstractProposalModel(AbstractModel[State], Generic[State]):
    """A model with an evaluator over any actions, continuous ones above all.

    Discrete actions have logits: for those, [`zero_search.AbstractPriorModel`][] says more and
    serves every planner.
    """

    @abc.abstractmethod
    def step(
        self, state: State, action: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """As [`zero_search.AbstractModel.step`][], the action being what the policy draws."""

    @abc.abstractmethod
    def propose(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Proposal, Float[Array, " batch"]]:
        """One policy a row and the values for the players to move.

        The policies are one pytree whose arrays all begin with the batch axis: what
        `jax.vmap(network)(observations)` returns. Planners vmap its methods.
        """


class Categorical(eqx.Module):
    """The policy that logits are; `-inf` is illegal. Where nothing is legal it draws action 0."""

    logits: Float[Array, "*axes actions"]

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return jr.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        # A softmax of nothing legal would be NaN.
        playable = jnp.any(self.logits > -jnp.inf)
        return jax.nn.log_softmax(jnp.where(playable, self.logits, 0.0))[action]


class Prospect(eqx.Module):
    """What the evaluator says of some states.

    **Attributes:**

    - `policy`: one a row.
    - `value`: for the player to move; 0 where it was not finite.
    - `playable`: whether there is a legal action.
    - `invalid`: something was not finite and has been replaced.
    """

    policy: Proposal
    value: Float[Array, " rows"]
    playable: Bool[Array, " rows"]
    invalid: Bool[Array, " rows"]


def judge(model: AbstractModel, state: PyTree[Array], key: Key[Array, " rows"]) -> Prospect:
    """Asks the evaluator of either kind of model."""
    rows = batch_size(state)
    if isinstance(model, AbstractPriorModel):
        logits, value = model.predict(state, key=key)
        check_prediction(logits, value, rows, None)
        logits, value, invalid = masked_prediction(logits, value)
        return Prospect(Categorical(logits), value, jnp.any(logits > -jnp.inf, axis=1), invalid)
    if not isinstance(model, AbstractProposalModel):
        raise ValueError(
            f"`ParticleSearch` got a `{type(model).__name__}`, which has no policy: give it an "
            "`AbstractPriorModel` (logits) or an `AbstractProposalModel` (any actions)."
        )
    policy, value = model.propose(state, key=key)
    check_proposal(policy, value, rows)
    value = value.astype(jnp.float32)
    known = jnp.abs(value) <= LARGEST
    return Prospect(policy, jnp.where(known, value, 0.0), jnp.ones_like(known), ~known)
