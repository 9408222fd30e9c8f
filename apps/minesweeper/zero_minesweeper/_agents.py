"""Who plays, by name."""

import functools as ft

import jax.numpy as jnp
from jaxtyping import Array, Float

from zero_envs import Minesweeper, Observation
from zero_search import Hindsight, PUCT, SoftmaxQ, TreeSearch
from zero_train import AbstractActor, EnvironmentModel, PlanningActor, RandomActor
from zero_train.app import UsageError

from ._solvers import BoardActor, by_rules, least_likely


#: Who needs no network.
SOLVERS = ("tiebreak", "minprob", "rules", "random", "hindsight")


def build_agent(name: str, env: Minesweeper, *, layouts: int) -> AbstractActor:
    """The agent of that name.

    **Arguments:**

    - `layouts`: how many `hindsight` draws for a move.

    **Raises:** [`zero_train.app.UsageError`][] for a name that nobody has.
    """
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
        return PlanningActor(planner, EnvironmentModel(env, _indifferent))
    raise UsageError(f"--agent {name} is unknown; choose one of {', '.join(SOLVERS)}.")


def _indifferent(obs: Observation) -> tuple[Float[Array, " cells"], Float[Array, ""]]:
    assert obs.legal is not None
    return jnp.zeros(obs.legal.shape, jnp.float32), jnp.zeros((), jnp.float32)
