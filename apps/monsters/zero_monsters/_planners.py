"""Planners by name, over the true rules."""

import dataclasses
import re

from zero_envs import Monsters
from zero_search import (
    AbstractPriorModel,
    AbstractReadout,
    AbstractRootNoise,
    AbstractSelection,
    Hindsight,
    PlainQ,
    PlayoutModel,
    PriorRoot,
    PUCT,
    SoftmaxQ,
    TreeSearch,
)
from zero_train import EnvironmentModel, Evaluator, indifferent, PlanningActor


#: The discount factor of planning, and of the regret.
GAMMA = 0.99
#: The minimum number of simulations in each tree: with fewer, some actions are not tried.
LEAST_IN_A_TREE = 5
_KINDS = ("frozen", "hindsight-3", "hindsight-8", "hindsight-32", "chance")
#: The planners that `monsters plan` compares by default.
PLANNERS = [kind + leaf for leaf in ("", "+playout") for kind in _KINDS]
_PLAYOUT_STEPS = 20
#: The selection rule of all planners, chosen with another seed at 200 simulations
#: (docs/monsters.md). Returns are in [-1, 1], and an unvisited action has the value 0.
SELECTION = PUCT(2.0, PlainQ())
#: Plays the action of the highest Q-value. Trees of few simulations visit all actions about equally
#: often, so their mean visits hardly distinguish actions.
_READOUT = SoftmaxQ(0.0)


class PlannerError(ValueError):
    """An unknown name of a planner, or too few simulations for it. The message is one line."""


@dataclasses.dataclass(frozen=True)
class PlannerName:
    """The parsed name of a planner.

    `"frozen"` is one determinised tree: it draws one outcome of an action and keeps it.
    `"hindsight-K"` is the mean of K such trees; `"hindsight"` has 3. `"chance"` is a tree with
    chance nodes. Leaves are worth zero or, with `"+playout"` at the end of the name, the return of
    at most 20 random steps.

    **Attributes:**

    - `kind`: `"frozen"`, `"hindsight"` or `"chance"`.
    - `trees`: the number of trees.
    - `playout`: whether leaves are evaluated by playouts.
    """

    kind: str
    trees: int
    playout: bool

    @classmethod
    def parse(cls, text: str) -> "PlannerName":
        """Parses a name.

        **Raises:** `PlannerError` for an unknown one.
        """
        found = re.fullmatch(r"(?:(frozen|chance)|hindsight(?:-([1-9]\d*))?)(\+playout)?", text)
        if found is None:
            raise PlannerError(
                f"planner {text!r} is unknown; choose frozen, chance, or hindsight-K with at "
                "least one tree, such as hindsight-8. Append +playout to evaluate leaves by "
                "playouts. The commands eval and watch also accept network."
            )
        kind, trees, playout = found.groups()
        return cls(kind or "hindsight", 1 if kind else int(trees or 3), playout is not None)


def planning_actor(env: Monsters, planner: str, simulations: int) -> PlanningActor:
    """An actor that plans over the true rules with a uniform policy, and plays the highest Q-value.

    **Arguments and errors:** see `build_planner`.
    """
    return PlanningActor(build_planner(planner, simulations), build_model(env, planner))


def build_planner(
    planner: str,
    simulations: int,
    *,
    selection: AbstractSelection = SELECTION,
    noise: AbstractRootNoise | None = None,
    readout: AbstractReadout = _READOUT,
    outcomes: str = "proportional",
) -> Hindsight:
    """The planner of a name; those of one tree are a `Hindsight` of one tree.

    **Arguments:**

    - `planner`: a name; see `PlannerName`.
    - `simulations`: the number of simulations in all trees together.
    - `selection`, `noise`, `readout`: see [`zero_search.TreeSearch`][].
    - `outcomes`: of the planner `"chance"`; see [`zero_search.TreeSearch`][]. The other planners
        draw outcomes without computing their probabilities, which is much faster.

    **Raises:** `PlannerError` for an unknown name, or fewer than 5 simulations in a tree.
    """
    name = PlannerName.parse(planner)
    if simulations // name.trees < LEAST_IN_A_TREE:
        several = name.trees > 1
        trees = f"the {name.trees} trees" if several else "the tree"
        each = f", {LEAST_IN_A_TREE} in each" if several else ""
        raise PlannerError(
            f"{simulations} simulations for {trees} of {planner}: give at least "
            f"{LEAST_IN_A_TREE * name.trees}{each}."
        )
    tree = TreeSearch(
        simulations // name.trees,
        selection,
        PriorRoot(noise),
        readout,
        outcomes=outcomes if name.kind == "chance" else "frozen",
    )
    return Hindsight(tree, name.trees)


def build_model(
    env: Monsters, planner: str, evaluate: Evaluator | None = None, *, gamma: float = GAMMA
) -> AbstractPriorModel:
    """The model of a planner: the true rules, with policies and values of `evaluate` if given."""
    name = PlannerName.parse(planner)
    model = EnvironmentModel(env, evaluate or indifferent, gamma)
    if not name.playout:
        return model
    return PlayoutModel(
        model, _PLAYOUT_STEPS, playouts_in=EnvironmentModel(env, indifferent, gamma)
    )
