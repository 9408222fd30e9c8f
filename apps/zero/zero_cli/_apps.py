"""The apps, and which of them a run belongs to. Each has its own configuration and commands."""

import contextlib
import pathlib
from typing import Any

import zero_minesweeper.__main__ as minesweeper
import zero_monsters.__main__ as monsters
import zero_othello.__main__ as othello
import zero_spo.__main__ as spo
from zero_train import Loop
from zero_train.app import App, Evaluate, load_config, network_alone, RunFiles, UsageError

from ._build import build_loop
from ._config import Config, presets
from ._eval import Eval
from ._list import List
from ._play import Play
from ._serve import Serve
from ._watch import episode, Watch
from ._worlds import build_world


def _evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """The network without a search: against random moves, or alone."""
    players = build_world(config.env).players
    limits = {"games": config.games, "max_moves": config.max_moves}
    return network_alone(config, loop, files, players=players, **limits)


#: Any game by tree search. `zero train` gives it the presets of the environment.
APP = App(
    name="zero",
    about="Train, measure and play any game.",
    presets=presets("pgx/connect_four", "alphazero", 84),
    build=build_loop,
    evaluation=_evaluation,
    episode=episode,
    commands={
        "eval": Eval,
        "play": Play,
        "serve": Serve,
        "watch": Watch,
        "list": List,
    },
    preset="quick",
    operands="ENV",
)

APPS: dict[str, App[Any]] = {
    app.name: app for app in (APP, spo.APP, othello.APP, monsters.APP, minesweeper.APP)
}


def app_of(run: str) -> App[Any]:
    """The app that made a run: the one whose configuration config.json fits.

    **Raises:** [`zero_train.app.UsageError`][] where the folder has no run of any.
    """
    for app in APPS.values():
        with contextlib.suppress(UsageError):
            load_config(app.config, run, app.name)
            return app
    path = pathlib.Path(run) / "config.json"
    if path.is_file():
        raise UsageError(f"{path} is the configuration of no app; give the folder of a run.")
    raise UsageError(f"{run} holds no run (no config.json); give the folder of a run.")
