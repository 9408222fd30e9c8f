"""The solver of Connect Four, the sets of positions that it made, and its player."""

import functools as ft
import json
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import measure, Suite
from zero_cli import pretrained
from zero_cli._apps import APP
from zero_cli._perfect import perfect
from zero_cli._worlds import build_world


pytest.importorskip("numba", reason="the solver needs numba, of the extra judges")

from zero_cli._connect_four import _legal, _play, _score, _uct, position, Solver, uct, wins


def left(number: int, score: int) -> int:
    """How many stones come until the end of a game with this score and so many stones, if both play
    perfectly."""
    if score == 0:
        return 42 - number
    last = 44 - 2 * abs(score)  # or the stone before, if that is of the player who wins
    winner_moves = (number + (score > 0)) % 2
    return last - (last % 2 != winner_moves) - number


SETS = ["begin-easy", "begin-hard", "begin-medium", "end-easy", "middle-easy", "middle-medium"]


def is_won(stones: int) -> bool:
    """Whether a set of cells holds a line of four, cell by cell."""
    has = lambda column, row: 0 <= column < 7 and 0 <= row < 6 and stones >> 7 * column + row & 1
    lines = ((1, 0), (0, 1), (1, 1), (1, -1))
    return any(
        all(has(column + i * right, row + i * up) for i in range(4))
        for column in range(7)
        for row in range(6)
        for right, up in lines
    )


