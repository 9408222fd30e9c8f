"""The interface of a distribution."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Shaped


class AbstractDistribution(eqx.Module):
    """A distribution over the action of one example; use `jax.vmap` over a batch.

    `log_prob` and `entropy` are in nats and summed over the dimensions of an action, which are
    independent. A continuous distribution has a density, a discrete one has probabilities.
    Parameters of half precision and integers are cast to float32.
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
    def entropy(self) -> Float[Array, ""]:
        """The entropy of the whole action."""

    @abc.abstractmethod
    def kl(self, other: Any) -> Float[Array, "*dims"]:
        """The divergence `KL(self || other)` of each independent dimension.

        `other` must be of the same class. The divergence of the whole distribution is the sum.
        """
