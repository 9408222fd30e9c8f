"""Mostly the best action, at times any."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from .._checks import check_vector, concrete
from ._abstract import AbstractDistribution
from ._categorical import Categorical


class EpsilonGreedy(AbstractDistribution):
    """With probability `epsilon` any legal action, otherwise one of the best of them.

    **Attributes:**

    - `qvalues`: the value of every action, for the player who is to act; -inf is illegal.
    - `epsilon`: the probability of exploring, in [0, 1].
    """

    qvalues: Float[Array, " actions"]
    epsilon: Float[Array, ""]

    def __init__(self, qvalues: Float[Array, " actions"], epsilon: Float[ArrayLike, ""]):
        """**Arguments:**

        - `qvalues`, `epsilon`: the attributes; a Python number is a constant of the type of
            `qvalues`.
        """
        check_vector("qvalues", qvalues)
        value = concrete(epsilon)
        if value is not None and not np.all((value >= 0) & (value <= 1)):
            raise ValueError(f"`epsilon` is {value.tolist()}; it must be in [0, 1].")
        self.qvalues = qvalues
        self.epsilon = jnp.asarray(epsilon, qvalues.dtype)

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return self._categorical().sample(key=key)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return self._categorical().log_prob(action)

    def mode(self) -> Int[Array, ""]:
        """The best action, the first of equals."""
        return jnp.argmax(self.qvalues)

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return self._categorical().entropy()

    def kl(self, other: "EpsilonGreedy") -> Float[Array, ""]:
        return self._categorical().kl(other._categorical())

    def _categorical(self) -> Categorical:
        legal = self.qvalues > -jnp.inf
        best = legal & (self.qvalues == jnp.max(self.qvalues))
        probs = _uniform(best, 1 - self.epsilon) + _uniform(legal, self.epsilon)
        possible = probs > 0
        return Categorical(jnp.where(possible, jnp.log(jnp.where(possible, probs, 1.0)), -jnp.inf))


def _uniform(chosen: Bool[Array, " actions"], total: Float[Array, ""]) -> Float[Array, " actions"]:
    """`total` in equal parts to those chosen; nothing if there are none."""
    return jnp.where(chosen, total / jnp.maximum(jnp.sum(chosen, dtype=total.dtype), 1), 0.0)
