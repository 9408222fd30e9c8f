"""Planners by name, over the true rules."""

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

from ._names import checked, PlannerName


#: The discount factor of planning, and of the regret.
GAMMA = 0.99
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


def planning_actor(env: Monsters, planner: str, simulations: int) -> PlanningActor:
    """An actor that plans over the true rules with a uniform policy, and plays the highest
    Q-value; see `build_planner`."""
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
    """The planner of a name (see `PlannerName`), with so many simulations in all trees together;
    those of one tree are a `Hindsight` of one tree. The other arguments are those of
    [`zero_search.TreeSearch`][]; `outcomes` is for `"chance"`, since the other planners draw
    outcomes without computing their probabilities, which is much faster.

    **Raises:** `UsageError` for an unknown name, or fewer than 5 simulations in a tree.
    """
    name = checked(planner, simulations)
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
