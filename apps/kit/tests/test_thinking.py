"""A search in parts: its time by a clock that the tests move, and the tree that it keeps."""

import dataclasses
import functools as ft
import io
import random
import time

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from zero_app import Game, Page, Question, Session
from zero_app._play._clock import Clock
from zero_app._play._gtp import GtpEngine, serve_lines
from zero_app._play._gtp_words import Analysis
from zero_app._play._service import MOST, Service
from zero_app._play._thinking import Thinker
from zero_app._play._watch_game import _moves
from zero_envs import PgxEnvironment
from zero_search import LowerBound, TreeSearch
from zero_train import EnvironmentModel, PlanningActor

from .noughts import prefers_low_cells, WON
from .test_stones import Stones


OWN = 48
ENV = PgxEnvironment("tic_tac_toe")
MODEL = EnvironmentModel(ENV, prefers_low_cells)
PLAYER = PlanningActor(TreeSearch.alphazero(OWN, reuse=True), MODEL)
MINUTE = Clock(60.0, 1, 60.0, 1)


@pytest.fixture(scope="module")
def start() -> Game:
    return Game.start(ENV, PLAYER, Stones(), key=jr.key(0))


def after(start: Game, *moves: str) -> Game:
    for move in moves:
        start = start.play(start.board.action(move))
    return start


class Time:
    """Time that passes while a part is searched, and at no other moment."""

    def __init__(self, monkeypatch, seconds=lambda: 1.0):
        self.now, self.parts = 0.0, 0
        search = Game.searched

        def searched(game, *args):
            self.now, self.parts = self.now + seconds(), self.parts + 1
            return search(game, *args)

        monkeypatch.setattr(Game, "searched", searched)

    def thinker(self, **options) -> Thinker:
        return Thinker(PLAYER, now=lambda: self.now, **options)


def undecided(monkeypatch) -> None:
    monkeypatch.setattr(Thinker, "_decided", lambda *args: False)


