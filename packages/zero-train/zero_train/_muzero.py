"""MuZero: a model of the world is learned from what the plans over it say."""

import dataclasses
import functools as ft
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_memory import Batch
from zero_search import AbstractPlanner, Plan

from ._actors import check_record, dated, PlanningActor, PlanRecord, policy_and_value, Reanalyser
from ._agent import AbstractBlockAgent, AbstractReanalysingAgent, Experience, Metrics
from ._checks import check_count, check_kind, check_range
from ._latent import AbstractLatentModel, check_players, LatentModel
from ._learning import (
    adopted,
    bind,
    check_optimisers,
    check_windows,
    gradient_step,
    if_finite,
    init_optimiser,
    mask_rows,
    observation_check,
    parameters,
    square_sum,
    update_target,
)
from ._mesh import select_rows
from ._model import check_gamma, decoded, number_loss, ValueCode
from ._policies import check_candidates, imitation, Statistics, with_observations
from ._remembering import remembered, RememberingPlanner
from ._unroll import (
    check_network,
    code_entropy,
    CODE_TEMPERATURE,
    LEAST,
    likeness,
    summed,
    unroll,
    Unrolled,
)
from .losses import masked_mean
from .returns import n_step_returns


class MuZeroState(eqx.Module):
    """What MuZero has learned: the `params` that the gradient acts on, those of the `target`
    network, whose values returns may end with, the state of the optimiser, the number of gradient
    steps taken, and the `statistics` of the observations, or `None`."""

    params: PyTree[Array]
    target: PyTree[Array]
    optimiser: PyTree[Array]
    updates: Int[Array, ""]
    statistics: Statistics | None


