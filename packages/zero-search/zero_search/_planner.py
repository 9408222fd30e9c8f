"""What a planner is and what it hands back."""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from ._model import AbstractModel


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
    - `qvalues`: value of each candidate; the root's value where a candidate was never visited.
    - `advantages`: `qvalues` minus `value`.
    - `value`: the root's value.
    - `stats`: numbers of a row, for logging. All searches say how many evaluations were `invalid`:
        NaN or infinite, and replaced ([`zero_search.check_plan`][]). A tree search gives the mean
        `depth` of its leaves, the `nodes` stored and the visits `reused` from the move before; a
        particle search a number for each of its steps ([`zero_search.ParticleSearch`][]).
    """

    action: PyTree[Array]
    candidates: PyTree[Array]
    weights: Float[Array, "*axes candidates"]
    qvalues: Float[Array, "*axes candidates"]
    advantages: Float[Array, "*axes candidates"]
    value: Float[Array, "*axes"]
    stats: dict[str, Array]


def check_plan(plan: Plan) -> None:
    """Raises a `ValueError` if the model of a search returned NaN or infinity.

    The search replaces what is not finite (a NaN logit by the least likely one, `+inf` by the most
    likely, a value, reward or discount by 0) and counts it, because compiled code cannot raise.
    Beyond 1e30 it counts as infinite. `outcome_logits` of a chance model that are NaN, `+inf`, or
    all `-inf` although the game goes on, count as well, and so do continuous actions drawn from a
    policy, signals that do not tell all they must, and beliefs with weights that are no weights. A
    planner that is not under `jit` calls this itself.
    """
    invalid = np.asarray(plan.stats["invalid"])
    if invalid.any():
        raise ValueError(
            f"The model returned NaN or infinity in {invalid.sum()} evaluations, in rows "
            f"{np.flatnonzero(invalid.reshape(-1))[:8].tolist()}: `model.predict` must return "
            "finite values, and logits that are finite or `-inf`; `model.propose` finite values, "
            "and policies that draw finite actions; `model.step` finite rewards and discounts; "
            "`model.outcome_logits` of a chance model finite ones or `-inf`, not `-inf` alone; "
            "`model.signal` of a hidden model must tell `discount` and `last`, by numbers from 0 "
            "to below `num_signals`; the weights of a `Belief` must be finite and at least 0."
        )


class AbstractPlanner(eqx.Module, Generic[Model, Carry]):
    """Plans over a model. What is kept between moves is the carry, threaded by the caller."""

    @abc.abstractmethod
    def init(self, model: Model, state: PyTree[Array]) -> Carry:
        """The carry before the first move of `state`'s rows."""

    @abc.abstractmethod
    def plan(
        self, model: Model, state: PyTree[Array], carry: Carry, *, key: Key[Array, " batch"]
    ) -> tuple[Plan, Carry]:
        """Plans one move in every row."""

    @abc.abstractmethod
    def advance(
        self,
        carry: Carry,
        action: Any,
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> Carry:
        """Tells the planner which action was really played (by anybody) and where it led.

        Keeps what still holds for `next_state` and drops the rest; rows with `last` start anew.
        """
