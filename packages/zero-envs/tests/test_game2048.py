"""2048 with its dice in the open, against pgx's own game and a slide written in NumPy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest

from zero_envs import Game2048, Game2048State
from zero_envs.testing import check_environment


ENV = Game2048()
NUM_GAMES, LENGTH = 16, 250
# What runs once is not worth optimising.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def numpy_slide(line: np.ndarray) -> tuple[list[int], float]:
    """One line to the left, tile by tile."""
    tiles, out, points = [int(x) for x in line if x], [], 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tiles.pop(0)
            tile += 1
            points += 2**tile
        out.append(tile)
    return out + [0] * (4 - len(out)), float(points)


class Played(NamedTuple):
    """Positions out of pgx's own random games, one more step of each by pgx and by us."""

    before: Any
    action: np.ndarray
    theirs: Any
    after: Any
    outcome: np.ndarray
    ours: Any
    transition: Any


@pytest.fixture(scope="module")
def played() -> Played:
    """Illegal actions too, and every game to its end."""
    game = pgx.make("2048")

    def body(carry, i):
        state, seed = carry
        akey, ikey, skey = jr.split(jr.fold_in(jr.key(seed), i), 3)
        logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
        legal = jr.categorical(akey, logits)
        any_action = jr.bernoulli(ikey, 0.002)
        action = jnp.where(any_action, i % 4, legal.astype(jnp.int32))
        after = game.step(state, action, jr.key_data(skey))
        return (after, seed), (state, action, after)

    def run(seed):
        start = game.init(jr.PRNGKey(seed))
        start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), start)
        return jax.lax.scan(body, (start, seed), jnp.arange(LENGTH))[1]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        with jax.debug_key_reuse(False):
            seeds = jnp.arange(NUM_GAMES)
            found = jax.jit(jax.vmap(run), compiler_options=QUICK)(seeds)
    before, action, theirs = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), found)

    def replay(board, over, action, landed):
        state = Game2048State(board.astype(jnp.int8), over)
        after = ENV.afterstate(state, action)
        # The tile that fell for pgx, where one fell.
        fell = after.board.astype(jnp.int32) != landed
        cell = jnp.argmax(fell).astype(jnp.int32)
        outcome = jnp.where(jnp.any(fell), cell + 16 * (landed[cell] - 1), 0)
        return after, outcome, *ENV.resolve(after, outcome)

    replayed = jax.jit(jax.vmap(replay), compiler_options=QUICK)(
        before._board, before.terminated, action, theirs._board
    )
    return Played(*jax.tree.map(np.asarray, (before, action, theirs, *replayed)))


def test_equals_pgx_when_the_same_tile_falls(played: Played):
    # pgx lets a tile fall over another one after an illegal slide of a full board.
    full = (played.before._board > 0).all(axis=1) & ~played.before.terminated
    same = ~(full & played.after.illegal)
    assert same.sum() >= len(same) - NUM_GAMES
    boards = (played.ours.board == played.theirs._board).all(axis=1)
    assert boards[same].all()
    rewards = np.where(played.before.terminated, 0.0, played.theirs.rewards[:, 0])
    assert np.array_equal(played.transition.reward, rewards)
    assert np.array_equal(played.ours.over, played.theirs.terminated)
    assert np.array_equal(played.transition.last, played.theirs.terminated)
    assert np.array_equal(played.transition.discount, 1.0 - played.theirs.terminated)
    # All kinds of ends were seen, and big tiles.
    fresh = played.theirs.terminated & ~played.before.terminated
    assert (fresh & (rewards == -1)).any() and (fresh & (rewards >= 0)).sum() > 3
    assert played.ours.board.max() >= 7


def test_points_are_whole_numbers():
    """Random games have no large tiles, and 2^17 is the largest that can be made."""
    tiles = np.arange(1, 17, dtype=np.int8)
    boards = np.zeros((16, 16), np.int8)
    boards[:, :2] = tiles[:, None]
    states = Game2048State(jnp.asarray(boards), jnp.zeros(16, bool))
    after = jax.jit(jax.vmap(lambda state: ENV.afterstate(state, jnp.array(0))))(states)
    np.testing.assert_array_equal(after.points, 2.0 ** (tiles + 1))


