"""The exact posterior of Minesweeper."""

from ._posterior import (
    mine_posterior as mine_posterior,
    MinePosterior as MinePosterior,
    sample_mines as sample_mines,
)
