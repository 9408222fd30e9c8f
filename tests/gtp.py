"""Lets the client that Sabaki uses play over GTP: `uv run nox -s gtp`.

The session installs the client, the npm package @sabaki/gtp. The players search and know nothing.
"""

import argparse
import pathlib
import subprocess
import sys
from typing import Any

import jax.random as jr

from zero_app import Game, serve_gtp
from zero_cli._board import Board
from zero_cli._worlds import build_world
from zero_othello._board import Board as OthelloBoard
from zero_search import TreeSearch
from zero_train import EnvironmentModel, indifferent, PlanningActor


GAMES = ("othello", "pgx/go_9x9")


def serve(name: str) -> None:
    """Is the engine."""
    world = build_world(name)
    env: Any = world.env
    player = PlanningActor(TreeSearch.alphazero(48), EnvironmentModel(env, indifferent))
    board = OthelloBoard() if name == "othello" else Board(world, pathlib.Path("play.svg"))
    serve_gtp(Game.start(env, player, board, key=jr.key(0)), "zero", "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", help="the folder that npm installed into")
    parser.add_argument("--engine", choices=GAMES, help="to be the engine of this game")
    options = parser.parse_args()
    if options.engine:
        return serve(options.engine)
    client = __file__.removesuffix("gtp.py") + "gtp_client.mjs"
    for name in GAMES:
        engine = [sys.executable, __file__, options.packages, "--engine", name]
        subprocess.run(["node", client, options.packages, name, *engine], check=True, timeout=900)


if __name__ == "__main__":
    main()
