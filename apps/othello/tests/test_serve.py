"""Othello in the browser: its squares, its pass and its end."""

from zero_app import Question, Service
from zero_othello._board import Board
from zero_search import TreeSearch
from zero_train import EnvironmentModel, PlanningActor

from .helpers import BEFORE_PASS, by_discs, othello, WIPE_OUT


def test_a_game_of_othello():
    player = PlanningActor(TreeSearch(num_simulations=4), EnvironmentModel(othello(), by_discs))
    page = Board().page
    assert page is not None
    service = Service.of_search(othello(), player, page)
    names = service.about()["names"]
    assert (names[0], names[63]) == ("a1", "h8")
    start = service.answer(Question())
    assert start["side"] == 0 and sorted(start["legal"]) == ["c4", "d3", "e6", "f5"]
    assert [start["cells"][i] for i in (27, 28, 35)] == ["white", "black", "black"]
    assert service.answer(Question(tuple(BEFORE_PASS)))["legal"] == {"pass": []}
    end = service.answer(Question(tuple(WIPE_OUT)))
    assert end["over"] and end["winner"] == 0 and set(end["cells"]) == {"", "black"}
    assert end["result"] == "black wins by 64"
    read = service.read(end["text"])
    assert tuple(read["moves"]) == tuple(WIPE_OUT) and "RE[B+64]" in end["text"]
    thought = service.answer(Question(("d3",), think=True))["thought"]
    assert thought["move"] == "c3" and len(thought["moves"]) == 3
