"""Minesweeper's posterior against enumeration in plain Python, and against itself."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from zero_envs import list_mines, mine_posterior, MinePosterior, sample_mines
from zero_envs._mine_posterior import _check_values
from zero_envs._mine_sweep import forward, tables, WALL

from . import mines_oracle as oracle


BOARDS, LAYOUTS = 32, 64
KINDS = (oracle.played_board, oracle.random_board, oracle.scattered_board)
Ask = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def asked(max_states: int) -> Ask:
    """Layouts, count and probability of up to `BOARDS` boards with 10 mines; compiled once."""

    @jax.jit
    @jax.vmap
    def ask(board, key):
        return sample_mines(board, 10, LAYOUTS, key=key, max_states=max_states)

    def padded(boards: np.ndarray):
        many = np.resize(boards, (BOARDS, *boards.shape[1:]))
        layouts, found = ask(jnp.asarray(many, jnp.int32), jr.split(jr.key(0), BOARDS))
        used = slice(len(boards))
        return (
            np.asarray(layouts)[used],
            np.asarray(found.count)[used],
            np.asarray(found.probability)[used],
        )

    return padded


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Two lengths of lists, of which a board of the first test needs the second."""
    return asked(128)


@jax.jit
@jax.vmap
def ask_wide(board: jax.Array, num_mines: jax.Array, key: jax.Array):
    """For 32 boards of 5 x 7: 3 layouts and the posterior, by lists of 8 states."""
    return sample_mines(board, num_mines, 3, key=key, max_states=8)


def wide(boards: np.ndarray, num_mines: Any = 6) -> tuple[np.ndarray, MinePosterior]:
    number = np.resize(np.asarray(num_mines, np.int32), BOARDS)
    many = np.resize(boards, (BOARDS, 5, 7)).astype(np.int32)
    found = ask_wide(jnp.asarray(many), jnp.asarray(number), jr.split(jr.key(0), BOARDS))
    return jax.tree.map(lambda x: np.asarray(x)[: len(boards)], found)


