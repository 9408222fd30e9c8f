"""`minesweeper watch`: it plays what is measured, and what it shows is so."""

import io
import re
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from rich.console import Console
from rich.text import Text

from zero_app import load
from zero_envs import Minesweeper
from zero_minesweeper import _watch
from zero_minesweeper._agents import build_agent
from zero_minesweeper._app import APP
from zero_minesweeper._game import decision, Game, luck, reasons
from zero_minesweeper._measure import measure
from zero_minesweeper._scene import draw, parse, percent, Picture
from zero_minesweeper._table import Table
from zero_train import AbstractReflexActor

from .helpers import exact, hidden_mines, MINES, numbers, paper, SIZE, SMALL, TABLE


BOARDS = 4


def watched(agent: str, boards: int = BOARDS, delay: float = 1.0, **settings: Any) -> str:
    console, out = paper(**settings)
    _watch.Watch(agent=agent, boards=boards, delay=delay).look_on(TABLE, console)
    return out.getvalue()


def played(agent: str) -> list[Game]:
    games = [Game(SMALL, number, key=jr.key(0)) for number in range(BOARDS)]
    actor = TABLE.agent(agent)
    for game in games:
        assert game.mines is None and not game.won
        while not game.over:
            game.open(game.ask(actor).cell)
    return games


@pytest.fixture(scope="module")
def by_chance() -> list[Game]:
    return played("random")


@pytest.fixture(scope="module")
def by_reason() -> list[Game]:
    return played("tiebreak")


@pytest.fixture(scope="module")
def text() -> str:
    return watched("tiebreak")


def test_it_plays_the_boards_that_are_measured(by_chance):
    """Move by move: the same boards, the same draws, and the same account of the risks."""
    games = measure(SMALL, TABLE.agent("random"), boards=BOARDS, key=jr.key(0))[0]
    for game, mines in zip(by_chance, (hidden_mines(i, 0) for i in range(BOARDS)), strict=True):
        np.testing.assert_array_equal(game.mines, mines)
    assert [game.won for game in by_chance] == games.won.tolist()
    assert [game.moves for game in by_chance] == games.moves.tolist()
    needless = [sum(risk.needless for risk in game.risks) for game in by_chance]
    assert needless == games.needless.tolist() and sum(needless) > 0
    estimates = [game.win_estimate for game in by_chance]
    np.testing.assert_allclose(estimates, games.win_estimate, atol=1e-5)


def pictures(text: str) -> list[tuple[str, str, np.ndarray, list[str]]]:
    """What stands above and below each board that is drawn, what it shows, and all its signs."""
    found = []
    for head, lines, below in re.findall(
        r"^(board .*)\n +a +b +c +d\n((?:\d .*\n){4})((?:.+\n)*)", text, re.M
    ):
        cells = re.findall(
            r"[>(]? *(\d+%|<1%|[0-8*.FX?])\)?", re.sub(r"^\d ", "", lines, flags=re.M)
        )
        assert len(cells) == SIZE * SIZE
        shown = [int(sign) if sign.isdigit() else -1 for sign in cells]
        found.append((head, below, np.asarray(shown).reshape(SIZE, SIZE), cells))
    return found


def test_guesses_and_ends_are_written_and_their_percents_are_exact(text, by_reason):
    assert text.isascii()
    guesses = [picture for picture in pictures(text) if "the end" not in picture[0]]
    assert len(guesses) == sum(len(game.risks) for game in by_reason) > BOARDS
    for _, below, board, signs in guesses:
        truth = exact(board)
        assert signs == [
            str(shown) if shown >= 0 else percent(p)
            for shown, p in zip(board.flat, truth.flat, strict=True)
        ]
        ((cell, risk),) = re.findall(
            r"^(\w+): a guess of risk ([\d.]+)%; no cell is safer$", below, re.M
        )
        least = truth[board < 0].min()
        assert 0 < least and float(risk) / 100 == pytest.approx(least, abs=6e-4)
        assert truth.flat[parse(cell, SIZE, SIZE)[0]] == pytest.approx(least)


