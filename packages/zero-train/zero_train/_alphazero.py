"""AlphaZero: imitate the search, predict the outcome."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from zero_memory import Batch
from zero_search import AbstractPlanner, AbstractPriorModel

from ._actors import PlanningActor
from ._agent import AbstractAgent, Metrics
from ._experience import Experience
from ._learning import (
    bind,
    gradient_step,
    if_finite,
    init_optimiser,
    log_policy,
    loss_weights,
    mask_rows,
    observation_check,
    parameters,
    square_sum,
    update_target,
)
from ._model import FeatureEvaluator
from .losses import masked_mean, weighted_policy_loss


class AlphaZeroState(eqx.Module):
    """**Attributes:**

    - `params`: what the gradient acts on.
    - `average`: their exponential moving average, which acts.
    - `optimiser`: the optimiser's state.
    - `updates`: gradient steps taken.
    """

    params: PyTree[Array]
    average: PyTree[Array]
    optimiser: PyTree[Array]
    updates: Int[Array, ""]


class AlphaZero(AbstractAgent[AlphaZeroState]):
    """AlphaZero (Silver et al. 2018, https://doi.org/10.1126/science.aar6404).

    The loss of one row is `-sum(w * log pi) + value_weight / 2 * (v - z)^2`, plus
    `l2 * |params|^2`, with the plan's weights `w` and a value target `z`, both from the view of
    the player to move: `z = (1 - value_mix) * outcome + value_mix * searched value`.

    **Attributes:**

    - `network`: `(*, key) -> net`, and `net(features) -> (logits, value)` for one example.
    - `optimiser`: any optax transformation.
    - `model`: makes the planners' model of an evaluator, e.g.
        `functools.partial(zero_train.EnvironmentModel, env)`.
    - `explorer`, `player`: the planner to collect with, and the one to play at full strength.
    - `average_decay`: decay of the parameters' moving average; 0 acts with the newest ones.
    """

    network: Callable[..., Any]
    optimiser: optax.GradientTransformation
    model: Callable[[Callable], AbstractPriorModel]
    explorer: AbstractPlanner
    player: AbstractPlanner
    value_weight: float = 1.0
    value_mix: float = 0.0
    l2: float = 1e-4
    average_decay: float = 0.0

    def init(self, *, key: PRNGKeyArray) -> AlphaZeroState:
        params = parameters(self.network, key=key)
        optimiser = init_optimiser(self.optimiser, params)
        # A copy: a donated state may not hold one buffer twice.
        average = jax.tree.map(jnp.copy, params)
        return AlphaZeroState(params, average, optimiser, jnp.zeros((), jnp.int32))

    def evaluator(self, params: PyTree[Array]) -> FeatureEvaluator:
        """The network with these parameters, as an evaluator of one observation."""
        return FeatureEvaluator(bind(self.network, params))

    def actor(self, state: AlphaZeroState, *, explore: bool) -> PlanningActor:
        planner = self.explorer if explore else self.player
        return PlanningActor(planner, self.model(self.evaluator(state.average)))

    def update(
        self, state: AlphaZeroState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[AlphaZeroState, Metrics]:
        """One gradient step. A step that is not finite leaves the state as it was, and its
        metrics say so."""
        del key
        params, optimiser, metrics = gradient_step(
            lambda params: self._loss(params, batch), self.optimiser, state.params, state.optimiser
        )
        # The average of the first few steps would be mostly the random start: warm up its decay.
        count = state.updates.astype(jnp.float32)
        decay = jnp.minimum(self.average_decay, (1 + count) / (10 + count))
        average = update_target(state.average, params, 1 - decay)
        new = AlphaZeroState(params, average, optimiser, state.updates + 1)
        return if_finite(metrics, new, state), metrics

    def _loss(self, params: PyTree[Array], batch: Batch) -> tuple[Array, Metrics]:
        rows: Experience = batch.items
        logits, value = jax.vmap(self.evaluator(params))(rows.obs)
        counts = loss_weights(batch)
        mean = ft.partial(masked_mean, weights=counts)
        log_probs = log_policy(logits, rows.obs)
        cross_entropy = jax.vmap(weighted_policy_loss)
        target = rows.record.weights
        outcome = (1 - self.value_mix) * rows.reward + self.value_mix * rows.record.value
        outcome = mask_rows(counts, outcome)
        policy_loss = mean(cross_entropy(log_probs, target))
        value_loss = mean(0.5 * jnp.square(value - outcome))
        l2_loss = self.l2 * square_sum(params)
        loss = policy_loss + self.value_weight * value_loss + l2_loss
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "l2_loss": l2_loss,
            "policy_entropy": mean(cross_entropy(log_probs, jnp.exp(log_probs))),
            "target_entropy": mean(cross_entropy(jnp.log(target), target)),
            "value_error": mean(jnp.abs(value - rows.reward)),
            **observation_check(rows.obs.features),
        }
