"""What is learned: rewards without luck, turned windows, and the divergence of mines."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import mine_posterior, Minesweeper, MinesweeperState, Observation
from zero_minesweeper._learning import mine_loss, Record, rewards_without_luck
from zero_nets import BoardSymmetries
from zero_train import Experience


ROWS, COLUMNS, MINES = 2, 3, 2
ENV = Minesweeper(ROWS, COLUMNS, MINES, pays="win", max_states=32)
LENGTH = 5


def all_layouts() -> np.ndarray:
    cells = ROWS * COLUMNS
    pairs = itertools.combinations(range(cells), MINES)
    return np.stack([np.isin(np.arange(cells), x).reshape(ROWS, COLUMNS) for x in pairs])


@pytest.fixture(scope="module")
def windows() -> Experience:
    """`[layouts, time]`: every game there can be of one who opens the first cell of least risk, a
    final row after each end and rows of anything after that."""
    layouts = all_layouts()
    number = len(layouts)
    state = MinesweeperState(
        jnp.full((number, ROWS, COLUMNS), -1, jnp.int8),
        jnp.asarray(layouts),
        jnp.zeros(number, jnp.bool_),
    )

    @jax.jit
    def play(state):
        def move(carry, _):
            state, last = carry
            known = jax.vmap(lambda b: mine_posterior(b, MINES, max_states=32).probability)
            risk = known(state.board)
            flat = jnp.where(state.board < 0, risk, 2.0).reshape(number, -1)
            action = jnp.argmin(jnp.where(jnp.isnan(flat), 1.0, flat), axis=1).astype(jnp.int32)
            obs = jax.vmap(ENV.observe)(state)
            step = jax.vmap(lambda s, a: ENV.step(s, a, key=jr.key(0)))
            after, done = step(state, action)
            reward, discount = (jnp.where(last, 0, x) for x in (done.reward, done.discount))
            row = Experience(obs, action, reward, discount, last, Record(flat, risk))
            return (after, done.last), row

        rows = jax.lax.scan(move, (state, state.over), length=LENGTH)[1]
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)

    return jax.device_get(play(state))


#: `paid_for(windows)`: their rewards without luck.
paid_for = jax.jit(jax.vmap(rewards_without_luck))


def test_without_luck_a_game_is_worth_what_it_is_on_average(windows):
    """The sum over all layouts is that of wins, and every game costs its risks alone."""
    paid = np.asarray(paid_for(windows))
    before = np.arange(LENGTH)[None] <= np.argmax(windows.discount == 0, axis=1)[:, None]
    won = np.sum(np.where(before, windows.reward, 0), axis=1)
    worth = np.sum(np.where(before, paid, 0), axis=1)
    assert 0 < won.sum() < len(won)
    assert worth.sum() == pytest.approx(won.sum(), abs=1e-5)
    assert worth.std() < 0.8 * won.std()
    # The first move risks a third; nobody is paid before the end, nor after it.
    np.testing.assert_allclose(paid[:, 0] - (windows.discount[:, 0] == 0), -1 / 3, atol=1e-6)
    assert (paid[windows.last] == 0).all()


def test_where_the_risk_is_not_known_luck_is_left_in(windows):
    nothing = np.full_like(windows.record.probability, np.nan)
    unknown = eqx.tree_at(lambda x: x.record.probability, windows, nothing)
    np.testing.assert_array_equal(paid_for(unknown), windows.reward)


def test_turned_windows_are_those_of_turned_mines():
    """A game is played, and played again with mines and moves turned; on a square board by
    quarter turns, on others by half turns."""
    for rows, columns in ((3, 3), (2, 4)):
        env = Minesweeper(rows, columns, 2, max_states=32)
        board = BoardSymmetries(rows, columns, rows * columns)
        state = eqx.filter_jit(env.init)(key=jr.key(0))
        action = np.int32(np.flatnonzero(~np.asarray(state.mines))[1])
        weights = np.random.default_rng(1).uniform(size=rows * columns).astype(np.float32)
        for index in range(board.size):
            jax.tree.map(
                np.testing.assert_array_equal,
                *_both(env, board, state, action, weights, np.int32(index)),
            )


@eqx.filter_jit
def _both(env: Minesweeper, board: BoardSymmetries, state, action, weights, index):
    """A window turned after the move, and the window of a game turned before it."""
    turn = lambda x: board.features(x, index)
    other = MinesweeperState(turn(state.board), turn(state.mines), state.over)
    move = board.action(action, index)
    after, _ = env.step(state, action, key=jr.key(0))
    again, _ = env.step(other, move, key=jr.key(0))
    window = jax.tree.map(lambda x: x[None], _row(env, after, action, weights))
    got = jax.tree.map(lambda x: x[0], board.turned(window, index))
    return got, _row(env, again, move, board.actions(weights, index))


def _row(env: Minesweeper, state: MinesweeperState, action, weights) -> Experience:
    nothing = jnp.float32(0)
    risk = jnp.where(state.board < 0, state.mines.astype(jnp.float32), 0.0)
    record = Record(weights, risk)
    return Experience(env.observe(state), action, nothing, nothing, jnp.bool_(False), record)


def test_mine_loss_is_a_divergence():
    board = np.asarray([[-1, 1, -1], [-1, -1, 0]], np.int8)
    exact = np.asarray([[0.25, 0.0, 1.0], [0.5, np.nan, 0.0]], np.float32)
    logits = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    legal, nothing = jnp.asarray((board < 0).reshape(-1)), jnp.float32(0)
    obs = Observation({"board": jnp.asarray(board), "num_mines": jnp.int32(2)}, legal)
    record = Record(jnp.zeros(6), jnp.asarray(exact))
    row = Experience(obs, jnp.int32(0), nothing, nothing, jnp.bool_(False), record)
    loss_and_gradient = jax.jit(jax.value_and_grad(mine_loss))
    loss, grads = loss_and_gradient(logits, row)
    p, q = np.asarray([0.25, 1.0, 0.5]), 1 / (1 + np.exp(-logits.astype(float)))
    q = np.asarray([q[0, 0], q[0, 2], q[1, 0]])
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [np.where(x > 0, x * np.log(x / y), 0) for x, y in ((p, q), (1 - p, 1 - q))]
    assert float(loss) == pytest.approx(float(np.sum(both, axis=0).mean()), rel=1e-5)
    with np.errstate(divide="ignore"):
        right = np.log(exact) - np.log1p(-exact)
    right = np.clip(np.nan_to_num(right), -20.0, 20.0)
    assert float(loss_and_gradient(right, row)[0]) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(grads).all() and (np.asarray(grads)[board >= 0] == 0).all()
