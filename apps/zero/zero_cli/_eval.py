"""`zero eval`: plays games and prints the score or the return."""

import dataclasses
import json as json_text
from typing import Any, ClassVar

import jax.random as jr

from zero_train import AbstractActor, RandomActor
from zero_train.app import (
    AbstractPlayerCommand,
    App,
    Bounds,
    has_player,
    measure,
    sentence,
    UsageError,
    with_simulations,
)

from ._config import Config, SIMULATIONS
from ._worlds import build_world


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Play games and print the score (games of two players) or the mean return (others)."""

    opponent: str = "random"
    """random, or another player of the same game: a run, a file or pretrained."""
    games: int = 200
    """An even number, because each opening of 2 random plies is played from both seats."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seed: int = 0
    """The seed of openings, chance and ties."""
    json: bool = False
    """Print one JSON line."""

    bounds: ClassVar[Bounds] = {"games": (2, 10**8), "simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        if self.games % 2:
            raise UsageError(f"--games {self.games} was given; give an even number.")
        trained = self.load(app)
        config, name = trained.config, trained.config.env
        number = config.player_simulations if self.simulations is None else self.simulations
        players = build_world(name).players
        if players == 1 and self.opponent != "random":
            raise UsageError(f"--opponent {self.opponent} was given, and {name} has one player.")
        row = measure(
            trained.loop.env,
            with_simulations(trained.player, number),
            self._opponent(app, name, number),
            players=players,
            games=self.games,
            max_moves=config.max_moves,
            key=jr.key(self.seed),
        )
        known: dict[str, Any] = {"env": name, "step": trained.step, "simulations": number}
        if players == 2:
            known |= {"opponent": self.opponent}
        if self.json:
            print(json_text.dumps(known | row))
            return
        search = f"{number} simulations a move" if number else "the network alone"
        said = sentence(row, self.opponent)
        print(f"{self.run} ({name}, step {trained.step}, {search}): {said}")

    def _opponent(self, app: App[Config], env: str, simulations: int) -> AbstractActor:
        name = self.opponent
        if name == "random":
            return RandomActor()
        if not has_player(app, name):
            raise UsageError(
                f"--opponent {name} is unknown; give random, another run, or pretrained."
            )
        other = self.load(app, name)
        if other.config.env != env:
            raise UsageError(f"--opponent {name} plays {other.config.env}, and not {env}.")
        return with_simulations(other.player, simulations)
