import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import Game as Played, NonFiniteError
from zero_app._play._gtp import GtpEngine
from zero_envs import PgxEnvironment
from zero_othello._board import PASS
from zero_othello._build import build_loop
from zero_othello._config import PRESETS
from zero_search import TreeSearch
from zero_train import EnvironmentModel, PlanningActor, PolicyActor

from .helpers import BEFORE_PASS, new_game, othello, parse, TRACES, WIPE_OUT
from .oracle import Game, random_game


def after(*moves: str) -> Played:
    game = new_game()
    for move in moves:
        game = game.play(parse(move))
    return game


def test_whole_games_agree_with_the_rules():
    # Orientation, colour to move, forced passes, early ends: everything a position says.
    passes = 0
    for moves in (random_game(0), random_game(341), [parse(move) for move in WIPE_OUT]):
        game, truth = new_game(), Game()
        for move in moves:
            assert not game.over and list(game.legal) == truth.legal()
            assert game.mover == ("black" if truth.mover == 1 else "white")
            assert game.must_pass == (truth.legal() == [PASS])
            passes += move == PASS
            truth.play(move)
            game = game.play(move)
            np.testing.assert_array_equal(game.stones, truth.board)
            assert game.action == move
        assert game.over == truth.over is True
        assert game.stones.sum() == truth.board.sum()
        assert game.total == np.sign(truth.board.sum())
    assert passes == 5  # the last two of them in a row, which ends a game


def test_both_engines_think_the_same():
    game, other = new_game(), new_game(env=PgxEnvironment("othello"))
    for number, move in enumerate(random_game(341)):
        assert game.legal == other.legal and game.mover == other.mover
        np.testing.assert_array_equal(game.features, other.features)
        if number % 3 == 0 or game.must_pass:
            jax.tree.map(np.testing.assert_array_equal, game.plan, other.plan)
            np.testing.assert_array_equal(game.prior, other.prior)
        game, other = game.play(move), other.play(move)
    assert game.over and other.over


def test_an_earlier_position_stays_as_it_was():
    game, kept = new_game(), []
    for move in random_game(1, 12):
        weights = game.plan.weights if len(kept) % 3 == 0 else None
        kept.append((game, game.state, game.stones, weights))
        game = game.play(move)
    for past, state, board, weights in kept:
        jax.tree.map(np.testing.assert_array_equal, past.state, state)
        np.testing.assert_array_equal(past.stones, board)
        if weights is not None:
            assert past.plan.weights is weights  # asking again costs nothing


def test_same_key_and_moves_give_the_same_plans_after_a_detour():
    def line(game: Played) -> np.ndarray:
        for move in ("d3", "c3"):
            _ = game.plan
            game = game.play(parse(move))
        return np.asarray(game.plan.weights)

    game = new_game()
    first = line(game)
    _ = game.play(parse("c4")).plan
    np.testing.assert_array_equal(line(game), first)
    np.testing.assert_array_equal(line(new_game()), first)


def test_illegal_moves_name_the_legal_ones():
    game = new_game()
    for move in ("a1", "d4", "pass"):
        with pytest.raises(ValueError, match="black may play D3 C4 F5 E6"):
            game.play(parse(move))
    game = after(*WIPE_OUT)
    with pytest.raises(ValueError, match="over"):
        game.play(PASS)
    with pytest.raises(ValueError, match="over"):
        _ = game.plan


def test_a_network_that_returns_nan_has_no_plan():
    """Nor has GTP a move then, but it goes on."""

    def broken(obs):
        return jnp.full(65, jnp.nan), jnp.zeros(())

    def worthless(obs):
        return jnp.zeros(65), jnp.full((), jnp.nan)

    search = PlanningActor(TreeSearch(2), EnvironmentModel(othello(), broken))
    for actor in (search, PolicyActor(broken), PolicyActor(worthless)):
        game = new_game(actor)
        with pytest.raises(NonFiniteError, match="NaN or infinity in the position after 0 moves"):
            _ = game.plan
    engine = GtpEngine(game, "zero-othello", "1")
    for command in ("genmove b", "lz-analyze"):
        (answer,) = engine.respond(f"7 {command}")
        assert answer.startswith("?7 The player's network returned NaN") and answer[-2:] == "\n\n"
    assert list(engine.respond("play b d3")) == ["=\n\n"]


def test_plans():
    game = new_game()
    plan, legal = game.plan, list(game.legal)
    assert plan.action in legal and plan.action == np.argmax(plan.visits)
    # The search ended when the others could no longer catch up with the best move.
    first, second = np.sort(plan.visits)[:-3:-1]
    number = plan.visits[legal].sum()
    assert plan.visits.sum() == number and first >= second + 12 - number
    np.testing.assert_allclose(plan.weights, plan.visits / number, atol=1e-6)
    # The prior is the evaluator's softmax over legal squares.
    logits = np.linspace(1.0, 0.0, 65)[legal]
    np.testing.assert_allclose(game.prior[legal], np.exp(logits) / np.exp(logits).sum(), 1e-5)
    assert game.prior.sum() == pytest.approx(1.0)
    assert abs(plan.value) <= 1


def test_the_subtree_is_kept_for_both_sides_moves():
    game = new_game()
    visits = game.plan.visits
    best = int(np.argmax(visits))
    game = game.play(best)
    # All simulations below the played move but the one that evaluated its leaf.
    reused = int(game.plan.stats["reused"])
    assert reused == visits[best] - 1 > 0
    assert reused < game.plan.visits.sum() <= 12 + reused
    assert game.play(int(game.plan.action)).plan.stats["reused"] > 0


def test_a_game_compiles_once():
    game = new_game()
    _ = game.play(int(game.plan.action)).prior
    traces = len(TRACES)
    for move in BEFORE_PASS[:4]:
        _ = game.plan
        game = game.play(parse(move))
    _ = game.prior
    # An equal player in the same process shares it too.
    _ = new_game().plan
    assert len(TRACES) == traces


def test_games_of_self_play_begin_with_random_moves():
    assert build_loop(PRESETS["quick"]).opening_plies == 10
