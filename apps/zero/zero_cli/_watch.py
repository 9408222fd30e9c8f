"""`zero watch`: a trained player alone, or against itself."""

import pathlib
import time

import jax.random as jr

from ._board import Board
from ._load import load
from ._play import show, Table


def watch(
    run: str, *, simulations: int | None, max_moves: int | None, delay: float, seed: int
) -> None:
    """Plays one game or episode and shows every move. Pictures are numbered files in the folder
    `watch` of the run, where there is no board for a terminal."""
    trained = load(run)
    world, config = trained.world, trained.config
    table = Table(world.env, trained.actor(trained.simulations(simulations)), key=jr.key(seed))
    board = Board.of(world)
    folder = pathlib.Path(run) / "watch"
    for number in range(config.max_moves if max_moves is None else max_moves):
        show(board, table, folder / f"{number:04}.svg")
        if table.over:
            break
        action = table.think()
        side = f"{'X' if table.first_moves else 'O'} " if world.players == 2 else ""
        print(f"{number + 1}. {side}{board.name(action)}", flush=True)
        table.move(action)
        time.sleep(delay)
    whose = " for X, who moved first" if world.players == 2 else ""
    print(f"return {table.total:g}{whose}")
