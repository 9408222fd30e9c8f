"""What agents with a policy, a critic and a trust region share: MPO and SPO."""

import abc
import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_memory import Batch

from ._agent import AbstractActor, AbstractBlockAgent, Experience, Metrics
from ._checks import check_kind, check_range
from ._learning import (
    adopted,
    check_optimisers,
    check_windows,
    gradient_step,
    if_finite,
    init_optimiser,
    mask_rows,
    observation_check,
    parameters,
    update_target,
)
from ._policies import ActorCriticEvaluator, DistributionActor, Statistics, with_observations
from .losses import AbstractTrustRegion, Dual, masked_mean


class ActorCritic(eqx.Module):
    """The parameters of an actor-critic that its actor needs.

    **Attributes:**

    - `policy`, `critic`: the networks' parameters.
    - `duals`: the dual variables of the trust region, by name. Searches share the `temperature`.
    - `statistics`: those of the observations, where they are normalised.
    """

    policy: PyTree[Array]
    critic: PyTree[Array]
    duals: dict[str, Dual]
    statistics: Any


class ActorCriticState(eqx.Module):
    """What an actor-critic has learned.

    **Attributes:**

    - `online`: the parameters that the gradient acts on and that act.
    - `target_policy`, `target_critic`: the target networks' parameters.
    - `optimiser`: the state of all three optimisers.
    - `updates`: gradient steps taken.
    """

    online: ActorCritic
    target_policy: PyTree[Array]
    target_critic: PyTree[Array]
    optimiser: PyTree[Array]
    updates: Int[Array, ""]


