import errno
import json
import math
import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import (
    check_finite,
    cut_lines,
    JsonLines,
    NonFiniteError,
    read_lines,
    RunError,
    RunFolder,
    StopSignal,
)
from zero_app._run._lines import files_of


CONFIG = {"seed": 0, "search": "puct", "shape": (8, 8), "rate": 1e-4, "extra": None}


def _names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_run_and_its_resumption(tmp_path):
    folder = tmp_path / "runs" / "a"
    with RunFolder.create(folder, CONFIG) as run:
        run.log(1, {"loss": jnp.asarray(0.1, jnp.float32)}, {"seconds": 2.5})
        run.log_evaluation(1, {"opponent": "random", "score": 0.5})
        # Flushed: another process sees the line while the run goes on.
        assert (folder / "metrics.jsonl").read_text() == '{"loss": 0.1, "step": 1}\n'
    with RunFolder.create(folder, CONFIG, resume=True) as run:
        run.log(2, {"loss": 1}, {"seconds": 3.5})
        assert run.config == {**CONFIG, "shape": [8, 8]}
    assert json.loads((folder / "config.json").read_text()) == run.config
    assert [row["step"] for row in read_lines(folder / "metrics.jsonl")] == [1, 2]
    assert read_lines(folder / "timings.jsonl")[1] == {"seconds": 3.5, "step": 2}
    assert read_lines(folder / "evaluations.jsonl")[0]["opponent"] == "random"


def test_rewinding_leaves_every_step_once(tmp_path):
    def run(steps, folder):
        for step in steps:
            folder.log(step, {"loss": 1 / step}, {"seconds": step})
            folder.log_evaluation(step, {"score": 1 / step}, episodes=[{"score": [0, step]}])

    with RunFolder.create(tmp_path / "undisturbed", CONFIG) as folder:
        run(range(1, 8), folder)
    with RunFolder.create(tmp_path / "killed", CONFIG) as folder:
        run(range(1, 6), folder)
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"loss": 0.16')  # killed while writing
    with RunFolder.create(tmp_path / "killed", CONFIG, resume=True) as folder:
        folder.rewind(3)
        run(range(4, 8), folder)
    assert _names(tmp_path / "killed") == _names(tmp_path / "undisturbed")
    for name in _names(tmp_path / "killed"):
        left, right = (tmp_path / run / name for run in ("killed", "undisturbed"))
        assert left.read_bytes() == right.read_bytes()


def test_a_log_that_lost_a_file_writes_over_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("zero_app._run._lines.PART", 100)
    log = JsonLines(tmp_path / "l[o]g*.jsonl")
    for step in range(1, 21):
        log.log(step, {"loss": 1 / step})
    first = files_of(log.path)[0]
    lost = {row["step"] for row in read_lines(first)}
    first.unlink()
    for step in range(21, 41):
        log.log(step, {"loss": 1 / step})
    log.close()
    assert [row["step"] for row in read_lines(log.path)] == sorted({*range(1, 41)} - lost)


