"""What a planner is and what it hands back."""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ._check import check_plan
from ._model import AbstractModel
from ._types import Bools, Floats, Ints, Keys, PerAction


Model = TypeVar("Model", bound=AbstractModel)
Carry = TypeVar("Carry")


class Plan(eqx.Module):
    """The result of planning: candidate actions and what the planner thinks of them.

    Values are from the view of the player to move at the root.

    **Attributes:**

    - `action`: the action to play.
    - `candidates`: the actions that were weighed; all of them, in order, for tree search, those
        drawn for a particle search, where an action may stand twice and share its weight.
    - `weights`: the improved policy over the candidates: non-negative, sums to 1, exactly 0 on
        illegal actions. A row without a legal action is filler: all its weights are 0. This is
        the target of a policy loss.
    - `visits`: how many simulations took each candidate, those included that were kept from the
        move before; of a particle search, how many of the last particles come from it.
    - `qvalues`: value of each candidate; the plan's `value` where a candidate was never visited.
    - `advantages`: `qvalues` minus `value`.
    - `value`: the root's value, or that of the policy read out ([`zero_search.SoftmaxQ`][]).
    - `stats`: numbers of a row, for logging. All searches say how many evaluations were `invalid`:
        NaN or infinite, and replaced ([`zero_search.Plan.check`][]). A tree search gives the mean
        `depth` of its leaves, the `nodes` stored, the visits `reused` from the move before and,
        with `max_return`, whether the value is `proven`; a particle search a number for each of its
        steps ([`zero_search.ParticleSearch`][]).
    - `extra`: what a planner or its model knows beyond that, for a learner; any pytree.
    """

    action: PyTree[Array]
    candidates: PyTree[Array]
    weights: Float[Array, "*axes candidates"]
    visits: Float[Array, "*axes candidates"]
    qvalues: Float[Array, "*axes candidates"]
    advantages: Float[Array, "*axes candidates"]
    value: Float[Array, "*axes"]
    stats: dict[str, Array]
    extra: Any = None

    @classmethod
    def over_actions(
        cls,
        action: Ints,
        weights: PerAction,
        *,
        visits: PerAction,
        qvalues: PerAction,
        value: Floats,
        stats: dict[str, Array],
        extra: Any = None,
    ) -> "Plan":
        """A plan whose candidates are all actions, in order. Outside of `jit` it is checked
        ([`zero_search.Plan.check`][])."""
        check_plan(action, value, stats, weights, visits, qvalues)
        actions = jnp.arange(weights.shape[1], dtype=jnp.int32)[None]
        plan = cls(
            action=action,
            candidates=jnp.broadcast_to(actions, weights.shape),
            weights=weights,
            visits=visits,
            qvalues=qvalues,
            advantages=qvalues - value[:, None],
            value=value,
            stats=stats,
            extra=extra,
        )
        if not isinstance(stats["invalid"], Tracer):
            plan.check()
        return plan

    def check(self) -> None:
        """Raises a `ValueError` if the model of the search returned NaN or infinity.

        The search replaces what is not finite (a NaN logit by the least likely one, `+inf` by the
        most likely, a value, reward or discount by 0) and counts it, because compiled code cannot
        raise. A number beyond 1e30 counts as infinite. Counted as well are `outcome_logits` that
        are NaN, `+inf`, or all `-inf` although the game goes on; continuous actions that are not
        finite; signals that do not tell all they must; and weights of a belief that are negative or
        not finite. Outside of `jit` all planners of this package call it.
        """
        if isinstance(self.stats["invalid"], Tracer):
            raise ValueError(
                "`Plan.check` got a plan that is being traced: return it from the jitted function "
                "and check it outside."
            )
        invalid = np.asarray(self.stats["invalid"])
        if invalid.any():
            raise ValueError(
                f"The model returned NaN or infinity in {invalid.sum()} evaluations, in rows "
                f"{np.flatnonzero(invalid.reshape(-1))[:8].tolist()}: `model.predict` must return "
                "finite values, and logits that are finite or `-inf`; `model.propose` finite "
                "values, and policies that draw finite actions; `model.step` finite rewards and "
                "discounts; `model.outcome_logits` of a chance model finite ones or `-inf`, not "
                "`-inf` alone; `model.signal` of a hidden model must tell `discount` and `last`, "
                "by numbers from 0 to below `num_signals`; the weights of a `Belief` must be "
                "finite and at least 0."
            )


class AbstractPlanner(eqx.Module, Generic[Model, Carry]):
    """Plans over a model. What is kept between moves is the carry, threaded by the caller.

    A planner asks the model for its `root` and knows nothing of the state besides, so that its plan
    cannot depend on what the player cannot see.
    """

    @abc.abstractmethod
    def init(self, model: Model, state: PyTree[Array]) -> Carry:
        """Returns the carry before the first move of `state`'s rows."""

    @abc.abstractmethod
    def plan(
        self, model: Model, state: PyTree[Array], carry: Carry, *, key: Keys, obs: Any = None
    ) -> tuple[Plan, Carry]:
        """Plans one move in every row.

        `state` and `obs` are for `model.root` alone; `obs` is what the players observe, or `None`
        where no environment is around.

        **Returns:** the plan, and the carry for `advance`. All planners of this package raise a
        `ValueError` when traced with keys, or a model's results, of wrong shape or dtype.
        """

    @abc.abstractmethod
    def advance(self, carry: Carry, action: Any, last: Bools) -> Carry:
        """Tells the planner which action was really played, by anybody.

        Rows with `last` start anew.
        """
