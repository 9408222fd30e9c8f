"""How far a policy may go in one improvement, and what holds it there."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Shaped

from .._arguments import check_positive
from ._dual import Dual
from ._mpo import Losses, mpo_decoupled_loss, mpo_loss


class AbstractTrustRegion(eqx.Module):
    """The bounds of an improvement of the policy, and the duals that keep to them.

    What MPO and SPO share: they differ in where candidates, values and weights come from.
    """

    #: How far the improved policy may be from the old one, in nats.
    epsilon: eqx.AbstractVar[float]

    @abc.abstractmethod
    def duals(self) -> dict[str, Dual]:
        """The duals before the first update by name, `temperature` among them."""

    @abc.abstractmethod
    def loss(
        self,
        policy: Any,
        target: Any,
        actions: Shaped[Array, "actions ..."],
        values: Float[Array, " actions"],
        duals: dict[str, Dual],
        *,
        weights: Float[Array, " actions"] | None = None,
    ) -> Losses:
        """The loss of one state and its metrics, as [`zero_train.losses.mpo_loss`][] describes."""


class TrustRegion(AbstractTrustRegion):
    """One bound on the policy: for discrete actions ([`zero_train.losses.mpo_loss`][]).

    **Attributes:**

    - `epsilon`: how far the improved policy may be from the old one, in nats; the temperature sees
        to that.
    - `epsilon_policy`: how far the learned policy may be from the target policy, in nats.
    - `temperature`, `alpha`: the duals of the two at first.
    """

    epsilon: float
    epsilon_policy: float
    temperature: Dual
    alpha: Dual

    def __check_init__(self):
        check_positive("TrustRegion", epsilon=self.epsilon, epsilon_policy=self.epsilon_policy)

    def duals(self) -> dict[str, Dual]:
        return {"temperature": self.temperature, "alpha": self.alpha}

    def loss(
        self,
        policy: Any,
        target: Any,
        actions: Shaped[Array, "actions ..."],
        values: Float[Array, " actions"],
        duals: dict[str, Dual],
        *,
        weights: Float[Array, " actions"] | None = None,
    ) -> Losses:
        return mpo_loss(
            policy,
            target,
            actions,
            values,
            epsilon=self.epsilon,
            epsilon_policy=self.epsilon_policy,
            weights=weights,
            **duals,
        )


class DecoupledTrustRegion(AbstractTrustRegion):
    """Bounds on mean and deviation apart: for Gaussian policies
    ([`zero_train.losses.mpo_decoupled_loss`][]).

    **Attributes:**

    - `epsilon`: how far the improved policy may be from the old one, in nats; the temperature sees
        to that.
    - `epsilon_mean`, `epsilon_stddev`: how far the learned policy may be from the target policy, in
        nats.
    - `temperature`, `alpha_mean`, `alpha_stddev`: the duals of the three at first. The last two
        hold every action dimension to its bound if they have one number for each, otherwise the
        sum of all.
    """

    epsilon: float
    epsilon_mean: float
    epsilon_stddev: float
    temperature: Dual
    alpha_mean: Dual
    alpha_stddev: Dual

    def __check_init__(self):
        check_positive(
            "DecoupledTrustRegion",
            epsilon=self.epsilon,
            epsilon_mean=self.epsilon_mean,
            epsilon_stddev=self.epsilon_stddev,
        )

    def duals(self) -> dict[str, Dual]:
        return {
            "temperature": self.temperature,
            "alpha_mean": self.alpha_mean,
            "alpha_stddev": self.alpha_stddev,
        }

    def loss(
        self,
        policy: Any,
        target: Any,
        actions: Shaped[Array, "actions ..."],
        values: Float[Array, " actions"],
        duals: dict[str, Dual],
        *,
        weights: Float[Array, " actions"] | None = None,
    ) -> Losses:
        return mpo_decoupled_loss(
            policy,
            target,
            actions,
            values,
            epsilon=self.epsilon,
            epsilon_mean=self.epsilon_mean,
            epsilon_stddev=self.epsilon_stddev,
            weights=weights,
            **duals,
        )
