"""SPO: the policy imitates a particle search, and the critic learns from collected rewards."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from zero_memory import Batch
from zero_search import AbstractModel, ParticleSearch, Plan

from ._actor_critic import AbstractActorCritic, ActorCriticState, improvement, regression
from ._actors import PlanningActor
from ._agent import Experience, Metrics
from ._arrays import log_softmax
from ._checks import check_kind
from ._learning import bind, loss_weights
from ._policies import ActorCriticEvaluator, normalised, policies, Statistics
from .losses import AbstractTrustRegion, masked_mean
from .returns import truncated_gae


class ParticleRecord(eqx.Module):
    """The part of a particle search's plan that is stored for the learner.

    **Attributes:**

    - `candidates`: the first actions.
    - `weights`: the weight of each after the search. They sum to 1, or are all 0 in rows without
        a legal action.
    - `advantages`: of the first actions under the policy that they were drawn from.
    - `stats`: those of [`zero_search.ParticleSearch`][].
    - `log_ratio`: how likely each is under the policy, over how likely it was to be drawn, as a
        logarithm; `None` where they were drawn from the policy.
    """

    candidates: PyTree[Array]
    weights: Float[Array, "*axes particles"]
    advantages: Float[Array, "*axes particles"]
    stats: dict[str, Array]
    log_ratio: Float[Array, "*axes particles"] | None = None


class SPO(AbstractActorCritic):
    """Sequential Monte Carlo policy optimisation (Macfarlane et al. 2024,
    https://arxiv.org/abs/2402.07963), of continuous or discrete actions.

    It learns from windows of consecutive rows, old ones included (a
    [`zero_memory.TrajectoryBuffer`][]). The policy is fitted to the weighted first actions of the
    plans within the trust region, the temperature to their advantages, and the critic to
    TD(lambda) returns over the target critic (the paper's section 4 and Algorithm 2).
    The temperature that is learned is that of the next searches.

    **Attributes:**

    - `policy`: `(*, key) -> net`, and `net(features) -> distribution` for one example; a discrete
        one has `logits`.
    - `critic`: `(*, key) -> net`, and `net(features) -> value`.
    - `model`: `(evaluator, *, gamma) -> model`, what the searches plan over:
        `functools.partial(PolicyModel, env)` for continuous actions,
        `functools.partial(EnvironmentModel, env)` for discrete ones.
    - `explorer`, `planner`: the search to collect with, and the one to play at full strength.
    - `region`: [`zero_train.losses.DecoupledTrustRegion`][] for Gaussian policies,
        [`zero_train.losses.TrustRegion`][] otherwise.
    - `gamma`, `lambda_`: of the critic's returns; gamma is that of the model, too.
    - `target_rate`: how far both target networks move with every gradient step.
    - `adaptive`: whether searches have the temperature that is learned, and not their own.
    - `statistics`: to normalise observations by, such as a fresh `zero_nets.RunningStatistics`,
        updated once with every block that is collected; `None` leaves observations as they are.
    """

    policy: Callable[..., Any]
    critic: Callable[..., Any]
    model: Callable[..., AbstractModel]
    explorer: ParticleSearch
    planner: ParticleSearch
    region: AbstractTrustRegion
    policy_optimiser: optax.GradientTransformation
    critic_optimiser: optax.GradientTransformation
    dual_optimiser: optax.GradientTransformation
    gamma: float = 0.99
    lambda_: float = 0.95
    target_rate: float = 0.005
    adaptive: bool = True
    statistics: Statistics | None = None

    def __check_init__(self):
        check_kind("SPO", Callable, "a function", model=self.model)
        called = "a zero_search.ParticleSearch"
        check_kind("SPO", ParticleSearch, called, explorer=self.explorer, planner=self.planner)

    def actor(self, state: ActorCriticState, *, explore: bool) -> PlanningActor:
        """Plans with the online parameters."""
        online = state.online
        planner = self.explorer if explore else self.planner
        if self.adaptive:
            temperature = online.duals["temperature"].value
            planner = eqx.tree_at(lambda p: p.temperature, planner, temperature)
        policy, critic = bind(self.policy, online.policy), bind(self.critic, online.critic)
        evaluator = ActorCriticEvaluator(policy, critic, online.statistics)
        return PlanningActor(planner, self.model(evaluator, gamma=self.gamma), _record)

    def losses(
        self, learned: tuple, state: ActorCriticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        del key
        policy, critic, duals = learned
        rows: Experience = batch.items
        counts = loss_weights(batch)
        features = normalised(state.online.statistics, rows.obs.features)
        each = lambda params: jax.vmap(jax.vmap(bind(self.critic, params)))(features)
        _, returns = jax.vmap(ft.partial(truncated_gae, lambda_=self.lambda_))(
            rows.reward, self.gamma * rows.discount, each(state.target_critic), rows.last
        )
        critic_loss, total, critic_metrics = regression(each(critic), returns, counts)
        # The last row of a window has no loss of its own, and counts for nothing.
        flat = lambda tree: jax.tree.map(lambda x: jax.lax.collapse(x[:, :-1], 0, 2), tree)
        features, legal, record, counts = flat((features, rows.obs.legal, rows.record, counts))
        policy_loss, metrics = improvement(
            self.region,
            policies(bind(self.policy, policy), features, legal),
            policies(bind(self.policy, state.target_policy), features, legal),
            record.candidates,
            record.advantages,
            duals,
            counts,
            total=total,
            weights=record.weights,
            log_prior=None if record.log_ratio is None else log_softmax(record.log_ratio),
        )
        loss = policy_loss + critic_loss
        return loss, {"loss": loss, **metrics, **critic_metrics}

    def observed(self, rows: Experience) -> Metrics:
        """Statistics of the searches, those that have one for each step of the particles numbered
        from 1 on. `kl_search` is how far the weights are from equal ones, over the bound."""
        counts = jnp.where(rows.last, 0.0, 1.0)
        stats = dict(rows.record.stats)
        equal = jnp.log(jnp.float32(rows.record.weights.shape[-1]))
        stats["kl_search"] = (equal - stats["entropy"]) / self.region.epsilon
        metrics = {}
        for name, x in stats.items():
            x = x.astype(jnp.float32)
            if x.ndim == counts.ndim:
                metrics[name] = masked_mean(x, counts)
                continue
            for step in range(x.shape[-1]):
                metrics[f"{name}_{step + 1}"] = masked_mean(x[..., step], counts)
        return metrics


def _record(plan: Plan) -> ParticleRecord:
    own = plan.candidates, plan.weights, plan.advantages, plan.stats, plan.extra
    return ParticleRecord(*own)
