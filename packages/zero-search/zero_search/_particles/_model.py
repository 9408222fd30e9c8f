"""What the evaluator of a model says, as policies that can be drawn from and weighed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from .._check import batch_size, check_prediction, check_proposal
from .._model import (
    AbstractModel,
    AbstractPriorModel,
    AbstractProposalModel,
    LARGEST,
    masked_prediction,
    Proposal,
)


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
