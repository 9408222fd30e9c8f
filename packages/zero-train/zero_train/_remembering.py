"""Plans over a learned model whose network has a memory."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from zero_envs import Observation
from zero_search import AbstractPlanner, Plan

from ._actors import PlanRecord, PolicyActor
from ._checks import check_kind
from ._latent import AbstractLatentModel
from ._mesh import select_rows
from ._recurrent import fresh, RecurrentNetwork


class RememberingCarry(eqx.Module):
    """What a [`zero_train.RememberingPlanner`][] keeps between moves.

    **Attributes:**

    - `memory`: that of the network, before it sees the next observation.
    - `begins`: whether the next observation is the first of an episode, whose memory is empty.
    - `inner`: the carry of the other planner.
    """

    memory: PyTree[Array]
    begins: Bool[Array, " batch"]
    inner: Any

    def holding(self, memory: PyTree[Array]) -> "RememberingCarry":
        """The same within an episode, with another memory."""
        return RememberingCarry(memory, jnp.zeros_like(self.begins), self.inner)


class RememberingPlanner(AbstractPlanner[AbstractLatentModel, RememberingCarry]):
    """Lets another planner plan from what is observed and what a network remembers, see
    [`zero_train.LatentNetwork`][]. The network remembers every observation that is planned from,
    and nothing of an episode before. The `extra` of a plan is the memory that it was made with.
    With `None` as `planner` it plays the network's policy of discrete actions, without a search.
    """

    planner: AbstractPlanner | None

    @property
    def num_simulations(self) -> int:
        """Of every plan."""
        return getattr(self.planner, "num_simulations", 0)

    def init(self, model: AbstractLatentModel, state: PyTree[Array]) -> RememberingCarry:
        rows = jax.tree.leaves(state)[0].shape[0]
        inner = None if self.planner is None else self.planner.init(model, state)
        return RememberingCarry(fresh(_memory(model), rows), jnp.ones(rows, bool), inner)

    def plan(
        self,
        model: AbstractLatentModel,
        state: PyTree[Array],
        carry: RememberingCarry,
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, RememberingCarry]:
        check_kind("RememberingPlanner.plan", Observation, "what is observed", obs=obs)
        rows = carry.begins.shape[0]
        memory = select_rows(carry.begins, fresh(_memory(model), rows), carry.memory)
        shown, inner = Observation((obs.features, memory), obs.legal), carry.inner
        _, after = jax.vmap(model.seen)(shown)
        if self.planner is None:
            plan = _unsearched(model, shown, key)
        else:
            plan, inner = self.planner.plan(model, state, inner, key=key, obs=shown)
        plan = dataclasses.replace(plan, extra=memory)
        return plan, RememberingCarry(after, jnp.zeros_like(carry.begins), inner)

    def advance(
        self, carry: RememberingCarry, action: Any, last: Bool[Array, " batch"]
    ) -> RememberingCarry:
        inner = carry.inner
        if self.planner is not None:
            inner = self.planner.advance(inner, action, last)
        return RememberingCarry(carry.memory, carry.begins | last, inner)


def remembered(record: Callable[[Plan], PlanRecord], plan: Plan) -> PlanRecord:
    """The record of a plan, with the memory that it was made with."""
    return dataclasses.replace(record(plan), memory=plan.extra)


def _memory(model: AbstractLatentModel) -> RecurrentNetwork:
    if model.memory is None:
        raise ValueError(
            f"RememberingPlanner: the network {type(model.network).__name__} has no `memory`; plan "
            "without a RememberingPlanner."
        )
    return model.memory


def _unsearched(model: AbstractLatentModel, obs: Observation, key: Key[Array, " batch"]) -> Plan:
    """The policy and the value of the network, which visit nothing."""
    action, policy, _ = PolicyActor(model.evaluate).act(obs, obs, None, key=key)
    nothing = jnp.zeros_like(policy.weights)
    return Plan.over_actions(
        action,
        policy.weights,
        visits=nothing,
        qvalues=nothing + policy.value[:, None],
        value=policy.value,
        stats={"invalid": ~jnp.isfinite(policy.value) | (action < 0)},
    )