def test_observations_equal_pgx(played: Played):
    seen = jax.device_get(jax.jit(jax.vmap(ENV.observe))(played.ours))
    same = (played.ours.board == played.theirs._board).all(axis=1)
    assert np.array_equal(seen.features[same], played.theirs.observation[same])
    assert np.array_equal(seen.legal[same], played.theirs.legal_action_mask[same])


def test_afterstates_equal_a_slide_in_numpy(played: Played):
    live = np.flatnonzero(~played.before.terminated)
    for i in live[:: max(1, len(live) // 300)]:
        action = int(played.action[i])
        lines = np.rot90(played.before._board[i].reshape(4, 4), action)
        slid, points = zip(*map(numpy_slide, lines), strict=True)
        board = np.rot90(np.asarray(slid), -action).reshape(16)
        assert np.array_equal(played.after.board[i], board)
        assert played.after.points[i] == sum(points)
        assert played.after.illegal[i] == np.array_equal(slid, lines)


def test_a_tile_merges_once():
    slide = jax.jit(
        lambda board: ENV.afterstate(Game2048State(board, jnp.bool_(False)), jnp.int32(0))
    )
    for line in ([1, 1, 1, 1], [1, 1, 2, 0], [0, 2, 1, 1], [3, 3, 0, 3], [2, 0, 2, 3]):
        after = slide(np.asarray([*line, *[0] * 12], np.int8))
        slid, points = numpy_slide(np.asarray(line))
        assert np.asarray(after.board)[:4].tolist() == slid
        assert float(after.points) == points


def test_outcomes_are_the_published_odds(played: Played):
    logits = jax.jit(jax.vmap(ENV.outcome_logits))(played.after)
    probs = np.exp(np.asarray(logits))
    assert np.allclose(probs.sum(axis=1), 1.0, atol=1e-5)
    empty = (played.after.board == 0) & ~played.after.over[:, None]
    some = empty.any(axis=1)
    number = empty.sum(axis=1, keepdims=True)[some]
    assert np.allclose(probs[some, :16], empty[some] * 0.9 / number, atol=1e-6)
    assert np.allclose(probs[some, 16:], empty[some] * 0.1 / number, atol=1e-6)
    # Nothing falls after the end, nor on a full board.
    assert (~some).any() and (probs[~some, 0] == 1.0).all()
    # What fell for pgx could fall.
    assert (probs[np.arange(len(probs)), played.outcome] > 0).all()


def test_init_has_the_law_of_pgx():
    # Two tiles in two cells, 4s as often as in pgx, each cell alike.
    keys = jr.split(jr.key(0), 4000)
    board = np.asarray(jax.jit(jax.vmap(lambda k: ENV.init(key=k)))(keys).board)
    assert ((board > 0).sum(axis=1) == 2).all()
    number = (board > 0).mean(axis=0)
    assert np.abs(number - 2 / 16).max() < 5 * np.sqrt(0.125 * 0.875 / 4000)
    fours = (board == 2).sum() / 8000
    assert abs(fours - 0.1) < 5 * np.sqrt(0.1 * 0.9 / 8000)


def test_raw_is_the_state_of_pgx(played: Played):
    i = int(np.flatnonzero(~played.theirs.terminated)[40])
    state = jax.tree.map(lambda x: jnp.asarray(x[i]), played.ours)
    raw = jax.jit(ENV.raw)(state)
    assert np.array_equal(raw._board, played.theirs._board[i])
    assert np.array_equal(raw.observation, played.theirs.observation[i])
    assert np.array_equal(raw.legal_action_mask, played.theirs.legal_action_mask[i])
    theirs = jax.tree.map(lambda x: jnp.asarray(x[i]), played.theirs)
    assert ENV.render(state, scale=2.0) == theirs.to_svg(scale=2.0)


def test_keeps_every_promise():
    report = check_environment(ENV, key=jr.key(0), num_steps=170)
    assert report.terminated > 3 and report.opponent == 0
    assert report.state_bytes == 17
