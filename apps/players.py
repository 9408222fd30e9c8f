"""Makes the trained players that come with the apps: `uv run python apps/players.py NAME RUN`.

NAME is a line of the table below, and RUN the folder of a run of it: the table has the command that
trains it, `uv run zero train ... --out runs/NAME` from a clean checkout. The player is rounded to
16 bits and written into the source of its app, with its configuration, the command and the commit
of its run, and its strength: what each of the commands of `eval` prints about it. What they print
of the run itself, without rounding, is kept beside it.
"""

import contextlib
import io
import json
import shlex
import sys
from typing import Any

from zero_app import App, errors_of, load, run, save_player, start_jax, UsageError
from zero_cli._apps import APPS


#: By name: the app, its player, the command of `zero` that trains it, and the flags of `eval`.
PLAYERS: dict[str, tuple[str, str, str, list[str]]] = {
    "othello": (
        "othello",
        "pretrained",
        "train othello --preset night --no-lines --envs 128 --updates 4 --batch 512 --blocks 5 "
        "--channels 64 --simulations 16 --considered 8 --capacity 512 --steps 3500 "
        "--evaluate-every 250",
        ["--opponent positional --games 400 --simulations 0", "--opponent uct --games 40"],
    ),
    "connect_four": (
        "zero",
        "pgx/connect_four",
        "train pgx/connect_four --preset night",
        ["--games 400 --simulations 0"],
    ),
    "minesweeper": ("minesweeper", "pretrained", "train minesweeper", ["--boards 200"]),
    "monsters": ("monsters", "pretrained", "train monsters --seed 1", ["--rollouts 500"]),
    "cartpole": (
        "spo",
        "cartpole",
        "train cartpole --steps 10240 --evaluate-every 20",
        ["--episodes 128"],
    ),
    "pendulum": ("spo", "pendulum", "train pendulum", ["--episodes 128"]),
}


def measured(app: App[Any], player: str, flags: str) -> dict[str, Any]:
    """What `eval --json` prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run(app, ["eval", player, *shlex.split(flags), "--json"])
    return json.loads(said.getvalue())


def make(name: str, folder: str) -> None:
    """Writes the player of a run into the source of its app."""
    if name not in PLAYERS:
        raise UsageError(f"no player is called {name}; give one of {', '.join(PLAYERS)}.")
    command, player, _, evals = PLAYERS[name]
    app = APPS[command]
    assert app.players is not None
    path = app.players / f"{player}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    trained = load(app, folder)
    save_player(path, app, trained, half=True)
    strength = []
    for flags in evals:
        result, before = measured(app, str(path), flags), measured(app, folder, flags)
        strength.append(
            {"command": f"{command} eval {player} {flags}", "result": result, "before": before}
        )
        print(json.dumps(strength[-1], indent=1), flush=True)
    save_player(path, app, trained, half=True, strength=strength)
    print(f"{path}: {path.stat().st_size:,} bytes, by {trained.origin}")


if __name__ == "__main__":
    with errors_of("players.py"):
        if len(sys.argv) != 3:
            raise UsageError(f"give NAME RUN; NAME is one of {', '.join(PLAYERS)}.")
        start_jax()
        make(*sys.argv[1:])
