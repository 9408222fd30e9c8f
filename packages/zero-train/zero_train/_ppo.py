"""PPO and V-MPO: improve the policy on the rows that it has just collected, without a search."""

import abc
import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree, Shaped

from zero_envs import Observation, Transition
from zero_memory import Batch

from ._actor_critic import regression
from ._agent import AbstractActor, AbstractBlockAgent, Experience, Metrics
from ._checks import check_kind, check_positive, check_range
from ._faults import move_faults
from ._learning import (
    adopted,
    bind,
    check_optimisers,
    check_windows,
    gradient_step,
    if_finite,
    init_optimiser,
    loss_weights,
    mask_rows,
    observation_check,
    parameters,
)
from ._mesh import select_rows
from ._policies import drawn, masked, normalised, Statistics, with_observations
from ._recurrent import fresh, recalled, RecurrentNetwork
from .losses import AbstractTrustRegion, Dual, masked_mean, ppo_clip_loss, standardise, vmpo_loss
from .returns import truncated_gae


class PolicyRecord(eqx.Module):
    """What is stored of a move of PPO for the learner: the distribution that the action was drawn
    from, and the memory of the network before it saw the observation, if it has any."""

    policy: Any
    memory: PyTree[Array]


class ActorCriticActor(AbstractActor[PyTree[Array]]):
    """Plays the policy of a network that returns a policy and a value of features, and is perhaps a
    [`zero_train.RecurrentNetwork`][]: its mode if `greedy`, otherwise a sample. The carry is the
    network's memory, which begins anew with every episode, and the record a
    [`zero_train.PolicyRecord`][]. Features are normalised by the `statistics`, unless they are
    `None`.
    """

    network: Callable[..., Any]
    statistics: Any
    greedy: bool = False

    def evaluate(self, obs: Observation) -> tuple[Any, Float[Array, ""]]:
        """The policy and the value of one observation, by a network without memory."""
        policy, value = self.network(normalised(self.statistics, obs.features))
        return masked(policy, obs.legal), value

    def init(self, state: PyTree[Array]) -> PyTree[Array]:
        return self._fresh(jax.tree.leaves(state)[0].shape[0])

    def act(
        self,
        state: PyTree[Array],
        obs: Observation,
        carry: PyTree[Array],
        *,
        key: Key[Array, " batch"],
    ) -> tuple[PyTree[Array], PolicyRecord, PyTree[Array]]:
        del state
        if isinstance(self.network, RecurrentNetwork):
            features = normalised(self.statistics, obs.features)
            (policy, _), after = jax.vmap(self.network)(features, carry)
            policy = jax.vmap(masked)(policy, obs.legal)
        else:
            (policy, _), after = jax.vmap(self.evaluate)(obs), carry
        action, _ = jax.vmap(ft.partial(drawn, greedy=self.greedy))(policy, key)
        return action, PolicyRecord(policy, carry), after

    def advance(self, carry: PyTree[Array], action: Any, transition: Transition) -> PyTree[Array]:
        move_faults("ActorCriticActor", action, transition)
        return select_rows(transition.last, self._fresh(transition.last.shape[0]), carry)

    def _fresh(self, rows: int) -> PyTree[Array]:
        """The memory of so many episodes that begin."""
        if not isinstance(self.network, RecurrentNetwork):
            return None
        return fresh(self.network, rows)


