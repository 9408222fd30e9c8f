"""The fixed ladder: its file, and what `eval --opponent ladder` says of a player."""

import dataclasses
import json
import math
from typing import Any

import jax.random as jr
import pytest

from zero_app import (
    App,
    elo_ladder,
    FixedLadder,
    ladder_of,
    run,
    RunFiles,
    RunFolder,
    save_player,
    Trained,
    uct,
    UsageError,
)
from zero_envs.testing import Nim
from zero_train import EloLadder, match, PolicyActor, RandomActor

from .test_eval import build, Config, perfect


MADE = {"date": "2026-11-27", "command": "python ladders.py nim", "seed": 0, "opening_plies": 2}


def nim_ladder() -> FixedLadder:
    games = EloLadder("random").add_result("perfect", "random", 181.5, 200)
    return FixedLadder.of(games, MADE)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A player that has learned nothing, and a ladder of two opponents."""
    folder = tmp_path_factory.mktemp("players")
    opponents = {"perfect": lambda env: PolicyActor(perfect)}
    app = App("nim", "Nim.", {"tiny": Config()}, build, players=folder, opponents=opponents)
    app = dataclasses.replace(app, ladders=folder)
    for config in (Config(), Config(env="corridor")):
        loop = build(config)
        player: Any = loop.agent.actor(loop.agent.init(key=jr.key(0)), explore=False)
        save_player(folder / f"{config.env}.safetensors", app, Trained(config, loop, player, 3))
    nim_ladder().write(folder / "nim.json")
    return app


def test_a_ladder_is_read_as_it_was_written(app):
    found = ladder_of(app, Config())
    assert (
        found is not None and found == nim_ladder() and list(found.ratings) == ["random", "perfect"]
    )
    elo, se = found.ratings["perfect"]
    assert found.ratings["random"] == (0, 0) and elo == round(400 * math.log10(181.75 / 18.75), 1)
    assert se > 0 and ladder_of(app, Config(env="corridor")) is None


def test_the_rating_is_the_most_likely_one():
    """Of who scores as much as one with that rating is expected to."""
    ladder = FixedLadder({"random": (0.0, 0.0), "uct": (200.0, 10.0)}, (), MADE)
    expected = lambda elo: 1 / (1 + 10 ** (-elo / 400))
    row = lambda score: {"wins": 0, "draws": 2e6 * score, "games": 10**6}
    rows = {"random": row(expected(300)), "uct": row(expected(100))}
    elo, se = ladder.rate(rows)
    assert elo == pytest.approx(300, abs=0.01)
    information = sum(1e6 * p * (1 - p) for p in (expected(300), expected(100)))
    assert se == pytest.approx(400 / math.log(10) / math.sqrt(information), rel=1e-3)


def test_a_player_is_rated_by_its_games(app, capsys):
    words = ["eval", "nim", "--opponent", "ladder", "--simulations", "0", "--games", "20"]
    run(app, [*words, "--json"])
    row = json.loads(capsys.readouterr().out)
    assert (row["env"], row["step"], row["simulations"]) == ("nim", 3, 0)
    met = row["opponents"]
    assert list(met) == ["random", "perfect"] and met["random"]["games"] == 20
    # Two players without randomness, after two moves: most games are equal and count once.
    assert met["perfect"]["games"] == met["perfect"]["distinct"] <= 10 < met["perfect"]["played"]
    assert (row["elo"], row["elo_se"]) == nim_ladder().rate(met)
    run(app, words)
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"Elo 0: {100 * met['random']['score']:.1f} % against random (95 %")
    assert second.startswith("Elo 395: ") and second.endswith("and equal ones count once)")
    assert last.startswith("nim (nim, step 3, the network alone): Elo ")
    assert last.endswith(" (95 % interval) on the fixed ladder, where random has 0")


def test_what_has_no_ladder_is_refused(app):
    with pytest.raises(UsageError, match="ladder was given, and nim has none"):
        run(dataclasses.replace(app, ladders=None), ["eval", "nim", "--opponent", "ladder"])
    with pytest.raises(UsageError, match="opening-plies 4 was given, and .* rated with 2; leave"):
        run(app, ["eval", "nim", "--opponent", "ladder", "--opening-plies", "4"])
    with pytest.raises(UsageError, match="give random, perfect, ladder, pretrained, or"):
        run(app, ["eval", "nim", "--opponent", "edax"])


def test_uct_wins_where_it_can():
    """Of 5 objects it takes one, and then what is left."""
    env = Nim(5)
    player = uct(env, num_playouts=200)
    options: dict[str, Any] = dict(num_games=20, max_steps=9, key=jr.key(0), opening_plies=0)
    assert match(env, player, RandomActor(), **options).outcomes[:10].tolist() == [1] * 10


def test_a_run_that_has_forgotten_its_ratings_has_none(tmp_path):
    loop: Any = build(Config())
    with RunFolder.create(tmp_path / "run", {}) as folder:
        rated = folder.path / "elo.json"
        rated.write_text('{"players": []}')
        files = RunFiles(folder, [], lambda step: pytest.fail())
        elo_ladder(Config(), loop, files, baselines={}, games=2, simulations=0)
        assert not rated.exists()
