"""2048 on the host against the environment, and the n-tuple network against its definition."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Game2048, Game2048State
from zero_search import SoftmaxQ, TreeSearch

from . import workspace


pytest.importorskip("numba", reason="the host's code needs numba, of the extra judges")

host = workspace.module("benchmarks/_game2048.py")
ENTRIES, TUPLES, NTupleNetwork = host.ENTRIES, host.TUPLES, host.NTupleNetwork
ENV = Game2048()
ROWS = host.row_tables()


@pytest.fixture(scope="module")
def values():
    """Tables of random whole numbers, so that sums are exact and equal boards are equally good."""
    return (
        np.random.default_rng(0).integers(0, 64, len(TUPLES) * ENTRIES, np.uint8).astype(np.float32)
    )


def boards(number, seed=1):
    """Boards of few and of many tiles, up to `2^11`; some of them allow no slide."""
    rng = np.random.default_rng(seed)
    tiles = rng.integers(1, rng.choice([3, 5, 12], (number, 1)), (number, 16))
    return np.where(rng.random((number, 16)) < rng.random((number, 1)), tiles, 0).astype(np.int8)


def word(cells):
    return np.uint64(sum(int(tile) << (4 * i) for i, tile in enumerate(cells)))


def cells_of(board):
    return [(int(board) >> (4 * i)) & 15 for i in range(16)]


def symmetric(cells):
    """The board in its 8 symmetries."""
    board = np.asarray(cells).reshape(4, 4)
    return [np.rot90(x, k).ravel() for x in (board, board.T) for k in range(4)]


def entries(cells):
    """Those whose sum is the value of a board, sorted."""
    number = lambda board, cells: sum(int(board[c]) << (4 * i) for i, c in enumerate(cells))
    found = [
        i * ENTRIES + number(board, cells)
        for board in symmetric(cells)
        for i, cells in enumerate(TUPLES)
    ]
    return sorted(found)


def moved(cells, action):
    after, points = host.moved(word(cells), action, *ROWS)
    return cells_of(after), points


def value(cells, values):
    return float(np.sum(values[entries(cells)], dtype=np.float64))


@jax.jit
@jax.vmap
def slides(board):
    """What the environment says of all four slides."""
    state = Game2048State(board, jnp.zeros((), jnp.bool_))
    return jax.vmap(lambda a: ENV.afterstate(state, a))(jnp.arange(4, dtype=jnp.int32))


def test_slides_are_those_of_the_environment():
    asked = boards(400)
    found = jax.device_get(slides(jnp.asarray(asked)))
    assert 0 < found.illegal.mean() < 1 and found.points.max() > 2000
    for i, cells in enumerate(asked):
        for action in range(4):
            after, points = moved(cells, action)
            assert after == found.board[i, action].tolist()
            assert points == found.points[i, action]
            assert (after == cells.tolist()) == found.illegal[i, action]


def test_the_two_largest_tiles_are_not_merged():
    assert moved([15, 15, *[0] * 14], 2) == ([0, 0, 15, 15, *[0] * 12], 0)
    assert moved([14, 14, *[0] * 14], 2) == ([0, 0, 0, 15, *[0] * 12], 1 << 15)


def test_a_value_is_the_sum_of_its_entries_and_the_same_in_all_symmetries(values):
    places, network = np.zeros(host.LOOKUPS, np.int64), jax.jit(NTupleNetwork.__call__)
    learned = NTupleNetwork(jnp.asarray(values.reshape(-1, ENTRIES)))
    for cells in boards(20):
        for board in symmetric(cells):
            found = host.value(word(board), values, places)
            assert sorted(places) == entries(cells)
            assert found == value(cells, values)
            assert network(learned, jnp.asarray(board)) == found


def test_tiles_above_the_largest_count_as_the_largest(values):
    network = NTupleNetwork(jnp.asarray(values.reshape(-1, ENTRIES)))
    cells = jnp.asarray([15, *[2] * 15], jnp.int8)
    assert network(cells.at[0].set(17)) == network(cells)


def by_hand(targets, cells, rate):
    """An entry's value, its error and absolute error, after updates of a board of tables of 1."""
    learned = {place: [1.0, 0.0, 0.0] for place in entries(cells)}
    for target in targets:
        error = target - sum(learned[place][0] for place in entries(cells))
        for place in entries(cells):
            _, total, size = learned[place]
            step = abs(total) / size if size else 1.0
            learned[place][0] += rate * step * error / host.LOOKUPS
            learned[place][1] += error
            learned[place][2] += abs(error)
    return learned


