"""Lagrange multipliers and temperatures that are learned."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arguments import check_positive


_OFFSET = 1e-8
_MIN_RHO = -18.0
_MIN_VALUE = math.log1p(math.exp(_MIN_RHO)) + _OFFSET


class Dual(eqx.Module):
    """The dual variable of a KL constraint, `softplus(rho) + 1e-8`: a Lagrange multiplier, or the
    temperature of MPO's E-step (Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256).

    Papers state either `rho` or the multiplier itself as the initial value: `Dual(rho)` takes the
    one, [`zero_train.losses.Dual.from_value`][] the other. Give it an optimiser of its own, and
    call `clipped` after every step of that.

    **Attributes:**

    - `rho`: what the gradient acts on; a scalar, or one per action dimension.
    """

    rho: Float[Array, "*dims"]

    def __init__(self, rho: float, shape: tuple[int, ...] = ()):
        """**Arguments:**

        - `rho`: the initial parameter, finite and at least -18.
        - `shape`: `()` for one constraint, `(dims,)` for one per action dimension.

        Raises a `ValueError` for any other `rho`.
        """
        if not _MIN_RHO <= rho < math.inf:
            raise ValueError(
                f"`Dual(rho={rho})`: must be finite and at least {_MIN_RHO:g}, where softplus has "
                "hardly any gradient left."
            )
        # With a dtype: a weakly typed parameter would make the training step compile twice.
        self.rho = jnp.full(shape, rho, float)

    @classmethod
    def from_value(cls, value: float, shape: tuple[int, ...] = ()) -> "Dual":
        """The dual whose `value` is this number.

        Raises a `ValueError` unless it is finite and positive: 2.6e-8 is the least there is.
        """
        if not _MIN_VALUE <= value < math.inf:
            raise ValueError(
                f"`Dual.from_value({value})`: a multiplier or temperature must be finite and at "
                f"least {_MIN_VALUE:.3g}; for the parameter of the softplus use `Dual(rho)`."
            )
        target = value - _OFFSET
        # log(expm1(target)), without overflow for a large one.
        rho = target + math.log(-math.expm1(-target))
        return cls(max(rho, _MIN_RHO), shape)

    @property
    def value(self) -> Float[Array, "*dims"]:
        """`softplus(rho) + 1e-8`: positive."""
        return jax.nn.softplus(self.rho) + _OFFSET

    def clipped(self) -> "Dual":
        """With `rho` at least -18. The multiplier of a constraint that is slack falls for ever, and
        softplus would soon have no gradient left to bring it back with."""
        return eqx.tree_at(lambda dual: dual.rho, self, jnp.maximum(self.rho, _MIN_RHO))


def kl_penalty(
    kl: Float[Array, "*dims"], dual: Dual, epsilon: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The Lagrangian of the constraint `KL <= epsilon`, for one state (Abdolmaleki et al. 2018,
    https://arxiv.org/abs/1812.02256, section 4.2): the policy minimises the penalty, the
    multiplier rises while the KL is above `epsilon` and falls while it is below.

    Both are linear in the KL, so the mean over states constrains the mean KL.

    **Arguments:**

    - `kl`: divergence of the policy from the one it must stay close to, per action dimension, in
        nats.
    - `dual`: the multiplier `alpha`. A scalar constrains the sum of `kl` over dimensions; one of
        the shape of `kl` constrains every dimension by itself, each to `epsilon`.
    - `epsilon`: how far the policy may go, in nats; positive.

    **Returns:** the penalty `stop_gradient(alpha) * kl`, which moves the policy alone, and the
    dual loss `alpha * (epsilon - stop_gradient(kl))`, which moves `rho` alone; both summed over
    dimensions.

    Raises a `ValueError` for another shape or an `epsilon` that is not positive.
    """
    check_positive("kl_penalty", epsilon=epsilon)
    alpha = dual.value
    if alpha.ndim == 0:
        kl = jnp.sum(kl)
    elif alpha.shape != kl.shape:
        raise ValueError(
            f"`kl_penalty` was given kl{list(kl.shape)}, dual{list(alpha.shape)}: the dual must be "
            "a scalar or have one number for each dimension of the KL."
        )
    penalty = jnp.sum(jax.lax.stop_gradient(alpha) * kl)
    dual_loss = jnp.sum(alpha * (epsilon - jax.lax.stop_gradient(kl)))
    return penalty, dual_loss
