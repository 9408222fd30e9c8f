"""What `othello` is made of, and the player that comes with it."""

import importlib.metadata
import pathlib

from zero_app import (
    App,
    elo_ladder,
    Evaluate,
    expects_accelerator,
    GAME_COMMANDS,
    game_frames,
    ladder_page,
    load,
    player_file,
    RunFiles,
    Trained,
)
from zero_train import Loop

from ._board import Board
from ._build import build_loop
from ._config import Config, LONGEST_GAME, PRESETS
from ._engines import OPPONENTS


#: The number of uniformly random plies at the start of a game. Each opening is played with both
#: colours.
OPENING_PLIES = 6


def _evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    return elo_ladder(
        config,
        loop,
        files,
        baselines={name: OPPONENTS[name](loop.env) for name in ("random", "positional")},
        games=config.ladder_games,
        simulations=config.ladder_simulations,
        max_moves=LONGEST_GAME,
        opening_plies=OPENING_PLIES,
    )


APP = App(
    name="othello",
    about="Train an AlphaZero player of Othello and play against it.",
    presets=PRESETS,
    build=build_loop,
    evaluation=_evaluation,
    page=ladder_page,
    board=lambda trained, picture: Board(),
    episode=lambda trained, key: game_frames(trained, Board(), key),
    players=pathlib.Path(__file__).with_name("players"),
    commands=GAME_COMMANDS,
    preset="standard" if expects_accelerator() else "quick",
    opponents=OPPONENTS,
    opening_plies=OPENING_PLIES,
    program=("zero-othello", importlib.metadata.version("zero-othello")),
)


def pretrained() -> Trained[Config]:
    """The trained player that comes with this package."""
    return load(APP, player_file(APP))
