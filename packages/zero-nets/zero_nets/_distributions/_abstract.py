"""What a policy is to everything that uses one."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Shaped


class AbstractDistribution(eqx.Module):
    """A distribution over one example's action; `jax.vmap` it over a batch.

    Continuous distributions have a density, discrete ones probabilities; `log_prob` and `entropy`
    are in nats and summed over an action's dimensions, which are independent of one another.
    """

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*action"]:
        """One action, drawn with `key`."""

    @abc.abstractmethod
    def log_prob(self, action: Shaped[Array, "*action"]) -> Float[Array, ""]:
        """The log of the density or probability of `action`."""

    @abc.abstractmethod
    def mode(self) -> Shaped[Array, "*action"]:
        """The action to play greedily: the most likely one, unless the class says otherwise."""

    @abc.abstractmethod
    def entropy(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The entropy. No distribution of this package needs `key`, but one that can only
        estimate its entropy would."""

    @abc.abstractmethod
    def kl(self, other: Any) -> Float[Array, "*dims"]:
        """`KL(self || other)`, `other` being of the same class, of each independent dimension:
        their sum is that of the whole."""
