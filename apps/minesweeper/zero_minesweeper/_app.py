"""What `minesweeper` is made of, and the player that comes with it."""

import pathlib

from zero_app import App, load, player_file, Trained

from ._build import build_loop
from ._config import Config, PRESETS
from ._eval import Compare, Eval, evaluation
from ._play import Play
from ._report import page
from ._serve import Serve
from ._watch import episode, Watch


APP = App(
    name="minesweeper",
    about="Minesweeper, played without observing the mines.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    players=pathlib.Path(__file__).with_name("players"),
    commands={"eval": Eval, "compare": Compare, "watch": Watch, "play": Play, "serve": Serve},
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
