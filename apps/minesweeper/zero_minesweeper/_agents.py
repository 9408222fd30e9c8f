"""Who plays, by name."""

import functools as ft
import re

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

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
from zero_train.app import UsageError

from ._build import build_model, build_player
from ._config import Config
from ._planner import SolverSearch
from ._solvers import BoardActor, by_rules, least_likely


#: Who plays with a network; the first two cannot do without.
NETWORKED = ("network", "belief", "belief-constant")
#: All of them.
AGENTS = (
    *NETWORKED,
    "hindsight",
    "minprob",
    "tiebreak",
    "rules",
    "random",
)
#: Who is measured while a network learns.
FOLLOWED = ("network", "belief")
#: Whose plans a flag changes.
PLANNING = {
    "layouts": ("belief", "belief-constant", "hindsight"),
    "simulations": ("belief", "belief-constant"),
}
#: Layouts of `hindsight`, unless its name says how many: with 128 it is nearly as good as with all.
LAYOUTS = 128
# Bytes that the tree of a belief may take.
_ROOM = 8e9
# Far below the least that means over so many layouts differ by.
_TIES = 1e-7


class Indifferent(eqx.Module):
    """The policy of a network, or none, and every game as good as won that is not lost."""

    policy: Evaluator | None = None

    def __call__(self, obs: Observation) -> tuple[Float[Array, " cells"], Float[Array, ""]]:
        assert obs.legal is not None
        none = jnp.zeros(obs.legal.shape, jnp.float32)
        return none if self.policy is None else self.policy(obs)[0], jnp.ones((), jnp.float32)


def build_agent(
    name: str,
    env: Minesweeper,
    *,
    config: Config | None = None,
    layouts: int | None = None,
    evaluate: Evaluator | None = None,
) -> AbstractActor:
    """The agent of that name.

    **Arguments:**

    - `name`: one of `AGENTS`; `hindsight-32` is hindsight with 32 layouts.
    - `config`: how belief trees are searched; by default as usual.
    - `layouts`: how many `hindsight` draws for a move.
    - `evaluate`: a trained network; `belief-constant` takes its policy, but holds every game for as
        good as won.

    **Raises:** [`zero_train.app.UsageError`][] for a name that nobody has, and for an agent that
    has no network.
    """
    kind, number = _parsed(name)
    if kind in ("network", "belief") and evaluate is None:
        raise UsageError(f"{name} needs a trained network; give the folder of a run.")
    judge: Evaluator = Indifferent(evaluate)
    if evaluate is not None and kind != "belief-constant":
        judge = evaluate
    if kind == "network":
        return PolicyActor(judge)
    if kind.startswith("belief"):
        player = build_player(config or Config())
        _check_room(name, player, env)
        return PlanningActor(player, build_model(env, judge))
    if kind == "random":
        return RandomActor()
    if kind == "rules":
        return BoardActor(by_rules)
    if kind == "hindsight":
        # With the mines known every safe cell is worth the same: one simulation each says all. So
        # much exploration that none comes twice before all came once. The root counts what lies
        # behind it without storing it, which would take a fifth of a megabyte a layout.
        rule = PUCT(1e4, ByMinMax(0.0, 2.0))  # a cell's pay and what follows
        # Equally good cells at random: the first of them would be a rule of its own.
        readout = SoftmaxQ(_TIES)
        tree = TreeSearch(env.num_actions, rule, readout=readout, max_depth=1, max_nodes=1)
        planner = Hindsight(tree, number or layouts or LAYOUTS)
        return PlanningActor(planner, EnvironmentModel(env, Indifferent()))
    known = {"num_mines": env.num_mines, "max_states": env.max_states}
    return BoardActor(ft.partial(least_likely, tie_break=kind == "tiebreak", **known))


def _check_room(name: str, player: SolverSearch, env: Minesweeper) -> None:
    simulations = player.search.num_simulations
    # A decision and a chance node for each simulation, and in both the board and the mines of
    # every particle.
    room = 2 * player.lanes * (simulations + 1) * player.num_layouts * 2 * env.num_actions
    if room > _ROOM:
        raise UsageError(
            f"{name} with {simulations} simulations over {player.num_layouts} layouts of "
            f"{env.num_actions} cells would take {room / 1e9:.0f} GB; give fewer --simulations or "
            f"--layouts, for {_ROOM / 1e9:.0f} GB at most."
        )


def _parsed(name: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"hindsight-([1-9]\d{0,4})", name)
    if found is None and name not in AGENTS:
        raise UsageError(
            f"no agent is called {name!r}; choose one of {', '.join(AGENTS)}, or hindsight-32 for "
            "32 layouts."
        )
    return ("hindsight", int(found[1])) if found else (name, None)
