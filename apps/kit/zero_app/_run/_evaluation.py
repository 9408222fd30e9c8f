"""How strong a player is, measured while it trains and afterwards."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from zero_envs import AbstractDiscreteEnvironment, AbstractEnvironment, Observation
from zero_search import AbstractProposalModel, ParticleSearch, SampledSearch
from zero_train import (
    AbstractActor,
    DistributionActor,
    evaluate,
    Evaluator,
    Loop,
    match,
    OPENING_PLIES,
    PlanningActor,
    PolicyActor,
    RandomActor,
    RememberingPlanner,
    rollout,
)

from .._command._config import AbstractConfig
from ._folder import RunFolder
from ._measures import RETURN


#: Moves after which a game is cut off, where the configuration has no `max_moves`.
MOST_MOVES = 1000


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation of a run found.

    **Attributes:**

    - `rows`: new lines of evaluations.jsonl.
    - `metrics`: for TensorBoard and the other trackers, at the step.
    - `figures`: labelled figures for the live view.
    - `headline`: a line for the live view.
    - `episodes`: for each of the rows a number for each of its episodes, by the name of what it is:
        the new lines of episodes.jsonl. A mean in the row is one of what [`zero_app.Measure`][]
        calls so. None for an evaluation that does not tell. The first 65 536 are written.
    """

    rows: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Any]
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headline: str = ""
    episodes: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """What a run has on disk when it starts or is resumed.

    **Attributes:**

    - `folder`: the run folder, where the app may write files of its own.
    - `evaluations`: the lines of evaluations.jsonl so far.
    - `player`: `(step) -> actor`, the first player, or the one that was evaluated at this step.
    """

    folder: RunFolder
    evaluations: list[dict[str, Any]]
    player: Callable[[int], AbstractActor]


#: `(step, actor) -> result` for the player at full strength, on one device.
Evaluate = Callable[[int, AbstractActor], EvaluationResult]


def with_simulations(player: AbstractActor, simulations: int | None) -> AbstractActor:
    """A player by tree search with so many simulations a move: 0 for its network without a search,
    `None` for as many as it has."""
    if simulations is None:
        return player
    assert isinstance(player, PlanningActor)
    model: Any = player.model
    if isinstance(remembering := player.planner, RememberingPlanner):
        inner = remembering.planner
        if inner is not None:
            inner = searching(inner, simulations) if simulations else None
        return PlanningActor(RememberingPlanner(inner), model)
    if simulations == 0:
        if not isinstance(player.model, AbstractProposalModel):
            return PolicyActor(model.evaluate)
        policy = jax.tree_util.Partial(_policy, model.evaluate)
        return DistributionActor(policy, None, greedy=True)
    return PlanningActor(searching(player.planner, simulations), model)


def searching(planner: Any, simulations: int, **more: Any) -> Any:
    """The planner with so many simulations a move, and those fields in `more` that it has."""
    if isinstance(planner, SampledSearch):
        inner = searching(planner.planner, simulations, **more)
        return dataclasses.replace(planner, planner=inner)
    has = {field.name for field in dataclasses.fields(planner)}
    more = {name: part for name, part in more.items() if name in has}
    return dataclasses.replace(planner, num_simulations=simulations, **more)


def _policy(evaluate: Evaluator, features: PyTree[Array]) -> Any:
    return evaluate(Observation(features, None))[0]


def network_alone(
    config: AbstractConfig, loop: Loop, files: RunFiles, *, players: int | None = None
) -> Evaluate:
    """The `evaluation` of an app whose agent searches a tree: the strength of its network without a
    search, see [`zero_app.measure`][], in as many games as the field `games` of the configuration
    says, or in 200. Every evaluation has the same openings and the same randomness. Without
    `players` it counts them."""
    del files
    if players is None:
        players = num_players(loop.env)

    def evaluation(step: int, player: AbstractActor) -> EvaluationResult:
        del step
        key = jr.fold_in(jr.key(config.seed), 1)
        actor = with_simulations(player, 0)
        row, episodes = measure(
            loop.env,
            actor,
            players=players,
            games=getattr(config, "games", 200),
            max_moves=getattr(config, "max_moves", MOST_MOVES),
            key=key,
            mesh=loop.mesh,
        )
        name = "score" if players == 2 else "return_mean"
        said = f"{who(actor)}: {sentence(row, 'random moves')}"
        return EvaluationResult([row], {name: row[name]}, {}, said, [episodes])

    return evaluation


