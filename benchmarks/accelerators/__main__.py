"""What do whole programs need of accelerators that are not here?

JAX compiles for devices that it only knows the description of: the step of every app and the search
in every mode, for TPU slices and H200s. One JSON line a program, and a table at the end:

- `compile_s`; `temporaries_mb` and `state_mb` of one device; `state_over_share`: the state's bytes
    over its share of the whole, which padding and copies make larger than 1.
- `collectives`: how many of each kind; `an_update`: how many one update has, and `over_gradient`:
    their bytes over those of the gradient.
- `kernels`, of a search on an H200: those that a simulation launches itself (`body`) and in a turn
    of each of its loops, the condition counted. `floor` is the same of the environment and the
    evaluator without a search. Of an environment they are those of one step of 1024 games.
- `launches`, of a step on an H200: the same of a whole program, loop by loop, as
    `45 + 16 x (78 + ...)`.
- `faults`: a collective in a loop of the collecting, a transfer to or from the host, a copy of a
    tree's size in the loop of the simulations, more kernels, more collectives or more sent than
    `budget.toml` allows, a crash of the compiler. With any of them the exit code is 1.

The compilers come from wheels: libtpu for TPUs, and those of `jax[cuda12]` for GPUs.

    uv run nox -s accelerators
    uv run nox -s accelerators -- --targets v5e:2x2 --cases monsters othello
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any


# Before JAX: no TPU is asked what it is, and constants are made on the CPU.
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}

import numpy as np
from cases import CASES, ENVIRONMENTS, programs, STEPS, TOGETHER, TURNS
from hlo import an_update, Block, collectives, copies_in_loops, host_transfers, parse
from jax.experimental import topologies
from jax.sharding import Mesh


HERE = pathlib.Path(__file__).parent
TARGETS = ("h200x1", "h200x8", "v5e:2x2", "v5e:4x4", "v5p:2x2x1")
MEGABYTE = 2**20
#: A copy of so many bytes in the loop of the simulations is one of a whole tree.
TREE = 4 * MEGABYTE


def devices(target: str) -> Mesh:
    """A mesh of devices that can only be compiled for."""
    if target.startswith("h200x"):
        shape = f"1x{target.removeprefix('h200x')}x1"
        config = (HERE / "h200.txtpb").read_text()
        found = topologies.get_topology_desc(
            shape, platform="cuda", topology=shape, target_config=config
        )
    else:
        found = topologies.get_topology_desc(platform="tpu", topology_name=target)
    return Mesh(np.array(found.devices), ("data",))


# What a compiled program says.


def measure(target: str, case: str, texts: str | None) -> Iterator[dict[str, Any]]:
    """Compiles the programs of a case, and says of each what was found. Their texts are written
    into a folder, if one is given."""
    budget = tomllib.loads((HERE / "budget.toml").read_text())
    for program, lowered, expected in programs(case, devices(target)):
        start = time.perf_counter()
        # Without a device nothing is tuned, and the usual tile of XLA's own matrix products does
        # not fit all of them: those of the networks' gradients are left to cuBLAS.
        own = {"xla_gpu_enable_triton_gemm": program != "learn"} if "h200" in target else None
        compiled = lowered.compile(compiler_options=own)
        seconds, need = time.perf_counter() - start, compiled.memory_analysis()
        text = compiled.as_text()
        if texts is not None:
            name = f"{target}-{case}-{program}.txt".replace(":", "-")
            pathlib.Path(texts, name).write_text(text)
        block = parse(text)
        row: dict[str, Any] = {
            "target": target,
            "case": case,
            "program": program,
            "compile_s": round(seconds, 1),
            "temporaries_mb": round(need.temp_size_in_bytes / MEGABYTE, 1),
            "state_mb": round(need.argument_size_in_bytes / MEGABYTE, 1),
        }
        if "share" in expected:
            row["state_over_share"] = round(need.argument_size_in_bytes / expected["share"], 2)
        sent = collectives(block)
        row["collectives"] = dict(Counter(one.op.removesuffix("-start") for one, _ in sent))
        if "gradient" in expected:
            total = sum(one.size * number for one, number in sent)
            row["an_update"] = an_update(block, expected["updates"])
            row["over_gradient"] = round(total / expected["gradient"], 4)
        if target == "h200x1" and ("search" in expected or case in ENVIRONMENTS):
            row["kernels"] = _kernels(block if case in ENVIRONMENTS else _simulations(block))
        if target == "h200x1" and case in STEPS:
            row["launches"] = _launches(block)
        row["faults"] = list(_faults(row, block, budget))
        yield row


def _simulations(block: Block) -> Block:
    """The loop of the simulations."""
    (loop,) = (one for one in block.loops() if one.turns == TURNS)
    return loop


def _kernels(block: Block) -> dict[str, Any]:
    """What a block launches itself, and in a turn of each loop in it."""
    of = lambda one: len(one.launched) + one.condition
    inside = [one for one in block.loops() if of(one)]
    return {
        "body": len(block.launched),
        "unknown_turns": [of(one) for one in inside if one.turns is None],
        "known_turns": [[one.turns, of(one)] for one in inside if one.turns is not None],
        "of": block.kernels(),
    }


def _launches(block: Block) -> str:
    """What a block launches, loop by loop, the conditions counted; `?` turns where it decides."""
    inside = [
        f"{'?' if one.turns is None else one.turns} x ({_launches(one)})" for one in block.inside
    ]
    return " + ".join([str(len(block.launched) + block.condition), *inside])


def _faults(row: dict[str, Any], block: Block, budget: dict[str, Any]) -> Iterator[str]:
    if row["program"] != "learn":
        inside = [one.op for loop in block.loops() for one, _ in collectives(loop)]
        if inside:
            yield f"{len(inside)} collectives in loops outside of the update"
    elif any(loop.turns is None and collectives(loop) for loop in block.loops()):
        yield "collectives in a loop of unknown length"
    else:
        split = row["case"].endswith("-fsdp")
        allowed = budget["split" if split else "collectives"]
        if split and "reduce-scatter" not in row["collectives"]:
            yield "no reduce-scatter of the gradient"
        most = budget["an_update"].get(row["case"], budget["collectives"]["an_update"])
        if not split and row["an_update"] > most:
            yield f"{row['an_update']} collectives an update, {most} allowed"
        if row["over_gradient"] > allowed["over_gradient"]:
            yield f"collectives send {row['over_gradient']} of the gradient"
    if transfers := host_transfers(block):
        yield f"{len(transfers)} host transfers: {transfers[0][:120]}"
    # Collecting, that loop lies in the one of the moves; in minesweeper also in one over the boards
    # that need a search, a few at a time. An update's copies are the network's, as of activations.
    depth = {"search": 1, "floor": 1, "collect": 2, "act": 2}.get(row["program"])
    depth = 3 if depth == 2 and row["case"].startswith("minesweeper") else depth
    if depth and (copies := copies_in_loops(block, TREE, depth)):
        largest = max(one.size for one in copies) / MEGABYTE
        yield f"{len(copies)} copies in the loop of the simulations, up to {largest:.1f} MB"
    allowed = budget["kernels"].get(row["case"])
    if allowed is not None and "kernels" in row and row["program"] in ("search", "step"):
        found = row["kernels"]
        if found["body"] > allowed["body"]:
            what = "simulation" if row["program"] == "search" else "step"
            yield f"{found['body']} kernels a {what}, {allowed['body']} allowed"
        turns = found["unknown_turns"]
        if len(turns) > len(allowed["loops"]) or any(
            a > b for a, b in zip(turns, allowed["loops"], strict=False)
        ):
            yield f"{turns} kernels a turn of its loops, {allowed['loops']} allowed"


# One process a case, because a compiler may crash.


def compiled_apart(target: str, case: str, limit: float, texts: str | None) -> list[dict[str, Any]]:
    """The rows of a case, which another process compiles."""
    command = [sys.executable, str(HERE), "--one", target, case]
    command += [] if texts is None else ["--texts", texts]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as e:
        said = bytes(e.stdout or b"").decode()
        late = _failed(target, case, f"not compiled within {limit:.0f} s")
        return [*(json.loads(x) for x in said.splitlines() if x.startswith("{")), late]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode < 0:
        rows.append(_failed(target, case, f"the compiler crashed with signal {-done.returncode}"))
    elif done.returncode:
        said = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exit)", line)]
        rows.append(_failed(target, case, (said or [done.stderr])[-1][:200]))
    return rows


def _failed(target: str, case: str, why: str) -> dict[str, Any]:
    return {"target": target, "case": case, "program": "-", "faults": [why]}


def known(target: str) -> str:
    """The name of a target, if it looks like one."""
    if re.fullmatch(r"h200x\d+|v\d\w*:\d+(x\d+)+", target) is None:
        raise argparse.ArgumentTypeError(f"{target}: give h200xN, or a slice such as v5e:2x2")
    return target


def fits(target: str, case: str) -> bool:
    """Whether a case is for so many devices: acting apart needs two, and an agent that is split a
    multiple of four."""
    number = math.prod(map(int, re.split("h200x|:", target)[1].split("x")))
    return not (
        case.endswith("-apart") and number < 2 or case.endswith("-fsdp") and number % TOGETHER
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as markdown."""
    names = "compile_s", "temporaries_mb", "state_mb", "state_over_share"
    names += "an_update", "over_gradient"
    lines = [
        "| target | case | program | compile s | temporaries MB | state MB | over its share | "
        "collectives | an update | over gradient | kernels | faults |",
        "|" + "---|" * 12,
    ]
    for row in rows:
        found = [str(row.get(name, "")) for name in names]
        sent = ", ".join(f"{number} {name}" for name, number in row.get("collectives", {}).items())
        kernels = row.get("kernels", {})
        launches = row.get("launches", "")
        if kernels:
            launches = " + ".join(map(str, [kernels["body"], *kernels["unknown_turns"]]))
        cells = [row["target"], row["case"], row["program"], *found[:4], sent, *found[4:], launches]
        lines.append("| " + " | ".join([*cells, "; ".join(row["faults"])]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--targets", nargs="+", type=known, default=TARGETS, help="h200xN, v5e:RxC, v5p:..."
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--limit", type=float, default=900, help="seconds a case")
    parser.add_argument("--texts", help="a folder for the texts of the compiled programs")
    parser.add_argument("--one", nargs=2, metavar=("TARGET", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        target, case = options.one
        for row in measure(target, case, options.texts):
            print(json.dumps(row), flush=True)
        return
    rows = []
    for target in options.targets:
        for case in options.cases:
            if fits(target, case):
                for row in compiled_apart(target, case, options.limit, options.texts):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    print("\n" + table(rows))
    if any(row["faults"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
