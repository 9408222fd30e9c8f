"""Actors that fit any environment: a planner, a network without search, a random player."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from zero_envs import Observation, Transition
from zero_search import (
    AbstractModel,
    AbstractPlanner,
    ParticleSearch,
    Plan,
    safe_softmax,
    SampledSearch,
)

from ._agent import AbstractActor, Experience
from ._checks import check_kind, check_range
from ._faults import move_faults
from ._model import evaluate_batch, Evaluator
from ._policies import AbstractReflexActor


Carry = TypeVar("Carry")


class PlanRecord(eqx.Module):
    """The part of a plan that is stored for the learner.

    **Attributes:**

    - `weights`: the policy target; 0 on illegal actions, sums to 1 (0 on a final state's row
        without legal actions).
    - `value`: the root's value.
    - `candidates`: the actions that have these weights; `None` for all of them, in order.
    - `state`: what was planned from, where it is kept to plan from it anew.
    - `updates`: how many the learner had made when this was played, where it asks for a row's age.
    - `memory`: that of the network before it saw the observation; `None` without memory.
    """

    weights: Float[Array, "*axes candidates"]
    value: Float[Array, "*axes"]
    candidates: PyTree[Array] = None
    state: PyTree[Array] = None
    updates: Int[Array, "*axes"] | None = None
    memory: PyTree[Array] = None


def policy_and_value(plan: Plan) -> PlanRecord:
    """The `PlanRecord` of a plan over all actions."""
    return PlanRecord(plan.weights, plan.value)


def candidates_and_value(plan: Plan) -> PlanRecord:
    """The `PlanRecord` of a plan over some actions, such as a [`zero_search.SampledSearch`][]'s."""
    return PlanRecord(plan.weights, plan.value, plan.candidates)


def check_record(owner: str, explorer: Any, record: Callable[[Plan], Any]) -> None:
    """Raises where weights of candidates would be learned as those of all actions."""
    if isinstance(explorer, SampledSearch | ParticleSearch) and record is policy_and_value:
        raise ValueError(
            f"{owner}(explorer={type(explorer).__name__}(...)): its weights are those of "
            "candidates; give record=zero_train.candidates_and_value."
        )


def dated(record: Callable[[Plan], PlanRecord], updates: Int[Array, ""], plan: Plan) -> PlanRecord:
    """The record of a plan, with how many updates the learner had made."""
    dates = jnp.broadcast_to(updates, plan.value.shape)
    return dataclasses.replace(record(plan), updates=dates)


class PlanningActor(AbstractActor[Carry], Generic[Carry]):
    """Plays the actions of a planner. Its carry is the planner's.

    The planner asks the model's `root` what it may know of a state, so a hidden part of the state
    reaches no plan.

    After a wrong move, of which it knows no action's upper bound, `advance` raises. Under `jax.jit`
    the planner starts such a row anew instead.

    **Attributes:**

    - `planner`: decides on exploration, temperature and what it keeps between moves.
    - `model`: what it plans over.
    - `record`: `(plan) -> record`, what of a plan is learned from; by default a `PlanRecord`.
    - `keeps_state`: whether the record, a `PlanRecord`, keeps the state as well.
    """

    planner: AbstractPlanner
    model: AbstractModel
    record: Callable[[Plan], PyTree[Array]] = policy_and_value
    keeps_state: bool = False

    def __check_init__(self):
        owner = "PlanningActor"
        check_kind(owner, AbstractPlanner, "a planner of zero_search", planner=self.planner)
        check_kind(owner, AbstractModel, "a model of zero_search", model=self.model)
        check_kind(owner, Callable, "a function of plans", record=self.record)

    def init(self, state: PyTree[Array]) -> Carry:
        return self.planner.init(self.model, state)

    def act(
        self, state: PyTree[Array], obs: Observation, carry: Carry, *, key: Key[Array, " batch"]
    ) -> tuple[PyTree[Array], PyTree[Array], Carry]:
        plan, carry = self.planner.plan(self.model, state, carry, key=key, obs=obs)
        record = self.record(plan)
        if self.keeps_state:
            check_kind(
                "PlanningActor", PlanRecord, "a PlanRecord to keep the state in", record=record
            )
            record = dataclasses.replace(record, state=state)
        return plan.action, record, carry

    def advance(self, carry: Carry, action: Any, transition: Transition) -> Carry:
        wrong = move_faults("PlanningActor", action, transition) > 0
        return self.planner.advance(carry, action, transition.last | wrong)


