"""Minesweeper: the rules against Jumanji's, and that nothing but the board decides."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jumanji.environments.logic.minesweeper.env import Minesweeper as Original
from jumanji.environments.logic.minesweeper.generator import UniformSamplingGenerator

from zero_envs import Minesweeper, MinesweeperState
from zero_envs.testing import check_environment

from . import mines_oracle as oracle


GAMES, STEPS = 64, 12
ENV = Minesweeper(3, 4, 3, max_states=32)


@pytest.fixture(scope="module")
def step() -> Any:
    return jax.jit(jax.vmap(lambda s, a: ENV.step(s, a, key=jr.key(0))))


@pytest.fixture(scope="module")
def resample() -> Any:
    return jax.jit(jax.vmap(lambda s, k: ENV.resample(s, key=k)))


def batch(*states: MinesweeperState) -> MinesweeperState:
    """These states over and over, as many as there are games: so nothing new is compiled."""
    stack = lambda *x: jnp.asarray(np.resize(np.stack(x), (GAMES, *np.shape(x[0]))))
    return jax.tree.map(stack, *states)


@pytest.fixture(scope="module")
def games(step: Any) -> list[tuple[MinesweeperState, np.ndarray, MinesweeperState, Any]]:
    """(state, action, next state, transition) of games at random, some actions illegal."""
    state = jax.jit(jax.vmap(lambda k: ENV.init(key=k)))(jr.split(jr.key(0), GAMES))
    rng, steps = np.random.default_rng(0), []
    for _ in range(STEPS):
        # Mostly safe cells, so that games are long, and some are won.
        wish = np.where(np.asarray(state.mines), 0.3, 1.0) * (np.asarray(state.board) < 0)
        wish = wish.reshape(GAMES, -1) + 0.02
        action = np.asarray([rng.choice(12, p=w / w.sum()) for w in wish], np.int32)
        after, transition = step(state, jnp.asarray(action))
        steps.append((state, action, after, transition))
        state = after
    return steps


def test_rules_are_those_of_jumanji(games: Any):
    """The same deals, and the same boards, rewards and ends until the first end."""
    original = Original(generator=UniformSamplingGenerator(3, 4, 3))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs, _ = jax.jit(jax.vmap(original.reset))(jr.key_data(jr.split(jr.key(0), GAMES)))
        play = jax.jit(jax.vmap(original.step))
        locations = np.asarray(theirs.flat_mine_locations)
        dealt = [np.flatnonzero(x) for x in np.asarray(games[0][0].mines)]
        assert all(np.array_equal(np.sort(x), y) for x, y in zip(locations, dealt, strict=True))
        live, rewards = np.ones(GAMES, bool), np.zeros(GAMES)
        for _, action, after, transition in games:
            theirs, seen = play(theirs, np.stack([action // 4, action % 4], axis=1))
            mask = live[:, None, None]
            assert np.array_equal(np.where(mask, after.board, 0), np.where(mask, theirs.board, 0))
            assert np.array_equal(transition.reward, np.where(live, seen.reward, 0))
            last = np.asarray(seen.last())
            assert np.array_equal(transition.last, last | ~live)
            assert np.array_equal(transition.discount, ~np.asarray(transition.last))
            rewards += transition.reward
            live &= ~last
    wins = np.asarray(jax.jit(jax.vmap(ENV.won))(games[-1][2]))
    # Won, lost and spoilt games were seen; the return says which were won.
    assert np.array_equal(wins, rewards == 9) and 3 < wins.sum() < GAMES - 3 and not live.any()


def test_rules_in_numpy(games: Any):
    """Numbers and rewards by hand, and what is learned: a number, 9 for a mine, 0 for nothing."""
    signal = jax.jit(jax.vmap(ENV.signal))
    seen = set()
    for state, action, after, transition in games:
        learned = np.asarray(signal(state, jnp.asarray(action), after))
        # Indexing JAX arrays one by one would take most of the time.
        state, after, transition = jax.tree.map(np.asarray, (state, after, transition))
        for i in range(GAMES):
            cell = divmod(int(action[i]), 4)
            mines, board = state.mines[i], state.board[i]
            opens = not state.over[i] and board[cell] < 0
            opened = (board >= 0) | (opens & (np.arange(12).reshape(3, 4) == action[i]))
            assert np.array_equal(after.board[i], oracle.shown(mines, opened))
            assert float(transition.reward[i]) == (opens and not mines[cell])
            number = 9 if mines[cell] else int(oracle.shown(mines, opened)[cell])
            assert learned[i] == (number if opens else 0)
            seen.add(int(learned[i]))
    assert {0, 1, 2, 3, 9} <= seen


def test_actions_outside_the_board(step: Any):
    """Jumanji pays 1 for them for ever."""
    state = jax.jit(lambda: ENV.init(key=jr.key(0)))()
    outside = (12, -1, 10**6)
    for action in outside:
        with pytest.raises(ValueError, match=f"the action is {action}; it must be one integer"):
            ENV.step(state, jnp.int32(action), key=jr.key(0))
    before = batch(state)
    after, transition = jax.device_get(
        step(before, np.resize(np.asarray(outside, np.int32), GAMES))
    )
    assert (transition.reward == 0).all() and transition.last.all()
    assert np.array_equal(after.board, before.board) and after.over.all()


def test_dying_on_the_last_cell_is_not_winning(step: Any, resample: Any):
    mines = np.zeros((3, 4), bool)
    mines[0, :3] = True
    board = oracle.shown(mines, ~mines).astype(np.int8)
    board[2, 3] = -1
    before = batch(MinesweeperState(*map(jnp.asarray, (board, mines, np.bool_(False)))))
    after, transition = step(before, np.resize(np.asarray([0, 11], np.int32), GAMES))
    # A final state may show what no layout shows; nobody asks for its layouts.
    same = resample(after, jr.split(jr.key(1), GAMES))
    assert np.array_equal(same.mines, after.mines) and same.over.all()
    for i, won in enumerate((False, True)):
        one, (reward, last) = jax.tree.map(
            lambda x, i=i: jnp.asarray(np.asarray(x)[i]),
            (after, (transition.reward, transition.last)),
        )
        assert last and float(reward) == won and bool(ENV.won(one)) == won
        assert ENV.text(one).startswith("* * *" if won else "X * *")


@pytest.mark.parametrize(("pays", "each", "final"), [("fraction", 1 / 9, 1 / 9), ("win", 0, 1)])
def test_what_is_paid(pays: str, each: float, final: float):
    env = Minesweeper(3, 4, 3, pays=pays, max_states=32)
    state, rewards = jax.jit(lambda: env.init(key=jr.key(3)))(), []
    play = jax.jit(lambda s, a: env.step(s, a, key=jr.key(0)))
    hit = play(state, jnp.int32(np.argmax(state.mines)))[1]
    assert hit.last and hit.reward == 0
    transition: Any = None
    for action in np.flatnonzero(~np.asarray(state.mines)):
        state, transition = play(state, jnp.int32(action))
        rewards.append(float(transition.reward))
    assert rewards == pytest.approx([each] * 8 + [final])
    assert transition.last and env.won(state)
    assert play(state, jnp.int32(0))[1].reward == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pays": "wins"}, r"pays='wins'\): must be one of 'cells', 'fraction', 'win'"),
        ({"max_states": 48}, r"Minesweeper\(max_states=48\): must be a power of two"),
    ],
)
def test_what_is_refused(given: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Minesweeper(**given)


def test_resampled_mines_fit_and_are_uniform(games: Any, resample: Any):
    """The player could not tell them apart, and each layout is as likely as any other."""
    keys = jax.jit(lambda n: jr.split(jr.fold_in(jr.key(1), n), GAMES))
    boards = {}
    for state, *_ in games[:4]:
        for board in np.asarray(state.board)[~np.asarray(state.over)]:
            boards.setdefault(board.tobytes(), board)
    chi2 = freedom = 0.0
    for number, board in enumerate(list(boards.values())[:10]):
        parts = board, np.zeros((3, 4), bool), np.bool_(False)
        hidden = batch(MinesweeperState(*map(jnp.asarray, parts)))
        drawn = [
            np.asarray(resample(hidden, keys(np.int32(100 * number + j))).mines) for j in range(16)
        ]
        layouts, often = np.unique(np.concatenate(drawn), axis=0, return_counts=True)
        count = oracle.posterior(board, 3)[0]
        assert oracle.consistent(board, layouts, 3)
        expected = 16 * GAMES / count
        often = np.concatenate([often, np.zeros(count - len(often))])
        chi2 += ((often - expected) ** 2).sum() / expected
        freedom += count - 1
    assert freedom > 100 and abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom)


def test_hidden_mines_decide_nothing(games: Any, resample: Any):
    """Other mines behind an equal board: what is seen and what is drawn is the same, bit by bit."""
    observe = jax.jit(jax.vmap(ENV.observe))
    changed = 0
    for state, _, _, _ in games:
        twin = resample(state, jr.split(jr.key(2), GAMES))
        live = ~np.asarray(state.over)
        differs = np.asarray(twin.mines) != np.asarray(state.mines)
        changed += (differs.any(axis=(1, 2)) & live).sum()
        ours, theirs = observe(state), observe(twin)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        keys = jr.split(jr.key(3), GAMES)
        again = (resample(state, keys).mines, resample(twin, jr.clone(keys)).mines)
        assert np.array_equal(again[0], again[1])
    assert changed > 50


def test_certainly_safe_cells_never_kill(games: Any):
    """And mines without doubt always do."""
    solve = jax.jit(jax.vmap(ENV.posterior))
    certain = 0
    for state, _, _, _ in games:
        risk = np.asarray(solve(state).probability)
        assert np.isfinite(risk).all()
        live, hidden = ~np.asarray(state.over)[:, None, None], np.asarray(state.board) < 0
        assert not (live & hidden & (risk == 0) & np.asarray(state.mines)).any()
        assert not (live & hidden & (risk == 1) & ~np.asarray(state.mines)).any()
        certain += (live & hidden & (risk == 0)).sum()
    assert certain > 20


def test_keeps_every_promise():
    report = check_environment(ENV, key=jr.key(0), num_steps=14)
    assert report.terminated == 8 and report.truncated == report.opponent == 0
    assert report.state_bytes == 25 and Minesweeper().num_actions == 100


@pytest.mark.parametrize(
    "size, message",
    [
        ((3, 3, 9), "num_mines=9.*9 cells hold 0 to 8 mines"),
        ((3, 3, -1), "num_mines=-1.*an integer, at least 0"),
        ((1, 9, 2), "rows=1.*an integer, at least 2"),
    ],
)
def test_boards_that_there_are_not(size: tuple[int, int, int], message: str):
    with pytest.raises(ValueError, match=message):
        Minesweeper(*size)


def test_the_same_game_is_not_traced_twice():
    key = jr.key(0)
    traced = []

    @eqx.filter_jit
    def start(env, key):
        traced.append(env)
        return env.init(key=key).board

    start(Minesweeper(4, 4, 4), key)
    start(Minesweeper(4, 4, 4), jr.clone(key))
    assert len(traced) == 1
