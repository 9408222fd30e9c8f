"""Trust regions: the bounds on the policy in MPO and SPO, and their duals."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Shaped

from .._checks import check_kind, check_positive
from ._mpo import check_decoupled, constrain, Dual, fixed, Losses, mpo_decoupled_loss, mpo_loss


class AbstractTrustRegion(eqx.Module):
    """The bounds on an update of the policy, with their duals, as MPO and SPO share them. The two
    differ in the source of candidates, values and weights."""

    #: The bound on the KL of the improved policy from the old one.
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
        log_prior: Float[Array, " actions"] | None = None,
    ) -> Losses:
        """The loss of one state and its metrics, as [`zero_train.losses.mpo_loss`][] describes."""

    @abc.abstractmethod
    def constraint(self, policy: Any, target: Any, duals: dict[str, Dual]) -> Losses:
        """The part of the loss of one state that keeps the policy close to the target: penalties
        and dual losses, as [`zero_train.losses.kl_penalty`][] describes them. V-MPO adds it to a
        fit of its own."""


class _AbstractMPORegion(AbstractTrustRegion):
    """A region whose fields are arguments of its loss: the bounds, with names that begin with
    `epsilon`, and the initial duals."""

    _loss: eqx.AbstractClassVar[Callable[..., Losses]]

    def __check_init__(self):
        check_kind(type(self).__name__, Dual, "a `Dual`", **self.duals())
        check_positive(type(self).__name__, **self._bounds())

    def duals(self) -> dict[str, Dual]:
        return {name: x for name, x in vars(self).items() if not name.startswith("epsilon")}

    def loss(
        self,
        policy: Any,
        target: Any,
        actions: Shaped[Array, "actions ..."],
        values: Float[Array, " actions"],
        duals: dict[str, Dual],
        *,
        weights: Float[Array, " actions"] | None = None,
        log_prior: Float[Array, " actions"] | None = None,
    ) -> Losses:
        given: dict[str, Any] = {**self._bounds(), **duals}
        given |= {"weights": weights, "log_prior": log_prior}
        return self._loss(policy, target, actions, values, **given)

    def _bounds(self) -> dict[str, float]:
        return {name: x for name, x in vars(self).items() if name.startswith("epsilon")}


class TrustRegion(_AbstractMPORegion):
    """One bound on the policy, for discrete actions ([`zero_train.losses.mpo_loss`][]).

    **Attributes:**

    - `epsilon`: the bound on the KL of the improved policy from the old one.
    - `epsilon_policy`: the bound on the KL of the learned policy from the target policy.
    - `temperature`, `alpha`: the initial duals of the two bounds.
    """

    epsilon: float
    epsilon_policy: float
    temperature: Dual
    alpha: Dual

    _loss: ClassVar[Callable[..., Losses]] = staticmethod(mpo_loss)

    def constraint(self, policy: Any, target: Any, duals: dict[str, Dual]) -> Losses:
        return constrain(fixed(target).kl(policy), duals["alpha"], self.epsilon_policy)


class DecoupledTrustRegion(_AbstractMPORegion):
    """Separate bounds on the mean and the deviation, for Gaussian policies
    ([`zero_train.losses.mpo_decoupled_loss`][]).

    **Attributes:**

    - `epsilon`, `epsilon_mean`, `epsilon_stddev`: the bounds, as in a
        [`zero_train.losses.TrustRegion`][].
    - `temperature`, `alpha_mean`, `alpha_stddev`: the initial duals of the three bounds. One of
        shape `[dims]` bounds every action dimension, a scalar one their sum.
    """

    epsilon: float
    epsilon_mean: float
    epsilon_stddev: float
    temperature: Dual
    alpha_mean: Dual
    alpha_stddev: Dual

    _loss: ClassVar[Callable[..., Losses]] = staticmethod(mpo_decoupled_loss)

    def constraint(self, policy: Any, target: Any, duals: dict[str, Dual]) -> Losses:
        check_decoupled("DecoupledTrustRegion", policy)
        target = fixed(target)
        mean, stddev = policy.decouple(target)
        given = duals["alpha_mean"], self.epsilon_mean
        mean_loss, of_mean = constrain(target.kl(mean), *given, suffix="_mean")
        given = duals["alpha_stddev"], self.epsilon_stddev
        stddev_loss, of_stddev = constrain(target.kl(stddev), *given, suffix="_stddev")
        return mean_loss + stddev_loss, {**of_mean, **of_stddev}