class AbstractObjective(eqx.Module):
    """What the policy learns from the advantages of the actions that it has played."""

    @abc.abstractmethod
    def duals(self) -> dict[str, Dual]:
        """The dual variables before the first update by name, if it has any."""

    @abc.abstractmethod
    def optimiser(self, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
        """What moves `(network, duals)`, given what moves the network."""

    @abc.abstractmethod
    def loss(
        self,
        policy: Any,
        old: Any,
        actions: Shaped[Array, "rows ..."],
        advantages: Float[Array, " rows"],
        counts: Float[Array, " rows"],
        duals: dict[str, Dual],
        *,
        total: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Metrics]:
        """The mean loss over the rows that count, `total` together, and metrics. The policies, the
        one to learn and the `old` one that has acted, have an axis of rows."""


class Clip(AbstractObjective):
    """PPO's clipped objective ([`zero_train.losses.ppo_clip_loss`][]), over advantages that are
    standardised in every minibatch. `epsilon` is the distance from 1 at which the ratio of
    probabilities is clipped."""

    epsilon: float = 0.2

    def __check_init__(self):
        check_positive("Clip", epsilon=self.epsilon)

    def duals(self) -> dict[str, Dual]:
        return {}

    def optimiser(self, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
        return optimiser

    def loss(
        self,
        policy: Any,
        old: Any,
        actions: Shaped[Array, "rows ..."],
        advantages: Float[Array, " rows"],
        counts: Float[Array, " rows"],
        duals: dict[str, Dual],
        *,
        total: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Metrics]:
        del duals
        new, before = _log_prob(policy, actions), _log_prob(old, actions)
        each = jax.vmap(ft.partial(ppo_clip_loss, epsilon=self.epsilon))
        mean = ft.partial(masked_mean, weights=counts, total=total)
        loss = mean(each(new, before, standardise(advantages, counts)))
        far = jnp.abs(jnp.expm1(new - before)) > self.epsilon
        kl = jax.vmap(lambda old, policy: jnp.sum(old.kl(policy)))(old, policy)
        return loss, {"policy_loss": loss, "clipped": mean(far.astype(jnp.float32)), "kl": mean(kl)}


class VMPO(AbstractObjective):
    """V-MPO (Song et al. 2020, https://arxiv.org/abs/1909.12238): the policy is fitted to the
    actions of the better half of a minibatch, weighted by their advantages
    ([`zero_train.losses.vmpo_loss`][]), within a trust region about the policy that has acted.

    **Attributes:**

    - `region`: [`zero_train.losses.DecoupledTrustRegion`][] for Gaussian policies,
        [`zero_train.losses.TrustRegion`][] otherwise.
    - `dual_optimiser`: any optax transformation, for the duals of the region.
    - `top_fraction`: the fraction of the rows that are fitted, those of the highest advantages.
    """

    region: AbstractTrustRegion
    dual_optimiser: optax.GradientTransformation
    top_fraction: float = 0.5

    def __check_init__(self):
        check_kind("VMPO", AbstractTrustRegion, "a trust region", region=self.region)
        check_optimisers("VMPO", dual_optimiser=self.dual_optimiser)
        check_positive("VMPO", top_fraction=self.top_fraction)
        check_range("VMPO", 0, 1, top_fraction=self.top_fraction)

    def duals(self) -> dict[str, Dual]:
        return self.region.duals()

    def optimiser(self, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
        names = "network", "duals"
        optimisers = optimiser, self.dual_optimiser
        return optax.multi_transform(dict(zip(names, optimisers, strict=True)), names)

    def loss(
        self,
        policy: Any,
        old: Any,
        actions: Shaped[Array, "rows ..."],
        advantages: Float[Array, " rows"],
        counts: Float[Array, " rows"],
        duals: dict[str, Dual],
        *,
        total: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Metrics]:
        fit, metrics = vmpo_loss(
            _log_prob(policy, actions),
            advantages,
            counts,
            temperature=duals["temperature"],
            epsilon=self.region.epsilon,
            top_fraction=self.top_fraction,
        )
        bound, more = jax.vmap(lambda p, o: self.region.constraint(p, o, duals))(policy, old)
        mean = ft.partial(masked_mean, weights=counts, total=total)
        return fit + mean(bound), metrics | {name: mean(x) for name, x in more.items()}


class PPOState(eqx.Module):
    """What PPO has learned: the parameters of the network, the dual variables of the objective by
    name, the state of the optimiser of both, and the `statistics` of the observations, or `None`.
    """

    params: PyTree[Array]
    duals: dict[str, Dual]
    optimiser: PyTree[Array]
    statistics: Statistics | None


class PPO(AbstractBlockAgent[PPOState]):
    """Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347), of
    continuous or discrete actions, with or without memory; with the objective
    [`zero_train.VMPO`][] it is V-MPO.

    It learns from windows of the rows that were just collected, several times from each (a
    [`zero_memory.Latest`][]). The loss of a minibatch is

    `objective + value_weight * (V - G)^2 / 2 - entropy_bonus * entropy`,

    where the return `G` and the advantages are those of generalised advantage estimation (Schulman
    et al. 2016, https://arxiv.org/abs/1506.02438, equation 16), from the values that the network
    has now, which learn faster than those of when the rows were collected (Andrychowicz et al.
    2021, https://arxiv.org/abs/2006.05990, section 3.5). A truncated episode is bootstrapped from
    the value of its final observation.

    A network with memory reads each window from the memory that it had when it acted there.

    **Attributes:**

    - `network`: `(*, key) -> net`, and `net(features) -> (policy, value)` for one example, such as
        a `zero_nets.ActorCritic`; or a [`zero_train.RecurrentNetwork`][] of such pairs. The policy
        is a distribution with `sample`, `mode`, `log_prob`, `kl` and `entropy`; a discrete one has
        `logits`, of which illegal actions are taken out here.
    - `objective`: [`zero_train.Clip`][] or [`zero_train.VMPO`][].
    - `gamma`, `lambda_`: of the advantages.
    - `value_weight`, `entropy_bonus`: as above.
    - `statistics`: to normalise observations by, as in [`zero_train.SPO`][].
    """

    network: Callable[..., Any]
    optimiser: optax.GradientTransformation
    objective: AbstractObjective = Clip()
    gamma: float = 0.99
    lambda_: float = 0.95
    value_weight: float = 1.0
    entropy_bonus: float = 0.0
    statistics: Statistics | None = None

    def __check_init__(self):
        check_kind("PPO", Callable, "a function", network=self.network)
        check_optimisers("PPO", optimiser=self.optimiser)
        check_kind("PPO", AbstractObjective, "a Clip or VMPO", objective=self.objective)
        check_kind("PPO", Statistics | None, "running statistics", statistics=self.statistics)
        check_range("PPO", 0, 1, gamma=self.gamma, lambda_=self.lambda_)
        check_range("PPO", 0, value_weight=self.value_weight, entropy_bonus=self.entropy_bonus)

    def init(self, *, key: PRNGKeyArray, actor: ActorCriticActor | None = None) -> PPOState:
        """Fresh, or with an `actor` of this agent with its network."""
        params, statistics = parameters(self.network, key=key), self.statistics
        if actor is not None:
            check_kind("PPO.init", ActorCriticActor, "an actor of this agent", actor=actor)
            params = adopted(params, actor.network)
            statistics = adopted(statistics, actor.statistics)
        # Copies: a donated state may not hold one buffer twice, nor one of the agent's own.
        copy = lambda tree: jax.tree.map(jnp.copy, tree)
        params, duals = copy(params), copy(self.objective.duals())
        optimiser = init_optimiser(self.objective.optimiser(self.optimiser), (params, duals))
        return PPOState(params, duals, optimiser, copy(statistics))

    def actor(self, state: PPOState, *, explore: bool) -> ActorCriticActor:
        network = bind(self.network, state.params)
        return ActorCriticActor(network, state.statistics, greedy=not explore)

    def digest(self, state: PPOState, rows: Experience) -> tuple[PPOState, Metrics]:
        """Updates the statistics of the observations with new rows, final ones included."""
        statistics = with_observations(state.statistics, rows.obs)
        return dataclasses.replace(state, statistics=statistics), {}

    def update(
        self, state: PPOState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[PPOState, Metrics]:
        """One gradient step. One that is not finite leaves the state as it was; metrics say so."""
        del key
        check_windows("PPO.update", batch.items)
        (params, duals), optimiser, metrics = gradient_step(
            lambda learned: self._loss(learned, state.statistics, batch),
            self.objective.optimiser(self.optimiser),
            (state.params, state.duals),
            state.optimiser,
        )
        duals = {name: dual.clipped() for name, dual in duals.items()}
        metrics |= observation_check(batch.items.obs.features)
        new = PPOState(params, duals, optimiser, state.statistics)
        return if_finite(metrics, new, state), metrics

    def _loss(
        self,
        learned: tuple[PyTree[Array], dict[str, Dual]],
        statistics: Statistics | None,
        batch: Batch,
    ) -> tuple[Float[Array, ""], Metrics]:
        params, duals = learned
        rows: Experience = batch.items
        counts = loss_weights(batch)
        network: Any = bind(self.network, params)
        features = normalised(statistics, rows.obs.features)
        if isinstance(network, RecurrentNetwork):
            policy, value = recalled(network, features, rows)
        else:
            policy, value = jax.vmap(jax.vmap(network))(features)
        policy = jax.vmap(jax.vmap(masked))(policy, rows.obs.legal)
        advantages, returns = jax.vmap(ft.partial(truncated_gae, lambda_=self.lambda_))(
            rows.reward, self.gamma * rows.discount, value, rows.last
        )
        value_loss, total, metrics = regression(value, returns, counts)
        # The last row of a window has no loss of its own, and counts for nothing.
        flat = lambda tree: jax.tree.map(lambda x: jax.lax.collapse(x[:, :-1], 0, 2), tree)
        policy, old, actions, advantages, counts = flat(
            (policy, rows.record.policy, rows.action, advantages, counts)
        )
        policy_loss, more = self.objective.loss(
            policy, old, actions, mask_rows(counts, advantages), counts, duals, total=total
        )
        entropy = jax.vmap(lambda p: p.entropy())(policy)
        entropy = masked_mean(entropy, counts, total=total)
        loss = policy_loss + self.value_weight * value_loss - self.entropy_bonus * entropy
        return loss, {"loss": loss, "policy_entropy": entropy, **metrics, **more}


_log_prob = jax.vmap(lambda policy, action: policy.log_prob(action))
