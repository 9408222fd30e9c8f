"""Othello in the browser: its squares, its pass and its end."""

from zero_othello._build import build_loop
from zero_othello._config import PRESETS
from zero_othello._serve import Serve
from zero_search import TreeSearch
from zero_train import EnvironmentModel, PlanningActor
from zero_train.app import Question, Service, Trained

from .helpers import BEFORE_PASS, by_discs, othello, WIPE_OUT


def test_a_game_of_othello():
    config = PRESETS["tiny"]
    player = PlanningActor(TreeSearch(num_simulations=4), EnvironmentModel(othello(), by_discs))
    trained = Trained(config, build_loop(config), player, 0)
    service = Service(othello(), player, Serve("run").page(trained))
    places = service.about()["places"]
    assert places["a1"] == [0] and places["h8"] == [63] and places["pass"] == []
    start = service.answer(Question())
    assert start["side"] == 0 and sorted(start["legal"]) == ["c4", "d3", "e6", "f5"]
    assert [start["cells"][i] for i in (27, 28, 35, 36)] == [2, 1, 1, 2]
    assert service.answer(Question(tuple(BEFORE_PASS)))["legal"] == ["pass"]
    end = service.answer(Question(tuple(WIPE_OUT)))
    assert end["over"] and end["winner"] == 0 and set(end["cells"]) == {0, 1}
    thought = service.answer(Question(("d3",), think=True))["thought"]
    assert thought["move"] == "c3" and len(thought["moves"]) == 3
