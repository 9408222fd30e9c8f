"""The tutorials of the apps: their programs run the trained players and print what they say."""

import pytest

import zero_minesweeper
import zero_monsters
import zero_othello
import zero_spo

from . import workspace


@pytest.mark.parametrize(
    "app",
    [zero_othello, zero_monsters, zero_spo, pytest.param(zero_minesweeper, marks=pytest.mark.slow)],
    ids=lambda app: app.__name__,
)
def test_the_program_of_a_tutorial(app):
    page = app.__name__.replace("zero_", "tutorials/")
    _, printed, said = workspace.run_page(page)
    assert said and printed == said
