"""`othello eval`: plays a match and prints the score with its confidence interval."""

import dataclasses
import json as json_text
from typing import Any, ClassVar

import jax.random as jr

from zero_envs import AbstractDiscreteEnvironment
from zero_train import AbstractActor
from zero_train.app import (
    AbstractPlayerCommand,
    App,
    Bounds,
    has_player,
    measure,
    UsageError,
    with_simulations,
)

from ._config import Config, LONGEST_GAME, SIMULATIONS
from ._engines import opponent, OPPONENTS
from ._ladder import OPENING_PLIES


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Play a match against a fixed opponent or another run."""

    opponent: str = "random"
    """random, greedy, positional, uct, or another run, file or name of a player."""
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
        trained = self.load(app)
        number = trained.config.player_simulations if self.simulations is None else self.simulations
        env: Any = trained.loop.env  # whose actions are discrete
        player, other = with_simulations(trained.player, number), self._opponent(app, env, number)
        row = measure(
            env,
            player,
            other,
            players=2,
            games=self.games,
            max_moves=LONGEST_GAME,
            key=jr.key(self.seed),
            opening_plies=OPENING_PLIES,
        )
        if self.json:
            print(json_text.dumps({"opponent": self.opponent, **row, "simulations": number}))
            return
        search = f"{number} simulations a move" if number else "the network alone"
        print(f"{self.run} (step {trained.step}, {search}) against {self.opponent}:")
        print(
            f"{row['wins']} won, {row['draws']} drawn, {row['losses']} lost of {self.games} "
            f"games, each opening of {OPENING_PLIES} random plies with both colours"
        )
        low, high = 100 * row["score_low"], 100 * row["score_high"]
        print(f"score {100 * row['score']:.1f} % (95 % interval {low:.1f} to {high:.1f} %)")

    def _opponent(
        self, app: App[Config], env: AbstractDiscreteEnvironment, simulations: int
    ) -> AbstractActor:
        name = self.opponent
        if name in OPPONENTS:
            return opponent(name, env)
        if not has_player(app, name):
            raise UsageError(
                f"--opponent {name} is unknown; give {', '.join(OPPONENTS)}, another run, or "
                "pretrained."
            )
        other: Any = self.load(app, name).player
        # Its run may have the other engine, but the states are those of this run's.
        model = dataclasses.replace(other.model, env=env)
        return with_simulations(dataclasses.replace(other, model=model), simulations)
