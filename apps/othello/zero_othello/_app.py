"""What `othello` is made of, and the player that comes with it."""

import functools as ft
import importlib.metadata
import pathlib

from zero_app import (
    App,
    by_name,
    expects_accelerator,
    GAME_COMMANDS,
    ladder_page,
    load,
    player_file,
    Trained,
)

from ._config import Config, OPENING_PLIES, PRESETS


#: Of the fixed opponents those that search on the host.
SEARCHES = ("uct-200", "uct-1000", "uct-5000", "alpha-beta-4", "alpha-beta-6")

APP = App(
    name="othello",
    about="Train an AlphaZero player of Othello and play against it.",
    presets=PRESETS,
    build=by_name("zero_othello._build:build_loop"),
    evaluation=by_name("zero_othello._build:build_evaluation"),
    page=ladder_page,
    board=by_name("zero_othello._board:board"),
    episode=by_name("zero_othello._board:episode"),
    players=pathlib.Path(__file__).with_name("players"),
    commands=GAME_COMMANDS,
    preset="standard" if expects_accelerator() else "quick",
    opponents={
        name: ft.partial(by_name("zero_othello._engines:opponent"), name)
        for name in ("random", "greedy", "positional", "uct", *SEARCHES)
    },
    opening_plies=OPENING_PLIES,
    suites=pathlib.Path(__file__).with_name("suites"),
    ladders=pathlib.Path(__file__).with_name("ladders"),
    program=("zero-othello", importlib.metadata.version("zero-othello")),
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
