"""What the tests of all apps do alike: commands in this process, and a loop over eight devices."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def run_main(monkeypatch, capsys) -> Callable[..., Callable[..., tuple[int, str, str]]]:
    """`run_main(main, "spo")` runs `spo WORDS` in this process, and returns its exit code, stdout
    and stderr."""

    def of(main: Callable[[], None], name: str) -> Callable[..., tuple[int, str, str]]:
        def run(*words: object) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
            try:
                main()
                code = 0
            except SystemExit as e:
                code = int(e.code or 0)
            out, err = capsys.readouterr()
            return code, out, err

        return run

    return of


@pytest.fixture(scope="session")
def on_eight_devices() -> Callable[..., tuple[Any, Any, list[dict[str, float]]]]:
    """A loop over eight devices, its state after as many steps as `tiny_run` has, and their
    metrics."""
    import jax.random as jr

    from zero_train import data_mesh, fill, init, step

    def run(build_loop: Callable[..., Any], config: Any, steps: int):
        loop = build_loop(config, data_mesh(8))
        state = fill(loop, init(loop, key=jr.fold_in(jr.key(config.seed), 0)))
        rows = []
        for _ in range(steps):
            state, metrics = step(loop, state)
            rows.append({name: float(x) for name, x in metrics.items()})
        return loop, state, rows

    return run


@pytest.fixture(scope="session")
def check_collectives(collectives) -> Callable[..., None]:
    """Of what `on_eight_devices` returned: nothing crosses devices but the gradient."""
    from zero_train import collect_and_store, draw, step

    def check(eight: tuple[Any, Any, list[dict[str, float]]]) -> None:
        loop, state, _ = eight
        assert collectives(lambda s: collect_and_store(loop, s), state) == set()
        assert collectives(lambda s: draw(loop, s.buffer, key=s.key), state) == set()
        # Also proves that the pattern finds what it looks for.
        assert collectives(lambda s: step(loop, s), state) == {"all-reduce"}

    return check


@pytest.fixture(scope="session")
def check_same_run() -> Callable[..., None]:
    """Of what `on_eight_devices` returned, and a folder: the run of one device there collected and
    learned the same, step by step."""
    from zero_train import read_lines

    def check(eight: tuple[Any, Any, list[dict[str, float]]], folder: pathlib.Path) -> None:
        totals = dict.fromkeys(("positions", "games"), 0.0)
        for line, row in zip(read_lines(folder / "metrics.jsonl"), eight[2], strict=True):
            totals = {name: total + row[name] for name, total in totals.items()}
            for name, value in (row | totals).items():
                assert value == pytest.approx(line[name], rel=1e-4, abs=1e-6), name

    return check