@ft.cache
def plain(own: int, both: int) -> int:
    """The score by looking at every line of play to its end."""
    if is_won(own ^ both):
        return -((44 - both.bit_count()) // 2)
    if both.bit_count() == 42:
        return 0
    return -min(
        plain(own ^ both, both | both + (1 << 7 * column))
        for column in range(7)
        if not both >> 7 * column + 5 & 1
    )


@ft.cache
def games() -> tuple[list[int], ...]:
    """Games of random moves to their ends."""
    draws, played = np.random.default_rng(5), []
    for _ in range(300):
        actions: list[int] = []
        own, both = position([])
        while not is_won(own ^ both) and both.bit_count() < 42:
            actions.append(int(draws.choice([c for c in range(7) if not both >> 7 * c + 5 & 1])))
            own, both = position(actions)
        played.append(actions)
    return tuple(played)


def test_it_plays_by_the_rules_of_pgx():
    """Through whole games, and what completes a line ends the game there."""
    env = build_world("pgx/connect_four").env

    @jax.jit
    def seen(actions):
        def step(state, action):
            after, moved = env.step(state, action, key=jr.key(0))
            return after, (env.observe(state).features, moved.last, moved.reward)

        return jax.lax.scan(step, env.init(key=jr.key(0)), actions)[1]

    bits = lambda plane: sum(
        1 << 7 * int(column) + 5 - int(row) for row, column in np.argwhere(plane)
    )
    for actions in games()[:12]:
        padded = jnp.asarray(actions + [0] * (42 - len(actions)), jnp.int32)
        features, last, reward = map(np.asarray, seen(padded))
        for ply in range(len(actions)):
            own, both = position(actions[:ply])
            assert bits(features[ply, :, :, 0]) == own
            assert bits(features[ply, :, :, 1]) == own ^ both
            cell = position(actions[: ply + 1])[1] ^ both
            won = bool(int(wins(np.uint64(own), np.uint64(both))) & cell)
            assert won == (reward[ply] == 1) == is_won(own | cell)
            assert last[ply] == (ply == len(actions) - 1)


@pytest.mark.parametrize("before", [1, 2, 5, 9])
def test_its_scores_are_those_of_plain_minimax(before):
    """Of positions so many plies before the end of long games, which are not over."""
    solver, seen = Solver(8), set()  # so small that positions replace each other
    for actions in games():
        if len(actions) < 36 or len(seen) == 12:
            continue
        board = position(actions[:-before])
        seen.add(solver.score(*board))
        assert solver.score(*board) == plain(*board)
        own, both = board
        for column, score in solver.scores(*board).items():
            assert score == -plain(own ^ both, both | both + (1 << 7 * column))
    assert len(seen) > 3


@pytest.mark.parametrize("number", range(42))
def test_what_is_left_follows_from_the_score(number):
    for last in range(number + 1, 43):
        score = (44 - last) // 2
        assert left(number, score if (last - number) % 2 else -score) == last - number
    assert left(number, 0) == 42 - number


def test_the_sets_are_what_the_solver_says():
    """Of each every hundredth position, and of those with few stones one."""
    assert APP.suites is not None
    folder = APP.suites / "pgx" / "connect_four"
    assert sorted(path.stem for path in folder.glob("*.npz")) == SETS
    solver = Solver(22)
    for name in SETS:
        suite = Suite.read(folder / f"{name}.npz")
        boards = [position(actions[actions >= 0].tolist()) for actions in suite.moves]
        # Hard beginnings take longest to solve.
        assert len(set(boards)) == len(boards) == 500
        phase, difficulty = name.split("-")
        for (_, both), scores in zip(boards, suite.scores, strict=True):
            number = both.bit_count()
            ends = left(number, int(scores.max()))
            assert phase == ("begin" if number <= 14 else "middle" if number <= 28 else "end")
            assert difficulty == ("easy" if ends < 14 else "medium" if ends <= 28 else "hard")
        few = sorted(range(len(boards)), key=lambda i: -boards[i][1].bit_count())[:1]
        for i in few if phase == "begin" else range(0, 500, 100):
            known = {c: int(score) for c, score in enumerate(suite.scores[i]) if score > -128}
            assert solver.scores(*boards[i]) == known


def test_the_perfect_player_never_loses_what_it_has(zero):
    """Two of them draw or win by what the opening says, whoever begins."""
    env = build_world("pgx/connect_four").env
    player = perfect(env)
    options: dict[str, Any] = dict(players=2, games=4, max_moves=42, opening_plies=20)
    row, played = measure(env, player, player, **options, key=jr.key(3))
    assert row["unfinished"] == 0
    for opening in set(played["opening"].tolist()):
        first, second = played["score"][played["opening"] == opening]
        assert first == 1 - second
    code, _, err = zero("eval", "pgx/connect_four", "--opponent", "perfect")
    assert code == 2 and "a game; give --opening-plies 8 or more." in err


def test_uct_wins_at_once_and_parries():
    """Its visits add up. Three in a column are completed, by the opponent too."""
    player = uct(400)
    for actions, best in (([3, 0, 3, 0, 3, 6], 3), ([3, 0, 3, 0, 3], 3), ([2, 2, 3, 3], None)):
        own, both = position(actions)
        visits = np.zeros(64, np.int64)
        _uct(np.uint64(own), np.uint64(own ^ both), 400, 0, visits)
        assert visits.sum() == 400 and (visits > 0).sum() == 7
        if best is not None:
            assert np.argmax(visits) // 7 == best
            planes = [[own >> 7 * c + r & 1, (own ^ both) >> 7 * c + r & 1]
                      for r in range(5, -1, -1) for c in range(7)]  # fmt: skip
            features = np.array(planes, bool).reshape(6, 7, 2)
            assert player.choose(features, 5) == player.choose(features, 5) == best


def test_its_playouts_keep_the_rules():
    """Where a whole game is over no move is legal, and it is a loss or a draw for the player to
    move. Before its last move one cell of each column that is not full is legal."""
    for actions in games()[:40]:
        own, both = position(actions)
        over = np.uint64(own), np.uint64(own ^ both)
        assert int(_legal(*over)) == 0 and _score(*over) == (0 if is_won(own ^ both) else 0.5)
        own, both = position(actions[:-1])
        cells = int(_legal(np.uint64(own), np.uint64(own ^ both)))
        assert cells.bit_count() == sum(not both >> 7 * c + 5 & 1 for c in range(7))
        cell = both ^ position(actions)[1]
        assert cells & cell
        after = _play(np.uint64(own), np.uint64(own ^ both), cell.bit_length() - 1)
        assert tuple(map(int, after)) == (
            position(actions)[0],
            position(actions)[0] ^ position(actions)[1],
        )


def test_a_trained_player_is_judged_by_a_set(zero):
    words = "eval", "pgx/connect_four", "--suite", "end-easy", "--simulations", 0
    code, out, _ = zero(*words, "--json")
    row = json.loads(out)
    assert code == 0 and (row["suite"], row["positions"]) == ("end-easy", 500)
    assert 0.5 < row["best"] <= row["kept"] < 1 and row["step"] == pretrained().step
    code, _, err = zero(*words[:3], "end")
    assert code == 2 and err.endswith(f"--suite end is unknown; give {', '.join(SETS)} or all.\n")
    assert zero("eval", "pgx/connect_four", "--suite", "endgames")[0] == 2


def test_an_empty_table_knows_nothing_of_the_empty_board():
    """Its key is not that of an entry that was never written."""
    solver = Solver(10)
    assert not solver.ends_within(0, 0, 3) and solver.nodes > 5
