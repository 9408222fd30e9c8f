"""What the tests of all apps do alike: commands in this process, and a loop over eight devices."""

import contextlib
import dataclasses
import math
import pathlib
import struct
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
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


@pytest.fixture(autouse=True)
def _threads_end_with_their_test() -> Iterator[None]:
    """A command of a later test that finds one running ends the process, as users need it."""
    yield
    for thread in threading.enumerate():
        if thread.name == "zero-background":
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture(scope="session", autouse=True)
def _loops_are_built_once() -> Iterator[None]:
    """Runs of the same configuration share a loop, and so what was compiled for it."""
    from zero_app._run import _app, _train

    build, made = _app.built, {}

    def built(app: Any, config: Any, *devices: Any) -> Any:
        key = app.build, config, devices
        if key not in made:
            made[key] = build(app, config, *devices)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (_app, _train):
            patch.setattr(module, "built", built)
        yield


@pytest.fixture(scope="session")
def without_charts() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """`with without_charts():` the reports of runs have no charts. They have tests of their own,
    and would be a quarter of what a short run costs."""
    charts: Any = types.ModuleType("zero_app._run._chart")  # so that matplotlib is not imported
    charts.draw = lambda series, **_: None

    @contextlib.contextmanager
    def patched() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, charts.__name__, charts)
            yield

    return patched


@pytest.fixture(scope="session")
def scalars() -> Callable[[pathlib.Path], dict[str, dict[int, float]]]:
    """`scalars(folder)`: what TensorBoard shows of a run, by name and step."""
    from tensorboardX.proto import event_pb2

    event: Any = event_pb2.__dict__["Event"]  # made at import; type checkers do not see it

    def read(folder: pathlib.Path) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for path in folder.glob("*tfevents*"):
            data = path.read_bytes()
            while data:  # size, its checksum, the event, its checksum
                (size,) = struct.unpack("<Q", data[:8])
                one = event.FromString(data[12 : 12 + size])
                for value in one.summary.value:
                    found.setdefault(value.tag, {})[one.step] = value.simple_value
                data = data[16 + size :]
        return found

    return read


@pytest.fixture
def check_episodes() -> Callable[[pathlib.Path], None]:
    """`check_episodes(folder)`: each line of evaluations.jsonl has one of episodes.jsonl, about the
    same player, with as many episodes and their means."""
    from zero_app import read_lines
    from zero_app._run._measures import count_of, identifying, MEASURES

    def check(folder: pathlib.Path) -> None:
        rows, lines = (read_lines(folder / f"{x}.jsonl") for x in ("evaluations", "episodes"))
        positions = {row["step"]: row["positions"] for row in read_lines(folder / "metrics.jsonl")}
        assert rows
        for row, line in zip(rows, lines, strict=True):
            assert (line["step"], identifying(line)) == (row["step"], identifying(row))
            assert line["positions"] == positions[row["step"]]
            lists = {name: values for name, values in line.items() if isinstance(values, list)}
            assert {len(values) for values in lists.values()} == {count_of(row)}
            measured = [one for one in MEASURES if one.name in row]
            assert measured
            means = {one.called: row[one.name] for one in measured}
            if "length_mean" in row:
                means["length"] = row["length_mean"]
            elif "mean_length" in row:
                means["length"] = row["mean_length"]
            for name, mean in means.items():
                assert sum(lists[name]) / len(lists[name]) == pytest.approx(mean, rel=1e-6)

    return check


# Numbers that no field can be, whatever it is for.
_NEVER = {int: (10**20, -1), float: (math.nan, math.inf, -math.inf, 1e300)}


def _kinds(kind: type) -> Iterator[tuple[str, Any]]:
    """Every field, those of dataclasses inside included, and what it holds if not `None`."""
    for name, hint in typing.get_type_hints(kind).items():
        for one in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(one):
                yield from _kinds(typing.cast(type, one))
            elif one in _NEVER:
                yield name, one


@pytest.fixture(scope="session")
def check_every_field() -> Callable[[Any], None]:
    """Of a configuration: a number that no field can be is refused in one line, whether a flag or a
    file gives it."""
    from zero_app import UsageError

    def check(config: Any) -> None:
        fields = list(_kinds(type(config)))
        assert len(fields) > 20
        for name, kind in fields:
            for value in _NEVER[kind]:
                with pytest.raises(UsageError) as raised:
                    dataclasses.replace(config, **{name: value})
                said = str(raised.value)
                assert said.startswith(f"--{name.replace('_', '-')} ") and "\n" not in said
                assert "was given; " in said and len(said) < 200

    return check


@pytest.fixture
def check_every_number(tmp_path, monkeypatch) -> Callable[..., None]:
    """Of a command, and the dataclass of its flags: a number that none of them can be is refused in
    one line, before the run or whatever else it is about is looked at."""

    def check(run: Callable[..., tuple[int, str, str]], command: str, kind: type) -> None:
        monkeypatch.chdir(tmp_path)
        needs = [".no-run"] * ("run" in typing.get_type_hints(kind))
        for name, number in _kinds(kind):
            flag = f"--{name.replace('_', '-')}"
            for value in (*_NEVER[number], *([1.5] if number is int else [])):
                code, out, err = run(command, *needs, f"{flag}={value}")
                assert (code, out, err.count("\n")) == (2, "", 1), (flag, value, err)
                assert flag in err, err
        assert list(tmp_path.iterdir()) == []

    return check


@pytest.fixture(scope="session")
def on_eight_devices() -> Callable[..., tuple[Any, Any, list[dict[str, float]]]]:
    """A loop over eight devices, its state after as many steps as `tiny_run` has, and their
    metrics."""
    import jax.random as jr

    from zero_train import data_mesh, fill, init, step

    def run(build_loop: Callable[..., Any], config: Any, steps: int):
        loop = dataclasses.replace(build_loop(config), mesh=data_mesh(8))
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
    from zero_train import act, draw, step, store

    def check(eight: tuple[Any, Any, list[dict[str, float]]]) -> None:
        loop, state, _ = eight
        actor = lambda s: loop.agent.actor(s.agent, explore=True)
        rows = lambda s: act(loop, actor(s), s.episodes, key=s.key)[1]
        assert collectives(lambda s: store(loop, s.buffer, rows(s)), state) == set()
        assert collectives(lambda s: draw(loop, s.agent, s.buffer, key=s.key), state) == set()
        # Also proves that the pattern finds what it looks for.
        assert collectives(lambda s: step(loop, s), state) == {"all-reduce"}

    return check


@pytest.fixture(scope="session")
def check_same_run() -> Callable[..., None]:
    """Of what `on_eight_devices` returned, and a folder: the run of one device there collected and
    learned the same, step by step."""
    from zero_app import read_lines

    def check(eight: tuple[Any, Any, list[dict[str, float]]], folder: pathlib.Path) -> None:
        totals = dict.fromkeys(("positions", "games"), 0.0)
        for line, row in zip(read_lines(folder / "metrics.jsonl"), eight[2], strict=True):
            totals = {name: total + row[name] for name, total in totals.items()}
            for name, value in (row | totals).items():
                assert value == pytest.approx(line[name], rel=1e-4, abs=1e-6), name

    return check
