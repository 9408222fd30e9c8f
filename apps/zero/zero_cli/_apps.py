"""Which app a run belongs to. Each has its own configuration and commands."""

import contextlib
import importlib
import pathlib
from typing import Any

from zero_train.app import Command, load_config, UsageError


#: Their modules, by the name of their command.
APPS = {
    "zero": "zero_cli",
    "spo": "zero_spo",
    "othello": "zero_othello",
    "monsters": "zero_monsters",
    "minesweeper": "zero_minesweeper",
}


def commands(app: str) -> dict[str, Command]:
    """The commands of an app by name."""
    return importlib.import_module(f"{APPS[app]}.__main__").COMMANDS


def app_of(run: str) -> str:
    """The app that made a run: the one whose configuration config.json fits.

    **Raises:** [`zero_train.app.UsageError`][] where the folder has no run of any.
    """
    for app, module in APPS.items():
        kind: Any = importlib.import_module(f"{module}._config").Config
        with contextlib.suppress(UsageError):
            load_config(kind, run, app)
            return app
    path = pathlib.Path(run) / "config.json"
    if path.is_file():
        raise UsageError(f"{path} is the configuration of no app; give the folder of a run.")
    raise UsageError(f"{run} holds no run (no config.json); give the folder of a run.")
