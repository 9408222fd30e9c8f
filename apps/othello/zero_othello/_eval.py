"""`othello eval`: plays a match and prints the score with its confidence interval."""

import dataclasses
import json as json_text
import pathlib
from typing import Any, ClassVar

import jax.random as jr
import tyro

from zero_envs import AbstractDiscreteEnvironment
from zero_train import AbstractActor
from zero_train.app import (
    AbstractCommand,
    App,
    as_usage_error,
    Bounds,
    load,
    UsageError,
    with_simulations,
)

from ._config import Config, SIMULATIONS
from ._engines import opponent, OPPONENTS
from ._ladder import OPENING_PLIES, play_match, result_row


@dataclasses.dataclass(frozen=True)
class Eval(AbstractCommand):
    """Play a match against a fixed opponent or another run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    opponent: str = "random"
    """random, greedy, positional, uct, or the folder of another run."""
    games: int = 100
    """An even number, because each opening of 6 random plies is played with both colours."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration. The player of another run has as many."""
    seed: int = 0
    """The seed of openings and ties."""
    json: bool = False
    """Print one JSON line."""

    bounds: ClassVar[Bounds] = {"games": (2, 10**8), "simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        if self.games % 2:
            raise UsageError(f"--games {self.games} was given; give an even number.")
        trained = load(app, self.run)
        number = trained.config.player_simulations if self.simulations is None else self.simulations
        env: Any = trained.loop.env  # whose actions are discrete
        player, other = with_simulations(trained.player, number), self._opponent(app, env, number)
        summary = play_match(env, player, other, games=self.games, key=jr.key(self.seed))
        if self.json:
            print(json_text.dumps(result_row(self.opponent, summary, number)))
            return
        search = f"{number} simulations a move" if number else "the network alone"
        print(f"{self.run} (step {trained.step}, {search}) against {self.opponent}:")
        print(
            f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost of {self.games} "
            f"games, each opening of {OPENING_PLIES} random plies with both colours"
        )
        print(
            f"score {100 * summary.score:.1f} % "
            f"(95 % interval {100 * summary.score_low:.1f} to {100 * summary.score_high:.1f} %)"
        )

    def _opponent(
        self, app: App[Config], env: AbstractDiscreteEnvironment, simulations: int
    ) -> AbstractActor:
        name = self.opponent
        if name not in OPPONENTS and pathlib.Path(name).is_dir():
            other: Any = load(app, name).player
            # Its run may have the other engine, but the states are those of this run's.
            model = dataclasses.replace(other.model, env=env)
            return with_simulations(dataclasses.replace(other, model=model), simulations)
        with as_usage_error():
            # Where it is not a folder either, the error lists the names.
            return opponent(name, env)