class Reanalyser(eqx.Module):
    """Plans stored rows `[batch]` anew, or those of windows `[batch, time]` from `first` up to
    `last`.

    **Attributes:**

    - `actor`: whose plans replace the records. It begins each as a new game, with the memory that
        is stored.
    - `first`, `last`: the rows `[first, last)` of a window are planned anew, by default all.
    """

    actor: PlanningActor
    first: int = 0
    last: int | None = None

    def __call__(self, rows: Experience, *, key: Key[Array, " batch"]) -> Experience:
        part = (slice(None), slice(self.first, self.last))[: rows.last.ndim]
        axes = rows.last[part].shape
        if rows.last.ndim == 2:
            key = jax.vmap(lambda key: jr.split(key, axes[1]))(key).reshape(-1)
        flat = lambda x: jax.lax.collapse(x[part], 0, len(axes))
        obs, record = jax.tree.map(flat, (rows.obs, rows.record))
        # A model that plans from observations has no states: any array tells how many there are.
        state = record.state if self.actor.keeps_state else obs
        carry: Any = self.actor.init(state)
        if record.memory is not None:
            carry = carry.holding(record.memory)
        _, anew, _ = self.actor.act(state, obs, carry, key=key)
        # What was played is as old as before.
        anew = dataclasses.replace(anew, updates=record.updates)

        def stored(old: Array, new: Array) -> Array:
            return old.at[part].set(new.reshape(*axes, *new.shape[1:]))

        return dataclasses.replace(rows, record=jax.tree.map(stored, rows.record, anew))


class PolicyActor(AbstractReflexActor):
    """Plays a network's policy without any search.

    Its record is a `PlanRecord` of the network's own policy (at temperature 1) and value. Where a
    logit is NaN or `+inf` there is no policy, and the action is -1, which is a wrong move.

    **Attributes:**

    - `evaluate`: returns the logits and the value of an observation.
    - `temperature`: 0 plays the most likely legal action, otherwise logits are divided by it and
        sampled from.
    """

    evaluate: Evaluator
    temperature: float = 0.0

    def __check_init__(self):
        check_kind("PolicyActor", Callable, "a function of observations", evaluate=self.evaluate)
        check_range("PolicyActor", 0, temperature=self.temperature)

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], PlanRecord, None]:
        del state, carry
        logits, value = evaluate_batch(self.evaluate, obs)
        if self.temperature == 0:
            action = jnp.argmax(logits, axis=-1)
        else:
            action = jax.vmap(jr.categorical)(key, logits / self.temperature)
        unknown = jnp.any(jnp.isnan(logits) | (logits == jnp.inf), axis=-1)
        action = jnp.where(unknown, -1, action).astype(jnp.int32)
        return action, PlanRecord(safe_softmax(logits), value), None


def indifferent(obs: Observation) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
    """The evaluator that knows nothing: equal logits, and the value 0."""
    if obs.legal is None:
        raise ValueError("indifferent: the actions are continuous; give a discrete environment.")
    return jnp.zeros(obs.legal.shape, jnp.float32), jnp.zeros((), jnp.float32)


class RandomActor(AbstractReflexActor):
    """Plays every legal action with the same probability.

    Its record is a `PlanRecord` of that policy with value 0, so its experience can share a
    buffer with a planner's.
    """

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], PlanRecord, None]:
        return PolicyActor(indifferent, temperature=1.0).act(state, obs, carry, key=key)
