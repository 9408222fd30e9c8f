"""How many minutes of training pass until a player is above fixed bars.

Every seed is trained by the command in a process of its own, on so many cores and for so many
minutes at the most, in which the run keeps the players that it evaluated. Then they are measured
by `eval` against the fixed ladder and in the suites. For each bar the first player that passes it
is found by bisection, as if every player were stronger than those before it. A match has a quarter
of the games, and all of them where the 95 % interval of the quarter holds the bar. The minutes of a
bar are those from the start of the command, compiling and evaluations included, to when that player
was kept. A JSON line a seed, which `benchmarks/leaderboard.jsonl` may take.
"""

import argparse
import bisect
import contextlib
import datetime
import functools
import importlib.util
import io
import itertools
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from zero_app import load, run, start_jax
from zero_cli._apps import app_of


#: Flags of `eval`, the figure that counts, and the bar: the least, or of a loss the most.
Bar = tuple[str, str, float]


@functools.cache
def measured(player: str, flags: str, games: int) -> dict[str, float]:
    """What `eval --json` prints."""
    said = io.StringIO()
    app, name = app_of(player)
    number = [] if "--suite" in flags else ["--games", str(games)]  # a suite has all its positions
    with contextlib.redirect_stdout(said):
        run(app, ["eval", name, *shlex.split(flags), *number, "--seed", "1", "--json"])
    return json.loads(said.getvalue())


def trained(words: Sequence[str]) -> float:
    """Trains by `zero`, and returns when it began."""
    began = time.time()
    done = subprocess.run([sys.executable, "-m", "zero_cli", *words], stdout=sys.stderr)
    if done.returncode:  # it has said why
        raise SystemExit(done.returncode)
    return began


def hardware(cores: int) -> str:
    """The cores that were used."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{cores} core{'s' * (cores > 1)} of {name}"


def speedrun(game: str, every: Mapping[str, tuple[float, Sequence[Bar]]], doc: str | None) -> None:
    """The program of a game.

    **Arguments:**

    - `every`: by name the minutes that there are, and the bars.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bars", choices=[*every])
    parser.add_argument("--player", default="zero", help="what its lines are called")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--games", type=int, default=400, help="of a match, at the most")
    parser.add_argument("--out", default=f"runs/speedrun-{game.rpartition('/')[2]}")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    given, flags = parser.parse_args(words[:end]), words[end + 1 :]
    minutes, bars = every[given.bars]
    for flag in ("--seed", "--max-minutes", "--out", "--resume"):
        if any(word.partition("=")[0] == flag for word in flags):
            parser.error(f"{flag} is set for each seed; leave it out after --")
    if given.games < 2 or given.games % 2:
        parser.error(f"--games {given.games} was given; give an even number, 2 or more")
    # Every process that is started from now on has these cores, and so has JAX here.
    ours = sorted(os.sched_getaffinity(0))
    if not 1 <= given.cores <= len(ours):
        parser.error(f"--cores {given.cores} was given, and there are {len(ours)}")
    os.sched_setaffinity(0, ours[: given.cores])
    if game == "othello" and importlib.util.find_spec("numba") is None:
        parser.error("its opponents need numba; begin the command with `uv run --extra judges`")
    start_jax()
    for seed in given.seeds:
        out = pathlib.Path(f"{given.out}-{seed}")
        words = ["train", game, "--seed", str(seed), "--max-minutes", str(minutes)]
        words += ["--out", str(out), *flags]
        began = trained(words)
        row = {
            "player": given.player,
            "game": game,
            "level": given.bars,
            "seed": seed,
            "bars": passed(out, began, bars, given.games),
            "commit": load(*app_of(str(out))).origin.get("commit"),
            "date": str(datetime.date.today()),
            "command": shlex.join(["zero", *words]),
            "hardware": hardware(given.cores),
        }
        print(json.dumps(row), flush=True)


def passed(
    out: pathlib.Path, began: float, bars: Sequence[Bar], games: int
) -> list[dict[str, Any]]:
    """For each bar its words, the figure of the first player of a run that passes it, and the
    step and minutes of that player; of a bar that none passes the figure of the last player."""
    kept = sorted(x for x in out.glob("parameters/*") if x.name.isdecimal())
    if not kept:
        raise SystemExit(f"{out} has kept no player; give more minutes")

    def row(flags: str, figure: str, bar: float) -> dict[str, Any]:
        sign = -1 if figure == "loss_mean" else 1

        def value(path: pathlib.Path) -> float:
            player = f"{out}@{int(path.name)}"
            if "--suite" not in flags:
                few = measured(player, flags, max(2, games // 8 * 2))
                if not few[f"{figure}_low"] <= bar <= few[f"{figure}_high"]:
                    return few[figure]
            return measured(player, flags, games)[figure]

        place = bisect.bisect_left(kept, True, key=lambda path: sign * (value(path) - bar) >= 0)
        missed = place == len(kept)
        player = kept[-1 if missed else place]
        minutes = None if missed else round((player.stat().st_mtime - began) / 60, 1)
        about = {"flags": flags, "figure": figure, "bar": bar, "value": value(player)}
        return about | {"step": int(player.name), "minutes": minutes}

    return list(itertools.starmap(row, bars))
