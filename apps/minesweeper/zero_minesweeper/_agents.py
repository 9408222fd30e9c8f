"""Who plays, by name."""

import functools as ft

from zero_envs import Minesweeper
from zero_search import Hindsight, PUCT, SoftmaxQ, TreeSearch
from zero_train import (
    AbstractActor,
    EnvironmentModel,
    Evaluator,
    PlanningActor,
    PolicyActor,
    RandomActor,
)
from zero_train.app import UsageError

from ._build import build_model, build_planner, no_opinion
from ._solvers import BoardActor, by_rules, least_likely


#: All of them; `network` needs a trained one, `belief` plays better with it.
AGENTS = ("network", "belief", "hindsight", "minprob", "tiebreak", "rules", "random")


def build_agent(
    name: str,
    env: Minesweeper,
    *,
    layouts: int,
    simulations: int,
    evaluate: Evaluator | None = None,
) -> AbstractActor:
    """The agent of that name.

    **Arguments:**

    - `layouts`: how many `hindsight` and `belief` draw for a move.
    - `simulations`: of `belief`, per move.
    - `evaluate`: a trained network; `belief` without one holds every game for as good as won.

    **Raises:** [`zero_train.app.UsageError`][] for a name that nobody has, and for `network`
    without one.
    """
    if name == "network" and evaluate is None:
        raise UsageError("--agent network plays with the network of a RUN; give the run's folder.")
    if name == "network" and evaluate is not None:
        return PolicyActor(evaluate)
    if name == "belief":
        model = build_model(env, evaluate or no_opinion)
        return PlanningActor(build_planner(simulations, layouts), model)
    if name == "random":
        return RandomActor()
    if name == "rules":
        return BoardActor(by_rules)
    if name in ("minprob", "tiebreak"):
        known = {"num_mines": env.num_mines, "max_states": env.max_states}
        return BoardActor(ft.partial(least_likely, tie_break=name == "tiebreak", **known))
    if name == "hindsight":
        # With the mines known every safe cell is worth the same: one simulation each says all. So
        # much exploration that none comes twice before all came once.
        search = TreeSearch(env.num_actions, PUCT(1e4), max_depth=1)
        planner = Hindsight(search, layouts, SoftmaxQ(0.0), resample=True)
        return PlanningActor(planner, EnvironmentModel(env, no_opinion))
    raise UsageError(f"--agent {name} is unknown; choose one of {', '.join(AGENTS)}.")
