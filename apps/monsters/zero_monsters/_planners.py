"""Planners by name, over a world whose rules they know and whose values they do not."""

import dataclasses
import re

import jax.numpy as jnp
from jaxtyping import Array, Float

from zero_envs import Monsters, Observation
from zero_search import (
    AbstractPriorModel,
    AbstractReadout,
    AbstractRootNoise,
    AbstractSelection,
    Determinised,
    Hindsight,
    PlainQ,
    PlayoutModel,
    PriorRoot,
    PUCT,
    SoftmaxQ,
    TreeSearch,
)
from zero_train import EnvironmentModel, Evaluator, PlanningActor


#: Of planning, and of the regret that it is measured by.
GAMMA = 0.99
#: Fewer simulations than this in each tree are no search.
LEAST_IN_A_TREE = 5
_KINDS = ("frozen", "hindsight-3", "hindsight-8", "hindsight-32", "chance")
#: Those that are compared unless others are named.
PLANNERS = [kind + leaf for leaf in ("", "+playout") for kind in _KINDS]
_PLAYOUT_STEPS = 20
#: Scores actions inside the tree: one rule for all planners, chosen with another seed at 200
#: simulations (docs/monsters.md). Returns lie in [-1, 1]; what is untried is worth 0.
SELECTION = PUCT(2.0, PlainQ())
#: Plays the highest Q-value, as hindsight is defined: trees of few simulations have visited all
#: actions alike, and their mean visits say little.
_READOUT = SoftmaxQ(0.0)


class PlannerError(ValueError):
    """A planner that there is not, or that has too little to plan with. One line."""


@dataclasses.dataclass(frozen=True)
class PlannerName:
    """What the name of a planner says.

    `"frozen"` is one tree that takes the first outcome of an action for certain, `"hindsight-K"`
    the mean of K such trees, 3 without a number, `"chance"` a tree with chance nodes. Leaves are
    worth zero, or, with `"+playout"` at the end, the return of at most 20 random steps.
    """

    kind: str
    trees: int
    playout: bool

    @classmethod
    def parse(cls, text: str) -> "PlannerName":
        """Raises a `PlannerError` for any other name."""
        found = re.fullmatch(r"(?:(frozen|chance)|hindsight(?:-([1-9]\d*))?)(\+playout)?", text)
        if found is None:
            raise PlannerError(
                f"planner {text!r} is unknown; choose frozen, chance, or hindsight-K with at "
                "least one tree, such as hindsight-8; +playout at the end judges leaves by "
                "playouts; eval and watch know network, too."
            )
        kind, trees, playout = found.groups()
        return cls(kind or "hindsight", 1 if kind else int(trees or 3), playout is not None)


def planning_actor(env: Monsters, planner: str, simulations: int) -> PlanningActor:
    """An actor that plans with the true rules and a uniform policy, and plays the highest Q-value.

    Arguments and errors are those of `build_planner`.
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
    """What plans: the mean of its trees, which of one tree is that tree.

    **Arguments:**

    - `planner`: a name that `PlannerName` knows.
    - `simulations`: of all trees together.
    - `readout`: how the mean of the roots becomes a policy.
    - `outcomes`: those of [`zero_search.TreeSearch`][]; without a network depth is worth more.

    Raises a `PlannerError` for any other name, or fewer than 5 simulations a tree.
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
    root = PriorRoot(noise)
    tree = TreeSearch(simulations // name.trees, selection, root, readout, outcomes=outcomes)
    return Hindsight(tree, name.trees)


def build_model(
    env: Monsters, planner: str, evaluate: Evaluator | None = None, *, gamma: float = GAMMA
) -> AbstractPriorModel:
    """What it plans over: the true rules, and `evaluate`'s opinion, or none, of states.

    Only chance nodes ask for odds; to draw an outcome without them is much faster.
    """
    name = PlannerName.parse(planner)
    world = EnvironmentModel(env, evaluate or _uniform, gamma)
    model = world if name.kind == "chance" else Determinised(world)
    if not name.playout:
        return model
    return PlayoutModel(model, _PLAYOUT_STEPS, playouts_in=EnvironmentModel(env, _uniform, gamma))


def _uniform(obs: Observation) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
    """No opinion: every action alike, every state worth nothing."""
    assert obs.legal is not None
    return jnp.zeros(obs.legal.shape, jnp.float32), jnp.zeros((), jnp.float32)
