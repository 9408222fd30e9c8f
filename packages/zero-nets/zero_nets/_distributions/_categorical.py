"""One of finitely many actions."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import check_shape, check_vector
from ._abstract import AbstractDistribution


# Not distreqx's: its samples and modes are int8, so actions past the 127th come out negative, and
# a KL divergence of infinity has a gradient of NaN.
class Categorical(AbstractDistribution):
    """The actions 0 to n - 1 with probabilities `softmax(logits)`.

    A logit of -inf is an illegal action: of probability 0, never drawn, and no NaN in any value or
    gradient. Where nothing is legal (a row of filler) every log-probability is -inf, the sample
    and the mode are 0, and so is the entropy.

    **Attributes:**

    - `logits`: unnormalised log-probabilities.
    """

    logits: Float[Array, " actions"]

    def __check_init__(self):
        check_vector("logits", self.logits)

    @property
    def log_probs(self) -> Float[Array, " actions"]:
        """The log-probabilities of all actions, -inf of illegal ones."""
        legal = self.logits > -jnp.inf
        # A softmax of nothing legal would be NaN.
        logits = jnp.where(jnp.any(legal), self.logits, jnp.zeros_like(self.logits))
        return jnp.where(legal, jax.nn.log_softmax(logits), -jnp.inf)

    @property
    def probs(self) -> Float[Array, " actions"]:
        """The probabilities of all actions."""
        return jnp.exp(self.log_probs)

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return jr.categorical(key, self.logits)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        """The log-probability of `action`: -inf if it is illegal or there is no such action."""
        check_shape("action", action, ())
        exists = (action >= 0) & (action < self.logits.size)
        return jnp.where(exists, self.log_probs[jnp.where(exists, action, 0)], -jnp.inf)

    def mode(self) -> Int[Array, ""]:
        """The most likely action, the first of equals."""
        return jnp.argmax(self.logits)

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        log_probs = self.log_probs
        return -jnp.sum(self.probs * jnp.where(log_probs > -jnp.inf, log_probs, 0.0))

    def kl(self, other: "Categorical") -> Float[Array, ""]:
        """`KL(self || other)`: infinite, with a gradient of zero, if `self` can do what `other`
        cannot."""
        if other.logits.shape != self.logits.shape:
            raise ValueError(
                f"A KL divergence of {self.logits.size} actions to {other.logits.size}; both "
                "distributions need as many."
            )
        mine, theirs = self.log_probs, other.log_probs
        possible = mine > -jnp.inf
        shared = possible & (theirs > -jnp.inf)
        difference = jnp.where(shared, mine, 0.0) - jnp.where(shared, theirs, 0.0)
        return jnp.where(jnp.any(possible & ~shared), jnp.inf, jnp.sum(self.probs * difference))
