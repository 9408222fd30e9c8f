"""The exact posterior of Minesweeper."""

from ._posterior import (
    check_max_states as check_max_states,
    list_mines as list_mines,
    mine_posterior as mine_posterior,
    MinePosterior as MinePosterior,
    sample_mines as sample_mines,
)
