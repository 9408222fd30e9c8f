"""Which app a run belongs to. Each has its own configuration and commands."""

import contextlib
import importlib
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
    kind = importlib.import_module("zero_cli._config").Config
    load_config(kind, run, "zero")  # Says what is wrong.
    raise AssertionError
