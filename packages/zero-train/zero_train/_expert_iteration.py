"""Expert iteration: imitate a planner, learn values from what was really collected."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_memory import Batch
from zero_search import AbstractModel, AbstractPlanner, Plan

from ._actors import PlanningActor, policy_and_value
from ._agent import AbstractAgent, Metrics
from ._experience import Experience
from ._learning import (
    bind,
    check_windows,
    gradient_step,
    if_finite,
    init_optimiser,
    log_policy,
    loss_weights,
    mask_rows,
    observation_check,
    parameters,
    update_target,
)
from ._model import decoded, FeatureEvaluator, ValueCode
from .losses import masked_mean, weighted_policy_loss
from .returns import n_step_returns


class ExpertIterationState(eqx.Module):
    """**Attributes:**

    - `params`: what the gradient acts on, and what acts.
    - `target`: the target network's parameters, which values are bootstrapped from.
    - `optimiser`: the optimiser's state.
    - `updates`: gradient steps taken.
    """

    params: PyTree[Array]
    target: PyTree[Array]
    optimiser: PyTree[Array]
    updates: Int[Array, ""]


class ExpertIteration(AbstractAgent[ExpertIterationState]):
    """Expert iteration (Anthony et al. 2017, https://arxiv.org/abs/1705.08439) with bootstrapped
    values: the policy imitates a planner, the value learns from the rewards after it.

    It learns from windows of consecutive rows (a [`zero_memory.TrajectoryBuffer`][]), so episodes
    need not end, as for [`zero_train.AlphaZero`][]. The loss of one row is
    `-sum(w * log pi) - entropy_bonus * H(pi) + value_weight * L(v, z)` with the plan's weights `w`
    and the value target, from the view of the player to move,
    `z = (1 - value_mix) * R + value_mix * searched value`, `R` being the n-step return that ends in
    the target network's value. `L` is the cross-entropy of `value_code`, or half the squared error
    without one. Final rows, and the last row of a window, are bootstrapped from and otherwise not
    learned from.

    With an `auxiliary` loss the network learns something else beside, which its torso may gain from
    (Jaderberg et al. 2017, https://arxiv.org/abs/1611.05397): what a plan knows, for instance.

    **Attributes:**

    - `network`: `(*, key) -> net`, and `net(features) -> (logits, value)` for one example; `value`
        is a scalar, or logits over the atoms of `value_code`. For an `auxiliary` loss
        `(logits, value, rest)`, of which planners see the first two.
    - `optimiser`: any optax transformation.
    - `model`: `(evaluator, *, gamma) -> model`, what the planners plan over, e.g.
        `functools.partial(zero_train.EnvironmentModel, env)`.
    - `explorer`: the planner to collect with, or `(updates) -> planner` for one whose temperature
        falls while it learns.
    - `player`: the planner to play with at full strength.
    - `gamma`: of the returns, and of the model that the planners plan over.
    - `n_steps`: rewards in a return before it is bootstrapped.
    - `value_code`: for a discrete value, e.g. `zero_nets.ValueSupport(21, maximum=1.0)`.
    - `target_period`, `target_rate`: every so many updates the target network moves by this share
        of the way to the parameters.
    - `record`: what of a plan is kept: `weights`, `value` unless `value_mix` is 0, and what the
        `auxiliary` loss needs.
    - `auxiliary`: `(rest, row) -> loss` of one [`zero_train.Experience`][].
    - `auxiliary_weight`: multiplies its mean.
    """

    network: Callable[..., Any]
    optimiser: optax.GradientTransformation
    model: Callable[..., AbstractModel]
    explorer: AbstractPlanner | Callable[[Int[Array, ""]], AbstractPlanner]
    player: AbstractPlanner
    gamma: float
    n_steps: int = 5
    value_code: ValueCode | None = None
    value_weight: float = 1.0
    value_mix: float = 0.0
    entropy_bonus: float = 0.0
    target_period: int = 1
    target_rate: float = 0.01
    record: Callable[[Plan], Any] = policy_and_value
    auxiliary: Callable[[PyTree[Array], Experience], Float[Array, ""]] | None = None
    auxiliary_weight: float = 1.0

    def __check_init__(self):
        for name in ("n_steps", "target_period"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"ExpertIteration({name}={getattr(self, name)}) must be at least 1"
                )
        for name in ("gamma", "value_mix", "target_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"ExpertIteration({name}={getattr(self, name)}) must be from 0 to 1"
                )

    def init(self, *, key: PRNGKeyArray) -> ExpertIterationState:
        params = parameters(self.network, key=key)
        # A copy: a donated state may not hold one buffer twice.
        target = jax.tree.map(jnp.copy, params)
        optimiser = init_optimiser(self.optimiser, params)
        return ExpertIterationState(params, target, optimiser, jnp.zeros((), jnp.int32))

    def evaluator(self, params: PyTree[Array]) -> FeatureEvaluator:
        """The network with these parameters, as an evaluator of one observation."""
        return FeatureEvaluator(bind(self.network, params), self.value_code)

    def actor(self, state: ExpertIterationState, *, explore: bool) -> PlanningActor:
        planner = self.explorer if explore else self.player
        if not isinstance(planner, AbstractPlanner):
            planner = planner(state.updates)
        model = self.model(self.evaluator(state.params), gamma=self.gamma)
        return PlanningActor(planner, model, self.record)

    def update(
        self, state: ExpertIterationState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[ExpertIterationState, Metrics]:
        """One gradient step. A step that is not finite leaves the state as it was, and its
        metrics say so."""
        del key
        target = jax.lax.stop_gradient(self._targets(state.target, batch))
        params, optimiser, metrics = gradient_step(
            lambda params: self._loss(params, batch, target),
            self.optimiser,
            state.params,
            state.optimiser,
        )
        updates = state.updates + 1
        moved = update_target(
            state.target, params, self.target_rate, period=self.target_period, updates=updates
        )
        new = ExpertIterationState(params, moved, optimiser, updates)
        return if_finite(metrics, new, state), metrics

    def _targets(self, params: PyTree[Array], batch: Batch) -> Float[Array, "batch rows"]:
        rows: Experience = batch.items
        check_windows(self, batch)
        _, value = jax.vmap(jax.vmap(self.evaluator(params)))(rows.obs)
        returns = jax.vmap(ft.partial(n_step_returns, n=self.n_steps))(
            rows.reward, self.gamma * rows.discount, value, rows.last
        )
        if self.value_mix == 0:
            return returns
        return (1 - self.value_mix) * returns + self.value_mix * rows.record.value

    def _loss(
        self, params: PyTree[Array], batch: Batch, target: Float[Array, "batch rows"]
    ) -> tuple[Array, Metrics]:
        rows: Experience = batch.items
        counts = loss_weights(batch)
        mean = ft.partial(masked_mean, weights=counts)
        target = mask_rows(counts, target)
        over_rows = lambda f: jax.vmap(jax.vmap(f))
        logits, value, *rest = over_rows(bind(self.network, params))(rows.obs.features)
        log_probs = log_policy(logits, rows.obs)
        cross_entropy = over_rows(weighted_policy_loss)
        weights = rows.record.weights
        policy_loss = mean(cross_entropy(log_probs, weights))
        entropy = mean(cross_entropy(log_probs, jnp.exp(log_probs)))
        value_loss = mean(over_rows(ft.partial(_value_loss, self.value_code))(value, target))
        loss = policy_loss - self.entropy_bonus * entropy + self.value_weight * value_loss
        beside: Metrics = {}
        if self.auxiliary is not None:
            learned = mask_rows(counts, rows)
            beside["auxiliary_loss"] = mean(over_rows(self.auxiliary)(_only(rest), learned))
            loss = loss + self.auxiliary_weight * beside["auxiliary_loss"]
        error = over_rows(ft.partial(decoded, self.value_code))(value) - target
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "policy_entropy": entropy,
            "target_entropy": mean(cross_entropy(jnp.log(weights), weights)),
            "value_error": mean(jnp.abs(error)),
            "value_target": mean(target),
            **beside,
            **observation_check(rows.obs.features),
        }


def _value_loss(code: ValueCode | None, value: Array, target: Array) -> Array:
    if code is None:
        return 0.5 * jnp.square(value - target)
    return code.cross_entropy(value, target)


def _only(rest: list[PyTree[Array]]) -> PyTree[Array]:
    if len(rest) != 1:
        raise ValueError(
            f"ExpertIteration(auxiliary=...) was given, and its network returns {2 + len(rest)} "
            "things; it must return (logits, value, rest)"
        )
    return rest[0]
