"""Which particles go on: when to resample, and how."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from .._check import check_count, check_range


class AbstractResampleRule(eqx.Module):
    """Says after which steps of a particle search the particles of a row are drawn anew."""

    @abc.abstractmethod
    def __call__(
        self, ess_fraction: Float[Array, " batch"], step: Int[Array, ""]
    ) -> Bool[Array, " batch"] | Bool[Array, ""]:
        """Whether to resample each row; or all of them, which costs nothing where it is not due.

        **Arguments:**

        - `ess_fraction`: effective sample size over the number of particles.
        - `step`: how many steps the particles have taken, 1 or more.
        """


class ResampleEvery(AbstractResampleRule):
    """After every `period` steps. Macfarlane et al. 2024, Algorithm 1."""

    period: int

    def __check_init__(self):
        check_count("ResampleEvery", 1, period=self.period)

    def __call__(
        self, ess_fraction: Float[Array, " batch"], step: Int[Array, ""]
    ) -> Bool[Array, ""]:
        del ess_fraction
        return step % self.period == 0


class ResampleBelow(AbstractResampleRule):
    """Wherever the effective sample size has fallen below `fraction` of the particles.

    Kong, Liu and Wong 1994, "Sequential imputations and Bayesian missing data problems".
    """

    fraction: float = 0.5

    def __check_init__(self):
        check_range("ResampleBelow", 0, 1, fraction=self.fraction)

    def __call__(
        self, ess_fraction: Float[Array, " batch"], step: Int[Array, ""]
    ) -> Bool[Array, " batch"]:
        del step
        return ess_fraction < self.fraction


class AbstractResampling(eqx.Module):
    """Draws as many particles as there are, each as often on average as its weight says."""

    @abc.abstractmethod
    def __call__(
        self, weights: Float[Array, "batch particles"], *, key: Key[Array, " batch"]
    ) -> Int[Array, "batch particles"]:
        """The numbers of the particles that go on. The weights of a row sum to 1."""


class Multinomial(AbstractResampling):
    """Each particle is drawn independently of the others."""

    def __call__(
        self, weights: Float[Array, "batch particles"], *, key: Key[Array, " batch"]
    ) -> Int[Array, "batch particles"]:
        number = weights.shape[1]
        return _inverse(weights, jax.vmap(lambda k: jr.uniform(k, (number,), jnp.float32))(key))


class Systematic(AbstractResampling):
    """One draw serves all: a particle of weight `w` is drawn `N w` times, rounded up or down.

    The expectation is that of [`zero_search.Multinomial`][], the variance smaller.

    Carpenter, Clifford and Fearnhead 1999, "Improved particle filter for nonlinear problems".
    """

    def __call__(
        self, weights: Float[Array, "batch particles"], *, key: Key[Array, " batch"]
    ) -> Int[Array, "batch particles"]:
        number = weights.shape[1]
        comb = jnp.arange(number, dtype=jnp.float32)
        offset = lambda k: (comb + jr.uniform(k, (), jnp.float32)) / number
        return _inverse(weights, jax.vmap(offset)(key))


def _inverse(
    weights: Float[Array, "batch particles"], uniform: Float[Array, "batch particles"]
) -> Int[Array, "batch particles"]:
    """Where the running sum of the weights first exceeds each number of `[0, 1)`."""
    total = jnp.cumsum(weights, axis=1)
    # Rounding may leave a sum of less than 1, or a number of 1: neither may lead to a particle
    # without weight at the end of a row.
    below = jnp.minimum(uniform, 1 - jnp.finfo(jnp.float32).eps) * total[:, -1:]
    find = lambda t, u: jnp.searchsorted(t, u, side="right")
    return jax.vmap(find)(total, below).astype(jnp.int32)
