"""Agents by name."""

import re

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from zero_app import UsageError
from zero_envs import Minesweeper, Observation
from zero_search import ByMinMax, Hindsight, PUCT, SoftmaxQ, TreeSearch
from zero_train import (
    AbstractActor,
    EnvironmentModel,
    Evaluator,
    PlanningActor,
    PolicyActor,
    RandomActor,
)

from ._build import build_model, build_planner
from ._config import Config
from ._planner import SolverSearch
from ._solvers import by_rules, least_likely


#: The agents that use a network; `belief-constant` can do without.
NETWORKED = ("network", "belief", "belief-constant")
#: All agents.
AGENTS = (*NETWORKED, "hindsight", "minprob", "tiebreak", "rules", "random")
#: The agents that a flag applies to.
PLANNING = {
    "layouts": ("belief", "belief-constant", "hindsight"),
    "simulations": ("belief", "belief-constant"),
}
#: The default number of layouts of `hindsight`, with which it is nearly as good as with all.
LAYOUTS = 128
# The maximum size of a belief tree in bytes.
_ROOM = 8e9
# Far below the smallest difference between means over the layouts.
_TIES = 1e-7


class Judge(eqx.Module):
    """The policy and the value of a network; without one, a uniform policy and the value 1.

    Whether it is `certain`, with the value 1 instead of the network's for every state, is an array,
    so that both are one compiled program.
    """

    network: Evaluator | None = None
    certain: bool | Bool[Array, ""] = True

    def __call__(self, obs: Observation) -> tuple[Float[Array, " cells"], Float[Array, ""]]:
        assert obs.legal is not None
        if self.network is None:
            return jnp.zeros(obs.legal.shape, jnp.float32), jnp.ones((), jnp.float32)
        logits, value = self.network(obs)
        return logits, jnp.where(self.certain, 1.0, value)


def build_agent(
    name: str,
    env: Minesweeper,
    *,
    config: Config | None = None,
    layouts: int | None = None,
    evaluate: Evaluator | None = None,
) -> AbstractActor:
    """The agent of a name, one of `AGENTS`; `hindsight-32` is hindsight with 32 layouts for a move.
    `layouts` is that number for `hindsight`, `config` the configuration of belief trees, by default
    `Config()`, and `evaluate` a trained network. `belief-constant` uses its policy, and the value 1
    for every state."""
    kind, number = _parsed(name)
    if kind in ("network", "belief") and evaluate is None:
        raise UsageError(f"{name} needs a trained network; give the folder of a run.")
    if kind == "network":
        assert evaluate is not None
        return PolicyActor(evaluate)
    if kind.startswith("belief"):
        judge = Judge(evaluate, jnp.asarray(kind == "belief-constant"))
        planner = build_planner(config or Config())
        _check_room(name, planner, env)
        return PlanningActor(planner, build_model(env, judge))
    if kind == "random":
        return RandomActor()
    if kind == "rules":
        return PolicyActor(by_rules, temperature=1.0)
    if kind == "hindsight":
        # With known mines all safe cells have the same value, so one simulation for each cell
        # suffices. The exploration constant is so large that every cell is visited once. A tree of
        # one node needs a fifth of a megabyte less for each layout.
        rule = PUCT(1e4, ByMinMax(0.0, 2.0))  # the reward of a cell and the value after it
        # Ties are broken at random; always taking the first cell would be a strategy of its own.
        readout = SoftmaxQ(_TIES)
        tree = TreeSearch(env.num_actions, rule, readout=readout, max_depth=1, max_nodes=1)
        planner = Hindsight(tree, number or layouts or LAYOUTS)
        return PlanningActor(planner, EnvironmentModel(env, Judge()))
    known = {"num_mines": env.num_mines, "max_states": env.max_states}
    # Equal to that of another agent of the same name, so that both are one compiled program.
    policy = eqx.Partial(least_likely, tie_break=kind == "tiebreak", **known)
    return PolicyActor(policy, temperature=1.0)


def _check_room(name: str, planner: SolverSearch, env: Minesweeper) -> None:
    simulations = planner.search.num_simulations
    # A decision and a chance node for each simulation, and in both the board and the mines of
    # every particle.
    room = 2 * planner.lanes * (simulations + 1) * planner.num_layouts * 2 * env.num_actions
    if room > _ROOM:
        raise UsageError(
            f"{name} with {simulations} simulations over {planner.num_layouts} layouts of "
            f"{env.num_actions} cells would take {room / 1e9:.0f} GB; give fewer --simulations or "
            f"--layouts, for {_ROOM / 1e9:.0f} GB at most."
        )


def _parsed(name: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"hindsight-([1-9]\d{0,4})", name)
    if found is None and name not in AGENTS:
        raise UsageError(
            f"agent {name!r} is unknown; choose one of {', '.join(AGENTS)}, or hindsight-32 for 32 "
            "layouts."
        )
    return ("hindsight", int(found[1])) if found else (name, None)