def num_players(env: AbstractEnvironment) -> int:
    """The number of players. Where the environment does not say it and its actions are discrete,
    random moves are played: there are 2 players if a discount is negative, which passes the turn,
    and otherwise 1."""
    said: int | None = getattr(env, "num_players", None)
    if said is not None or not isinstance(env, AbstractDiscreteEnvironment):
        return said or 1
    rows = rollout(env, RandomActor(), num_steps=16, num_envs=4, key=jr.key(0))
    return 2 if bool(jnp.any(rows.discount < 0)) else 1


def is_image(features: PyTree) -> bool:
    """Whether the features of an observation, or their shapes, are those of a board or image:
    `[rows, columns, channels]` with several rows and columns, which networks see by
    convolutions."""
    shape = getattr(features, "shape", ())
    return len(shape) == 3 and min(shape[:2]) > 1


def measure(
    env: AbstractEnvironment,
    player: AbstractActor,
    opponent: AbstractActor | None = None,
    *,
    players: int,
    games: int,
    max_moves: int,
    key: PRNGKeyArray,
    opening_plies: int = OPENING_PLIES,
    mesh: Mesh | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Plays games and sums them up in plain numbers: a score from 0 to 1 in games of two, a mean
    return in others.

    **Arguments:**

    - `opponent`: in games of two; by default it plays random moves.
    - `players`: 1 or 2.
    - `games`: an even number for two players, because each opening is played from both seats.
    - `opening_plies`: random moves at the start of a game of two players, of whom equal games count
        once, see [`zero_train.MatchResult`][].
    - `mesh`: splits the games over its devices.

    **Returns:** the numbers, a row of evaluations.jsonl, and those of every game that counts, a row
    of episodes.jsonl: the `metrics` of [`zero_train.MatchResult`][] or [`zero_train.Evaluation`][].
    """
    if players == 2:
        played = match(
            env,
            player,
            RandomActor() if opponent is None else opponent,
            num_games=games,
            max_steps=max_moves,
            key=key,
            opening_plies=opening_plies,
            mesh=mesh,
        )
        return dataclasses.asdict(played.summary()), played.metrics()
    played = evaluate(env, player, num_episodes=games, max_steps=max_moves, key=key, mesh=mesh)
    alone = played.summary()
    row = {
        "episodes": alone.episodes,
        "return_mean": alone.mean,
        "return_se": alone.standard_error,
        "length_mean": alone.mean_length,
        "truncated": alone.truncated,
        "failed": alone.failed,
    }
    return row, played.metrics()


def sentence(row: Mapping[str, Any], against: str) -> str:
    """What [`zero_app.measure`][] found, as a line."""
    if "score" in row:
        low, high = 100 * row["score_low"], 100 * row["score_high"]
        return (
            f"{100 * row['score']:.1f} % against {against} (95 % interval {low:.1f} to {high:.1f}; "
            f"{row['games']} games: {row['wins']} won, {row['draws']} drawn"
            f"{_cut(row['unfinished'])}, {row['losses']} lost{_alike(row)})"
        )
    return (
        f"return {RETURN.shown(row)} (95 % interval) in {row['episodes']} episodes of "
        f"{row['length_mean']:.1f} steps{_cut(row['truncated'])}{_failed(row.get('failed', 0))}"
    )


def _alike(row: Mapping[str, Any]) -> str:
    """How many games differ, where some do not count or most repeat others. Rows of earlier
    versions do not know it."""
    played, games, distinct = (row.get(name, 0) for name in ("played", "games", "distinct"))
    if games < played:
        return f"; {games} of the {played} games differ, and equal ones count once"
    return f"; {distinct} of the {played} games differ" if 2 * distinct < played else ""


def who(player: AbstractActor) -> str:
    """Who a player is: a network alone, or a search with its size."""
    if not isinstance(player, PlanningActor):
        return "random moves" if isinstance(player, RandomActor) else "the network alone"
    planner: Any = player.planner
    if isinstance(planner, ParticleSearch):
        return f"search with {planner.num_particles} particles, {planner.depth} steps deep"
    if isinstance(planner, RememberingPlanner) and planner.planner is None:
        return "the network alone"
    number = getattr(planner, "num_simulations", None)
    return "search" if number is None else f"search with {number} simulations a move"


def _failed(number: int) -> str:
    return f"; {number} more, in which the simulation failed, do not count" if number else ""


def _cut(number: int) -> str:
    return f", {number} of them cut off" if number else ""