class AbstractActorCritic(AbstractBlockAgent[ActorCriticState]):
    """A policy and a critic with target networks of both, learned from windows of rows.

    Policy, critic and duals have an optimiser each. A step that is not finite leaves everything as
    it was, and its metrics say so. What its attributes are, [`zero_train.SPO`][] says; what a
    critic's arguments are, the agent. Illegal actions are taken out of a discrete policy here.
    """

    policy: eqx.AbstractVar[Callable[..., Any]]
    critic: eqx.AbstractVar[Callable[..., Any]]
    region: eqx.AbstractVar[AbstractTrustRegion]
    policy_optimiser: eqx.AbstractVar[optax.GradientTransformation]
    critic_optimiser: eqx.AbstractVar[optax.GradientTransformation]
    dual_optimiser: eqx.AbstractVar[optax.GradientTransformation]
    gamma: eqx.AbstractVar[float]
    lambda_: eqx.AbstractVar[float]
    target_rate: eqx.AbstractVar[float]
    statistics: eqx.AbstractVar[Statistics | None]

    def __check_init__(self):
        owner = type(self).__name__
        check_kind(owner, Callable, "a function", policy=self.policy, critic=self.critic)
        check_kind(owner, Statistics | None, "running statistics", statistics=self.statistics)
        check_kind(owner, AbstractTrustRegion, "a trust region", region=self.region)
        for name in ("policy_optimiser", "critic_optimiser", "dual_optimiser"):
            check_optimisers(owner, **{name: getattr(self, name)})
        for name in ("gamma", "lambda_", "target_rate"):
            check_range(owner, 0, 1, **{name: getattr(self, name)})

    @abc.abstractmethod
    def losses(
        self, learned: tuple, state: ActorCriticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        """The sum of all losses of a batch of windows, and metrics. `learned` are the parameters of
        policy and critic, and the duals."""

    @abc.abstractmethod
    def observed(self, rows: Experience) -> Metrics:
        """Metrics of rows that were just collected."""

    def init(self, *, key: PRNGKeyArray, actor: AbstractActor | None = None) -> ActorCriticState:
        """Fresh, or with an `actor` of this agent with the networks that it has."""
        pkey, ckey = jax.random.split(key)
        policy, critic = parameters(self.policy, key=pkey), parameters(self.critic, key=ckey)
        statistics: Any = self.statistics
        if actor is not None:
            # One that plans has them in its model, another one in itself, without a critic.
            given: Any = getattr(getattr(actor, "model", None), "evaluate", actor)
            name, kinds = f"{type(self).__name__}.init", (ActorCriticEvaluator, DistributionActor)
            check_kind(name, kinds, "an actor of this agent", actor=given)
            policy = adopted(policy, given.policy)
            critic = adopted(critic, given.critic) if hasattr(given, "critic") else critic
            statistics = adopted(statistics, given.statistics)
        # Copies: a donated state may not hold one buffer twice, nor one of the agent's own.
        copy = lambda tree: jax.tree.map(jnp.copy, tree)
        duals = copy(self.region.duals())
        return ActorCriticState(
            online=ActorCritic(policy, critic, duals, copy(statistics)),
            target_policy=copy(policy),
            target_critic=copy(critic),
            optimiser=init_optimiser(self._optimiser(), (policy, critic, duals)),
            updates=jnp.zeros((), jnp.int32),
        )

    def digest(self, state: ActorCriticState, rows: Experience) -> tuple[ActorCriticState, Metrics]:
        """Updates the statistics of the observations with new rows, final ones included."""
        online = dataclasses.replace(
            state.online, statistics=with_observations(state.online.statistics, rows.obs)
        )
        return dataclasses.replace(state, online=online), self.observed(rows)

    def update(
        self, state: ActorCriticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[ActorCriticState, Metrics]:
        """One gradient step of all three."""
        check_windows(f"{type(self).__name__}.update", batch.items)
        old = state.online
        learned, optimiser, metrics = gradient_step(
            lambda learned: self.losses(learned, state, batch, key=key),
            self._optimiser(),
            (old.policy, old.critic, old.duals),
            state.optimiser,
        )
        policy, critic, duals = learned
        duals = {name: dual.clipped() for name, dual in duals.items()}
        new = ActorCriticState(
            online=ActorCritic(policy, critic, duals, old.statistics),
            target_policy=update_target(state.target_policy, policy, self.target_rate),
            target_critic=update_target(state.target_critic, critic, self.target_rate),
            optimiser=optimiser,
            updates=state.updates + 1,
        )
        metrics |= observation_check(batch.items.obs.features)
        return if_finite(metrics, new, state), metrics

    def _optimiser(self) -> optax.GradientTransformation:
        names = "policy", "critic", "duals"
        optimisers = self.policy_optimiser, self.critic_optimiser, self.dual_optimiser
        return optax.multi_transform(dict(zip(names, optimisers, strict=True)), names)


def improvement(
    region: AbstractTrustRegion,
    policy: Any,
    target: Any,
    actions: PyTree[Array],
    values: Float[Array, "rows actions"],
    duals: dict[str, Dual],
    counts: Float[Array, " rows"],
    *,
    total: Float[Array, ""],
    weights: Float[Array, "rows actions"] | None = None,
    log_prior: Float[Array, "rows actions"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """The mean loss of the trust region over the rows that count, `total` together, and the means
    of its metrics."""
    given = mask_rows(counts, (actions, values, weights, log_prior))
    each = lambda p, t, a, v, w, q: region.loss(p, t, a, v, duals, weights=w, log_prior=q)
    loss, metrics = eqx.filter_vmap(each)(policy, target, *given)
    mean = ft.partial(masked_mean, weights=counts, total=total)
    return mean(loss), {name: mean(x) for name, x in metrics.items()}


def regression(
    value: Float[Array, "*rows"], returns: Float[Array, "*rows"], counts: Float[Array, "*rows"]
) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
    """The critic's mean loss, half the squared error, the sum of `counts`, which all other means
    should have as well, and what to log."""
    returns = mask_rows(counts, returns)
    plain = jax.lax.stop_gradient(value)
    # Devices wait for these two sums, the second for the sake of `value_stddev`: one array of both.
    pair = jnp.stack([counts, jnp.where(counts == 0, 0.0, counts * plain)])
    total, counted = jnp.sum(pair, axis=range(1, pair.ndim))
    value_mean = counted / jnp.where(total == 0, 1.0, total)
    mean = ft.partial(masked_mean, weights=counts, total=total)
    loss = mean(0.5 * jnp.square(value - returns))
    metrics = {
        "value_loss": loss,
        "value_mean": value_mean,
        "value_stddev": jnp.sqrt(mean(jnp.square(plain - value_mean))),
    }
    return loss, total, metrics