class MuZero(AbstractBlockAgent[MuZeroState], AbstractReanalysingAgent[MuZeroState]):
    """MuZero (Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265): plans over a model that
    it learns, which needs nothing of the environment but observations.

    The model is unrolled over `num_unroll` steps of a window. At each position the policy imitates
    the plan that was made there, the value learns the `n_steps` return bootstrapped from the value
    of the plan after it, and the reward that of the step. The loss is the sum over k of

    `s_k * (-sum(w_k * log pi_k) + value_weight * L(v_k, z_k) + reward_weight * L(r_k, u_k))`,

    where `s_0 = 1` and `s_k = 1 / num_unroll` for the others, there is no reward at `k = 0`, and
    `L` is the cross-entropy of `code`, or half the squared error without one. The gradient that
    goes from a step into the hidden state before it is halved (appendix G).

    With Gumbel searches (`zero_search.TreeSearch.gumbel`) it is Gumbel MuZero. With a
    [`zero_search.SampledSearch`][], `model=zero_train.LatentPolicyModel` and
    `record=zero_train.candidates_and_value` it is Sampled MuZero, of continuous or factored actions
    (Hubert et al. 2021, https://arxiv.org/abs/2104.06303): `pi_k` are then the probabilities or
    densities of the plan's candidates.

    With a [`zero_train.StochasticNetwork`][] it is Stochastic MuZero (Antonoglou et al. 2022,
    "Planning in stochastic environments with a learned model"). The code `c_k` of a step is the
    one-hot arg max of what the encoder `e_k` says of the observations before and after it, with the
    gradient of `e_k` itself (straight through). To the loss is added, for each step,

    `(value_weight * L(q_k, z_k) - log p_k(c_k) + commitment * |c_k - e_k|^2) / num_unroll`,

    where `q_k` and `p_k` are the value and the law of the codes in the afterstate, and `c_k` is
    held fixed. After a true end codes are drawn, and only `q_k` learns. Beyond the paper,
    `code_entropy_bonus` times the entropy of how often each code is taken, in the mean over the
    batch of `softmax(e_k / 0.1)`, is subtracted: without it two outcomes that have one code at the
    start often keep it.

    With a [`zero_train.PrefixNetwork`][] the sum of the rewards since the first position, which
    begins anew after `prefix_steps` steps, is learned in the place of each reward.

    With `consistency` the hidden states of an unroll learn to agree with what is observed then, as
    in EfficientZero (Ye et al. 2021, https://arxiv.org/abs/2111.00210, section 4.1). To the loss is
    added, for each step,

    `consistency * (1 - cos(predict_projection(project(x_k)), project(h(o_k)))) / num_unroll`,

    where `x_k` is the hidden state of the unroll, `h` the representation, and the second vector is
    held fixed. The network then has `project` and `predict_projection`, as a `zero_nets.WorldModel`
    with a `projection_size` does.

    With a memory ([`zero_train.LatentNetwork`][]) the network plans from what it has observed in
    the whole episode. A window then begins with `memory_steps` rows that lead to the first
    position. They are read from the memory that was stored when the first of them was played (R2D2,
    Kapturowski et al. 2019), and the gradient goes through them, so that it learns what to
    remember. The target network reads the same rows itself. The memory of a plan of a final row,
    after which nothing is played, is empty: let `bootstrap` be `"network"` where episodes are
    truncated.

    It learns from windows of `memory_steps + num_unroll + n_steps + 1` rows; in shorter ones the
    last returns have fewer steps. It gives the buffer priorities, `|v - z|` of the first position
    with the value `v` that `bootstrap` names, or with `n_steps=0` the network's: use a
    [`zero_memory.PrioritisedTrajectoryBuffer`][], which with `alpha=0` draws uniformly.

    **Attributes:**

    - `network`: `(*, key) -> net`, a [`zero_train.LatentNetwork`][] or
        [`zero_train.PrefixNetwork`][], or where the environment's steps are random a
        [`zero_train.StochasticNetwork`][].
    - `explorer`: the planner to collect with, or `(updates) -> planner` for one whose temperature
        falls while it learns.
    - `planner`: the planner to play with at full strength.
    - `num_players`: 1, or 2 who take turns. Where a player moves twice, `turn_error` is NaN.
    - `code`: for discrete rewards and values, e.g. `zero_nets.ValueSupport(61, transform=True)`.
    - `num_unroll`, `n_steps`, `value_weight`, `reward_weight`: as above. With `n_steps=0` the value
        learns that of the plan itself, which no action that was played enters: for the rows of
        other players.
    - `lambda_`: below 1 it mixes the returns of fewer steps into that of `n_steps`, see
        [`zero_train.returns.n_step_returns`][].
    - `entropy_bonus`: so many times the policy's entropy is subtracted from the policy's loss.
    - `l2`: `l2 * |params|^2` is added to the loss.
    - `bootstrap`: the value that returns end with: that of the `"plan"` when the row was collected,
        or what the target `"network"` says of the row now.
    - `target_period`: the target network is a copy of the parameters after every so many updates.
    - `statistics`: to normalise observations by, as in [`zero_train.SPO`][].
    - `model`: what is planned over: a [`zero_train.LatentModel`][] of the network's logits, or a
        [`zero_train.LatentPolicyModel`][] of its policy.
    - `record`: `(plan) -> PlanRecord`, with the plan's candidates unless they are all actions.
    - `commitment`, `code_entropy_bonus`, `consistency`: as above; the first two are those of a
        stochastic network.
    - `correction`: a return has one step fewer, down to one, for each so many updates since its
        first row was collected, in which the policy has changed (EfficientZero, section 4.3); 0
        leaves them as long as they are.
    - `memory_steps`: as above; 0 for a network without a memory.
    """

    network: Callable[..., Any]
    optimiser: optax.GradientTransformation
    explorer: AbstractPlanner | Callable[[Int[Array, ""]], AbstractPlanner]
    planner: AbstractPlanner
    gamma: float = 0.997
    num_players: int = 1
    code: ValueCode | None = None
    num_unroll: int = 5
    n_steps: int = 5
    lambda_: float = 1.0
    value_weight: float = 1.0
    reward_weight: float = 1.0
    entropy_bonus: float = 0.0
    l2: float = 0.0
    bootstrap: str = "plan"
    target_period: int = 100
    statistics: Statistics | None = None
    model: Callable[..., AbstractLatentModel] = LatentModel
    record: Callable[[Plan], PlanRecord] = policy_and_value
    commitment: float = 0.25
    code_entropy_bonus: float = 0.1
    consistency: float = 0.0
    correction: int = 0
    memory_steps: int = 0

    def __check_init__(self):
        owner = "MuZero"
        check_optimisers(owner, optimiser=self.optimiser)
        check_kind(owner, Callable, "a function", network=self.network, model=self.model)
        check_kind(owner, Callable, "a function", record=self.record)
        called = "a planner of zero_search"
        check_kind(owner, AbstractPlanner, called, planner=self.planner)
        check_kind(owner, AbstractPlanner | Callable, called, explorer=self.explorer)
        check_record(owner, self.explorer, self.record)
        check_kind(owner, ValueCode | None, "a code of values", code=self.code)
        if type(self.n_steps) is not int or self.n_steps < (self.bootstrap == "network"):
            raise ValueError(
                f"MuZero(n_steps={self.n_steps!r}, bootstrap={self.bootstrap!r}): give an int, a "
                "count of rewards; 0, the plans' own values, needs bootstrap='plan'."
            )
        check_count(owner, 0, correction=self.correction)
        if self.correction and not self.n_steps:
            raise ValueError(
                f"MuZero(n_steps=0, correction={self.correction}): there are no returns to "
                "shorten; give a correction of 0."
            )
        if self.bootstrap not in ("plan", "network"):
            raise ValueError(f"MuZero(bootstrap={self.bootstrap!r}): give 'plan' or 'network'.")
        called = "statistics of observations"
        check_kind(owner, Statistics | None, called, statistics=self.statistics)
        check_gamma(owner, self.gamma)
        check_players(owner, self.num_players)
        check_count(owner, num_unroll=self.num_unroll, target_period=self.target_period)
        check_count(owner, 0, memory_steps=self.memory_steps)
        check_range(owner, 0, 1, lambda_=self.lambda_)
        weights = "value_weight", "reward_weight", "entropy_bonus", "l2", "commitment"
        for name in (*weights, "code_entropy_bonus", "consistency"):
            check_range(owner, 0, **{name: getattr(self, name)})

    def init(self, *, key: PRNGKeyArray, actor: PlanningActor | None = None) -> MuZeroState:
        """Fresh, or with an `actor` of this agent with its network."""
        params, statistics = parameters(self.network, key=key), self.statistics
        if actor is not None:
            model: Any = getattr(actor, "model", actor)
            check_kind("MuZero.init", AbstractLatentModel, "an actor of this agent", actor=model)
            params = adopted(params, model.network)
            statistics = adopted(statistics, model.statistics)
        # Copies: a donated state may not hold one buffer twice, nor one of the agent's own.
        copy = lambda tree: jax.tree.map(jnp.copy, tree)
        optimiser = init_optimiser(self.optimiser, params)
        updates = jnp.zeros((), jnp.int32)
        return MuZeroState(params, copy(params), optimiser, updates, copy(statistics))

    def actor(self, state: MuZeroState, *, explore: bool) -> PlanningActor:
        planner = self._explorer(state) if explore else self.planner
        return self._actor(planner, self._model(state.params, state.statistics), state.updates)

    def _actor(
        self,
        planner: AbstractPlanner,
        model: AbstractLatentModel,
        updates: Int[Array, ""] | None = None,
    ) -> PlanningActor:
        # Partials are pytrees, which are equal to others of the same function.
        record = self.record
        if self.correction and updates is not None:
            record = jax.tree_util.Partial(dated, record, updates)
        if model.memory is None:
            return PlanningActor(planner, model, record)
        record = jax.tree_util.Partial(remembered, record)
        return PlanningActor(RememberingPlanner(planner), model, record)

    def _explorer(self, state: MuZeroState) -> AbstractPlanner:
        found = self.explorer
        return found if isinstance(found, AbstractPlanner) else found(state.updates)

    def reanalyser(self, state: MuZeroState) -> Callable[..., Experience]:
        """Plans with the target network, as the explorer does: what an unroll reads, and with
        `bootstrap="plan"` also what returns end with."""
        actor = self._actor(self._explorer(state), self._model(state.target, state.statistics))
        first = self.memory_steps
        last = first + self.num_unroll + 1 + (self.n_steps if self.bootstrap == "plan" else 0)
        return Reanalyser(actor, first, last)

    def digest(self, state: MuZeroState, rows: Experience) -> tuple[MuZeroState, Metrics]:
        """Updates the statistics of the observations with new rows, final ones included."""
        statistics = with_observations(state.statistics, rows.obs)
        return dataclasses.replace(state, statistics=statistics), {}

    def update(
        self, state: MuZeroState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[MuZeroState, Metrics, Float[Array, " batch"]]:
        """One gradient step. One that is not finite leaves the state as it was; metrics say so."""
        rows: Experience = batch.items
        check_windows("MuZero", rows)
        first = self.memory_steps
        if rows.last.shape[1] <= first + self.num_unroll:
            raise ValueError(
                f"MuZero(num_unroll={self.num_unroll}, memory_steps={first}) was given windows of "
                f"{rows.last.shape[1]} rows; give the buffer a length of at least "
                f"{first + self.num_unroll + 1}."
            )
        # A window whose first position is a final observation has nothing to unroll.
        weights = jnp.where(rows.last[:, first], 0.0, batch.weights[:, first])
        after: Any = jax.tree.map(lambda x: x[:, first:], (rows, self._values(state, rows)))
        learned = self.unrolled(*after, updates=state.updates, key=key)
        learned = mask_rows(weights, learned)
        params, optimiser, metrics = gradient_step(
            lambda params: self._loss(params, state.statistics, rows, learned, weights),
            self.optimiser,
            state.params,
            state.optimiser,
        )
        updates = state.updates + 1
        target = update_target(
            state.target, params, 1.0, period=self.target_period, updates=updates
        )
        new = MuZeroState(params, target, optimiser, updates, state.statistics)
        # Unless `alpha` is 0, what has no priority is never drawn again, as is right for windows
        # that teach nothing.
        before = after[1][:, 0]
        if not self.n_steps:  # what is learned is the plan's value itself
            before = self._judged(state, jax.tree.map(lambda x: x[:, : first + 1], rows))[:, first]
        priorities = jnp.maximum(jnp.abs(before - learned.value[:, 0]), LEAST)
        return if_finite(metrics, new, state), metrics, mask_rows(weights, priorities)

    def unrolled(
        self,
        rows: Experience,
        values: Float[Array, "batch time"],
        *,
        updates: int | Int[Array, ""] = 0,
        key: PRNGKeyArray,
    ) -> Unrolled:
        """What is learned from windows, with these values to bootstrap from, after so many
        updates."""
        horizons = None
        if self.correction:
            made = rows.record.updates
            if made is None:
                raise ValueError(
                    f"MuZero(correction={self.correction}) was given rows that do not say how old "
                    "they are; collect them with its own actor, or give a correction of 0."
                )
            steps = self.n_steps - (updates - made) // self.correction
            horizons = jnp.clip(steps, 1, self.n_steps)
        keys = jr.split(key, rows.last.shape[0])
        return jax.vmap(self._unrolled)(rows, values, horizons, keys)

    def _unrolled(
        self,
        rows: Experience,
        values: Float[Array, " time"],
        horizons: Int[Array, " time"] | None,
        key: PRNGKeyArray,
    ) -> Unrolled:
        record: PlanRecord = rows.record
        value = values
        if self.n_steps:
            discount = self.gamma * rows.discount
            known = rows.reward, discount, values, rows.last
            n = self.n_steps if horizons is None else horizons
            value = n_step_returns(*known, n=n, lambda_=self.lambda_)
        over = _before(~rows.last & (rows.discount == 0))
        unknown = _before(rows.last & ~over)
        # Positions are the first rows; steps lead from all of them but the last one.
        over, unknown, last = (x[: self.num_unroll + 1] for x in (over, unknown, rows.last))
        akey, ckey = jr.split(key)
        taken = jax.tree.map(lambda x: x[: over.size - 1], rows.action)
        drawn = jr.randint(akey, (over.size - 1,), 0, record.weights.shape[-1], jnp.int32)
        candidates = jax.tree.map(lambda x: x[: over.size], record.candidates)
        if candidates is not None or jnp.shape(taken) != drawn.shape:
            check_candidates(candidates)
            drawn = jax.tree.map(lambda x: x[0][drawn], candidates)
        reward = jnp.where(over[:-1], 0.0, rows.reward[: over.size - 1])
        scale = jnp.full(over.shape, 1 / self.num_unroll, jnp.float32).at[0].set(1.0)
        return Unrolled(
            action=select_rows(over[:-1], drawn, taken),
            chance=jr.uniform(ckey, (over.size - 1,), jnp.float32),
            reward=jnp.append(jnp.zeros_like(reward[:1]), reward),
            reward_weight=jnp.where(unknown, 0.0, scale).at[0].set(0.0),
            value=jnp.where(over, 0.0, value[: over.size]),
            value_weight=jnp.where(unknown, 0.0, scale),
            policy=record.weights[: over.size],
            policy_weight=jnp.where(over | unknown | last, 0.0, scale),
            candidates=candidates,
        )

    def _values(self, state: MuZeroState, rows: Experience) -> Float[Array, "batch time"]:
        return rows.record.value if self.bootstrap == "plan" else self._judged(state, rows)

    def _judged(self, state: MuZeroState, rows: Experience) -> Float[Array, "batch time"]:
        """What the target network says of rows."""
        model = self._model(state.target, state.statistics)
        return jax.vmap(jax.vmap(lambda seen: model.judged(seen)[1]))(model.read(rows))

    def _model(self, params: PyTree[Array], statistics: Statistics | None) -> AbstractLatentModel:
        network = bind(self.network, params)
        check_network(
            network,
            num_unroll=self.num_unroll,
            num_players=self.num_players,
            consistency=self.consistency,
            memory_steps=self.memory_steps,
        )
        return self.model(network, self.gamma, self.num_players, self.code, statistics)

    def _loss(
        self,
        params: PyTree[Array],
        statistics: Statistics | None,
        rows: Experience,
        learned: Unrolled,
        weights: Float[Array, " batch"],
    ) -> tuple[Array, Metrics]:
        model = self._model(params, statistics)
        network, first = model.network, self.memory_steps
        learned = summed(network, learned, self.num_players)
        seen = model.read(jax.tree.map(lambda x: x[:, : first + self.num_unroll + 1], rows))
        features = jax.tree.map(lambda x: x[:, first:], seen)
        coded, unrolled = jax.vmap(ft.partial(unroll, network))(features, learned)
        hidden, rewards, policies, values, afterstates = unrolled
        imitate = jax.vmap(jax.vmap(imitation))
        cross_entropy, entropy = imitate(policies, learned.policy, learned.candidates)
        loss_of = jax.vmap(jax.vmap(ft.partial(number_loss, self.code)))
        mean = ft.partial(masked_mean, weights=weights, total=jnp.sum(weights))

        def part(loss: Array, weight: Array) -> Array:
            return mean(jnp.sum(jnp.where(weight > 0, weight * loss, 0.0), axis=1))

        losses = {
            "policy_loss": part(cross_entropy, learned.policy_weight),
            "value_loss": part(loss_of(values, learned.value), learned.value_weight),
            "reward_loss": part(loss_of(rewards, learned.reward), learned.reward_weight),
        }
        told = jnp.where(learned.played, learned.reward_weight[:, 1:], 0.0)
        beside: Metrics = {}
        if self.consistency:
            later = jax.tree.map(lambda x: x[:, 1:], features)
            alike = jax.vmap(jax.vmap(ft.partial(likeness, network)))(hidden, later)
            losses["consistency_loss"] = part(1 - alike, told)
        if coded is not None:
            scores, codes = coded
            fixed, (law, worth) = jax.lax.stop_gradient(codes), afterstates
            worth_loss = loss_of(worth, learned.value[:, :-1])
            losses["afterstate_loss"] = part(worth_loss, learned.reward_weight[:, 1:])
            losses["chance_loss"] = part(optax.softmax_cross_entropy(law, fixed), told)
            distance = jnp.sum(jnp.square(fixed - scores), axis=-1)
            losses["commitment_loss"] = part(distance, told)
            counted = ft.partial(code_entropy, weights=weights[:, None] * told)
            beside["code_entropy"] = counted(fixed)
            losses["spread_loss"] = -counted(jax.nn.softmax(scores / CODE_TEMPERATURE))
        if self.l2:
            losses["l2_loss"] = self.l2 * square_sum(params)
        scale = {
            "value_loss": self.value_weight,
            "reward_loss": self.reward_weight,
            "consistency_loss": self.consistency,
            "commitment_loss": self.commitment,
            "afterstate_loss": self.value_weight,
            "spread_loss": self.code_entropy_bonus,
        }
        loss = sum((scale.get(name, 1.0) * x for name, x in losses.items()), jnp.float32(0))
        if self.entropy_bonus:
            loss = loss - self.entropy_bonus * part(entropy, learned.policy_weight)
        beside["policy_entropy"] = mean(entropy[:, 0])
        return loss, {"loss": loss} | losses | beside | self._diagnostics(
            rows, learned, values, weights
        )

    def _diagnostics(
        self, rows: Experience, learned: Unrolled, values: Array, weights: Float[Array, " batch"]
    ) -> Metrics:
        """How good the values are, and whether the rows are such as can be learned from. Faults are
        counted, because sums cross devices together with those of the loss."""

        def mean(i: int) -> Array:
            counted = jnp.where(learned.value_weight[:, i] > 0, weights, 0.0)
            return masked_mean(error[:, i], counted)

        error = jnp.abs(jax.vmap(jax.vmap(ft.partial(decoded, self.code)))(values) - learned.value)
        least, most = getattr(self.code, "limits", (-math.inf, math.inf))

        def outside(target: Array, weight: Array) -> Array:
            wrong = (weight > 0) & ((target < least) | (target > most))
            return jnp.sum(wrong, dtype=jnp.float32)

        turns = rows.discount if self.num_players == 1 else -rows.discount
        wrong = jnp.sum((turns < 0) & (weights > 0)[:, None], dtype=jnp.float32)
        return {
            "value_error": mean(0),
            "value_error_unrolled": mean(-1),
            "value_target": masked_mean(learned.value[:, 0], weights),
            "outside_support": outside(learned.value, learned.value_weight)
            + outside(learned.reward, learned.reward_weight),
            "turn_error": jnp.where(wrong > 0, jnp.nan, 0.0).astype(jnp.float32),
            **observation_check(rows.obs.features),
        }


def _before(x: Array) -> Array:
    """Where it is true in a row before."""
    return jnp.append(jnp.zeros((1,), bool), jnp.cumsum(x[:-1]) > 0)
