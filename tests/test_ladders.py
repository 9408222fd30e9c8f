"""The fixed ladders that come with the apps: their ratings are those of their results, and of
opponents that `eval` knows."""

import importlib.util
from typing import Any

import jax
import pytest

from zero_app import FixedLadder
from zero_cli._apps import APPS
from zero_train import EloLadder, OPENING_PLIES

from . import workspace


def script() -> Any:
    path = workspace.ROOT / "apps" / "ladders.py"
    spec = importlib.util.spec_from_file_location("ladders", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = script()


@pytest.mark.parametrize("name", MADE.LADDERS)
def test_ratings_are_those_of_the_results(name):
    command, game, names = MADE.LADDERS[name]
    app = APPS[command]
    assert app.ladders is not None
    ladder = FixedLadder.read(app.ladders / f"{game}.json")
    games = EloLadder(names[0])
    for result in ladder.results:
        games = games.add_result(*result)
    assert FixedLadder.of(games, ladder.made) == ladder
    assert [*ladder.ratings] == [*names] and {*names} <= {"random", *app.opponents}
    met = [(one, other) for one, other, _, _ in ladder.results]
    assert met == MADE.matches(names)
    assert {count for *_, count in ladder.results} == {MADE.GAMES}
    assert ladder.made["command"].endswith(f"apps/ladders.py {name}")
    assert ladder.made["opening_plies"] == (app.opening_plies or OPENING_PLIES)


def test_the_games_of_a_match_follow_from_the_two_names():
    """In every process, or an opponent more would change matches of others; no two are equal."""
    data = lambda *match: tuple(jax.random.key_data(MADE.key_of(*match)).tolist())
    assert data("uct-200", "random") == (3181374520, 3282779259)
    pairs = {match for *_, names in MADE.LADDERS.values() for match in MADE.matches(names)}
    assert len({data(*match) for match in pairs}) == len(pairs)


def test_every_ladder_has_a_line_in_the_script():
    files = workspace.ROOT.glob("apps/*/*/ladders/**/*.json")
    assert len([*files]) == len(MADE.LADDERS)
