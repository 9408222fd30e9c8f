"""Distributions over finitely many actions or values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from ._checks import check_each, check_number, check_same_kind, check_vector, checked_action
from ._distribution import AbstractDistribution
from ._precision import real


# distreqx's `Categorical` draws int8, so actions above 127 come out negative, and an infinite
# divergence has a NaN gradient.
class Categorical(AbstractDistribution):
    """The actions 0 to n - 1 with probabilities `softmax(logits)`.

    A logit of -inf marks an illegal action: it has probability 0, it is never drawn, and it causes
    no NaN in any value or gradient. If no action is legal (as in a row of filler), every
    log-probability is -inf, and the sample, the mode and the entropy are 0. If a logit is NaN or
    +inf there is no distribution: every number is NaN, and the sample and the mode are -1, an
    action that does not exist.
    """

    logits: Float[Array, " actions"] = eqx.field(converter=real)

    def __check_init__(self):
        check_vector("logits", self.logits)

    @property
    def log_probs(self) -> Float[Array, " actions"]:
        """The log-probabilities of all actions, -inf for illegal ones."""
        legal = self.logits != -jnp.inf
        # The softmax of a row without a legal action would be NaN.
        logits = jnp.where(jnp.any(legal), self.logits, jnp.zeros_like(self.logits))
        log_probs = jnp.where(legal, jax.nn.log_softmax(logits), -jnp.inf)
        return jnp.where(_unknown(self.logits), jnp.nan, log_probs)

    @property
    def probs(self) -> Float[Array, " actions"]:
        """The probabilities of all actions."""
        return jnp.exp(self.log_probs)

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return _known(jr.categorical(key, self.logits), self.logits)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        """The log-probability of `action`: -inf if it is illegal or out of range."""
        given = checked_action(action, ())
        exists = (given >= 0) & (given < self.logits.size)
        log_prob = jnp.where(exists, self.log_probs[jnp.where(exists, given, 0)], -jnp.inf)
        return jnp.where(_unknown(self.logits), jnp.nan, log_prob)

    def mode(self) -> Int[Array, ""]:
        """The most likely action; the first one if several are equal."""
        return _known(jnp.argmax(self.logits), self.logits)

    def entropy(self) -> Float[Array, ""]:
        log_probs = self.log_probs
        return -jnp.sum(self.probs * jnp.where(log_probs != -jnp.inf, log_probs, 0.0))

    def kl(self, other: "Categorical") -> Float[Array, ""]:
        """`KL(self || other)`. It is infinite, with a zero gradient, if `other` gives probability 0
        to an action that `self` can draw."""
        check_same_kind(self, other)
        if other.logits.shape != self.logits.shape:
            raise ValueError(
                f"A KL divergence of {self.logits.size} actions to {other.logits.size}; both "
                "distributions must have the same number."
            )
        mine, theirs = self.log_probs, other.log_probs
        possible = mine != -jnp.inf
        shared = possible & (theirs != -jnp.inf)
        log_ratio = jnp.where(shared, theirs, 0.0) - jnp.where(shared, mine, 0.0)
        p, q = self.probs, other.probs
        # Adding sum(q - p) = 0 makes each term p * (exp(x) - 1 - x), which is never negative: then
        # rounding of the log-ratio x has no effect of the first order.
        small = jnp.clip(log_ratio, -1.0, 1.0)
        near = shared & (small == log_ratio)
        terms = jnp.where(near, p * (jnp.expm1(small) - small), q - p - p * log_ratio)
        kl = jnp.where(jnp.any(possible), jnp.sum(terms), 0.0)
        return jnp.where(jnp.any(possible & ~shared), jnp.inf, kl)


class MultiDiscrete(AbstractDistribution):
    """Several independent categorical distributions, which may differ in size. `num_actions` has
    the number of actions of each. The logits are those of the first component, then those of the
    second, and so on; -inf marks an illegal action."""

    logits: Float[Array, " logits"] = eqx.field(converter=real)
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        check_each(num_actions=self.num_actions)
        if self.logits.shape != (sum(self.num_actions),):
            raise ValueError(
                f"The logits have shape {self.logits.shape}; `num_actions={self.num_actions}` "
                f"needs {(sum(self.num_actions),)}. Use `jax.vmap` over a batch."
            )

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, " components"]:
        keys = jr.split(key, len(self.num_actions))
        return jax.vmap(lambda part, key: part.sample(key=key))(self._parts(), keys)

    def log_prob(self, action: Int[Array, " components"]) -> Float[Array, ""]:
        given = checked_action(action, (len(self.num_actions),))
        return jnp.sum(jax.vmap(lambda part, x: part.log_prob(x))(self._parts(), given))

    def mode(self) -> Int[Array, " components"]:
        return jax.vmap(Categorical.mode)(self._parts())

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(lambda part: part.entropy())(self._parts()))

    def kl(self, other: "MultiDiscrete") -> Float[Array, " components"]:
        """`KL(self || other)` of each component."""
        check_same_kind(self, other)
        if other.num_actions != self.num_actions:
            raise ValueError(
                f"A KL divergence of {self.num_actions} actions to {other.num_actions}; both "
                "distributions must have the same numbers."
            )
        return jax.vmap(Categorical.kl)(self._parts(), other._parts())

    def _parts(self) -> Categorical:
        """A batch of one distribution per component, padded with illegal actions."""
        sizes = np.asarray(self.num_actions)[:, None]
        columns = np.arange(sizes.max())[None, :]
        index = np.where(columns < sizes, np.cumsum(sizes)[:, None] - sizes + columns, 0)
        logits = jnp.where(columns < sizes, self.logits[index], -jnp.inf)
        return jax.vmap(Categorical)(logits)


class EpsilonGreedy(AbstractDistribution):
    """With probability `epsilon` a uniform legal action, otherwise a greedy one.

    Greedy actions of equal value share their probability equally. The `qvalues` are the
    values of all actions for the player who acts; -inf marks an illegal action.
    """

    qvalues: Float[Array, " actions"]
    epsilon: Float[Array, ""]

    def __init__(self, qvalues: Float[Array, " actions"], epsilon: Float[ArrayLike, ""]):
        """A Python number is cast to the dtype of `qvalues`. Where a value is NaN or +inf there is
        no distribution, as for a [`zero_nets.Categorical`][]."""
        self.qvalues = real(qvalues)
        check_vector("qvalues", self.qvalues)
        check_number(0, 1, epsilon=epsilon)
        self.epsilon = jnp.asarray(epsilon, self.qvalues.dtype)

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        return self._categorical.sample(key=key)

    def log_prob(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return self._categorical.log_prob(action)

    def mode(self) -> Int[Array, ""]:
        """The greedy action; the first one if several are equal."""
        return _known(jnp.argmax(self.qvalues), self.qvalues)

    def entropy(self) -> Float[Array, ""]:
        return self._categorical.entropy()

    def kl(self, other: "EpsilonGreedy") -> Float[Array, ""]:
        check_same_kind(self, other)
        return self._categorical.kl(other._categorical)

    @property
    def _categorical(self) -> Categorical:
        legal = self.qvalues > -jnp.inf
        best = legal & (self.qvalues == jnp.max(self.qvalues))
        probs = jnp.zeros_like(self.qvalues)
        for chosen, total in ((best, 1 - self.epsilon), (legal, self.epsilon)):
            number = jnp.maximum(jnp.sum(chosen, dtype=total.dtype), 1)
            probs += jnp.where(chosen, total / number, 0.0)
        # Without a NaN in the gradient where a probability is 0.
        possible = probs > 0
        log_probs = jnp.where(possible, jnp.log(jnp.where(possible, probs, 1.0)), -jnp.inf)
        return Categorical(jnp.where(_unknown(self.qvalues), jnp.nan, log_probs))


def _unknown(x: Float[Array, " actions"]) -> Bool[Array, ""]:
    """Whether logits or values are none: a network that has diverged plays no action."""
    return jnp.any(jnp.isnan(x) | (x == jnp.inf))


def _known(action: Int[Array, ""], x: Float[Array, " actions"]) -> Int[Array, ""]:
    """The action, -1 where the logits or values that it was taken from are none."""
    return jnp.where(_unknown(x), -1, action.astype(jnp.int32))
