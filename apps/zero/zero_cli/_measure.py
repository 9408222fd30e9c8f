"""The strength of a player: a score in games of two, a mean return in others."""

from typing import Any

from jaxtyping import PRNGKeyArray

from zero_train import AbstractActor, evaluate, match, RandomActor

from ._worlds import World


#: Uniformly random moves at the start of a match, so that two fixed players play many games.
OPENING_PLIES = 2


def measure(
    world: World,
    actor: AbstractActor,
    opponent: AbstractActor | None = None,
    *,
    games: int,
    max_moves: int,
    key: PRNGKeyArray,
) -> dict[str, Any]:
    """Plays games and sums them up, as `--json` prints it.

    **Arguments:**

    - `opponent`: in games of two; by default random moves.
    """
    if world.players == 2:
        summary = match(
            world.env,
            actor,
            RandomActor() if opponent is None else opponent,
            num_games=games,
            max_steps=max_moves,
            key=key,
            opening_plies=OPENING_PLIES,
        ).summary()
        return {
            "games": summary.games,
            "wins": summary.wins,
            "draws": summary.draws,
            "losses": summary.losses,
            "unfinished": summary.unfinished,
            "score": summary.score,
            "score_low": summary.score_low,
            "score_high": summary.score_high,
        }
    alone = evaluate(world.env, actor, num_episodes=games, max_steps=max_moves, key=key).summary()
    return {
        "episodes": alone.episodes,
        "return_mean": alone.mean,
        "return_se": alone.standard_error,
        "length_mean": alone.mean_length,
        "truncated": alone.truncated,
    }


def sentence(row: dict[str, Any], against: str) -> str:
    """What was measured, as a line."""
    if "score" in row:
        low, high = 100 * row["score_low"], 100 * row["score_high"]
        return (
            f"{100 * row['score']:.1f} % against {against} (95 % interval {low:.1f} to {high:.1f}; "
            f"{row['wins']} won, {row['draws']} drawn, {row['losses']} lost)"
        )
    return (
        f"return {row['return_mean']:.4g} ± {row['return_se']:.2g} (standard error) in "
        f"{row['episodes']} episodes of {row['length_mean']:.1f} steps"
    )
