"""The symmetries: a group, the one NumPy means, and one that Othello has."""

import functools as ft
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest

import zero_nets
from zero_nets import BoardSymmetries


# What runs a few times is not worth optimising: compiling it so takes a third of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
BOARDS = ((3, 3, 10), (8, 8, 65), (2, 3, 6), (6, 7, 44))


def _symmetries(rows, columns, num_actions):
    return zero_nets.BoardSymmetries(rows=rows, columns=columns, num_actions=num_actions)


def _all(symmetries, x):
    """`actions` under every symmetry, by a traced index: [size, actions]."""
    indices = jnp.arange(symmetries.size)
    return np.asarray(jax.jit(jax.vmap(lambda i: symmetries.actions(x, i)))(indices))


@pytest.mark.parametrize("board", BOARDS)
def test_group(board):
    symmetries = _symmetries(*board)
    identity = np.arange(board[2])
    tables = _all(symmetries, jnp.asarray(identity))
    names = {tuple(table): i for i, table in enumerate(tables)}
    assert len(names) == symmetries.size == (8 if board[0] == board[1] else 4)
    np.testing.assert_array_equal(tables[0], identity)
    for first, second in itertools.product(range(symmetries.size), repeat=2):
        assert tuple(tables[first][tables[second]]) in names
    for i, table in enumerate(tables):
        undo = int(symmetries.inverse(jnp.asarray(i)))
        np.testing.assert_array_equal(table[tables[undo]], identity)
        # A permutation, so sums are kept; cells stay cells and the rest stay put.
        np.testing.assert_array_equal(np.sort(table), identity)
        cells = board[0] * board[1]
        np.testing.assert_array_equal(table[cells:], identity[cells:])


def test_a_square_board_turns_as_numpy_says(getkey):
    symmetries = _symmetries(5, 5, 26)
    x = jr.normal(getkey(), (5, 5, 3))
    for k in range(4):
        np.testing.assert_array_equal(symmetries.features(x, k), np.rot90(x, k))
        np.testing.assert_array_equal(symmetries.features(x, 4 + k), np.rot90(np.fliplr(x), k))


def test_any_other_board_keeps_its_shape(getkey):
    symmetries = _symmetries(2, 3, 7)
    x = np.asarray(jr.normal(getkey(), (2, 3, 4)))
    expected = (x, x[::-1, ::-1], x[:, ::-1], x[::-1])
    for index, board in enumerate(expected):
        np.testing.assert_array_equal(symmetries.features(jnp.asarray(x), index), board)


@pytest.mark.parametrize("board", BOARDS)
def test_actions_move_with_the_board(board, getkey):
    rows, columns, num_actions = board
    cells = rows * columns
    symmetries = _symmetries(*board)
    draws = np.random.default_rng(int(jr.bits(getkey())))
    weights = draws.random(num_actions).astype(np.float32)
    board_of = jnp.asarray(weights[:cells].reshape(rows, columns))
    actions = jnp.arange(num_actions, dtype=jnp.int32)

    @jax.jit
    @jax.vmap
    def move(index):
        moved = symmetries.actions(jnp.asarray(weights), index)
        target = jax.vmap(lambda action: symmetries.action(action, index))(actions)
        return moved, symmetries.features(board_of, index), target

    moved, grid, target = map(np.asarray, move(jnp.arange(symmetries.size, dtype=jnp.int32)))
    for i in range(symmetries.size):
        np.testing.assert_array_equal(moved[i, :cells], grid[i].reshape(-1))
        np.testing.assert_array_equal(moved[i, target[i]], weights)


