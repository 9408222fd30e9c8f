"""Policies for the tests of losses: what a user could write, in the textbook's formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Categorical(eqx.Module):
    logits: Float[Array, " actions"]

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(self.logits)[action]

    def kl(self, other: "Categorical") -> Float[Array, ""]:
        own, others = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(own) * (own - others))


class Gaussian(eqx.Module):
    loc: Float[Array, " dims"]
    scale: Float[Array, " dims"]

    def log_prob(self, action: Float[Array, " dims"]) -> Float[Array, ""]:
        return jnp.sum(jax.scipy.stats.norm.logpdf(action, self.loc, self.scale))

    def kl(self, other: "Gaussian") -> Float[Array, " dims"]:
        distance = jnp.square(self.scale) + jnp.square(self.loc - other.loc)
        return jnp.log(other.scale / self.scale) + distance / (2 * jnp.square(other.scale)) - 0.5

    def decouple(self, other: "Gaussian") -> tuple["Gaussian", "Gaussian"]:
        return Gaussian(self.loc, other.scale), Gaussian(other.loc, self.scale)