def test_ends_show_the_mines_and_are_counted(text):
    ends = [picture for picture in pictures(text) if "the end" in picture[0]]
    said = re.findall(r"^board (\d+) of 4: (won|lost: (\w+) was a mine); (.*)$", text, re.M)
    assert len(ends) == len(said) == BOARDS
    for number, (_, _, _, signs) in enumerate(ends):
        mines = hidden_mines(number, 0)
        assert np.isin(signs, ["*", "X"]).tolist() == mines.flatten().tolist()
        _, end, cell, account = said[number]
        risks = [float(risk) for risk in re.findall(r"\w+ ([\d.]+)%[,;]", account)]
        (worth,) = re.findall(r"win estimate ([\d.]+)%", account)
        assert float(worth) == pytest.approx(100 - sum(risks), abs=0.05 * (len(risks) + 1))
        assert ("X" in signs) == (end != "won")
        if cell:
            assert signs[parse(cell, SIZE, SIZE)[0]] == "X"
        else:
            shown = numbers(mines)
            assert [s for s in signs if s != "*"] == [str(n) for n in shown.flat if n >= 0]
    won = sum(end == "won" for _, end, _, _ in said)
    assert text.endswith(f"{won} of {BOARDS} won\n") and 0 < won < BOARDS


def test_a_needless_risk_is_said_to_be_one(by_chance):
    count = sum(risk.needless for game in by_chance for risk in game.risks)
    said = watched("random")
    needless = r": risk [\d.]+%, and (?:1 cell is|\d+ cells are) safe$"
    assert len(re.findall(needless, said, re.M)) == count
    assert "needless, because another cell was safe" in said