def test_parts_add_up_to_the_search_of_the_player(start, monkeypatch):
    undecided(monkeypatch)
    clock = Time(monkeypatch)
    plan = clock.thinker().thought(start).plan
    assert clock.parts == 3 and plan.visits.sum() == OWN
    whole, _, _ = start.searched(PLAYER)
    np.testing.assert_array_equal(plan.visits, whole.visits)
    np.testing.assert_allclose(plan.qvalues, whole.qvalues, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_share_is_overstepped_where_a_part_takes_at_most_twice_as_long(start, monkeypatch, seed):
    undecided(monkeypatch)
    draws = random.Random(seed)
    clock = Time(monkeypatch, lambda: draws.uniform(0.5, 1.0))
    clock.thinker().thought(start, MINUTE)
    assert MINUTE.share() - 3.0 < clock.now <= MINUTE.share() == 54.0


def test_a_first_part_is_made_without_time_and_no_second_one(start, monkeypatch):
    clock = Time(monkeypatch)
    thinker = clock.thinker()
    assert thinker.thought(start, Clock(0.0)).plan.visits.sum() == 16 and clock.parts == 1
    # What is known needs none.
    thinker.thought(start, Clock(0.0))
    assert clock.parts == 1


def test_simulations_by_the_clock_are_limited_where_it_is_said(start, monkeypatch):
    undecided(monkeypatch)
    clock = Time(monkeypatch)
    assert clock.thinker(most=80).thought(start, MINUTE).plan.visits.sum() == 80
    assert clock.thinker(most=80).thought(start).plan.visits.sum() == OWN


def test_a_search_ends_once_its_move_is_certain(start, monkeypatch):
    clock = Time(monkeypatch)
    game = after(start, *WON[:4])  # X wins at once
    thinker = clock.thinker()
    found = thinker.thought(game, MINUTE).plan
    assert 1 < clock.parts < 40
    # So it is: with all the simulations for which there was time the move is the same.
    undecided(monkeypatch)
    goes_on = clock.thinker().thought(game, MINUTE).plan
    assert goes_on.visits.sum() > found.visits.sum() and goes_on.action == found.action


def test_the_tree_is_kept_along_the_moves_and_no_other(start, monkeypatch):
    clock = Time(monkeypatch)
    thinker = clock.thinker()
    plan = thinker.thought(start).plan
    first = start.play(int(plan.action))
    reply = first.play(int(first.searched(PLAYER)[0].action))
    clock.parts = 0
    kept, _ = next(thinker.grow(first))
    assert kept.stats["reused"] == plan.visits[plan.action] - 1 > 0
    assert next(thinker.grow(reply))[0].stats["reused"] > 0 and clock.parts == 2
    # The same position again needs no search, one that was left a new one.
    assert next(thinker.grow(reply))[0].stats["reused"] > 0 and clock.parts == 2
    assert next(thinker.grow(first))[0].stats["reused"] == 0 and clock.parts == 3
    assert next(thinker.grow(after(start, "c3")))[0].stats["reused"] == 0


@pytest.mark.parametrize("simulations, leaves", [(1, 1), (17, 1), (100, 1), (80, 5), (1000, 8)])
def test_parts_are_as_many_simulations_as_were_asked_for_or_a_few_more(simulations, leaves):
    planner = TreeSearch.alphazero(simulations, num_leaves=leaves)
    thinker = Thinker(PlanningActor(planner, MODEL))
    part = thinker._part
    assert part % leaves == 0 and part <= 16 * leaves
    assert simulations <= -(-simulations // part) * part <= 1.1 * simulations
    assert simulations % part == 0 or simulations in (17, 1000)


@pytest.mark.parametrize("simulations, made", [(17, 18), (20, 20)])
def test_a_player_without_a_clock_has_its_simulations(start, monkeypatch, simulations, made):
    clock = Time(monkeypatch)
    actor = PlanningActor(TreeSearch.alphazero(simulations, readout=LowerBound()), MODEL)
    thinker = Thinker(actor, now=lambda: clock.now)
    assert thinker.thought(start).plan.visits.sum() == made and clock.parts == 2


def test_a_search_ends_once_the_position_is_proven(start, monkeypatch):
    """What is most visited may still be proven to be worse, so visits alone decide nothing."""
    game = after(start, *WON[:4])  # X wins at once
    clock = Time(monkeypatch)
    planner = TreeSearch.alphazero(OWN, max_return=1.0)
    thinker = Thinker(PlanningActor(planner, MODEL), now=lambda: clock.now)
    plan = thinker.thought(game, MINUTE).plan
    assert plan.stats["proven"] and clock.parts == 1
    assert game.play(int(plan.action)).over
    plan.stats["proven"] = jnp.asarray(False)
    assert not thinker._decided(game, plan, more=0)


def test_only_a_player_of_the_most_visited_move_ends_once_that_is_certain(start, monkeypatch):
    clock = Time(monkeypatch)
    game = after(start, *WON[:4])  # X wins at once
    sure = TreeSearch.alphazero(OWN, readout=LowerBound())
    thinkers = [Thinker(x, now=lambda: clock.now) for x in (PLAYER, PlanningActor(sure, MODEL))]
    done = [int(thinker.thought(game).plan.visits.sum()) for thinker in thinkers]
    assert done[0] < done[1] == OWN
    # Both play a move of no choice after a part.
    alone, clock.parts = after(start, *"a1 b1 c1 a2 c2 b2 a3 c3".split()), 0
    for thinker in thinkers:
        thinker.thought(alone, MINUTE)
    assert clock.parts == len(thinkers)


def test_an_analysis_begins_with_the_move_that_is_played(start):
    """Which need not be the most visited one."""
    plan = start.plan
    for action in start.legal[:3]:
        played = eqx.tree_at(lambda p: p.action, plan, np.int32(action))
        line = Analysis("lz").line(start, played, None)
        assert line.split()[2] == start.name(action).upper() and line.count(" order 0 ") == 1


def test_a_halving_is_a_whole_plan(start, monkeypatch):
    clock = Time(monkeypatch)
    gumbel = PlanningActor(TreeSearch.gumbel(24, gumbel_scale=0.0), MODEL)
    assert Thinker(gumbel, now=lambda: clock.now).thought(start).plan.visits.sum() == 24
    assert clock.parts == 1


def test_an_engine_ponders_in_the_time_of_the_other_side(start, monkeypatch):
    pending = iter([False, False, True] + [False] * 99)
    thinker = Thinker(PLAYER)
    engine = GtpEngine(start, "stones", "1", pending=lambda: next(pending), thinker=thinker)
    parts = Time(monkeypatch)
    engine.ponder()
    assert parts.parts == 0  # before its first move
    assert "".join(engine.respond("play b c3")) == "=\n\n"
    (said,) = engine.respond("genmove w")
    own, parts.parts = parts.parts, 0
    engine.ponder()
    assert own > 0 and parts.parts == 3
    reply = "a1" if said != "= A1\n\n" else "b1"
    assert "".join(engine.respond(f"play b {reply}")) == "=\n\n"
    assert next(thinker.grow(engine._games[-1]))[0].stats["reused"] > 0
    engine.ponder()
    assert parts.parts == 4  # it is its own turn


def test_an_engine_thinks_by_the_clock_of_the_controller_or_its_own(start, monkeypatch):
    seen = []
    monkeypatch.setattr(
        Thinker,
        "thought",
        lambda self, game, clock: seen.append(clock) or dataclasses.replace(game, found=(own, [])),
    )
    own, usual = start.plan, Clock(5.0, 1, 5.0, 1)
    out = io.StringIO()
    lines = [
        "reg_genmove b",
        *("time_settings 0 0 0", "time_left b 0 0", "reg_genmove b"),  # which says no limit, too
        *("time_settings 0 1 0", "reg_genmove b"),
        *("kgs-time_settings none", "reg_genmove b"),
        *("time_settings 300 0 0", "reg_genmove b"),
        *("time_left b 40 0", "reg_genmove b"),
    ]
    say = ft.partial(print, end="", file=out)
    for clock in (usual, None):
        serve_lines(start, "stones", "1", iter(lines), say, clock=clock, thinker=Thinker(PLAYER))
    assert seen == [usual] * 4 + [Clock(300.0), Clock(40.0)] + [None] * 4 + [
        Clock(300.0),
        Clock(40.0),
    ]


def test_a_new_game_begins_with_the_clocks_of_the_controller(start):
    engine = GtpEngine(start, "stones", "1", clock=MINUTE)

    def clock(*lines: str) -> Clock | None:
        for line in lines:
            assert "".join(engine.respond(line)).startswith("=")
        return engine._clocks["black"]

    assert clock("time_settings 15 0 0", "genmove b") != Clock(15.0)
    assert engine._own == "black"
    assert clock("clear_board") == Clock(15.0) and engine._own is None
    # What is left of another clock has nothing to do with the engine's own.
    assert clock("time_settings 0 0 0", "time_left b 30 5") == Clock(30.0, 5)
    assert clock("clear_board") == MINUTE


def test_engines_ponder_only_where_they_are_told_to(start, monkeypatch):
    pondered = []
    monkeypatch.setattr(GtpEngine, "ponder", lambda engine: pondered.append(engine))
    for ponder in (False, True):
        lines = iter(["name", "genmove b", "quit"])
        serve_lines(start, "stones", "1", lines, lambda said: None, ponder=ponder)
        assert len(pondered) == 2 * ponder


def test_a_person_is_answered_by_the_clock_and_pondered_about(start):
    typed, out, pondered = iter(["c3", "why", "quit"]), io.StringIO(), []

    def read(prompt: str) -> str:
        line, thinker = next(typed), session._thinker
        assert thinker is not None
        for _ in range(3000):  # until the thoughts in the person's time have begun
            if thinker._found is not None and thinker._actions == session.game.actions:
                pondered.append(line)
                break
            time.sleep(0.01)
        return line

    console = Console(file=out, width=80)
    session = Session(start, console, read=read, seconds=0.1, ponder=True)
    session.run()
    said, replied = out.getvalue(), session._replied
    assert pondered == ["c3", "why", "quit"]
    assert replied is not None and replied.found is not None and replied in session._games
    assert "Compiling the search ..." in said and f" {replied.plan.visits.max():.0f} |" in said


def test_a_page_may_offer_a_search_by_the_clock(start):
    page = Page("Stones", Stones(), shape=(3, 3))
    service = Service.of_search(ENV, PLAYER, page, 0.05)
    about = service.about()
    assert about["strengths"][-1] == MOST and about["seconds"] == 0.05
    for moves in ((), ("c3",)):
        thought = service.answer(Question(moves, MOST, think=True))["thought"]
        assert thought["line"][0] == thought["move"] and thought["score"] is None
        assert sum(move["visits"] for move in thought["moves"]) >= 16
    # The first question may be about the end of a game.
    last = Service.of_search(ENV, PLAYER, page, 0.05).answer(
        Question(tuple(WON[:4]), MOST, think=True)
    )
    assert last["thought"]["move"] == WON[4]
    assert Service.of_search(ENV, PLAYER, page).about()["seconds"] is None


def test_a_player_is_watched_without_a_solver():
    """Which `play` has: here it takes the worst move for the best one."""
    board = Stones()
    board.solve = lambda game: {action: action for action in game.legal}
    game = Game.start(ENV, PLAYER, board, key=jr.key(0))
    _, moved = _moves(ENV, game, 1)
    assert moved.game is not None
    assert moved.game.action == int(game.own.action) != int(game.plan.action)
