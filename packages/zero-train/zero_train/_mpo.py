"""MPO: improve the policy by sampled actions and their Q-values, without a search."""

import functools as ft
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from zero_memory import Batch

from ._actor_critic import AbstractActorCritic, ActorCriticState, improvement, regression
from ._agent import Experience, Metrics
from ._checks import check_count
from ._learning import bind, loss_weights
from ._policies import DistributionActor, normalised, policies, Statistics
from .losses import AbstractTrustRegion
from .returns import retrace_returns


class MPO(AbstractActorCritic):
    """Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018,
    https://arxiv.org/abs/1806.06920 and https://arxiv.org/abs/1812.02256), of continuous or
    discrete actions: the parts of [`zero_train.SPO`][] with Q-values in place of its search.

    It learns from windows of consecutive rows, old ones included (a
    [`zero_memory.TrajectoryBuffer`][]). In each state actions are drawn from the target policy and
    judged by the target critic; the policy is fitted to them within the trust region. The critic
    learns Retrace's returns of the actions played.

    **Attributes:** those of [`zero_train.SPO`][], but

    - `critic`: `(*, key) -> net`, and `net(features, action) -> value`.
    - `num_samples`: actions drawn in each state.
    - `lambda_`: of Retrace.
    """

    policy: Callable[..., Any]
    critic: Callable[..., Any]
    region: AbstractTrustRegion
    policy_optimiser: optax.GradientTransformation
    critic_optimiser: optax.GradientTransformation
    dual_optimiser: optax.GradientTransformation
    num_samples: int = 16
    gamma: float = 0.99
    lambda_: float = 0.95
    target_rate: float = 0.005
    statistics: Statistics | None = None

    def __check_init__(self):
        check_count("MPO", num_samples=self.num_samples)

    def actor(self, state: ActorCriticState, *, explore: bool) -> DistributionActor:
        """The online policy: sampled to explore, else its mode."""
        policy = bind(self.policy, state.online.policy)
        return DistributionActor(policy, state.online.statistics, greedy=not explore)

    def losses(
        self, learned: tuple, state: ActorCriticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        policy, critic, duals = learned
        windows: Experience = batch.items
        shape = windows.last.shape
        counts = loss_weights(batch)
        flat = lambda tree: jax.tree.map(lambda x: jax.lax.collapse(x, 0, 2), tree)
        rows = flat(windows)
        features = normalised(state.online.statistics, rows.obs.features)
        target = policies(bind(self.policy, state.target_policy), features, rows.obs.legal)
        keys = jr.split(key, shape[0] * shape[1])
        draw = lambda p, k: jax.vmap(lambda i: p.sample(key=jr.fold_in(k, i)))(
            jnp.arange(self.num_samples, dtype=jnp.int32)
        )
        actions = jax.vmap(draw)(target, keys)
        judge = bind(self.critic, state.target_critic)
        sampled = jax.vmap(lambda x, a: jax.vmap(ft.partial(judge, x))(a))(features, actions)
        log_prob = jax.vmap(lambda p, a: p.log_prob(a))(target, rows.action)
        returns = jax.vmap(ft.partial(retrace_returns, lambda_=self.lambda_))(
            windows.reward,
            self.gamma * windows.discount,
            jax.vmap(judge)(features, rows.action).reshape(shape),
            jnp.mean(sampled, axis=1).reshape(shape),
            (log_prob - rows.record.log_prob).reshape(shape),
            windows.last,
        )
        value = jax.vmap(bind(self.critic, critic))(features, rows.action)
        critic_loss, total, critic_metrics = regression(value, flat(returns), flat(counts))
        online = policies(bind(self.policy, policy), features, rows.obs.legal)
        policy_loss, metrics = improvement(
            self.region, online, target, actions, sampled, duals, flat(counts), total=total
        )
        loss = policy_loss + critic_loss
        return loss, {"loss": loss, **metrics, **critic_metrics}

    def observed(self, rows: Experience) -> Metrics:
        """Nothing: there is no search."""
        del rows
        return {}
