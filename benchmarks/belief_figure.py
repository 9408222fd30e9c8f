"""Return and decisions a second of planners over beliefs, by simulations, in one figure.

    taskset -c 0 uv run --extra judges python benchmarks/belief_figure.py --out runs/planners.jsonl

Runs `belief_worlds.py` and `belief_pomcp.py`, adds their JSON lines to the file, and draws those
that are there: what was measured before is not measured again.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from typing import Any

import matplotlib
from matplotlib.figure import Figure


HERE = pathlib.Path(__file__).parent
SIMULATIONS = (30, 100, 300, 1000, 3000)
#: The world, the planner, its most simulations, and how it is measured: 256 beliefs at once, but
#: POMCP's one.
ROWS = (
    (
        "RockSample (7,8)",
        "zero, MDP leaves",
        3000,
        "belief_worlds.py --leaves mdp --c 10 --runs 512 --batch 256 --steps 60 --seed 1",
    ),
    ("RockSample (7,8)", "POMCP, one thread", 3000, "belief_pomcp.py --runs 100 --steps 60"),
    (
        "LightDark",
        "zero, blind leaves",
        1000,
        "belief_worlds.py --world lightdark --leaves blind --c 5 --max-depth 20 --runs 512 "
        "--batch 256 --steps 40 --seed 1",
    ),
    (
        "LightDark",
        "the same, 200 particles",
        300,
        "belief_worlds.py --world lightdark --leaves blind --c 5 --max-depth 20 --runs 512 "
        "--batch 256 --steps 40 --seed 1 --particles 200",
    ),
)


def measure(out: pathlib.Path) -> list[dict[str, Any]]:
    """The JSON lines of all rows, in the file's order, without those of other commands."""
    lines = [json.loads(x) for x in out.read_text().splitlines()] if out.exists() else []
    known = {(x["of"], x["simulations"]) for x in lines}
    for _, _, most, command in ROWS:
        for simulations in SIMULATIONS:
            if simulations > most or (command, simulations) in known:
                continue
            script, *flags = command.split()
            call = [sys.executable, str(HERE / script), *flags, "--simulations", str(simulations)]
            found = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
            line = json.loads(found.stdout.splitlines()[-1])
            line |= {"of": command, "simulations": simulations}
            lines.append(line)
            with out.open("a") as file:
                print(json.dumps(line), file=file)
            print(json.dumps(line), flush=True)
    names = {command: {"where": world, "planner": planner} for world, planner, _, command in ROWS}
    return [line | names[line["of"]] for line in lines if line["of"] in names]


def draw(lines: list[dict[str, Any]], to: pathlib.Path) -> None:
    """Above the returns with their standard errors, below the decisions a second, by world."""
    worlds = list(dict.fromkeys(x["where"] for x in lines))
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, len(worlds), sharex=True, squeeze=False)
    for column, world in enumerate(worlds):
        above, below = panels[:, column]
        for planner in dict.fromkeys(x["planner"] for x in lines if x["where"] == world):
            those = [x for x in lines if (x["where"], x["planner"]) == (world, planner)]
            those.sort(key=lambda x: x["simulations"])
            column_of = lambda name, those=those: [x[name] for x in those]
            at = column_of("simulations")
            above.errorbar(at, column_of("mean"), column_of("error"), marker="o")
            below.plot(at, column_of("decisions_a_second"), marker="o", label=planner)
        above.set(title=world, ylabel="mean discounted return")
        below.legend(fontsize=8)
        below.set(xlabel="simulations a move", ylabel="decisions a second of a core")
        below.set(xscale="log", yscale="log")
    with matplotlib.rc_context({"svg.hashsalt": to.stem}):  # the same lines, the same file
        figure.savefig(to, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/planners.jsonl"))
    parser.add_argument("--figure", type=pathlib.Path, default=HERE / "../docs/belief-planners.svg")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    draw(measure(given.out), given.figure)


if __name__ == "__main__":
    main()
