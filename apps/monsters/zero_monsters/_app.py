"""What `monsters` is made of, and the player that comes with it."""

import pathlib

from zero_app import App, load, player_file, Trained

from ._build import build_loop
from ._config import Config, PRESETS
from ._eval import Eval, evaluation, Plan
from ._report import page
from ._watch import episode, Watch


APP = App(
    name="monsters",
    about="Planning where the world is random.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    players=pathlib.Path(__file__).with_name("players"),
    commands={"plan": Plan, "eval": Eval, "watch": Watch},
    preset="default",
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