@pytest.mark.parametrize("symmetric_board", [False, True])
def test_an_update_is_temporal_coherence_by_hand(symmetric_board):
    cells = [3, 1, 1, 3] * 4 if symmetric_board else [*range(1, 12), 0, 2, 0, 5, 1]
    learner, places = host.new_learner(host.LOOKUPS), np.zeros(host.LOOKUPS, np.int64)
    targets = 100.0, 20.0, 90.0
    for target in targets:
        host.update(word(cells), np.float32(target), 0.5, *learner, places)
    expected = by_hand(targets, cells, 0.5)
    # The errors have both signs, so that step sizes are neither 1 nor 0.
    assert any(0.1 < abs(total) / size < 0.9 for _, total, size in expected.values())
    for place, (worth, *errors) in expected.items():
        assert np.isclose(learner.values[place], worth, rtol=1e-5)
        assert np.allclose(learner.errors[place], errors, rtol=1e-5)
    assert np.count_nonzero(learner.values != 1) == len(expected)


def test_a_game_learns_from_each_move():
    seed, learner, own = 3, host.new_learner(2000.0), host.new_learner(2000.0)
    played = host.learn(learner, ROWS, 1, seed)
    # NumPy's generator of this seed is that of the compiled code.
    rng, places = np.random.RandomState(seed), np.zeros(host.LOOKUPS, np.int64)

    def filled(board):
        empty = [i for i, tile in enumerate(cells_of(board)) if tile == 0]
        cell = empty[int(rng.random_sample() * len(empty))]
        tile = 2 if rng.random_sample() < 0.1 else 1
        return np.uint64(int(board) | (tile << (4 * cell)))

    board, before, points, moves = filled(filled(np.uint64(0))), None, 0, 0
    while True:
        slid = [host.moved(board, action, *ROWS) for action in range(4)]
        legal = [(after, gained) for after, gained in slid if after != board]
        worth = [gained + host.value(after, own.values, places) for after, gained in legal]
        if before is not None:
            target = np.float32(max(worth, default=0.0))
            host.update(before, target, 1.0, *own, places)
        if not legal:
            break
        before, gained = legal[int(np.argmax(worth))]
        board, points, moves = filled(before), points + gained, moves + 1
    assert (played.points[0], played.moves) == (points, moves)
    assert played.largest[0] == max(cells_of(board))
    assert np.array_equal(learner.values, own.values)
    assert np.array_equal(learner.errors, own.errors)


def test_a_thousand_games_teach_it_to_reach_1024():
    learner = host.new_learner(0.0)
    before = host.learn(learner, ROWS, 100, 0, rate=0)
    assert np.all(learner.values == 0)
    host.learn(learner, ROWS, 1000, 1)
    after = host.learn(learner, ROWS, 100, 0, rate=0)
    assert np.mean(before.largest >= 10) < 0.1 < 0.5 < np.mean(after.largest >= 10)


def plan(planner, values, asked):
    model = host.model_of(NTupleNetwork(jnp.asarray(values.reshape(-1, ENTRIES))))
    state = Game2048State(jnp.asarray(asked), jnp.zeros(len(asked), jnp.bool_))
    keys = jr.split(jr.key(0), len(asked))
    make = lambda model, state: planner.plan(model, state, planner.init(model, state), key=keys)[0]
    with jax.debug_key_reuse(False):
        return jax.device_get(eqx.filter_jit(make)(model, state))


def planner(expects):
    """Tries each slide once, and takes the best."""
    return TreeSearch.gumbel(
        4,
        max_num_considered_actions=4,
        gumbel_scale=0.0,
        in_rounds=True,
        readout=SoftmaxQ(),
        evaluate_outcomes=expects,
    )


def positions(number):
    """Boards that allow a slide."""
    movable = lambda x: any(moved(x, action)[0] != x.tolist() for action in range(4))
    return np.stack([x for x in boards(2 * number, 2) if movable(x)])[:number]


def test_the_planner_without_chance_plays_the_moves_of_the_host(values):
    asked, places = positions(100), np.zeros(host.LOOKUPS, np.int64)
    found = plan(planner(False), values, asked)
    for i, cells in enumerate(asked):
        chosen, _, points, worth = host.best(word(cells), values, *ROWS, places)
        assert found.action[i] == chosen
        assert found.qvalues[i, chosen] == points + worth


def test_the_planner_with_chance_is_a_step_of_expectimax(values):
    asked = positions(12)
    found = plan(planner(True), values, asked)
    for i, cells in enumerate(asked):
        for action in range(4):
            after, points = moved(cells, action)
            if after == cells.tolist():
                continue
            empty = [k for k, tile in enumerate(after) if tile == 0]
            expected = 0.0
            for k in empty:
                for tile, odds in (1, 0.9), (2, 0.1):
                    board = [*after[:k], tile, *after[k + 1 :]]
                    slid = [moved(board, a) for a in range(4)]
                    worth = [p + value(x, values) for x, p in slid if x != board]
                    expected += odds / len(empty) * (points + max(worth, default=0.0))
            assert np.isclose(found.qvalues[i, action], expected, rtol=1e-5)
