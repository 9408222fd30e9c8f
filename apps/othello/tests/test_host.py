"""The opponents that search on the host, against plain searches and known outcomes."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import HostActor, measure, uct as kit_uct
from zero_envs import Othello
from zero_othello._engines import opponent, SQUARE_WEIGHTS

from .oracle import random_game
from .test_solver import legal, with_empty


pytest.importorskip("numba", reason="these opponents need numba, of the extra judges")

from zero_othello._host import alpha_beta, AlphaBeta, play_uct, uct, values
from zero_othello._solver import flips, position, Solver


_U = np.uint64


def after(board: tuple[int, int, int], square: int) -> tuple[int, int, int]:
    own, theirs, empty = board
    flipped, bit = int(flips(square, _U(own), _U(theirs))), 1 << square
    return theirs ^ flipped, own | flipped | bit, empty ^ bit


def plain(board: tuple[int, int, int], depth: int) -> int:
    """What a position is worth by looking at every line of play of so many plies."""
    own, theirs, empty = board
    if depth == 0:
        weights = SQUARE_WEIGHTS.ravel()
        return int(sum(w * ((own >> i & 1) - (theirs >> i & 1)) for i, w in enumerate(weights)))
    if moves := legal(*board):
        return max(-plain(after(board, square), depth - 1) for square in moves)
    if legal(theirs, own, empty):
        return -plain((theirs, own, empty), depth - 1)
    margin = own.bit_count() - theirs.bit_count()
    return 1000 * (margin + int(np.sign(margin)) * empty.bit_count())


def features(board: tuple[int, int, int]) -> np.ndarray:
    bits = [[bool(discs >> i & 1) for i in range(64)] for discs in board[:2]]
    return np.array(bits).T.reshape(8, 8, 2)


# Near the end some lines of play pass and some are over.
@pytest.mark.parametrize("empty, depth", [(50, 1), (44, 3), (20, 3), (13, 4), (4, 4), (3, 6)])
def test_alpha_beta_is_plain_minimax(empty, depth):
    for seed in range(4):
        board = with_empty(seed, empty)
        own, theirs = map(_U, board[:2])
        known = {square: -plain(after(board, square), depth - 1) for square in legal(*board)}
        best = plain(board, depth)
        assert alpha_beta(own, theirs, depth, -(10**6), 10**6) == best
        found = np.full(64, -(10**6), np.int64)
        values(own, theirs, depth, found)
        assert set(np.flatnonzero(found == best)) == {s for s in known if known[s] == best}
        assert all(found[square] <= best for square in known)


def test_a_window_bounds_the_value():
    board = with_empty(1, 30)
    own, theirs = map(_U, board[:2])
    best = plain(board, 3)
    for low in range(best - 60, best + 60, 13):
        found = alpha_beta(own, theirs, 3, low, low + 1)
        assert (found <= low) == (best <= low)
        assert best <= found if found <= low else best >= found


def test_alpha_beta_plays_the_end_exactly_and_breaks_ties_at_random():
    player, solver = AlphaBeta(2), Solver(12)
    for seed in range(6):
        board = with_empty(seed, 11)
        scores = solver.scores(*board)
        best = {move for move, score in scores.items() if score == max(scores.values())}
        assert {player(features(board), i) for i in range(8)} <= best
    # By symmetry all four first moves are as good.
    assert {player(features(position([])), i) for i in range(4)} == {19, 26, 37, 44}


def test_uct_visits_add_up_and_come_to_the_best_move():
    """In positions that few playouts solve, in which only some moves keep a win."""
    found_all = 0
    for seed in range(12):
        board = with_empty(seed, 6)
        scores = Solver(12).scores(*board)
        visits = np.zeros(64, np.int64)
        uct(_U(board[0]), _U(board[1]), 3000, seed, visits)
        assert visits.sum() == 3000 and set(np.flatnonzero(visits)) == set(scores)
        if len(set(map(np.sign, scores.values()))) > 1:
            found_all += 1
            chosen = play_uct(3000, features(board), seed)
            assert np.sign(scores[chosen]) == np.sign(max(scores.values()))
            assert play_uct(3000, features(board), seed) == chosen
    assert found_all > 3


def test_uct_is_that_of_the_kit():
    """Its visits are on the mean over 128 searches of a position."""
    env, many, game = Othello(), 128, random_game(4)[:30]

    @jax.jit
    def state(actions):
        step = lambda state, action: (env.step(state, action, key=jr.key(0))[0], None)
        return jax.lax.scan(step, env.init(key=jr.key(0)), actions)[0]

    start = state(jnp.asarray(game, jnp.int32))
    starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (many, *x.shape)), start)
    player = kit_uct(env, num_playouts=60)
    plan = jax.jit(lambda x, keys: player.planner.plan(player.model, x, player.init(x), key=keys))
    theirs = np.asarray(plan(starts, jr.split(jr.key(1), many))[0].visits)[:, :64]
    ours = np.zeros((many, 64), np.int64)
    own, others, _ = position(game)
    for seed, found in enumerate(ours):
        uct(_U(own), _U(others), 60, seed, found)
    assert (theirs.sum(axis=1) == 60).all() and (ours.sum(axis=1) == 60).all()
    error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / many)
    difference = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
    assert (difference <= 4 * error + 1e-9).all() and (error > 0).sum() > 3


def test_a_player_on_the_host_meets_one_on_the_device():
    env = Othello()
    row, played = measure(
        env,
        HostActor(ft.partial(play_uct, 30)),
        opponent("positional", env),
        players=2,
        games=8,
        max_moves=128,
        key=jr.key(0),
        opening_plies=6,
    )
    assert row["unfinished"] == 0 and row["games"] == 8 and set(played["score"]) <= {0, 0.5, 1}