def test_a_terminal_dwells_on_guesses(by_reason, monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    settings = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    said = watched("tiebreak", boards=3, delay=0.5, **settings)
    games = by_reason[:3]
    expected = []
    for game in games:
        risky = {risk.cell for risk in game.risks}
        assert len(risky) == len(game.risks)
        expected += [(0.5, len(risky)), (0.1, game.moves - len(risky)), (1.0, 1)]
    for delay in (0.5, 0.1, 1.0):
        assert slept.count(delay) == sum(number for kind, number in expected if kind == delay)
    assert ";48;2;" in said and "\x1b[1A" in said
    assert said.endswith(f"{sum(game.won for game in games)} of 3 won\n")


def test_a_film_has_every_move(tmp_path):
    console, out = paper()
    save = tmp_path / "film.html"
    _watch.Watch(agent="rules", boards=2, save=save).look_on(TABLE, console)
    moves = sum(game.moves + 1 for game in played("rules")[:2])
    assert f"{moves} pictures are in {save}" in out.getvalue()


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("size", [(60, 24), (80, 24), (30, 9)])
def test_a_scene_fits_a_terminal(size, plain):
    game = Game(SMALL, 1, key=jr.key(0))
    advice = game.ask(TABLE.agent("tiebreak"))
    for moment in (advice, None):
        if moment is None:
            while not game.over:
                game.open(int(np.flatnonzero(game.board < 0)[0]))
        console, out = paper(size[0], height=size[1], force_terminal=not plain, _environ={})
        console.print(_watch._scene(("board 1 of 1", game, moment), console))
        lines = Text.from_ansi(out.getvalue()).plain.splitlines()
        assert max(map(len, lines)) <= size[0] and len(lines) <= size[1]
        assert "board 1 of 1" in out.getvalue() and "d" in lines[0]


class Peeking(AbstractReflexActor):
    """Opens a mine if it is shown one, else a cell that is none."""

    avoid: Array

    def act(self, state, obs, carry, *, key):
        seen = (state.mines[0] & (obs.features["board"][0] < 0)).reshape(-1)
        honest = (obs.features["board"][0] < 0).reshape(-1) & ~self.avoid.reshape(-1)
        return jnp.argmax(jnp.where(jnp.any(seen), seen, honest))[None], None, None


def test_agents_are_shown_no_mines():
    game = Game(SMALL, 0, key=jr.key(0))
    actor = Peeking(jnp.asarray(hidden_mines(0, 0)))
    while not game.over:
        game.open(game.ask(actor).cell)
    assert game.won


def test_what_a_search_weighed_is_shown(judge):
    """Where it searched its visits are those of all simulations, and nothing where a cell is
    known to be safe; the risk is of the exact posterior either way."""
    actor = build_agent("belief-constant", SMALL, config=TABLE.config, evaluate=judge)
    searched, known = 0, 0
    for number in range(4):
        game = Game(SMALL, number, key=jr.key(0))
        while not game.over:
            advice, truth = game.ask(actor), exact(game.board)
            np.testing.assert_allclose(game.heat, np.where(game.board < 0, truth, 0), atol=1e-6)
            lines = [line.plain.split() for line in reasons(game, advice, 99)[2:]]
            if game.safe.size:
                assert lines == [] and truth.flat[advice.cell] == 0
                known += 1
            elif lines:
                head, *rows = lines
                assert head == ["cell", "mine", "wins", "visits"]
                visits = [int(row[3]) for row in rows]
                assert (
                    sum(visits) == TABLE.config.player_simulations
                    and visits == sorted(visits)[::-1]
                )
                chosen = next(row for row in rows if parse(row[0], 4, 4) == [advice.cell])
                assert int(chosen[3]) == visits[0]
                for cell, risk, wins, _ in rows:
                    p = truth.flat[parse(cell, 4, 4)[0]]
                    assert float(risk[:-1]) / 100 == pytest.approx(p, abs=6e-4)
                    assert 0 <= float(wins[:-1]) / 100 <= 1 - p + 6e-4
                searched += 1
            game.open(advice.cell)
    assert searched >= 4 and known > 0


def test_where_the_posterior_is_not_known_agents_go_by_the_rules():
    """And nothing is made up: no percents, and no account of the luck."""
    table, unknown = Table(Minesweeper(SIZE, SIZE, MINES, max_states=1)), 0
    actor = table.agent("tiebreak")
    for number in range(5):
        game = Game(table.env, number, key=jr.key(0))
        while not game.over:
            advice = game.ask(actor)
            assert game.board.flat[advice.cell] < 0
            if np.isnan(game.heat).any():
                assert decision(game, advice).plain.endswith(": unknown risk")
                picture = Picture(game.board, game.heat)
                assert "?" in draw(picture, width=80, plain=True).plain
                assert "%" not in draw(picture, width=80, plain=False).plain
                unknown += 1
            game.open(advice.cell)
        if np.isnan(game.win_estimate):
            assert "unknown" in luck(game)[0] and "win estimate" not in "".join(luck(game))
    assert unknown > 0


@pytest.mark.slow
def test_the_player_of_a_run_is_watched_and_gives_hints(minesweeper, tiny_run, monkeypatch):
    code, out, _ = minesweeper("watch", tiny_run, "--boards", 2)
    said = "belief (trained for 4 steps) on 3 x 4 with 2 mines, seed 0"
    assert code == 0 and out.startswith(f"{said}\n") and out.endswith("of 2 won\n")
    value, header = r"^estimated probability of a win: [\d.]+%", "cell    mine     wins  visits$"
    assert re.search(f"{value}\n{header}", out, re.M)
    monkeypatch.setattr("sys.stdin", io.StringIO("hint\nquit\n"))
    code, out, _ = minesweeper("play", tiny_run, "--seed", 0)
    frames = list(_watch.episode(load(APP, tiny_run), jr.key(0)))
    assert "won" in frames[-1].caption or "lost" in frames[-1].caption
    assert all(frame.svg.startswith("<svg") for frame in frames)
    assert code == 0 and f"Hints by {said}.\n" in out and "cell    mine     wins  visits\n" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["watch", "--boards", 0], "--boards 0 was given; give 1 to 100000000."),
        (["watch", "--delay", -1], "--delay -1.0 was given; give 0 to 3600."),
        (["watch", "--agent", "cheat"], "agent 'cheat' is unknown; choose one of"),
        (["watch", "nowhere"], "nowhere holds no run"),
        (["play", "--seed", -1], "--seed -1 was given; give 0 to 4294967295."),
        (["play", "--mines", 100], "--rows 10 and --columns 10; give 0 to 99"),
    ],
)
def test_bad_input_gets_one_line(minesweeper, words, message):
    code, out, err = minesweeper(*words)
    assert code == 2 and message in err and err.count("\n") == 1 and out == ""


def test_ctrl_c_is_passed_on(monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_watch, "draw", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _watch.Watch(agent="rules", boards=1, delay=0.0).look_on(TABLE, Console())
