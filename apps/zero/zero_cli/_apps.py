"""The apps, and which of them a run belongs to. Each has its own configuration and commands."""

import difflib
import functools as ft
import importlib.metadata
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from zero_app import (
    App,
    app_of_player,
    by_name,
    GAME_COMMANDS,
    load,
    player_file,
    player_names,
    PRETRAINED,
    Trained,
    UsageError,
    which_player,
)
from zero_envs import known_environments

from ._agents import OWN_APPS, TRAINED
from ._config import presets


#: The playouts a move of the fixed opponents of any game.
PLAYOUTS = 20, 200, 1000, 5000

#: Any game by tree search. `zero train` gives it the presets of the environment.
APP = App(
    name="zero",
    about="Train, measure and play any game.",
    presets=presets("pgx/connect_four", "alphazero", 84),
    build=by_name("zero_cli._build:build_loop"),
    board=by_name("zero_cli._board:board_of"),
    opponents={
        "perfect": by_name("zero_cli._perfect:perfect"),
        **{
            f"uct-{n}": ft.partial(by_name("zero_cli._perfect:uct"), num_playouts=n)
            for n in PLAYOUTS
        },
    },
    episode=by_name("zero_cli._board:episode"),
    commands=GAME_COMMANDS | {"list": "zero_cli._list:List"},
    preset="quick",
    players=pathlib.Path(__file__).with_name("players"),
    suites=pathlib.Path(__file__).with_name("suites"),
    ladders=pathlib.Path(__file__).with_name("ladders"),
    operands="ENV",
    program=("zero", importlib.metadata.version("zero-games")),
)


def _installed() -> Iterator[App[Any]]:
    """The apps that packages name in their metadata. One that cannot be imported is told, since
    every command of `zero` would fail with it."""
    found = importlib.metadata.entry_points(group="zero.apps")
    for one in sorted(found, key=lambda one: one.name):
        try:
            yield one.load()
        except Exception as e:
            said = " ".join(str(e).split())[:200] or type(e).__name__
            print(f"zero: the app {one.name} ({one.value}) is left out: {said}", file=sys.stderr)


#: Every app that is installed; `zero` itself is the first.
APPS: dict[str, App[Any]] = {APP.name: APP}
for _app in _installed():
    APPS.setdefault(_app.name, _app)


#: How a player is named on the command line.
PLAYER = (
    "the folder of a run, a file of a player, or the name of an environment that has a trained "
    "player, such as pgx/connect_four"
)


def app_of(run: str) -> tuple[App[Any], str]:
    """The app of a player, and what the player is called there: the app whose configuration
    config.json of its run fits, or that its file names, or that it comes with. A game with an app
    of its own stands for the player that comes with that.

    **Raises:** [`zero_app.UsageError`][] where there is none, with what is wrong with it.
    """
    path, _ = which_player(run)
    if path.is_file() or os.path.lexists(path / "config.json"):
        return app_of_player(APPS, path), run
    if not path.exists() and (known := _app_with(run)):
        return known
    raise _no_player(run)


def _no_player(run: str) -> UsageError:
    """What is wrong with what names no player."""
    trained = ", ".join(sorted(TRAINED))
    known = known_environments()
    name, at, _ = run.rpartition("@")
    if at and name in known:
        return UsageError(
            f"{run} was given, but {name} is an environment, and only a run has earlier players; "
            f"give {name} for the trained player that comes with it, or RUN@STEP with the folder "
            "of a run."
        )
    if run in known:
        return UsageError(
            f"no trained player of {run} comes with `zero`: make one with `zero train {run}`, and "
            f"give its folder; trained players are of {trained}."
        )
    lacks = "holds no run (no config.json)"
    if os.path.exists(run) and not os.path.isdir(run):
        lacks = "is neither a folder nor a regular file"
    near = difflib.get_close_matches(run, known, 3)
    meant = f"; did you mean {' or '.join(near)}" if near else ""
    return UsageError(
        f"{run} {lacks}{meant}; give the folder of a run, a file of a "
        f"player, or the name of an environment that has a trained player: {trained}."
    )


def _app_with(env: str) -> tuple[App[Any], str] | None:
    """The app that comes with a player of an environment, and the name of that player there."""
    if env in OWN_APPS:
        return APPS[OWN_APPS[env][0]], PRETRAINED
    for app in APPS.values():
        if env in (*player_names(app), PRETRAINED):
            return app, env
    return None


def pretrained(env: str = "pgx/connect_four") -> Trained[Any]:
    """The trained player of an environment that comes with its app.

    **Raises:** [`zero_app.UsageError`][] where none comes with one.
    """
    app, name = _app_with(env) or (APP, env)
    return load(app, player_file(app, name))
