"""What a player thinks of one position, on the host."""

import dataclasses
import functools as ft
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_envs import Observation
from zero_search import Plan, read_tree, Tree, TreeSearch

from .. import AbstractActor, PlanningActor, PolicyActor
from ._evaluation import with_simulations


@dataclasses.dataclass(frozen=True, eq=False)
class Thought:
    """The plan for one position, as NumPy arrays without a batch axis.

    Values are from the view of the player to move: 1 is a won game, -1 a lost one.

    **Attributes:**

    - `action`: the planned move.
    - `weights`: the weights of the plan; 0 for illegal actions.
    - `visits`: the number of simulations that began with each action, including those of a kept
        subtree; 0 without a search.
    - `qvalues`: the Q-values; for unvisited actions the value of the position.
    - `prior`: the network's policy.
    - `value`: the value of the position.
    - `stats`: the statistics of the planner.
    - `line`: the principal variation, beginning with `action`; empty where the planner keeps no
        tree.
    """

    action: int
    weights: Float[np.ndarray, " actions"]
    visits: Int[np.ndarray, " actions"]
    qvalues: Float[np.ndarray, " actions"]
    prior: Float[np.ndarray, " actions"]
    value: float
    stats: Mapping[str, float]
    line: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, plan: Plan, prior: Float[Array, "one actions"], line: Sequence[int] = ()
    ) -> "Thought":
        """The thought behind a plan of a batch of one."""
        row = ft.partial(jax.tree.map, lambda x: np.asarray(x)[0])
        return cls(
            action=int(plan.action[0]),
            weights=row(plan.weights),
            visits=np.rint(row(plan.visits)).astype(np.int32),
            qvalues=row(plan.qvalues),
            prior=row(prior),
            value=float(plan.value[0]),
            stats={name: float(value[0]) for name, value in plan.stats.items()},
            line=tuple(line),
        )


def think(
    player: PlanningActor,
    simulations: int,
    state: PyTree[Array],
    obs: Observation,
    *,
    key: PRNGKeyArray,
) -> Thought:
    """What a player thinks of a state it sees for the first time, and of its observation, both a
    batch of one. Another number of simulations is another program to compile.

    **Raises:** `ValueError` where the network's policy is NaN.
    """
    action, alone, plan, tree = _think(player, simulations, state, obs, key[None])
    if int(action[0]) < 0:
        raise ValueError("the network's policy is NaN for this position")
    if plan is None:
        prior, value = np.asarray(alone.weights[0]), float(alone.value[0])
        none, same = np.zeros(prior.shape, np.int32), np.full_like(prior, value)
        return Thought(int(action[0]), prior, none, same, prior, value, {})
    line = () if tree is None else read_tree(tree).principal_variation()
    actions = [edge.action for edge in line]
    # The move that is played need not be the most visited one.
    best = int(plan.action[0])
    return Thought.of(plan, alone.weights, actions if actions[:1] == [best] else [best])


@eqx.filter_jit
def _think(
    player: PlanningActor, simulations: int, state: PyTree[Array], obs: Observation, key: Array
) -> tuple[Array, Any, Plan | None, Tree | None]:
    """The network's action and record; then the plan and the tree, where there is a search."""
    model: Any = player.model
    action, alone, _ = PolicyActor(model.evaluate).act(state, obs, None, key=key)
    if simulations == 0:
        return action, alone, None, None
    actor: AbstractActor = with_simulations(player, simulations)
    assert isinstance(actor, PlanningActor)
    planner, tree = actor.planner, None
    carry = planner.init(model, state)
    if isinstance(planner, TreeSearch):
        plan, _, tree = planner.grow(model, state, carry, key=key, obs=obs)
    else:
        plan, _ = planner.plan(model, state, carry, key=key, obs=obs)
    return action, alone, plan, tree
