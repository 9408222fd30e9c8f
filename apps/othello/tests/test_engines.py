import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import uct
from zero_othello._engines import opponent, SQUARE_WEIGHTS
from zero_train import match, RandomActor

from .helpers import othello, parse, WIPE_OUT
from .oracle import Game, PASS, random_game


WEIGHTS = """
100 -20  10   5   5  10 -20 100
-20 -50  -2  -2  -2  -2 -50 -20
 10  -2  -1  -1  -1  -1  -2  10
  5  -2  -1  -1  -1  -1  -2   5
  5  -2  -1  -1  -1  -1  -2   5
 10  -2  -1  -1  -1  -1  -2  10
-20 -50  -2  -2  -2  -2 -50 -20
100 -20  10   5   5  10 -20 100
"""
GAMES = [
    random_game(0), random_game(5), random_game(341), [parse(move) for move in WIPE_OUT]
]  # fmt: skip
NUM_PLIES = 64


@pytest.fixture(scope="module")
def positions():
    """Every position of a few games: `(states, games)`, final ones repeated to fill up."""
    env = othello()
    step = jax.jit(jax.vmap(lambda state, action: env.step(state, action, key=jr.key(0))[0]))
    state = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(1), len(GAMES)))
    games, states, oracles = [Game() for _ in GAMES], [], []
    for ply in range(NUM_PLIES):
        states.append(state)
        oracles += copy.deepcopy(games)
        moves = [game[ply] if ply < len(game) else PASS for game in GAMES]
        for game, move in zip(games, moves, strict=True):
            if not game.over:
                game.play(move)
        state = step(state, jnp.asarray(moves, jnp.int32))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states), oracles


@eqx.filter_jit
def choices(actor, state, key):
    keys = jr.split(key, NUM_PLIES * len(GAMES))
    obs = jax.vmap(othello().observe)(state)
    return actor.act(state, obs, actor.init(state), key=keys)[0]


def test_the_table():
    np.testing.assert_array_equal(SQUARE_WEIGHTS, np.asarray(WEIGHTS.split(), int).reshape(8, 8))


@pytest.mark.parametrize("name", ["greedy", "positional"])
def test_one_ply_engines_choose_what_the_rules_say_is_best(positions, name):
    states, games = positions
    played = np.asarray(choices(opponent(name, othello()), states, jr.key(2)))
    for action, game in zip(played, games, strict=True):
        if game.over:
            continue
        if name == "greedy":
            scores = {move: len(game.flips(move)) if move < 64 else 0 for move in game.legal()}
        else:
            table = np.asarray(WEIGHTS.split(), int).reshape(8, 8) * game.mover
            scores = {move: int(np.sum(table * game.after(move))) for move in game.legal()}
        assert action in scores and scores[action] == max(scores.values())


def test_ties_are_broken_evenly(positions):
    # All four first moves flip one disc.
    states, _ = positions
    first = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), states)
    actor = opponent("greedy", othello())
    moves, counts = np.unique(choices(actor, first, jr.key(3)), return_counts=True)
    assert list(moves) == Game().legal()
    # 256 draws, 64 expected each, standard deviation 7.
    assert counts.min() > 36 and counts.max() < 92


@pytest.fixture(scope="module")
def predict():
    model: Any = uct(othello()).model
    return eqx.filter_jit(
        lambda state, key: model.predict(state, key=jr.split(key, NUM_PLIES * len(GAMES)))
    )


def expected(game: Game) -> float:
    """The exact value of uniformly random play for the player to move."""
    if game.over:
        return 0.0
    values = []
    for move in game.legal():
        after = copy.deepcopy(game)
        after.play(move)
        outcome = float(np.sign(after.board.sum() * game.mover))
        values.append(outcome if after.over else -expected(after))
    return sum(values) / len(values)


def test_playouts_are_flat_and_end_with_the_games_outcome(positions, predict):
    states, games = positions
    logits, value = jax.device_get(predict(states, jr.key(4)))
    forced = 0
    for i, game in enumerate(games):
        if game.over:
            assert value[i] == 0
            continue
        assert value[i] in (-1, 0, 1)
        np.testing.assert_array_equal(np.flatnonzero(logits[i] == 0), game.legal())
        assert np.all(np.delete(logits[i], game.legal()) == -np.inf)
        if (game.board == 0).sum() <= 3:
            exact = expected(game)
            if abs(exact) == 1:  # whatever is played, the outcome is the same
                forced += 1
                assert value[i] == exact
    assert forced > 5


def test_playouts_are_uniformly_random(positions, predict):
    states, games = positions
    index = next(
        i
        for i, game in enumerate(games)
        if (game.board == 0).sum() == 6 and abs(expected(game)) < 0.7
    )
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x[index : index + 1], x.shape), states)
    _, values = predict(rows, jr.key(5))
    error = float(np.std(values)) / len(games) ** 0.5
    assert error > 0
    assert float(np.mean(values)) == pytest.approx(expected(games[index]), abs=4 * error)


def test_a_little_uct_beats_random():
    env = othello()
    games = match(
        env, uct(env, num_playouts=16), RandomActor(), num_games=16, max_steps=130, opening_plies=6,
        key=jr.key(6),
    ).summary()  # fmt: skip
    assert games.unfinished == 0 and games.score > 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("name", "score"), [("random", 0.98), ("positional", 0.5)])
def test_uct_is_what_it_must_be(name, score):
    env = othello()
    games = match(
        env, uct(env), opponent(name, env), num_games=200, max_steps=130,
        opening_plies=6, key=jr.key(7),
    ).summary()  # fmt: skip
    assert games.score >= score
    if name == "positional":
        assert games.score_low > score
