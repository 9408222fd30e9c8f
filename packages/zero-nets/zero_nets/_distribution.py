"""The interface of a distribution, and distributions over actions of any kind."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import check_shape


class AbstractDistribution(eqx.Module):
    """A distribution over the action of one example; use `jax.vmap` over a batch.

    `log_prob` and `entropy` are in nats and summed over the dimensions of an action, which are
    independent. A continuous distribution has a density, a discrete one has probabilities.
    """

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*action"]:
        """Draws one action."""

    @abc.abstractmethod
    def log_prob(self, action: Shaped[Array, "*action"]) -> Float[Array, ""]:
        """The log-density or log-probability of `action`."""

    @abc.abstractmethod
    def mode(self) -> Shaped[Array, "*action"]:
        """The greedy action: the most likely one, unless the class says otherwise."""

    @abc.abstractmethod
    def entropy(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The entropy. `key` is for distributions that can only estimate it; those of this package
        ignore it."""

    @abc.abstractmethod
    def kl(self, other: Any) -> Float[Array, "*dims"]:
        """The divergence `KL(self || other)` of each independent dimension.

        `other` must be of the same class. The divergence of the whole distribution is the sum.
        """


class Deterministic(AbstractDistribution):
    """All probability is on one action, discrete or continuous.

    **Attributes:**

    - `action`: that action.
    """

    action: Shaped[Array, "*dims"]

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*dims"]:
        del key
        return self.action

    def log_prob(self, action: Shaped[Array, "*dims"]) -> Float[Array, ""]:
        """0 for the action itself and -inf for any other: a probability, not a density."""
        check_shape("action", action, self.action.shape)
        return jnp.where(jnp.all(action == self.action), self._zero(), -jnp.inf)

    def mode(self) -> Shaped[Array, "*dims"]:
        return self.action

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return self._zero()

    def kl(self, other: "Deterministic") -> Float[Array, "*dims"]:
        """0 where the actions are equal and infinite where they are not."""
        check_shape("other.action", other.action, self.action.shape)
        return jnp.where(self.action == other.action, self._zero(), jnp.inf)

    def _zero(self) -> Float[Array, ""]:
        """A zero in the dtype of a continuous action, or in the default dtype."""
        floating = jnp.issubdtype(self.action.dtype, jnp.floating)
        return jnp.zeros((), self.action.dtype if floating else float)


class Postprocessed(AbstractDistribution):
    """Applies a function to the samples and the mode of another distribution.

    For example, it clips actions for an environment that refuses actions out of bounds. Unlike for
    a transformed variable, `log_prob`, `entropy` and `kl` are those of the wrapped distribution.

    **Attributes:**

    - `distribution`: the wrapped distribution.
    - `function`: maps one action to one action. It is static, so pass the same object every time (a
        function at module level, not a new lambda) to avoid recompilation.
    """

    distribution: AbstractDistribution
    function: Callable[[Array], Array] = eqx.field(static=True)

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*action"]:
        return self.function(self.distribution.sample(key=key))

    def log_prob(self, action: Shaped[Array, "*action"]) -> Float[Array, ""]:
        return self.distribution.log_prob(action)

    def mode(self) -> Shaped[Array, "*action"]:
        return self.function(self.distribution.mode())

    def entropy(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        return self.distribution.entropy(key=key)

    def kl(self, other: "Postprocessed") -> Float[Array, "*dims"]:
        return self.distribution.kl(other.distribution)