@pytest.fixture(scope="module")
def othello():
    """64 random Othello positions of all lengths, and their successors by a random move."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        env = pgx.make("othello")
        step = jax.jit(jax.vmap(env.step), compiler_options=QUICK)

        @jax.jit
        def choose(state, key):
            logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            return jr.categorical(key, logits)

        state = jax.jit(jax.vmap(env.init))(jr.split(jr.key(0), 64))
        kept = [state]
        for ply in range(58):
            state = step(state, choose(state, jr.fold_in(jr.key(1), ply)))
            kept.append(state)
        # Row i stops after i plies (at most 58), so the beginning is there too.
        pick = np.minimum(np.arange(64), 58), np.arange(64)
        state = jax.tree.map(
            lambda *x: jnp.asarray(np.stack(list(map(np.asarray, x)))[pick]), *kept
        )
        action = choose(state, jr.key(2))
        return step, state, action, step(state, action)


def test_othello_steps_commute(othello):
    step, state, action, after = othello
    symmetries = _symmetries(8, 8, 65)

    @jax.jit
    @ft.partial(jax.vmap, in_axes=(0, None))
    def turned(state, index):
        board = symmetries.features(state._x.board.reshape(8, 8), index).reshape(64)
        return state.replace(
            _x=state._x._replace(board=board),
            observation=symmetries.features(state.observation, index),
            legal_action_mask=symmetries.actions(state.legal_action_mask, index),
        )

    move = jax.jit(jax.vmap(symmetries.action, (0, None)))
    for index in np.arange(8, dtype=np.int32):
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            result = step(turned(state, index), move(action, index))
        expected = turned(after, index)
        jax.tree.map(np.testing.assert_array_equal, result, expected)
        # The positions are not all symmetric themselves, or this would hold for any table.
        if index:
            assert np.any(np.asarray(expected.observation) != np.asarray(after.observation))


class Plans(eqx.Module):
    weights: Any
    candidates: Any


class Rows(eqx.Module):
    obs: Any
    action: Any
    last: Any
    record: Any


@pytest.mark.parametrize("number", [2, 9])
def test_candidates_of_a_record_turn_as_actions(number):
    """In a window, also where there are as many as actions. Their weights stay theirs."""
    symmetries, time = _symmetries(3, 3, 9), 2
    candidates = jnp.asarray(np.random.default_rng(0).permuted([range(9)] * time, axis=1))[
        :, :number
    ]
    weights = jnp.eye(number)[:time]
    rows = Rows(
        jnp.zeros((time, 9)), candidates[:, 0], jnp.zeros(time, bool), Plans(weights, candidates)
    )
    turned = jax.jit(symmetries.turned)(rows, jnp.int32(5))
    one = jax.vmap(jax.vmap(lambda x: symmetries.action(x, jnp.int32(5))))
    np.testing.assert_array_equal(turned.record.candidates, one(candidates))
    np.testing.assert_array_equal(turned.record.candidates[:, 0], turned.action)
    np.testing.assert_array_equal(turned.record.weights, weights)


def test_refuses_what_does_not_fit():
    symmetries = _symmetries(2, 3, 7)
    with pytest.raises(ValueError, match=r"shape \(4, 2, 3, 1\).*\(2, 3\).*vmap"):
        symmetries.features(jnp.zeros((4, 2, 3, 1)), 0)
    with pytest.raises(ValueError, match=r"shape \(6,\), expected \(7,\)"):
        symmetries.actions(jnp.zeros(6), 0)
    with pytest.raises(ValueError, match="num_actions=63"):
        _symmetries(8, 8, 63)
    # NumPy and JAX would take 9 for 7 and -1 for 7, or clamp.
    for index in (8, -1, np.int64(9), jnp.asarray(9, jnp.int32)):
        with pytest.raises(ValueError, match=f"`index` is {index}; it must be .* from 0 to 7"):
            _symmetries(8, 8, 65).features(jnp.zeros((8, 8)), index)


def test_columns_are_exchanged_by_a_mirror():
    """Actions that are no cells: Connect Four's are its columns."""
    columns = tuple((0, column) for column in range(7))
    board = BoardSymmetries(6, 7, 7, columns, mirror_only=True)
    stones = jnp.arange(42).reshape(6, 7)
    assert board.size == 2 and int(board.inverse(1)) == 1
    np.testing.assert_array_equal(board.features(stones, 1), stones[:, ::-1])
    np.testing.assert_array_equal(board.actions(jnp.arange(7), 1), np.arange(7)[::-1])
    assert int(board.action(jnp.int32(2), 1)) == 4


def test_directions_turn_with_the_board():
    """Up, right, down, left: a quarter turn counterclockwise makes up of right."""
    board = BoardSymmetries(4, 4, 5, ((0, 1), (1, 2), (2, 1), (1, 0)))
    turned = [int(board.action(jnp.int32(action), 1)) for action in range(5)]
    assert turned == [3, 0, 1, 2, 4]
    mirrored = [int(board.action(jnp.int32(action), 4)) for action in range(5)]
    assert mirrored == [0, 3, 2, 1, 4]


@pytest.mark.parametrize(
    "rows, columns, places",
    [
        (4, 4, ((0, 1), (1, 2), (2, 1))),  # three directions
        (4, 4, ((0, 0), (0, 1))),  # two columns, on a board that turns
        (4, 5, ((0, 0), (0, 0))),  # one place twice
    ],
)
def test_places_that_do_not_turn_into_each_other_are_refused(rows, columns, places):
    with pytest.raises(ValueError, match="the places must differ, and every symmetry"):
        BoardSymmetries(rows, columns, 9, places)


class Row(eqx.Module):
    """A row of experience, as far as symmetries know it."""

    obs: Any
    action: Any
    record: Any
    last: Any


def test_all_of_a_window_turns_alike(getkey):
    """Boards and weights turn in every row by the symmetry that was drawn, and nothing else."""
    board = BoardSymmetries(3, 3, 10)
    obs = {"board": jr.uniform(getkey(), (4, 3, 3, 2)), "held": jnp.arange(4)}
    record = {"weights": jr.uniform(getkey(), (4, 10)), "value": jnp.arange(4.0)}
    window = Row(obs, jnp.asarray([0, 4, 9, 2], jnp.int32), record, jnp.zeros(4, bool))
    boards, weights = jax.jit(
        jax.vmap(
            lambda i: (
                jax.vmap(lambda x: board.features(x, i))(obs["board"]),
                jax.vmap(lambda x: board.actions(x, i))(record["weights"]),
            )
        )
    )(jnp.arange(8))
    drawn = jax.jit(jax.vmap(lambda key: board(window, key=key)))(jr.split(getkey(), 20))
    indices = []
    drawn, boards, weights, window = jax.device_get((drawn, boards, weights, window))
    obs, record = window.obs, window.record
    for found in (jax.tree.map(lambda x, n=n: x[n], drawn) for n in range(20)):
        (index,) = [i for i in range(8) if (boards[i] == found.obs["board"]).all()]
        indices.append(index)
        np.testing.assert_array_equal(found.record["weights"], weights[index])
        for row, action in enumerate(window.action):
            assert weights[index, row, found.action[row]] == record["weights"][row, action]
        np.testing.assert_array_equal(found.obs["held"], obs["held"])
        np.testing.assert_array_equal(found.record["value"], record["value"])
    assert len(set(indices)) > 3
