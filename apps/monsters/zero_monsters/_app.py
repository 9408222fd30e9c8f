"""What `monsters` is made of, and the player that comes with it."""

import pathlib

from zero_app import App, by_name, CommandsByName, load, player_file, Trained

from ._config import Config, PRESETS
from ._report import page


APP = App(
    name="monsters",
    about="Planning where the world is random.",
    presets=PRESETS,
    build=by_name("zero_monsters._build:build_loop"),
    evaluation=by_name("zero_monsters._eval:evaluation"),
    page=page,
    episode=by_name("zero_monsters._watch:episode"),
    players=pathlib.Path(__file__).with_name("players"),
    commands=CommandsByName(
        plan="zero_monsters._eval:Plan",
        eval="zero_monsters._eval:Eval",
        watch="zero_monsters._watch:Watch",
    ),
    preset="default",
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
