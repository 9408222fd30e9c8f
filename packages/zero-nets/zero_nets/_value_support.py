"""Scalars as categorical distributions: the two-hot encoding, and MuZero's scaling of values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._checks import check_shape


def signed_hyperbolic(x: Float[Array, "*axes"], epsilon: float = 1e-3) -> Float[Array, "*axes"]:
    """`h(x) = sign(x) * (sqrt(|x| + 1) - 1) + epsilon * x`: small values as they are, large ones
    by their root (Pohlen et al. 2018, https://arxiv.org/abs/1805.11593, proposition A.2; MuZero,
    Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix F).
    """
    # Neither a difference that loses the digits of a small x nor a sign without a slope at 0.
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + epsilon * x


def signed_parabolic(x: Float[Array, "*axes"], epsilon: float = 1e-3) -> Float[Array, "*axes"]:
    """The inverse of [`zero_nets.signed_hyperbolic`][] for the same `epsilon`."""
    # With u = sqrt(|h^-1| + 1) - 1 the equation is epsilon * u^2 + (1 + 2 * epsilon) * u = |x|.
    b = 1 + 2 * epsilon
    u = 2 * x / (b + jnp.sqrt(b * b + 4 * epsilon * jnp.abs(x)))
    return u * (jnp.abs(u) + 2)


class ValueSupport(eqx.Module):
    """Evenly spaced atoms, and scalars as probabilities over them.

    A scalar is shared between the two atoms beside it so that the mean is the scalar again
    (MuZero, https://arxiv.org/abs/1911.08265, appendix F). One outside the support counts as the
    end it is nearest to.

    **Attributes:**

    - `num_atoms`: how many atoms.
    - `minimum`, `maximum`: the first and the last; of transformed values if `transform`.
    - `transform`: whether the atoms stand for `signed_hyperbolic(value)` rather than the value.
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

        - `num_atoms`: how many atoms, at least 2.
        - `maximum`: the last atom; `(num_atoms - 1) / 2` if not given, one unit between atoms.
        - `minimum`: the first atom; `-maximum` if not given.
        - `transform`: whether the atoms stand for `signed_hyperbolic(value)`. Values that spread
            over orders of magnitude then need few atoms, but the mean is right only of a value
            whose distribution is narrow.
        """
        self.num_atoms = num_atoms
        self.maximum = (num_atoms - 1) / 2 if maximum is None else maximum
        self.minimum = -self.maximum if minimum is None else minimum
        self.transform = transform
        if num_atoms < 2:
            raise ValueError(f"`num_atoms` is {num_atoms}; a support needs at least 2.")
        if not -np.inf < self.minimum < self.maximum < np.inf:
            raise ValueError(
                f"`minimum` is {self.minimum} and `maximum` {self.maximum}; both must be finite, "
                "the maximum above the minimum."
            )

    @property
    def atoms(self) -> Float[np.ndarray, " atoms"]:
        """The atoms themselves, as the network counts: transformed if `transform`."""
        return np.linspace(self.minimum, self.maximum, self.num_atoms)

    def encode(self, value: Float[Array, ""]) -> Float[Array, " atoms"]:
        """The probabilities of the atoms that stand for `value`: two of them, or one, not 0."""
        check_shape("value", value, ())
        atoms = jnp.asarray(self.atoms, value.dtype)
        if self.transform:
            value = signed_hyperbolic(value)
        value = jnp.clip(value, atoms[0], atoms[-1])
        # A tent over each atom that reaches the ground at its neighbours. Its slopes are divided
        # by the very differences they are made of, so an atom encodes as exactly one-hot.
        gaps = jnp.diff(atoms)
        rising = jnp.append(1.0, (value - atoms[:-1]) / gaps)
        falling = jnp.append((atoms[1:] - value) / gaps, 1.0)
        return jnp.clip(jnp.minimum(rising, falling), 0, 1)

    def decode(self, probs: Float[Array, " atoms"]) -> Float[Array, ""]:
        """The scalar that probabilities over the atoms stand for: their mean, transformed back.

        Of a network's logits, take `jax.nn.softmax` first.
        """
        check_shape("probs", probs, (self.num_atoms,))
        # A sum, as a dot product would be rounded to bfloat16 or TF32 on accelerators.
        mean = jnp.sum(probs * jnp.asarray(self.atoms, probs.dtype))
        return signed_parabolic(mean) if self.transform else mean

    def cross_entropy(
        self, logits: Float[Array, " atoms"], value: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The loss of logits for a target: summed over the atoms, in nats. No gradient reaches
        the target."""
        check_shape("logits", logits, (self.num_atoms,))
        target = jax.lax.stop_gradient(self.encode(value))
        return -jnp.sum(target * jax.nn.log_softmax(logits))
