"""Ladders of Elo ratings: of the players of a run of a game of two, and of opponents that never
change."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax.random as jr

from zero_train import AbstractActor, EloLadder, is_writer, Loop, OPENING_PLIES

from .._command._config import AbstractConfig
from .._command._errors import UsageError
from ._app import App
from ._disk import write_whole
from ._evaluation import (
    Evaluate,
    EvaluationResult,
    measure,
    MOST_MOVES,
    RunFiles,
    sentence,
    who,
    with_simulations,
)
from ._ladder_page import OWN
from ._measures import plus_minus


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
    """What `ladder_of` finds. A [`zero_app.UsageError`][] is raised where there is none, or where
    the games of its opponents began with another number of random moves, so that their ratings are
    others."""
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


def elo_ladder(
    config: AbstractConfig,
    loop: Loop,
    files: RunFiles,
    *,
    baselines: Mapping[str, AbstractActor],
    games: int,
    simulations: int,
    max_moves: int = MOST_MOVES,
    opening_plies: int = OPENING_PLIES,
    fixed: FixedLadder | None = None,
) -> Evaluate:
    """The `evaluation` of an app for a game of two: matches of every player, and their ratings.

    Every new player plays against the fixed baselines, the previous one and the best so far. It
    becomes the best if it wins more games against the best than it loses. All of this follows from
    the rows of evaluations.jsonl, so a resumed run needs no other file; elo.json holds the ratings.

    **Arguments:**

    - `baselines`: fixed players by name. The first one has the rating 0.
    - `games`: of each match; an even number, as each opening is played from both seats.
    - `simulations`: of the run's players, per move; 0 for the network without a search.
    - `max_moves`, `opening_plies`: as for [`zero_app.measure`][].
    - `fixed`: a ladder whose first opponent is the first baseline; of all baselines that are in it
        the ratings there are held as they are.
    """
    rows = list(files.evaluations)
    known = {} if fixed is None else fixed.known
    # These keys differ from those of training.
    run_key = jr.fold_in(jr.key(config.seed), 1)

    def rated() -> dict[str, Mapping[str, Any]]:
        """The ratings of all players by name, which elo.json holds then."""
        players = _rated(rows, next(iter(baselines)), known)
        files.folder.write_json("elo.json", {"players": players})
        return {player["name"]: player for player in players}

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        actor, name = with_simulations(player, simulations), f"{OWN}{step}"
        opponents = dict(baselines)
        for past in _rivals(rows):
            opponents[f"{OWN}{past}"] = with_simulations(files.player(past), simulations)
        new, episodes = [], []
        for index, (opponent, other) in enumerate(opponents.items()):
            match, games_of_it = measure(
                loop.env,
                actor,
                other,
                players=2,
                games=games,
                max_moves=max_moves,
                key=jr.fold_in(jr.fold_in(run_key, step), index),
                opening_plies=opening_plies,
                mesh=loop.mesh,
            )
            names = {"step": step, "player": name, "opponent": opponent}
            new.append({**names, **match, "simulations": simulations})
            episodes.append(games_of_it)
        rows.extend(new)
        rating = rated()[name]
        elo, se = rating["elo"], rating["se"]
        headline = f"{who(actor)}: {sentence(new[-1], new[-1]['opponent'])}"
        figures = {"Elo (95 %)": plus_minus(elo, se)}
        return EvaluationResult(new, {"elo": elo, "elo_se": se}, figures, headline, episodes)

    if rows:
        rated()
    elif is_writer():  # a resumed run may have forgotten all that was rated
        (files.folder.path / "elo.json").unlink(missing_ok=True)
    return evaluate


def _rivals(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The steps of the previous player and of the best so far, which may be the same."""
    if not rows:
        return []
    best: int = rows[0]["step"]
    for row in rows:
        if row["opponent"] == f"{OWN}{best}" and row["wins"] > row["losses"]:
            best = row["step"]
    return list(dict.fromkeys((rows[-1]["step"], best)))


def _rated(
    rows: Sequence[Mapping[str, Any]], anchor: str, known: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The Elo ratings of all players in ascending order. The anchor is rated 0 without an error, as
    are those that are known."""
    ladder = EloLadder(anchor, known=known)
    for row in rows:
        points = row["wins"] + row["draws"] / 2
        ladder = ladder.add_result(row["player"], row["opponent"], points, row["games"])
    steps = {row["player"]: row["step"] for row in rows}
    rated = [
        {"name": name, "step": steps.get(name), "elo": elo, "se": se}
        for name, (elo, se) in ladder.ratings().items()
    ]
    return sorted(rated, key=lambda row: row["elo"])
