"""Scalars as categorical distributions: the two-hot encoding and MuZero's value transform."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._checks import check_number, check_shape, check_sizes, numbers
from ._precision import real


def signed_hyperbolic(x: Float[Array, "*axes"], epsilon: float = 1e-3) -> Float[Array, "*axes"]:
    """The value transform `h(x) = sign(x) * (sqrt(|x| + 1) - 1) + epsilon * x`, which compresses
    large values (Pohlen et al. 2018, https://arxiv.org/abs/1805.11593, proposition A.2; MuZero,
    Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix F).
    """
    # This form has neither a difference, which would lose the digits of a small x, nor a sign,
    # which has no gradient at 0.
    x = numbers(x)
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + epsilon * x


def signed_parabolic(x: Float[Array, "*axes"], epsilon: float = 1e-3) -> Float[Array, "*axes"]:
    """The inverse of [`zero_nets.signed_hyperbolic`][] for the same `epsilon`."""
    # With u = sqrt(|h^-1| + 1) - 1 the equation is epsilon * u^2 + (1 + 2 * epsilon) * u = |x|.
    x, b = numbers(x), 1 + 2 * epsilon
    u = 2 * x / (b + jnp.sqrt(b * b + 4 * epsilon * jnp.abs(x)))
    return u * (jnp.abs(u) + 2)


class ValueSupport(eqx.Module):
    """Encodes scalars as probabilities over evenly spaced atoms, and decodes them.

    The probability of a scalar is split between its two neighbouring atoms so that the mean is the
    scalar (MuZero, https://arxiv.org/abs/1911.08265, appendix F). A scalar outside the support is
    clipped. Everything is computed in float32 at least, and so are the results.

    With `transform` the atoms, from `minimum` to `maximum`, are values of
    `signed_hyperbolic(value)`.
    """

    num_atoms: int = eqx.field(static=True)
    minimum: float = eqx.field(static=True)
    maximum: float = eqx.field(static=True)
    transform: bool = eqx.field(static=True)

    def __init__(
        self,
        num_atoms: int = 601,
        *,
        maximum: float | None = None,
        minimum: float | None = None,
        transform: bool = False,
    ):
        """**Arguments:**

        - `num_atoms`: at least 2.
        - `maximum`: by default `(num_atoms - 1) / 2`, which makes the spacing 1.
        - `minimum`: by default `-maximum`.
        - `transform`: few atoms then suffice for values that span orders of magnitude, but the
            decoded mean is accurate only for narrow distributions.
        """
        check_sizes(2, num_atoms=num_atoms)
        self.num_atoms = num_atoms
        self.maximum = (num_atoms - 1) / 2 if maximum is None else maximum
        check_number(maximum=self.maximum)
        self.minimum = -self.maximum if minimum is None else minimum
        self.transform = transform
        check_number(minimum=self.minimum)
        if not self.minimum < self.maximum:
            raise ValueError(
                f"`minimum` is {self.minimum} and `maximum` {self.maximum}; the maximum must be "
                "above the minimum."
            )
        if not np.all(np.diff(self.atoms.astype(np.float32)) > 0):
            raise ValueError(
                f"`num_atoms` is {num_atoms} from {self.minimum} to {self.maximum}; in float32 "
                "some atoms would be equal, so there must be fewer, or they must be closer to 0."
            )

    @property
    def atoms(self) -> Float[np.ndarray, " atoms"]:
        """The atoms; transformed values if `transform`."""
        return np.linspace(self.minimum, self.maximum, self.num_atoms)

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest scalar that is not clipped."""
        scalar = lambda x: float(self._scalar(jnp.asarray(x, jnp.float32)))
        with jax.ensure_compile_time_eval():
            return scalar(self.minimum), scalar(self.maximum)

    def encode(self, value: Float[Array, ""]) -> Float[Array, " atoms"]:
        """The two-hot probabilities of `value`."""
        check_shape("value", value, ())
        value = real(value)
        atoms = jnp.asarray(self.atoms, value.dtype)
        if self.transform:  # of infinity it would be NaN
            most = float(jnp.finfo(value.dtype).max)
            value = signed_hyperbolic(jnp.clip(value, -most, most))
        value = jnp.clip(value, atoms[0], atoms[-1])
        # The probability of an atom falls linearly from 1 at the atom to 0 at its neighbours. The
        # slopes are divided by the gaps themselves, so an atom is encoded as exactly one-hot.
        gaps = jnp.diff(atoms)
        rising = jnp.append(1.0, (value - atoms[:-1]) / gaps)
        falling = jnp.append((atoms[1:] - value) / gaps, 1.0)
        return jnp.clip(jnp.minimum(rising, falling), 0, 1)

    def decode(self, probs: Float[Array, " atoms"]) -> Float[Array, ""]:
        """The scalar of probabilities over the atoms: their mean, transformed back if `transform`.

        For the logits of a network there is `decode_logits`.
        """
        check_shape("probs", probs, (self.num_atoms,))
        return self._scalar(self._total(real(probs)))

    def decode_logits(self, logits: Float[Array, " atoms"]) -> Float[Array, ""]:
        """The scalar that the logits of a network stand for."""
        check_shape("logits", logits, (self.num_atoms,))
        # Not `decode(softmax(logits))`: behind two layers of a network, over rows that are split
        # over devices, that crashes the TPU compiler (libtpu 0.0.42.1, signal 11).
        logits = real(logits)
        weights = jnp.exp(logits - jax.lax.stop_gradient(jnp.max(logits)))
        return self._scalar(self._total(weights) / jnp.sum(weights))

    def _total(self, weights: Float[Array, " atoms"]) -> Float[Array, ""]:
        # A dot product would be computed in bfloat16 or TF32 on accelerators; a sum is not.
        return jnp.sum(weights * jnp.asarray(self.atoms, weights.dtype))

    def _scalar(self, mean: Float[Array, ""]) -> Float[Array, ""]:
        return signed_parabolic(mean) if self.transform else mean

    def cross_entropy(
        self, logits: Float[Array, " atoms"], value: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The cross-entropy loss of logits for the target `value`, in nats. The target receives no
        gradient."""
        check_shape("logits", logits, (self.num_atoms,))
        target = jax.lax.stop_gradient(self.encode(value))
        return -jnp.sum(target * jax.nn.log_softmax(real(logits)))
