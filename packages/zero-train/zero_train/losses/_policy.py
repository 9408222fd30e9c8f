"""What losses ask of a policy, whoever made it."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float


@runtime_checkable
class Policy(Protocol):
    """A distribution over the actions of one state, as the distributions of zero-nets are; so is
    any pytree with these methods."""

    def log_prob(self, action: Any) -> Float[Array, ""]:
        """Log-probability, or log-density, of one action: summed over its dimensions."""
        ...

    def kl(self, other: Any) -> Float[Array, "*dims"]:
        """KL(self || other) in nats: one number per independent action dimension, or a scalar."""
        ...


@runtime_checkable
class DecoupledPolicy(Policy, Protocol):
    """A policy with a mean and a standard deviation that can be held fixed separately."""

    def decouple(self, other: Any) -> tuple[Policy, Policy]:
        """The own mean with the other's deviation, and the other's mean with the own deviation."""
        ...
