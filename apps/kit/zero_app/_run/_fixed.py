"""The fixed ladder of a game: opponents that never change, and their ratings."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from zero_train import EloLadder

from .._command._config import AbstractConfig
from .._command._errors import UsageError
from ._app import App
from ._disk import write_whole


#: What `eval --opponent` calls all opponents of the ladder.
LADDER = "ladder"


@dataclasses.dataclass(frozen=True)
class FixedLadder:
    """Opponents that never change, rated once by games between them.

    **Attributes:**

    - `ratings`: by name the Elo rating and its standard error. The first one has 0 and 0.
    - `results`: those of the [`zero_train.EloLadder`][] that the ratings are of.
    - `made`: the date, the command, the seed and the random moves at the start of each game.
    """

    ratings: Mapping[str, tuple[float, float]]
    results: tuple[tuple[str, str, float, int], ...]
    made: Mapping[str, Any]

    @staticmethod
    def of(games: EloLadder, made: Mapping[str, Any]) -> "FixedLadder":
        """The ladder after these games, of which each rating is rounded to a tenth."""
        rated = {name: (round(a, 1), round(b, 1)) for name, (a, b) in games.ratings().items()}
        return FixedLadder(rated, games.results, made)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "FixedLadder":
        """Reads what `write` wrote."""
        stored = json.loads(pathlib.Path(path).read_text())
        ratings = {name: (elo, se) for name, (elo, se) in stored["ratings"].items()}
        return FixedLadder(ratings, tuple(map(tuple, stored["results"])), stored["made"])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON, a line for each opponent and each match."""
        lines = lambda rows: ",\n".join(f"    {row}" for row in rows)
        ratings = (f"{json.dumps(name)}: {json.dumps(of)}" for name, of in self.ratings.items())
        text = f'{{\n  "made": {json.dumps(self.made)},\n  "ratings": {{\n{lines(ratings)}\n  }},\n'
        results = lines(map(json.dumps, self.results))
        write_whole(pathlib.Path(path), f'{text}  "results": [\n{results}\n  ]\n}}\n')

    @property
    def known(self) -> dict[str, float]:
        """The ratings without their errors."""
        return {name: elo for name, (elo, _) in self.ratings.items()}

    def rate(self, rows: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
        """The rating of a player and its standard error, with those of the opponents held as they
        are: the maximum of the likelihood, as [`zero_train.fit_elo`][] has it.

        **Arguments:**

        - `rows`: by the names of opponents, what [`zero_app.measure`][] found of the player.
        """
        games = EloLadder(next(iter(self.ratings)), known=self.known)
        for name, row in rows.items():
            games = games.add_result("", name, row["wins"] + row["draws"] / 2, row["games"])
        return games.ratings()[""]


def ladder_of(app: App[Any], config: AbstractConfig) -> FixedLadder | None:
    """The ladder of the game that a configuration plays, if it has one."""
    if app.ladders is None:
        return None
    path = app.ladders / f"{getattr(config, 'env', app.name)}.json"
    return FixedLadder.read(path) if path.exists() else None


def asked_ladder(app: App[Any], config: AbstractConfig, opening_plies: int) -> FixedLadder:
    """The ladder of the game that a configuration plays.

    **Raises:** [`zero_app.UsageError`][] where there is none, or where the games of its opponents
    began with another number of random moves, so that their ratings are others.
    """
    found = ladder_of(app, config)
    if found is None:
        game = getattr(config, "env", app.name)
        raise UsageError(f"--opponent ladder was given, and {game} has none; give another one.")
    if (rated := found.made.get("opening_plies", opening_plies)) != opening_plies:
        raise UsageError(
            f"--opening-plies {opening_plies} was given, and the ladder was rated with {rated}; "
            "leave it out."
        )
    return found