def some_boards(seed: int, number: int, rows: int, columns: int, num_mines: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    boards = [KINDS[i % 3](rng, rows, columns, num_mines) for i in range(number)]
    return np.stack(boards).astype(np.int32)


def check_against_enumeration(ask: Ask, boards: np.ndarray, num_mines: int) -> np.ndarray:
    """Counts and marginals; no layout may contradict its board. Returns the z-scores of how often
    a cell was a mine."""
    layouts, count, probability = ask(boards)
    scores = []
    for i, board in enumerate(boards):
        exact, risk = oracle.posterior(board, num_mines)
        assert count[i] == pytest.approx(exact, rel=1e-5)
        np.testing.assert_allclose(probability[i], risk, rtol=1e-5, atol=0)
        assert oracle.consistent(board, layouts[i], num_mines)
        open_ = (risk > 0) & (risk < 1)
        spread = np.sqrt(risk * (1 - risk) / layouts.shape[1])[open_]
        scores.append((layouts[i].mean(axis=0) - risk)[open_] / spread)
    return np.concatenate(scores)


def test_equals_enumeration(ask: Ask):
    scores = check_against_enumeration(ask, some_boards(0, BOARDS, 10, 10, 10), 10)
    assert len(scores) > 1000
    assert abs(scores.mean()) < 0.1 and abs(scores.std() - 1) < 0.1


@pytest.mark.slow
def test_equals_enumeration_on_a_thousand_boards():
    """And none of 50 000 layouts is inconsistent."""
    ask, boards = asked(512), some_boards(1, 1000, 10, 10, 10)
    scores = [
        check_against_enumeration(ask, boards[i : i + BOARDS], 10)
        for i in range(0, len(boards), BOARDS)
    ]
    scores = np.concatenate(scores)
    assert abs(scores.mean()) < 0.02 and abs(scores.std() - 1) < 0.02


def test_an_empty_board(ask: Ask):
    _, (count,), (probability,) = ask(np.full((1, 10, 10), -1))
    assert count == pytest.approx(math.comb(100, 10), rel=1e-6)
    np.testing.assert_allclose(probability, 0.1, rtol=1e-6)


def test_symmetries_and_totals(ask: Ask):
    board = some_boards(2, 3, 10, 10, 10)[2]
    turned = [np.rot90(board, k) for k in range(4)]
    turned += [x.T for x in turned]
    _, count, probability = ask(np.stack(turned))
    np.testing.assert_allclose(count, count[0], rtol=1e-6)
    np.testing.assert_allclose(probability.sum(axis=(1, 2)), 10, rtol=1e-5)
    for k in range(4):
        np.testing.assert_allclose(np.rot90(probability[k], -k), probability[0], atol=1e-6)
        np.testing.assert_allclose(np.rot90(probability[4 + k].T, -k), probability[0], atol=1e-6)


def test_what_a_cell_may_show_adds_up(ask: Ask):
    """P(cell shows n) = count(board with n there) / count(board); what is left is the mine."""
    board = some_boards(3, 3, 10, 10, 10)[2]
    _, (count,), (risk,) = ask(board[None])
    cell = np.unravel_index(np.argmin(np.abs(risk - 0.3)), risk.shape)
    boards = np.stack([board] * 9)
    boards[:, *cell] = np.arange(9)
    layouts, counts, _ = ask(boards)
    assert counts.sum() / count == pytest.approx(1 - risk[cell], rel=1e-5)
    # An impossible number: no layout, and what is returned looks like none.
    assert (counts == 0).any() and layouts[counts == 0].all()


def test_layouts_are_uniform(ask: Ask):
    """Chi-squared over all the layouts of an end game, whose mines are not all determined."""
    rng = np.random.default_rng(5)
    while True:
        mines = oracle.random_mines(rng, 10, 10, 10)
        opened = ~mines & (rng.uniform(size=mines.shape) < 0.6)
        board = oracle.shown(mines, opened)
        number = oracle.posterior(board, 10)[0]
        if 12 <= number <= 40:
            break
    layouts, _, _ = ask(np.stack([board] * BOARDS))
    drawn = np.unique(layouts.reshape(-1, 100), axis=0, return_counts=True)[1]
    assert len(drawn) == number
    expected = BOARDS * LAYOUTS / number
    chi2 = ((drawn - expected) ** 2).sum() / expected
    assert abs(chi2 - (number - 1)) < 4 * math.sqrt(2 * (number - 1))


def same_layouts(found: np.ndarray, expected: np.ndarray) -> bool:
    """Each once, in any order."""
    rows = lambda x: sorted(map(bytes, np.packbits(x.reshape(len(x), 20), axis=1)))
    return rows(found) == rows(expected)


def test_all_layouts_are_listed():
    """End games, whose mines are next to numbers and elsewhere, against a choice of all mines."""
    every = np.asarray(list(itertools.combinations(range(20), 5)))
    mines = (every[:, :, None] == np.arange(20)).any(axis=1).reshape(-1, 4, 5)
    numbers = oracle.shown(mines, np.ones_like(mines))
    run = jax.jit(jax.vmap(lambda x: list_mines(x, 5, 512, max_states=32)))
    rng = np.random.default_rng(8)
    boards = np.stack([KINDS[i % 3](rng, 4, 5, 5) for i in range(60)]).astype(np.int32)
    layouts, listed, posterior = run(jnp.asarray(boards))
    layouts, listed, counts = (np.asarray(x) for x in (layouts, listed, posterior.count))
    few = 0
    for board, found, which, count in zip(boards, layouts, listed, counts, strict=True):
        shown = board >= 0
        fits = ((numbers == board) | ~shown).all((1, 2)) & ~(mines & shown).any((1, 2))
        assert count == pytest.approx(fits.sum(), rel=1e-5)
        number = int(fits.sum()) if fits.sum() <= 512 else 0
        assert which.sum() == number and which[:number].all() and found[number:].all()
        assert same_layouts(found[:number], mines[fits][:number])
        few += 1 < number
    assert 15 < few < 60


def test_a_long_list():
    """No two ranks fall together, to the end."""
    empty = jnp.asarray(np.full((6, 6), -1))
    number = math.comb(36, 4)
    layouts, listed, posterior = jax.device_get(list_mines(empty, 4, number, max_states=32))
    assert number == pytest.approx(float(posterior.count), rel=1e-6)
    assert listed.all() and (layouts.sum(axis=(1, 2)) == 4).all()
    assert len(np.unique(np.packbits(layouts.reshape(number, -1), axis=1), axis=0)) == number
    with pytest.raises(
        ValueError, match="num=58905.*376992 layouts.*up to 65536, or.*sample_mines"
    ):
        list_mines(empty, 5, number, max_states=32)
    for bad in (0, 65537):
        with pytest.raises(ValueError, match=f"num={bad}.*from 1 to 65536"):
            list_mines(empty, 4, bad)


def test_columns_are_swept_where_rows_overflow():
    """Boards with more than 8 states row by row and not column by column, and boards with more both
    ways, which look like none. They are wider than high."""
    boards = some_boards(6, 3 * BOARDS, 5, 7, 6)[2::3]
    layouts, found = wide(boards)
    square = np.pad(boards, ((0, 0), (0, 2), (0, 0)), constant_values=WALL)
    swept = jax.jit(lambda x: forward(tables(x, 35), jnp.full(len(x), 6, jnp.int32), 8)[0].lost)
    rows, columns = (np.asarray(swept(x)) for x in (square, square.transpose(0, 2, 1)))
    lost = rows & columns
    assert np.array_equal(found.overflowed, lost) and lost.any()
    for x in (found.count, found.log_count, found.probability):
        assert np.isnan(x[lost]).all()
    assert layouts[lost].all() and (rows & ~columns).sum() >= 2
    for i in np.flatnonzero(~lost):
        exact, risk = oracle.posterior(boards[i], 6)
        assert found.count[i] == pytest.approx(exact, rel=1e-5)
        assert found.log_count[i] == pytest.approx(math.log(exact), abs=1e-5)
        np.testing.assert_allclose(found.probability[i], risk, rtol=1e-5, atol=0)
        assert oracle.consistent(boards[i], layouts[i], 6)
    # One board whose values are known: the same, or the reason.
    alone = mine_posterior(jnp.asarray(boards[~lost][0]), 6, max_states=8)
    np.testing.assert_array_equal(alone.probability, found.probability[~lost][0])
    with pytest.raises(ValueError, match="5 x 7 board.*6.*more than max_states=8 states"):
        mine_posterior(jnp.asarray(boards[lost][0]), 6, max_states=8)
    for bad in (0, 48, 2**16):
        with pytest.raises(ValueError, match=f"max_states={bad}.*power of two up to 32768"):
            mine_posterior(jnp.asarray(boards[0]), 6, max_states=bad)


def test_transformations_compose():
    """Nested `vmap` over boards, numbers of mines and keys, the boards split over two devices; each
    equals one call. The loops carry one board, however many keys are mapped over."""
    boards = np.full((4, 5, 7), -1, np.int32)
    boards[1, 2, 3], boards[2, 0, 0], boards[3, 4, 5] = 2, 1, 3
    mines, keys = np.asarray([6, 7, 8], np.int32), jr.split(jr.key(0), BOARDS)[:4]

    def run(boards, mines, keys):
        one = lambda board, number, key: sample_mines(board, number, 3, key=key, max_states=8)
        by_key = jax.vmap(one, (None, None, 0))
        by_mines = jax.vmap(by_key, (None, 0, None))
        return jax.vmap(by_mines, (0, None, None))(boards, mines, keys)

    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.shard_map(run, mesh=mesh, in_specs=(P("data"), P(), P()), out_specs=P("data"))
    traced = jax.jit(split).trace(jnp.asarray(boards), jnp.asarray(mines), keys)
    # 2 boards of each device with 3 numbers of mines, and not with 4 keys each.
    text = str(traced.jaxpr)
    assert "f32[35,6,8]" in text and "f32[35,24,8]" not in text
    layouts, found = traced.lower().compile()(boards, mines, keys)
    assert layouts.shape == (4, 3, 4, 3, 5, 7) and found.probability.shape == (4, 3, 4, 5, 7)
    layouts, risk = np.asarray(layouts), np.asarray(found.probability)
    for j, number in enumerate(mines):
        # Key `k` is that of board `k` of the one call.
        for i, board in enumerate(boards):
            alone, posterior = wide(np.stack([board] * 4), number)
            np.testing.assert_array_equal(layouts[i, j], alone)
            np.testing.assert_allclose(risk[i, j], posterior.probability, rtol=1e-6)


CONTRADICTIONS = [
    ({(0, 0): 4}, 4, "the 4 in row 0, column 0 has 3 hidden neighbours"),
    ({(1, 1): 9}, 4, "the 9 in row 1, column 1; numbers are 0 to 8"),
    ({(2, 1): -2}, 4, "the -2 in row 2, column 1; numbers are 0 to 8, and -1 is a hidden cell"),
    ({}, 36, "36 mines for 35 hidden cells"),
    ({(0, 0): 3, (2, 2): 0}, 3, "2 numbers contradict 3 mines in 33 hidden cells"),
]


@pytest.mark.usefixtures("unhooked")
def test_contradictions_are_named():
    boards = np.full((len(CONTRADICTIONS), 5, 7), -1, np.int32)
    for board, (cells, num_mines, reason) in zip(boards, CONTRADICTIONS, strict=True):
        for cell, number in cells.items():
            board[cell] = number
        with pytest.raises(ValueError, match=reason):
            mine_posterior(jnp.asarray(board), num_mines, max_states=8)
    # Beyond 32 bits they are not taken for others.
    hidden = np.full((1, 2), -1)
    beyond: list[Any] = [(hidden + 2**32, 1), (hidden, np.int64(2**32 + 1)), (hidden, 2**32 + 1)]
    for board, number in beyond:
        with pytest.raises(ValueError, match=r"the 4294967295 in|4294967297 mines for 2 hidden"):
            mine_posterior(board, number)
    layouts, found = wide(np.resize(boards, (BOARDS, 5, 7)), [x[1] for x in CONTRADICTIONS])
    assert (found.count == 0).all() and (found.log_count == -np.inf).all()
    assert not found.overflowed.any() and np.isnan(found.probability).all() and layouts.all()


HIDDEN = np.full((3, 3), -1, np.int32)


@pytest.mark.parametrize(
    "board, options, message",
    [
        (HIDDEN[0], {}, r"board=int32\[3\]\): must be integers, \[rows, columns\]"),
        (HIDDEN[None], {}, r"board=int32\[1, 3, 3\].*jax.vmap over a batch"),
        (HIDDEN[:0], {}, r"board=int32\[0, 3\]"),
        (HIDDEN.astype(np.float32), {}, r"board=float32\[3, 3\]"),
        (HIDDEN == 0, {}, r"board=bool\[3, 3\]"),
        (HIDDEN, {"num_mines": 2.5}, r"num_mines=float32\[\]\): must be one integer"),
        (
            HIDDEN,
            {"num_mines": np.arange(2, dtype=np.int32)},
            r"num_mines=int32\[2\].*jax.vmap over a batch",
        ),
        (HIDDEN, {"num": -1}, r"num=-1\): must be an integer of at least 0"),
        (HIDDEN, {"num": 2.0}, r"num=2.0\)"),
        (HIDDEN, {"max_states": 16.0}, r"max_states=16.0\): must be a power of two up to 32768"),
    ],
)
@pytest.mark.usefixtures("unhooked")
def test_arguments_of_a_wrong_kind_are_named(
    board: np.ndarray, options: dict[str, Any], message: str
):
    """None is truncated or taken for hidden; also where it is traced."""
    given: dict[str, Any] = {"num_mines": 2, "num": 1, "max_states": 16} | options
    run = lambda x: sample_mines(x, key=jr.key(0), **given)
    for ask in (run, jax.jit(run)):
        with pytest.raises(ValueError, match=message) as raised:
            ask(board)
        assert str(raised.value).startswith("sample_mines(") and "\n" not in str(raised.value)


@pytest.mark.usefixtures("unhooked")
def test_layouts_are_not_drawn_without_a_key():
    with pytest.raises(TypeError, match="key"):
        sample_mines(jnp.asarray(HIDDEN), 2, 1, key=None, max_states=16)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "size, hint", [(2, "instance 8"), (16384, "instance 32768"), (32768, "no more are possible")]
)
def test_the_hint_of_an_overflow_is_allowed(size: int, hint: str):
    nothing = np.full((3, 3), np.nan, np.float32)
    parts = nothing[0, 0], nothing[0, 0], nothing, np.bool_(True)
    found = MinePosterior(*map(jnp.asarray, parts))
    with pytest.raises(ValueError, match=f"max_states={size} states.*{hint}"):
        _check_values("mine_posterior", HIDDEN, 2, found, size)
