"""Boards in the browser: what is shown, what is advised, and that no mine is given away."""

import json
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import App, Question, Service, UsageError
from zero_app._play._service import Refusal
from zero_envs import Minesweeper
from zero_minesweeper._agents import build_agent
from zero_minesweeper._config import Config
from zero_minesweeper._serve import Serve, service
from zero_minesweeper._table import Table, TableArguments

from .helpers import exact, LAYOUTS, MINES, NUMBERS, SIZE


ENV = Minesweeper(SIZE, SIZE, MINES, pays="win", max_states=32)
SEED = 5


def _service() -> Service:
    """With a player that searches, as a run's does."""
    alone = service(Table(ENV), ENV)
    config = Config(layouts=64, player_simulations=16)
    searches = build_agent("belief-constant", ENV, config=config)
    return Service(ENV, {0: build_agent("tiebreak", ENV), 16: searches}, alone.page)


@pytest.fixture(scope="module")
def board():
    return _service()


def place(cell: int) -> str:
    return f"{'abcd'[cell % SIZE]}{cell // SIZE + 1}"


def shown(answer: dict[str, Any]) -> np.ndarray:
    return np.array([int(word) if word else -1 for word in answer["cells"]]).reshape(SIZE, SIZE)


def test_a_game_is_won_by_the_cells_of_no_risk_and_a_little_luck(board):
    about = board.about()
    assert (about["players"], about["style"], about["min_value"]) == (1, "mines", 0)
    moves: list[str] = []
    while not (answer := board.answer(Question(tuple(moves), think=True, seed=SEED)))["over"]:
        risks = exact(shown(answer)).ravel()
        said = {move["name"]: move["risk"] for move in answer["thought"]["moves"]}
        assert (
            set(said)
            == set(answer["legal"])
            == {place(int(i)) for i in np.flatnonzero(shown(answer) < 0)}
        )
        for cell, risk in enumerate(risks):
            if place(cell) in said:
                assert said[place(cell)] == pytest.approx(risk, abs=1e-4)
        best = answer["thought"]["move"]
        assert said[best] == min(said.values()) and answer["thought"]["value"] is None
        moves.append(best)
    assert answer["text"] == f"seed:{SEED} {' '.join(moves)}"
    assert answer["winner"] == (1 if "was a mine" in answer["result"] else 0)
    # At the end the mines are shown, and they explain every number.
    words = answer["cells"]
    mines = np.array(["mine" in word for word in words]).reshape(SIZE, SIZE)
    assert mines.sum() == MINES
    truth = NUMBERS[np.flatnonzero((LAYOUTS == mines).all(axis=(1, 2)))[0]].ravel()
    assert all(
        int(word) == number for word, number in zip(words, truth, strict=True) if word.isdigit()
    )
    assert board.read(answer["text"]) == {"moves": moves, "seed": SEED}


@pytest.mark.parametrize("simulations", [0, 16])
def test_no_mine_leaves_the_server_before_the_end(board, simulations):
    """With the mines of every other layout that fits, all that is answered stays the same."""
    first = next(
        place(cell)
        for cell in range(SIZE * SIZE)
        if not board.answer(Question((place(cell),), seed=SEED))["over"]
    )
    question = Question((first,), simulations, think=True, seed=SEED)
    answer = board.answer(question)
    before, seen = json.dumps(answer), shown(answer)  # of numbers alone
    fits = LAYOUTS[((NUMBERS == seen) | (seen < 0)).all(axis=(1, 2))]
    assert len(fits) > 10
    for mines in fits[:: len(fits) // 3]:
        other = _service()
        game, _ = other._after(Question((first,), seed=SEED))
        state = game._episode.state
        hidden = jnp.asarray(mines)[None]
        game._episode.state = eqx.tree_at(lambda s: s.mines, state, hidden)
        assert json.dumps(other.answer(question)) == before
        # These mines it is that the other service has: one of them ends its game.
        mine = place(int(np.flatnonzero(mines)[0]))
        assert other.answer(Question((first, mine), seed=SEED))["result"] == f"{mine} was a mine"


def test_a_mine_ends_the_game_and_is_named(board):
    lost = next(
        answer
        for cell in range(SIZE * SIZE)
        if (answer := board.answer(Question((place(cell),), think=True, seed=SEED)))["over"]
    )
    opened = lost["cells"].index("opened mine")
    assert lost["winner"] == 1 and lost["result"] == f"{place(opened)} was a mine"
    assert lost["last"] == opened and lost["cells"].count("mine") == MINES - 1
    assert lost["thought"] is None
    with pytest.raises(Refusal, match="the game was over before move 2"):
        board.answer(Question((place(opened), "a1"), seed=SEED))


def test_other_seeds_are_other_boards_and_searches_say_what_they_expect(board):
    ends = set()
    for seed in range(6):
        answers = [board.answer(Question((place(cell),), seed=seed)) for cell in (0, 5, 10)]
        ends.add(tuple(answer["over"] for answer in answers) + tuple(answers[0]["cells"]))
    assert len(ends) > 1
    thought = board.answer(Question((), 16, think=True))["thought"]
    assert 0 < thought["value"] <= 1 and sum(move["visits"] for move in thought["moves"]) == 16


def test_an_unknown_risk_is_null():
    """JSON has no NaN."""
    env = Minesweeper(6, 6, 12, pays="win", max_states=1)
    other = service(Table(env), env)
    moves = []
    for cell in range(36):
        if not other.answer(Question((*moves, f"{'abcdef'[cell % 6]}{cell // 6 + 1}"), seed=1))[
            "over"
        ]:
            moves.append(f"{'abcdef'[cell % 6]}{cell // 6 + 1}")
    thought = other.answer(Question(tuple(moves[:8]), think=True, seed=1))["thought"]
    assert {move["risk"] for move in thought["moves"]} == {None}
    json.dumps(thought, allow_nan=False)


def test_a_board_whose_beliefs_have_no_room_is_not_offered(monkeypatch):
    """And the board that was asked for is."""
    built, usual = [], _service()

    def one(table, env):
        built.append((env.rows, env.columns))
        if env.rows == 16:
            raise UsageError("belief would take 9 GB")
        return Service(env, usual._players, usual.page)

    monkeypatch.setattr("zero_minesweeper._serve.service", one)
    monkeypatch.setattr(TableArguments, "at", lambda *_: Table(ENV))
    services = Serve().services(App("any", "Any.", {}, lambda config: pytest.fail()))
    assert [x._env.num_actions for x in services] == [ENV.num_actions, 81] and len(built) == 4
