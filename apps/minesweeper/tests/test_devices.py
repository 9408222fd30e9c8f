"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import re
from typing import Any

import equinox as eqx
import jax.random as jr
import pytest

from zero_minesweeper._build import build_loop
from zero_train import collect_and_store, data_mesh, draw, fill, init, read_lines, step


COLLECTIVES = re.compile(
    r"\s(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|"
    r"collective-broadcast)(?:-start)?\("
)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def eight(small_config):
    """The loop on eight devices, its state after all steps of `tiny_run`, and their metrics."""
    loop = build_loop(small_config, data_mesh(8))
    state = fill(loop, init(loop, key=jr.fold_in(jr.key(small_config.seed), 0)))
    rows = []
    for _ in range(small_config.steps):
        state, metrics = step(loop, state)
        rows.append({name: float(x) for name, x in metrics.items()})
    return loop, state, rows


def test_only_the_gradient_crosses_devices(eight):
    """Planning and replay have no collective; a whole step has all-reduces only."""
    loop, state, _ = eight

    def compiled(function, *args):
        jitted: Any = eqx.filter_jit(function)
        text = jitted.lower(*args).lowered.compile().as_text()
        return {match.group(1) for match in COLLECTIVES.finditer(text)}

    assert compiled(lambda s: collect_and_store(loop, s), state) == set()
    assert compiled(lambda s: draw(loop, s.buffer, key=s.key), state) == set()
    # Also proves that the pattern finds what it looks for.
    assert compiled(lambda s: step(loop, s), state) == {"all-reduce"}


def test_devices_do_not_matter(eight, tiny_run):
    """The run of one device collected and learned the same, step by step."""
    lines = read_lines(tiny_run / "metrics.jsonl")
    totals = dict.fromkeys(("positions", "games"), 0.0)
    for line, row in zip(lines, eight[2], strict=True):
        totals = {name: total + row[name] for name, total in totals.items()}
        for name, value in (row | totals).items():
            assert value == pytest.approx(line[name], rel=1e-4, abs=1e-6), name