@pytest.mark.parametrize("killed_at", [1, 6, 7, 8, 20])
def test_a_log_that_has_grown_is_several_files_and_reads_as_one(tmp_path, monkeypatch, killed_at):
    """Rewound to any step and written again, it is the same files."""
    monkeypatch.setattr("zero_app._run._lines.PART", 100)

    def run(steps, folder):
        for step in steps:
            folder.log(step, {"loss": 1 / step}, {"seconds": step})

    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for path in folders:
        with RunFolder.create(path, CONFIG) as folder:
            run(range(1, 21), folder)
    with RunFolder.create(folders[1], CONFIG, resume=True) as folder:
        folder.rewind(killed_at)
        log = folders[1] / "metrics.jsonl"
        assert [row["step"] for row in read_lines(log)] == [*range(1, killed_at + 1)]
        run(range(killed_at + 1, 21), folder)
    names = _names(folders[0])
    assert "metrics.00001.jsonl" in names and len(names) > 8 and _names(folders[1]) == names
    for name in names:
        one, other = ((folder / name).read_bytes() for folder in folders)
        assert one == other and len(one) < 200
    cut_lines(log, 0)
    assert read_lines(log) == []
    assert [path.name for path in folders[1].glob("metrics*")] == ["metrics.jsonl"]


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    # Neither message sends to the other.
    with pytest.raises(RunError, match="is not empty, and holds no run to --resume; give another"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(RunError, match=r"no run to resume in .* \(no config.json\)") as info:
        RunFolder.create(tmp_path, CONFIG, resume=True)
    assert "leave out --resume" not in str(info.value)
    with pytest.raises(RunError, match="thesis.txt is a file; give a folder"):
        RunFolder.create(tmp_path / "thesis.txt", CONFIG)
    assert _names(tmp_path) == ["thesis.txt"]
    with pytest.raises(RunError, match="no run to resume"):
        RunFolder.create(tmp_path / "missing", CONFIG, resume=True)
    assert not (tmp_path / "missing").exists()
    RunFolder.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(RunError, match="holds a run already; --resume goes on with it, or"):
        RunFolder.create(tmp_path / "run", CONFIG)


def test_a_folder_is_looked_at_without_touching_it(tmp_path):
    (tmp_path / "file").write_text("")
    RunFolder.check(tmp_path / "new" / "run", CONFIG)
    for path, resume in ((tmp_path, False), (tmp_path, True), (tmp_path / "file" / "run", False)):
        with pytest.raises(RunError) as looked:
            RunFolder.check(path, CONFIG, resume=resume)
        with pytest.raises(RunError) as created:
            RunFolder.create(path, CONFIG, resume=resume)
        assert str(looked.value) == str(created.value)
    assert _names(tmp_path) == ["file"]


def test_a_start_killed_while_writing_its_configuration_does_not_count(tmp_path):
    (tmp_path / ".config.json.tmp").write_text('{"seed"')
    RunFolder.create(tmp_path, CONFIG).close()
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 0


def test_what_is_begun_again_is_set_aside(tmp_path):
    with RunFolder.create(tmp_path, CONFIG) as run:
        assert run.begin_again() is None and not list(tmp_path.glob("before*"))
        for number in (1, 2):
            run.log(1, {"loss": number}, {})
            run.write("elo.json", "{}")
            aside = run.begin_again()
            assert aside is not None and aside.name == f"before-{number}"
            assert _names(aside)[0] == "elo.json"
            assert read_lines(aside / "metrics.jsonl") == [{"loss": number, "step": 1}]
            assert read_lines(tmp_path / "metrics.jsonl") == []
        run.log(1, {"loss": 3}, {})
    assert read_lines(tmp_path / "metrics.jsonl") == [{"loss": 3, "step": 1}]
    RunFolder.create(tmp_path, CONFIG, resume=True).close()


@pytest.mark.parametrize("existed", [True, False])
def test_a_run_that_cannot_begin_leaves_nothing(tmp_path, existed):
    folder = tmp_path / "run"
    if existed:
        folder.mkdir()
    with RunFolder.create(folder, CONFIG) as run:
        run.log(1, {}, {})
        (folder / "checkpoints" / ".0.tmp").mkdir(parents=True)
        run.discard()
    assert folder.exists() == existed and list(tmp_path.rglob("*")) == [folder] * existed


def test_another_configuration_names_the_keys(tmp_path):
    RunFolder.create(tmp_path, CONFIG).close()
    other = {**CONFIG, "seed": 1, "new": True}
    del other["extra"]
    with pytest.raises(RunError) as info:
        RunFolder.create(tmp_path, other, resume=True)
    for part in ("extra absent (stored: null)", "new true (stored: absent)", "seed 1 (stored: 0)"):
        assert part in str(info.value)
    assert "rate" not in str(info.value)
    # A key that came later says what it was before.
    with pytest.raises(RunError, match=r"new true \(stored: false\)"):
        RunFolder.create(tmp_path, other, resume=True, absent={"new": False, "seed": 1})
    may_differ = ("seed", "new", "extra")
    with RunFolder.create(tmp_path, other, resume=True, may_differ=may_differ) as folder:
        assert json.loads((tmp_path / "config.json").read_text())["seed"] == 0
        folder.log_start(0, {})
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"{", "cannot be read"),
        (b"1", "a JSON object"),
        (b'{"seed": "\xff"}', "cannot be read"),
        (b"[" * 200_000, "cannot be read: it is nested too deeply"),
        (b'{"a":' * 200_000, "cannot be read: it is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read: it has a number of 5000 digits; put"),
    ],
)
def test_a_broken_configuration(tmp_path, text, match):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(RunError, match=f"config.json .*{match}") as info:
        RunFolder.create(tmp_path, CONFIG, resume=True)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "line", [b'{"step": 2, "loss": "\xff"}', b'{"step": 2, "lo\x00', b"[" * 200_000, b"3", b"{}"]
)
def test_a_damaged_line_is_named(tmp_path, line):
    """Only the last one may be cut short, where a run was killed while writing it."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    before = path.read_bytes()
    for use in (read_lines, lambda path: cut_lines(path, 1)):
        with pytest.raises(RunError, match="line 2 of .*metrics.jsonl is damaged.*remove") as info:
            use(path)
        assert "\n" not in str(info.value) and len(str(info.value)) < 300
    assert path.read_bytes() == before
    path.write_bytes(b'{"step": 1}\n' + line)  # cut short
    if line not in (b"3", b"{}"):
        assert read_lines(path) == [{"step": 1}]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/run cannot be written \(Not a directory\)"):
        RunFolder.create(tmp_path / "file" / "run", CONFIG)
    with pytest.raises(RunError, match="cannot be written: Is a directory"):
        JsonLines(tmp_path)


def test_a_full_disk_while_logging(tmp_path, monkeypatch):
    class Full:
        def tell(self):
            return 0

        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    lines = JsonLines(tmp_path / "a.jsonl")
    lines.close()
    monkeypatch.setattr(lines, "_file", Full())
    with pytest.raises(RunError, match="a.jsonl cannot be written: No space left"):
        lines.log(1, {"loss": 1.0})


def test_numbers_keep_their_bits_in_the_fewest_digits(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 200, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    lines = JsonLines(tmp_path / "a.jsonl")
    for step, value in enumerate(values):
        lines.log(step, {"x": jnp.asarray(value), "n": np.int64(2**40), "b": jnp.bfloat16(0.1)})
    lines.log(-1, {"list": np.asarray([0.1, math.nan], np.float32), "double": np.float64(0.1)})
    lines.close()
    *rows, last = read_lines(lines.path)
    assert np.array_equal(np.asarray([row["x"] for row in rows], np.float32), values)
    assert rows[0]["n"] == 2**40 and rows[0]["b"] == 0.100097656
    assert last == {"list": [0.1, None], "double": 0.1, "step": -1}
    assert read_lines(tmp_path / "missing.jsonl") == []


def test_not_finite_names_the_metrics():
    good = {"a": jnp.asarray(1.0), "b": 3, "c": jnp.bfloat16(2)}
    check_finite(1, good)
    bad = {**good, "loss": jnp.asarray(jnp.nan), "norm": float("inf")}
    with pytest.raises(NonFiniteError, match="Step 12 gave loss=nan, norm=inf, which is not"):
        check_finite(12, bad)
    with pytest.raises(NonFiniteError, match="c=nan.*start anew with a lower learning rate"):
        check_finite(12, {**good, "c": jnp.bfloat16(jnp.nan)})
    with pytest.raises(NonFiniteError, match="A player moved twice in a row.*that knows the rules"):
        check_finite(1, {**good, "turn_error": jnp.asarray(jnp.nan)})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_asks_and_two_interrupt(number):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopSignal() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested and stop.name == signal.Signals(number).name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_any_time_may_be_given():
    with StopSignal(6e10) as stop:  # longer than a thread can wait
        assert stop._timer is not None
        stop._timer.join(0.1)
        assert stop._timer.is_alive() and not stop.requested
