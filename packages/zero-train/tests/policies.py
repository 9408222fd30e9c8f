"""For the tests of losses: policies as a user could write them, in the textbook's formulas, and
gradient descent."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Categorical(eqx.Module):
    logits: Float[Array, " actions"]

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return jr.categorical(key, self.logits)

    def mode(self) -> Int[Array, ""]:
        return jnp.argmax(self.logits)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(self.logits)[action]

    def entropy(self) -> Float[Array, ""]:
        log_probs = jax.nn.log_softmax(self.logits)
        possible = jnp.where(jnp.isneginf(log_probs), 0.0, log_probs)
        return -jnp.sum(jnp.exp(log_probs) * possible)

    def kl(self, other: "Categorical") -> Float[Array, ""]:
        own, others = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        possible = ~jnp.isneginf(own)
        difference = jnp.where(possible, own, 0.0) - jnp.where(possible, others, 0.0)
        return jnp.sum(jnp.exp(own) * difference)


class Gaussian(eqx.Module):
    loc: Float[Array, " dims"]
    scale: Float[Array, " dims"]

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dims"]:
        return self.loc + self.scale * jr.normal(key, self.loc.shape, self.loc.dtype)

    def mode(self) -> Float[Array, " dims"]:
        return self.loc

    def log_prob(self, action: Float[Array, " dims"]) -> Float[Array, ""]:
        return jnp.sum(jax.scipy.stats.norm.logpdf(action, self.loc, self.scale))

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(jnp.log(self.scale) + 0.5 * jnp.log(2 * jnp.pi * jnp.e))

    def kl(self, other: "Gaussian") -> Float[Array, " dims"]:
        distance = jnp.square(self.scale) + jnp.square(self.loc - other.loc)
        return jnp.log(other.scale / self.scale) + distance / (2 * jnp.square(other.scale)) - 0.5

    def decouple(self, other: "Gaussian") -> tuple["Gaussian", "Gaussian"]:
        return Gaussian(self.loc, other.scale), Gaussian(other.loc, self.scale)


def descend(loss: Callable[..., Array], start: Any, project: Callable[[Any], Any]) -> Any:
    """`start` after 2000 steps of Adam with a falling rate, each followed by `project`."""
    # A small b2: a multiplier must forget soon how large the first divergences were.
    optimiser = optax.adam(optax.exponential_decay(0.05, 500, 0.3), b2=0.9)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        variables, state = carry
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimiser.update(jax.grad(loss)(variables), state)
            variables = optax.apply_updates(variables, change)
        return (project(variables), state), None

    (variables, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), length=2000)
    return variables
