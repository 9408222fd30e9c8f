"""`spo eval`: measures the player of a run."""

import json
import pathlib
import statistics

import jax.random as jr
from jaxtyping import PRNGKeyArray

from zero_train import AbstractActor, evaluate as play, EvaluationSummary, read_lines

from ._load import load
from ._worlds import longest_episode, World


def evaluate(run: str, *, episodes: int, seed: int, as_json: bool) -> None:
    """Measures the newest player of a run and prints the result."""
    trained = load(run)
    summary = measure(trained.env, trained.actor(), episodes=episodes, key=jr.key(seed))
    row = {
        "env": trained.config.env,
        "episodes": summary.episodes,
        "return_mean": summary.mean,
        "return_se": summary.standard_error,
        "length_mean": summary.mean_length,
        **_training(pathlib.Path(run), trained.block),
    }
    if as_json:
        print(json.dumps(row))
        return
    print(f"{run}, {row['env']} after {row['steps_trained']:,} steps, {row['episodes']} episodes:")
    print(f"  return  {summary.mean:.2f} ± {summary.standard_error:.2f} (standard error)")
    print(f"  length  {summary.mean_length:.1f} steps")
    if summary.failed:
        print(f"  excluded {summary.failed} further episodes, in which the simulation failed")
    print(f"  trained at {row['train_steps_per_second']:.0f} environment steps a second")


def measure(
    env: World, actor: AbstractActor, *, episodes: int, key: PRNGKeyArray
) -> EvaluationSummary:
    """Plays whole episodes in parallel."""
    max_steps = longest_episode(env)
    return play(env, actor, num_episodes=episodes, max_steps=max_steps, key=key).summary()


def _training(folder: pathlib.Path, block: int) -> dict[str, float]:
    """The training steps of the player, and their speed: the median over the blocks, which is not
    affected by compilation."""
    metrics = {row["step"]: row for row in read_lines(folder / "metrics.jsonl")}
    rates = [row["positions_per_second"] for row in read_lines(folder / "timings.jsonl")]
    return {
        "steps_trained": metrics[block]["positions"] if block in metrics else 0,
        "train_steps_per_second": statistics.median(rates) if rates else 0.0,
    }
