"""Expert iteration: a network imitates a planner, and its value learns a target."""

import abc
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

from ._actors import check_record, PlanningActor, policy_and_value, Reanalyser
from ._agent import AbstractReanalysingAgent, Experience, Metrics
from ._checks import check_count, check_kind, check_range
from ._learning import (
    adopted,
    bind,
    check_optimisers,
    check_windows,
    gradient_step,
    if_finite,
    init_optimiser,
    legal_actions,
    loss_weights,
    mask_rows,
    observation_check,
    parameters,
    square_sum,
    update_target,
)
from ._model import decoded, FeatureEvaluator, number_loss, ValueCode
from ._policies import imitation
from .losses import masked_mean, weighted_policy_loss
from .returns import n_step_returns


class AbstractValueTarget(eqx.Module):
    """What the value of [`zero_train.ExpertIteration`][] learns from the rows of a batch."""

    @abc.abstractmethod
    def targets(
        self, batch: Batch, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        """One target for each row. `values` returns what the target network says of every row."""


class Outcomes(AbstractValueTarget):
    """The return from the row to the end of its episode, which a [`zero_memory.EpisodeBuffer`][]
    computes. It is discounted as the environment says; the agent's `gamma` is not applied."""

    def targets(
        self, batch: Batch, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        del values, gamma
        if batch.outcome is None:
            raise ValueError(
                "Outcomes was given a batch without an `outcome`; it learns from whole episodes: "
                "use a zero_memory.EpisodeBuffer."
            )
        return batch.outcome


class NStepReturns(AbstractValueTarget):
    """The return of `n` steps, bootstrapped from the target network's value after them.

    It needs windows of consecutive rows (a [`zero_memory.TrajectoryBuffer`][]), and no end of the
    episode.

    **Attributes:**

    - `n`: rewards in a return before it is bootstrapped, at least 1.
    - `rewards`: `(rows) -> rewards` of one window, both `[time]`, for other rewards than those of
        the environment, such as ones without luck. `None` takes the environment's.
    """

    n: int = 5
    rewards: Callable[[Experience], Float[Array, " time"]] | None = None

    def __check_init__(self):
        check_count("NStepReturns", n=self.n)
        check_kind("NStepReturns", Callable | None, "a function of rows", rewards=self.rewards)

    def targets(
        self, batch: Batch, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        rows: Experience = batch.items
        check_windows("NStepReturns", rows)
        reward = rows.reward if self.rewards is None else jax.vmap(self.rewards)(rows)
        returns = jax.vmap(ft.partial(n_step_returns, n=self.n))
        return returns(reward, gamma * rows.discount, values(), rows.last)


class ExpertIterationState(eqx.Module):
    """What expert iteration has learned: the `params` that the gradient acts on, those of the
    `target` network, which follow them slowly, the state of the optimiser, and the number of
    gradient steps taken."""

    params: PyTree[Array]
    target: PyTree[Array]
    optimiser: PyTree[Array]
    updates: Int[Array, ""]


class ExpertIteration(AbstractReanalysingAgent[ExpertIterationState]):
    """Expert iteration (Anthony et al. 2017, https://arxiv.org/abs/1705.08439): the policy imitates
    a planner, and the value learns a `value_target`. [`zero_train.ExpertIteration.alphazero`][] is
    the case in which the target is the outcome.

    With a [`zero_search.SampledSearch`][] over a [`zero_train.PolicyModel`][] and
    `record=zero_train.candidates_and_value` it is Sampled AlphaZero, of continuous or factored
    actions (Hubert et al. 2021, https://arxiv.org/abs/2104.06303): `pi` are then the probabilities
    or densities of the plan's candidates.

    The loss of one row is `-sum(w * log pi) - entropy_bonus * H(pi) + value_weight * L(v, z)` with
    the plan's weights `w` and the value target
    `z = (1 - value_mix) * target + value_mix * searched value`. `L` is the cross-entropy of
    `value_code`, or half the squared error without one. Rows count as
    [`zero_train.loss_weights`][] says, and `l2 * |params|^2` is added to their mean.

    With an `auxiliary` loss the network learns something else beside, which its torso may gain from
    (Jaderberg et al. 2017, https://arxiv.org/abs/1611.05397): what a plan knows, for instance.

    **Attributes:**

    - `network`: `(*, key) -> net`, and `net(features) -> (logits, value)` for one example; `value`
        is a scalar, or logits over the atoms of `value_code`. For an `auxiliary` loss
        `(logits, value, rest)`, of which planners see the first two. Where candidates are learned
        from, a distribution with `log_prob` and `entropy` may stand for the logits.
    - `model`: `(evaluator, *, gamma) -> model`, what the planners plan over, e.g.
        `functools.partial(zero_train.EnvironmentModel, env)`.
    - `explorer`: the planner to collect with, or `(updates) -> planner` for one whose temperature
        falls while it learns.
    - `planner`: the planner to play with at full strength.
    - `gamma`: of the returns, and of the model that the planners plan over.
    - `value_target`: [`zero_train.NStepReturns`][] of windows, or [`zero_train.Outcomes`][] of
        whole episodes.
    - `value_code`: for a discrete value, e.g. `zero_nets.ValueSupport(21, maximum=1.0)`.
    - `value_weight`, `value_mix`, `entropy_bonus`, `l2`: as in the loss. The entropy bonus may be a
        function of the gradient steps before.
    - `target_period`, `target_rate`: every so many updates the target network moves by this share
        of the way to the parameters. The rate may be a function of the gradient steps before.
    - `target_acts`: whether the target network acts instead of the newest parameters.
    - `record`: what of a plan is kept: `weights`, `value` unless `value_mix` is 0, `candidates`
        (`None` for all actions), and what the `auxiliary` loss needs.
    - `keeps_states`: whether the replay keeps states, for `Loop.reanalyse` to plan from anew.
    - `player_model`: as `model`, what `planner` plans over; `None` for `model` itself.
    - `auxiliary`: `(rest, row) -> loss` of one [`zero_train.Experience`][].
    - `auxiliary_weight`: multiplies its mean.
    """

    network: Callable[..., Any]
    optimiser: optax.GradientTransformation
    model: Callable[..., AbstractModel]
    explorer: AbstractPlanner | Callable[[Int[Array, ""]], AbstractPlanner]
    planner: AbstractPlanner
    gamma: float
    value_target: AbstractValueTarget = NStepReturns()
    value_code: ValueCode | None = None
    value_weight: float = 1.0
    value_mix: float = 0.0
    entropy_bonus: float | Callable[[Int[Array, ""]], Float[Array, ""]] = 0.0
    l2: float = 0.0
    target_period: int = 1
    target_rate: float | Callable[[Int[Array, ""]], Float[Array, ""]] = 0.01
    target_acts: bool = False
    record: Callable[[Plan], Any] = policy_and_value
    keeps_states: bool = False
    player_model: Callable[..., AbstractModel] | None = None
    auxiliary: Callable[[PyTree[Array], Experience], Float[Array, ""]] | None = None
    auxiliary_weight: float = 1.0

    def __check_init__(self):
        owner = "ExpertIteration"
        check_optimisers(owner, optimiser=self.optimiser)
        check_kind(owner, Callable, "a function", network=self.network, model=self.model)
        check_kind(owner, Callable, "a function", record=self.record)
        optional = {"player_model": self.player_model, "auxiliary": self.auxiliary}
        check_kind(owner, Callable | None, "a function", **optional)
        called = "a planner of zero_search"
        check_kind(owner, AbstractPlanner, called, planner=self.planner)
        check_kind(owner, AbstractPlanner | Callable, called, explorer=self.explorer)
        check_record(owner, self.explorer, self.record)
        check_kind(owner, AbstractValueTarget, "a value target", value_target=self.value_target)
        check_kind(owner, ValueCode | None, "a code of values", value_code=self.value_code)
        check_count(owner, target_period=self.target_period)
        check_range(owner, 0, 1, gamma=self.gamma, value_mix=self.value_mix)
        if not callable(self.target_rate):
            check_range(owner, 0, 1, target_rate=self.target_rate)
        if not callable(self.entropy_bonus):
            check_range(owner, 0, entropy_bonus=self.entropy_bonus)
        for name in ("value_weight", "l2", "auxiliary_weight"):
            check_range(owner, 0, **{name: getattr(self, name)})

    @classmethod
    def alphazero(
        cls, *, l2: float = 1e-4, average_decay: float = 0.0, **parts: Any
    ) -> "ExpertIteration":
        """AlphaZero (Silver et al. 2018, https://doi.org/10.1126/science.aar6404): the value learns
        the [`zero_train.Outcomes`][] of whole episodes, which are not discounted.

        The target network acts. It is a moving average of the parameters, whose decay grows to
        `average_decay`, because the average of the first few steps would be mostly the random
        start. A decay of 0 acts with the newest parameters. The `parts` are other attributes of the
        class.
        """
        check_range("ExpertIteration.alphazero", 0, 1, average_decay=average_decay)
        return cls(
            gamma=1.0,
            value_target=Outcomes(),
            l2=l2,
            target_rate=ft.partial(_averaging_rate, average_decay),
            target_acts=True,
            **parts,
        )

    def init(
        self, *, key: PRNGKeyArray, actor: PlanningActor | None = None
    ) -> ExpertIterationState:
        """Fresh, or with an `actor` of this agent with its network."""
        params = parameters(self.network, key=key)
        if actor is not None:
            evaluate: Any = getattr(getattr(actor, "model", None), "evaluate", actor)
            kind, called = FeatureEvaluator, "an actor of this agent"
            check_kind("ExpertIteration.init", kind, called, actor=evaluate)
            params = adopted(params, evaluate.network)
        # A copy: a donated state may not hold one buffer twice.
        target = jax.tree.map(jnp.copy, params)
        optimiser = init_optimiser(self.optimiser, params)
        return ExpertIterationState(params, target, optimiser, jnp.zeros((), jnp.int32))

    def evaluator(self, params: PyTree[Array]) -> FeatureEvaluator:
        """The network with these parameters, as an evaluator of one observation."""
        return FeatureEvaluator(bind(self.network, params), self.value_code)

    def actor(self, state: ExpertIterationState, *, explore: bool) -> PlanningActor:
        params = state.target if self.target_acts else state.params
        return self._actor(state, params, explore)

    def _actor(
        self, state: ExpertIterationState, params: PyTree[Array], explore: bool
    ) -> PlanningActor:
        planner = self.explorer if explore else self.planner
        if not isinstance(planner, AbstractPlanner):
            planner = planner(state.updates)
        build = self.model if explore or self.player_model is None else self.player_model
        model = build(self.evaluator(params), gamma=self.gamma)
        return PlanningActor(planner, model, self.record, keeps_state=self.keeps_states and explore)

    def reanalyser(self, state: ExpertIterationState) -> Reanalyser:
        """Plans with the target network, as the explorer does."""
        if not self.keeps_states:
            raise ValueError(
                "ExpertIteration(keeps_states=False) has no states to plan from anew: give True, "
                "or leave out Loop(reanalyse=...)."
            )
        return Reanalyser(self._actor(state, state.target, explore=True))

    def update(
        self, state: ExpertIterationState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[ExpertIterationState, Metrics]:
        """One gradient step. One that is not finite leaves the state as it was; metrics say so."""
        del key
        target = jax.lax.stop_gradient(self._targets(state.target, batch))
        params, optimiser, metrics = gradient_step(
            lambda params: self._loss(params, batch, target, state.updates),
            self.optimiser,
            state.params,
            state.optimiser,
        )
        updates, rate = state.updates + 1, self.target_rate
        moved = update_target(
            state.target,
            params,
            rate(state.updates) if callable(rate) else rate,
            period=self.target_period,
            updates=updates,
        )
        new = ExpertIterationState(params, moved, optimiser, updates)
        return if_finite(metrics, new, state), metrics

    def _targets(self, params: PyTree[Array], batch: Batch) -> Float[Array, "*rows"]:
        rows: Experience = batch.items
        values = lambda: _over_rows(self.evaluator(params), rows)(rows.obs)[1]
        returns = self.value_target.targets(batch, values, gamma=self.gamma)
        if self.value_mix == 0:
            return returns
        return (1 - self.value_mix) * returns + self.value_mix * rows.record.value

    def _loss(
        self,
        params: PyTree[Array],
        batch: Batch,
        target: Float[Array, "*rows"],
        updates: Int[Array, ""],
    ) -> tuple[Array, Metrics]:
        rows: Experience = batch.items
        counts = loss_weights(batch)
        mean = ft.partial(masked_mean, weights=counts, total=jnp.sum(counts))
        target = mask_rows(counts, target)
        over_rows = ft.partial(_over_rows, rows=rows)
        policy, value, *rest = over_rows(bind(self.network, params))(rows.obs.features)
        legal = legal_actions(rows.obs) if isinstance(policy, Array) else rows.obs.legal
        weights = rows.record.weights
        candidates = mask_rows(counts, getattr(rows.record, "candidates", None))
        losses, entropies = over_rows(imitation)(policy, weights, candidates, legal)
        policy_loss, entropy = mean(losses), mean(entropies)
        value_loss = mean(over_rows(ft.partial(number_loss, self.value_code))(value, target))
        beside: Metrics = {}
        bonus = self.entropy_bonus
        if callable(bonus):
            beside["entropy_bonus"] = bonus = bonus(updates)
        loss = policy_loss - bonus * entropy + self.value_weight * value_loss
        if self.l2:
            beside["l2_loss"] = self.l2 * square_sum(params)
            loss = loss + beside["l2_loss"]
        if self.auxiliary is not None:
            if len(rest) != 1:
                raise ValueError(
                    "ExpertIteration(auxiliary=...) was given, and its network returns "
                    f"{2 + len(rest)} things; it must return (logits, value, rest)"
                )
            learned = mask_rows(counts, rows)
            beside["auxiliary_loss"] = mean(over_rows(self.auxiliary)(rest[0], learned))
            loss = loss + self.auxiliary_weight * beside["auxiliary_loss"]
        error = over_rows(ft.partial(decoded, self.value_code))(value) - target
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "policy_entropy": entropy,
            "target_entropy": mean(over_rows(weighted_policy_loss)(jnp.log(weights), weights)),
            "value_error": mean(jnp.abs(error)),
            "value_target": mean(target),
            **beside,
            **observation_check(rows.obs.features),
        }


def _averaging_rate(decay: float, updates: Int[Array, ""]) -> Float[Array, ""]:
    count = updates.astype(jnp.float32)
    return 1 - jnp.minimum(decay, (1 + count) / (10 + count))


def _over_rows(function: Callable[..., Any], rows: Experience) -> Callable[..., Any]:
    """The function over all axes of the rows, one or two."""
    for _ in range(rows.last.ndim):
        function = jax.vmap(function)
    return function
