"""What `othello` is made of, and the player that comes with it."""

import pathlib

from zero_app import App, expects_accelerator, load, player_file, Trained

from ._build import build_loop
from ._commands import episode, Gtp, Play, Serve, Watch
from ._config import Config, PRESETS
from ._engines import OPPONENTS
from ._ladder import evaluation, OPENING_PLIES
from ._report import page


APP = App(
    name="othello",
    about="Train an AlphaZero player of Othello and play against it.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    players=pathlib.Path(__file__).with_name("players"),
    commands={"play": Play, "serve": Serve, "watch": Watch, "gtp": Gtp},
    preset="standard" if expects_accelerator() else "quick",
    opponents=OPPONENTS,
    opening_plies=OPENING_PLIES,
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
