"""Policies over any actions: an actor without search, and the evaluation of networks."""

import functools as ft
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from zero_envs import Observation, Transition

from ._agent import AbstractActor
from ._arrays import log_softmax
from ._faults import move_faults
from ._learning import if_finite, observation_check
from .losses import weighted_policy_loss


@runtime_checkable
class Statistics(Protocol):
    """Running statistics of observations, such as a `zero_nets.RunningStatistics`."""

    def update(self, batch: Any, weights: Any = None) -> Any:
        """The statistics with another batch in them."""
        ...

    def normalise(self, x: Any) -> Any:
        """Observations shifted and scaled to mean 0 and deviation 1."""
        ...


class Behaviour(eqx.Module):
    """The record of a sampled action: its log-probability, or log-density, when it was drawn."""

    log_prob: Float[Array, "*axes"]


class AbstractReflexActor(AbstractActor[None]):
    """An actor that carries nothing from one move to the next.

    After a wrong move `advance` raises, except under `jax.jit`, where nothing can.
    """

    def init(self, state: PyTree[Array]) -> None:
        del state

    def advance(self, carry: None, action: Any, transition: Transition) -> None:
        del carry
        move_faults(type(self).__name__, action, transition)


class DistributionActor(AbstractReflexActor):
    """Plays a policy of any actions, without search: the mode of the distribution that `policy`
    returns of the features if `greedy`, otherwise a sample. Its record is a `Behaviour`. Features
    are normalised by the `statistics`, unless they are `None`.

    Where the log-probability of a discrete action is NaN there is no policy, and the action is -1,
    which no environment has, as in a [`zero_train.PolicyActor`][].
    """

    policy: Callable[[Any], Any]
    statistics: Any
    greedy: bool = False

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[PyTree[Array], Behaviour, None]:
        del state, carry
        draw = jax.vmap(ft.partial(drawn, greedy=self.greedy))
        action, log_prob = draw(self.policies(obs), key)
        return action, Behaviour(log_prob), None

    def policies(self, obs: Observation) -> Any:
        """The policy of each observation of a batch, as one pytree."""
        return policies(self.policy, normalised(self.statistics, obs.features), obs.legal)


def drawn(policy: Any, key: PRNGKeyArray, *, greedy: bool) -> tuple[Any, Float[Array, ""]]:
    """An action of a policy, or its mode, and the log-probability. A discrete action is -1 where
    that is NaN."""
    action = policy.mode() if greedy else policy.sample(key=key)
    log_prob = policy.log_prob(action)
    if jnp.issubdtype(action.dtype, jnp.integer):
        action = jnp.where(jnp.isnan(log_prob), -1, action).astype(jnp.int32)
    return action, log_prob


class ActorCriticEvaluator(eqx.Module):
    """Networks of the features, normalised by the `statistics` if there are any, as one evaluator,
    which returns the policy and the value."""

    policy: Callable[[Any], Any]
    critic: Callable[[Any], Array]
    statistics: Any

    def __call__(self, obs: Observation) -> tuple[Any, Float[Array, ""]]:
        features = normalised(self.statistics, obs.features)
        return self.policy(features), self.critic(features)


def normalised(statistics: Any, features: PyTree[Array]) -> PyTree[Array]:
    """The features as networks take them: normalised, if there are statistics. Any leading axes."""
    return features if statistics is None else statistics.normalise(features)


def with_observations(statistics: Any, obs: Observation) -> Any:
    """The statistics with these observations in them, final ones included. A NaN would stay, so it
    changes nothing; `update` reports it."""
    if statistics is None:
        return None
    finite, new = observation_check(obs.features), statistics.update(obs.features)
    return if_finite(finite, new, statistics) if finite else new


def policies(
    network: Callable[[Any], Any],
    features: PyTree[Array],
    legal: Bool[Array, "rows actions"] | None,
) -> Any:
    """The policy of every row of `[rows]`, as one pytree."""
    return jax.vmap(lambda x, mask: masked(network(x), mask))(features, legal)


def imitation(
    policy: Any,
    weights: Float[Array, " candidates"],
    candidates: PyTree[Array],
    legal: Bool[Array, " actions"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The loss of a policy that imitates a plan of ONE state, `-sum(weights * log pi(candidates))`,
    and the policy's entropy.

    The policy is logits, or a distribution with `log_prob` and `entropy`. Without `candidates` the
    weights are those of all actions. Of continuous actions it is the loss of Hubert et al. 2021
    (https://arxiv.org/abs/2104.06303), section 5: the cross-entropy to the weights of the draws.
    """
    if isinstance(policy, Array):
        log_probs = log_softmax(policy if legal is None else jnp.where(legal, policy, -jnp.inf))
        # Not a `weighted_policy_loss`, whose weights get no gradient.
        probs = jnp.exp(log_probs)
        entropy = -jnp.sum(probs * jnp.where(probs > 0, log_probs, 0.0))
        log_probs = log_probs if candidates is None else log_probs[candidates]
        return weighted_policy_loss(log_probs, weights), entropy
    check_candidates(candidates)
    policy = masked(policy, legal)
    return weighted_policy_loss(jax.vmap(policy.log_prob)(candidates), weights), policy.entropy()


def check_candidates(candidates: PyTree[Array]) -> None:
    """Raises where rows do not say which actions their weights belong to, and must."""
    if candidates is None:
        raise ValueError(
            "the rows say nothing of the actions that their weights belong to: give the agent "
            "`record=zero_train.candidates_and_value`, or for discrete actions a network of logits."
        )


def masked(policy: Any, legal: Bool[Array, " actions"] | None) -> Any:
    """A discrete policy, or one of several components, that plays legal actions only; a continuous
    one as it is."""
    if legal is None:
        return policy
    if not hasattr(policy, "logits"):
        raise ValueError(
            f"the network predicts a {type(policy).__name__}, and the environment has discrete "
            "actions; give it a head with logits, such as zero_nets.CategoricalHead."
        )
    # Where nothing is legal, as on a final row, a softmax would be NaN, so nothing is masked.
    logits = jnp.where(legal | ~jnp.any(legal), policy.logits, -jnp.inf)
    return eqx.tree_at(lambda p: p.logits, policy, logits)
