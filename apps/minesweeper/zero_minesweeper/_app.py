"""What `minesweeper` is made of, and the player that comes with it."""

import pathlib

from zero_app import App, by_name, CommandsByName, load, player_file, Trained

from ._config import Config, PRESETS
from ._report import page


APP = App(
    name="minesweeper",
    about="Minesweeper, played without observing the mines.",
    presets=PRESETS,
    build=by_name("zero_minesweeper._build:build_loop"),
    evaluation=by_name("zero_minesweeper._eval:evaluation"),
    page=page,
    episode=by_name("zero_minesweeper._watch:episode"),
    players=pathlib.Path(__file__).with_name("players"),
    commands=CommandsByName(
        eval="zero_minesweeper._eval:Eval",
        compare="zero_minesweeper._eval:Compare",
        watch="zero_minesweeper._watch:Watch",
        play="zero_minesweeper._play:Play",
        serve="zero_minesweeper._serve:Serve",
    ),
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
