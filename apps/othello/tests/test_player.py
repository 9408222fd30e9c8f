import dataclasses

import jax
import numpy as np
import pytest

from zero_envs import PgxEnvironment
from zero_othello._board import parse, PASS

from .helpers import BEFORE_PASS, new_player, TRACES, WIPE_OUT
from .oracle import Game, random_game


@pytest.fixture(scope="module")
def player():
    return new_player()


def test_whole_games_agree_with_the_rules(player):
    # Orientation, colour to move, forced passes, early ends: everything a position says.
    passes = 0
    for moves in (random_game(0), random_game(341), [parse(move) for move in WIPE_OUT]):
        game = Game()
        player.new()
        for move in moves:
            position = player.position
            assert not position.over and list(position.legal) == game.legal()
            assert position.colour == ("black" if game.mover == 1 else "white")
            assert position.must_pass == (game.legal() == [PASS])
            passes += move == PASS
            game.play(move)
            player.play(move)
            np.testing.assert_array_equal(player.position.discs, game.board)
            assert player.last_action == move
        assert player.position.over == game.over is True
        assert player.position.margin == game.board.sum()
    assert passes == 5  # the last two of them in a row, which ends a game


def test_both_engines_think_the_same(player):
    other = new_player(env=PgxEnvironment("othello"))
    player.new()
    for move in random_game(341):
        for attribute in ("colour", "legal", "must_pass", "over"):
            assert getattr(player.position, attribute) == getattr(other.position, attribute)
        np.testing.assert_array_equal(player.position.discs, other.position.discs)
        thoughts = [dataclasses.asdict(one.think()) for one in (player, other)]
        jax.tree.map(np.testing.assert_array_equal, *thoughts)
        for one in (player, other):
            one.play(move)
    assert player.position.over and other.position.over


def test_undo_is_exact(player):
    player.new()
    snapshots = []
    for move in random_game(1, 12):
        thought = player.think() if len(snapshots) % 3 == 0 else None
        snapshots.append((player.state, player.position, player.last_action, thought))
        player.play(move)
    while snapshots:
        player.undo()
        state, position, action, thought = snapshots.pop()
        jax.tree.map(np.testing.assert_array_equal, player.state, state)
        assert player.position is position and player.last_action == action
        if thought is not None:
            np.testing.assert_array_equal(player.think().weights, thought.weights)
    with pytest.raises(ValueError, match="start of the game"):
        player.undo()


def test_same_key_and_moves_give_the_same_thoughts_after_a_detour(player):
    def line() -> np.ndarray:
        for move in ("d3", "c3"):
            player.think()
            player.play(parse(move))
        return player.think().weights

    player.new()
    first = line()
    for _ in range(2):
        player.undo()
    player.play(parse("c4"))
    player.think()
    player.undo()
    np.testing.assert_array_equal(line(), first)


def test_illegal_moves_change_nothing_and_name_the_legal_ones(player):
    player.new()
    for move in ("a1", "d4", "pass"):
        with pytest.raises(ValueError, match="black may play D3 C4 F5 E6"):
            player.play(parse(move))
    assert player.num_plies == 0
    for move in WIPE_OUT:
        player.play(parse(move))
    with pytest.raises(ValueError, match="over"):
        player.play(PASS)
    with pytest.raises(ValueError, match="over"):
        player.think()


def test_thoughts(player):
    player.new()
    thought = player.think()
    legal = list(player.position.legal)
    assert thought.action in legal and thought.action == int(np.argmax(thought.visits))
    assert thought.visits.sum() == thought.visits[legal].sum() == 12
    np.testing.assert_allclose(thought.weights, thought.visits / 12, atol=1e-6)
    # The prior is the evaluator's softmax over legal squares.
    logits = np.linspace(1.0, 0.0, 65)[legal]
    np.testing.assert_allclose(thought.prior[legal], np.exp(logits) / np.exp(logits).sum(), 1e-5)
    assert thought.prior.sum() == pytest.approx(1.0)
    assert abs(thought.value) <= 1
    assert player.think() is thought  # asking again costs nothing


def test_the_subtree_is_kept_for_both_sides_moves(player):
    player.new()
    visits = player.think().visits
    best = int(np.argmax(visits))
    player.play(best)
    # All simulations below the played move but the one that evaluated its leaf.
    reused = int(player.think().stats["reused"])
    assert reused == visits[best] - 1 > 0
    assert player.think().visits.sum() == 12 + reused
    player.play(player.think().action)
    assert player.think().stats["reused"] > 0


def test_a_game_compiles_once(player):
    player.warm_up()
    traces = len(TRACES)
    player.new()
    for move in BEFORE_PASS[:4]:
        player.think()
        player.play(parse(move))
    player.undo()
    player.think()
    assert len(TRACES) == traces
    other = new_player()
    other.think()
    # An equal player in the same process shares it too.
    assert other.num_plies == 0 and len(TRACES) == traces
