"""Noise on the root's prior, for exploration in self-play."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from ._check import check_positive, check_range
from ._sample import safe_softmax
from ._types import Keys, PerAction


class AbstractRootNoise(eqx.Module):
    """Changes the root's prior before a search. Illegal actions must stay `-inf`."""

    @abc.abstractmethod
    def __call__(self, logits: PerAction, *, key: Keys) -> PerAction:
        """Noisy logits."""


class DirichletNoise(AbstractRootNoise):
    """Mixes Dirichlet noise into the prior probabilities: `(1 - fraction) p + fraction noise`.

    Only legal actions take part. With `alpha=None` every legal action gets the concentration
    `total / number of legal actions`, so that games with few and with many moves are disturbed
    alike; a number fixes the concentration itself.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play" (fraction 0.25, alpha about 10 over the typical number of moves).
    """

    fraction: float = 0.25
    alpha: float | None = None
    total: float = 10.0

    def __check_init__(self):
        check_range("DirichletNoise", 0, 1, fraction=self.fraction)
        check_positive("DirichletNoise", total=self.total)
        if self.alpha is not None:
            check_positive("DirichletNoise", alpha=self.alpha)

    def __call__(self, logits: PerAction, *, key: Keys) -> PerAction:
        legal = logits > -jnp.inf
        if self.alpha is None:
            count = jnp.sum(legal, axis=1).astype(jnp.float32)
            alpha = self.total / jnp.maximum(count, 1.0)
        else:
            alpha = jnp.full((logits.shape[0],), self.alpha, jnp.float32)
        # Normalised gamma draws, in logs because small ones underflow.
        draw = lambda k, a: jr.loggamma(k, a, (logits.shape[1],), jnp.float32)
        gamma = jnp.where(legal, jax.vmap(draw)(key, alpha), -jnp.inf)
        mixed = (1 - self.fraction) * safe_softmax(logits) + self.fraction * safe_softmax(gamma)
        tiny = jnp.finfo(jnp.float32).tiny
        return jnp.where(legal, jnp.log(jnp.maximum(mixed, tiny)), -jnp.inf)
