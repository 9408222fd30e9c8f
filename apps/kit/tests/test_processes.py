"""Several processes of one run, on this machine: real ones, with virtual devices."""

import atexit
import contextlib
import functools as ft
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import zero_app._run._processes as processes
from zero_app import Checkpoints, Launch, read_lines, UsageError

from .processes import NIM


FOLDER = pathlib.Path(__file__).parents[1]
#: What most tests run, a module and its words: Nim, with something that happens.
PROGRAM = f"{NIM} train"
#: The smallest run of each app: what is run, and with which flags besides `--preset=tiny`.
SMALLEST = {
    "nim": (PROGRAM, ""),
    "othello": (
        "zero_othello train",
        "--envs=8 --unroll=4 --updates=1 --batch=8 --capacity=256 --simulations=4 --nodes=10 "
        "--blocks=1 --ladder-games=2",
    ),
    "monsters": (
        "zero_monsters train",
        "--envs=8 --unroll=2 --batch=8 --length=4 --n-steps=2 --capacity=16 --simulations=5 "
        "--player-simulations=5 --width=8 --layers=1 --rollouts=4",
    ),
    "minesweeper": (
        "zero_minesweeper train",
        "--rows=3 --columns=4 --mines=2 --max-states=32 --envs=8 --unroll=4 --batch=8 --updates=1 "
        "--length=5 --n-steps=4 --capacity=32 --simulations=8 --player-simulations=8 --layouts=16 "
        "--channels=4 --blocks=1 --boards=8",
    ),
    "spo": ("zero_spo train", ""),
    "zero": ("zero_cli train pgx/tic_tac_toe", "--envs=8 --updates=1 --batch=8 --games=4"),
}
DEVICES = 4
SLOW = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@ft.cache
def starter() -> subprocess.Popen[str]:
    """The process that forks those of all runs: each would take longer to import than to train."""
    # What these processes cost is compiling.
    environment = {"XLA_FLAGS": "--xla_backend_optimization_level=0", **os.environ}
    forks = subprocess.Popen(
        [sys.executable, "-m", f"{FOLDER.name}.tests.processes"],
        cwd=FOLDER.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "JAX_PLATFORMS": "cpu"},
        text=True,
    )
    atexit.register(forks.communicate)  # it ends with its input
    return forks


class Process:
    """One process of a run, with its own words of the command line, log and environment."""

    def __init__(self, words: list[str], log: pathlib.Path, environment: dict[str, str]):
        forks = starter()
        assert forks.stdin is not None and forks.stdout is not None
        self._code = log.with_suffix(".code")
        asked = [words, str(log), str(self._code), environment]
        print(json.dumps(asked), file=forks.stdin, flush=True)
        self.pid = int(forks.stdout.readline())

    def poll(self) -> int | None:
        """The exit code, or `None` while it runs."""
        said = self._code.read_text() if self._code.exists() else ""
        return int(said) if said else None

    def wait(self, seconds: float = 600) -> int:
        """The exit code, once it has ended."""
        until = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} still runs after {seconds:.0f} s.")
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Run:
    """The processes of a run, started at once; of each its own flags and environment."""

    def __init__(
        self, folder, number, *flags, program=PROGRAM, devices=DEVICES, own=(), disturb=()
    ):
        self.folder = folder
        port, self.logs, self.processes = free_port(), [], []
        for i in range(number):
            words = [*program.split(), f"--out={folder}", f"--devices={devices}", *flags]
            if number > 1:
                words += [f"--coordinator=127.0.0.1:{port}", f"--num-processes={number}"]
                words += [f"--process-id={i}", *dict(own).get(i, [])]
            log = folder.with_name(f"{folder.name}-{time.monotonic_ns()}-{i}.txt")
            log.touch()  # the process may be killed before it says something
            self.logs.append(log)
            self.processes.append(Process(words, log, dict(disturb).get(i, {})))

    def ended(self, seconds: float = 600) -> list[int]:
        """Waits for all, and returns their exit codes."""
        until = time.monotonic() + seconds
        try:
            return [p.wait(max(0.0, until - time.monotonic())) for p in self.processes]
        finally:
            self.kill()

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)

    def said(self, process: int) -> str:
        return self.logs[process].read_text()

    def everything(self) -> str:
        return "\n".join(self.said(i) for i in range(len(self.logs)))

    def until(self, what, seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end or self.processes[0].poll() is not None:
                self.kill()
                pytest.fail(self.everything())
            time.sleep(0.05)


def check_equal(folder, expected) -> None:
    """The runs are equal to rounding: sums over devices are taken in another order where these
    belong to other processes."""
    for name in ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl"):
        rows, wanted = read_lines(folder / name), read_lines(expected / name)
        assert len(rows) == len(wanted)
        for row, other in zip(rows, wanted, strict=True):
            assert row.keys() == other.keys()
            for key, value in other.items():
                near = value  # words, such as the name of an opponent
                if isinstance(value, int | float | list):
                    near = pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True)
                assert row[key] == near, key


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run of one process."""
    run = Run(tmp_path_factory.mktemp("one") / "run", 1)
    assert run.ended() == [0], run.everything()
    return run.folder


def test_two_processes_stop_together_go_on_and_do_what_one_does(undisturbed, tmp_path):
    """Also where both hold the agent together at first, and each has all of it later."""
    slow = {"SLEEP": "0.3"}
    run = Run(
        tmp_path / "run", 2, "--fsdp=4", disturb={0: slow, 1: {**slow, "AT_STEP": "4 SIGTERM"}}
    )
    assert run.ended() == [0, 0], run.everything()
    assert "one of the processes was told to stop: saving" in run.said(0)
    saved = Checkpoints(run.folder / "checkpoints").latest
    assert saved is not None and 4 <= saved < 24
    more = Run(run.folder, 2, "--resume")
    assert more.ended() == [0, 0], more.everything()
    check_equal(run.folder, undisturbed)
    assert (run.folder / "report.html").exists()
    assert "step 24/24" in more.said(0) and "step" not in more.said(1)


@pytest.mark.parametrize(
    "differ, what",
    [
        ({"own": {1: ["--seed=3"]}}, "has --seed 3, and process 0 on"),
        pytest.param({"own": {1: ["--devices=2"]}}, "has devices of its own 1", marks=SLOW),
        pytest.param({"disturb": {1: {"VERSION": "0"}}}, "has jax 0, and process 0", marks=SLOW),
    ],
)
def test_processes_that_do_not_belong_together(tmp_path, differ, what):
    run = Run(tmp_path / "run", 2, **differ)
    assert run.ended() == [2, 2], run.everything()
    for process in (0, 1):
        line = run.said(process).splitlines()[-1]
        assert "process 1 on" in line and what in line
    assert not run.folder.exists()


def test_what_one_process_refuses_stops_the_other(undisturbed):
    """Process 0 looks at the folder, which holds a run."""
    run = Run(undisturbed, 2)
    assert run.ended(60) == [2, 1]
    assert "is not empty, it holds a run already" in run.said(0).splitlines()[-1]
    line = run.said(1).splitlines()[-1]
    assert "process 0 on" in line and "stopped: The run folder" in line


@pytest.mark.parametrize("said", [b"5\n", b"GET / HTTP/1.1\r\n", b'{"who": 1}\n', b"", None])
def test_somebody_else_at_the_port_of_process_0(monkeypatch, said):
    """Also who says nothing, or closes the connection."""
    monkeypatch.setattr(processes, "_SILENCE", 0.05)
    here, there = socket.socketpair()
    with here, there:
        if said is None:
            there.close()
        else:
            there.sendall(said)
        assert processes._introduction(here) is None


def test_no_coordinator(monkeypatch):
    monkeypatch.setattr(processes, "_PATIENCE", 0.1)
    nobody = Launch(coordinator=f"127.0.0.1:{free_port()}", process_id=1, num_processes=2)
    with pytest.raises(UsageError, match="1 could not reach process 0 at --coordinator 127"):
        processes.join(nobody)


@SLOW
def test_what_processes_hand_to_the_first_arrives_in_order_and_does_not_stay():
    code = (
        "import sys, time, jax\n"
        "address, me = sys.argv[1], int(sys.argv[2])\n"
        "jax.distributed.initialize(address, 3, me, cluster_detection_method='deactivate')\n"
        "from zero_train._processes import global_state, to_writer\n"
        "for late, given in (0, b'one'), (1, b''), (2, bytes([me]) * 3):\n"
        "    time.sleep(0.3 * (late == me))\n"
        "    print(to_writer('test', given))\n"
        "if not me: print(global_state.client.key_value_dir_get_bytes('zero_train'))\n"
        "jax.distributed.shutdown()"
    )
    command = [sys.executable, "-c", code, f"127.0.0.1:{free_port()}"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True, env=environment)
        for i in range(3)
    ]
    first, *others = [process.communicate(timeout=600)[0].splitlines() for process in started]
    wanted = [[b"one"] * 3, [b""] * 3, [b"\0\0\0", b"\1\1\1", b"\2\2\2"], []]
    assert first == list(map(str, wanted)) and others == [["[]"] * 3] * 2


@pytest.mark.parametrize(
    "given, message",
    [
        ({"process_id": 1}, "--coordinator and --num-processes missing; give"),
        (
            {"coordinator": "here", "process_id": 0, "num_processes": 2},
            "--coordinator here was given; give HOST:PORT of process 0",
        ),
        (
            {"coordinator": "a..b:99", "process_id": 0, "num_processes": 2},
            "--coordinator a..b:99 was given; give HOST:PORT of process 0",
        ),
        (
            {"coordinator": "here:99", "process_id": 2, "num_processes": 2},
            "--process-id 2 of --num-processes 2 was given; give 0 to 1",
        ),
        ({"coordinator": "a:1", "process_id": 0, "num_processes": 0}, "--num-processes 0 was"),
    ],
)
def test_flags_that_make_no_sense(given, message):
    with pytest.raises(UsageError, match=message):
        Launch(**given)


def test_launchers_say_how_many_there_are(monkeypatch):
    for name in ("SLURM_NTASKS", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Launch().processes == 1
    # In a job of SLURM, but not started by srun, there is one process.
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert Launch().processes == 1
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node[1-2]")
    assert Launch().processes == 8
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        with monkeypatch.context() as patch, pytest.raises(UsageError, match=f"{name}=x is set; "):
            patch.setenv(name, "x")
            assert Launch().processes
    assert Launch(coordinator="a:1", process_id=0, num_processes=2).processes == 2


@SLOW
@pytest.mark.parametrize("name", [name for name in SMALLEST if name != "nim"])
def test_an_app_in_two_processes_does_what_it_does_in_one(tmp_path, name):
    """Evaluations included, which some apps split over all devices."""
    program, flags = SMALLEST[name]
    pytest.importorskip(program.split()[0])  # not there where this package is tested alone
    steps = 6 * (8 * 8 if name == "spo" else 1)  # `spo` counts those of all environments
    words = "--preset=tiny", f"--steps={steps}", "--evaluate-every=3", *flags.split()
    runs = [Run(tmp_path / f"{n}", n, *words, program=program, devices=8) for n in (1, 2)]
    for number, run in enumerate(runs, start=1):
        assert run.ended(1800) == [0] * number, run.everything()
    one, two = (run.folder for run in runs)
    assert len(read_lines(one / "metrics.jsonl")) == 6
    assert {row["step"] for row in read_lines(one / "evaluations.jsonl")} == {3, 6}
    check_equal(two, one)
    assert (two / "report.html").exists()


@SLOW
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("place", ["collecting", "updating", "writing"])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(undisturbed, tmp_path, victim, place):
    killed = {victim: {"AT_STEP": f"9 SIGKILL {place}"}}
    run = Run(tmp_path / "run", 2, "--checkpoint-every=1", disturb=killed)
    assert run.processes[victim].wait(600) == -9, run.everything()
    began = time.monotonic()
    codes = run.ended(60)
    assert time.monotonic() - began < 60 and codes[1 - victim] != 0
    # Process 1 knows of process 0 what the coordinator's address says.
    host = socket.gethostname() if victim else "127.0.0.1"
    assert f"process {victim} on {host} ended without a word" in run.said(1 - victim)
    # The checkpoint of step 8 may have been on its way, and that of step 9 was half written.
    saved = Checkpoints(run.folder / "checkpoints")
    assert saved.latest in ([8] if place == "writing" else [7, 8])
    if place == "writing":
        assert (saved.directory / ".00000009.tmp").exists()
    more = Run(run.folder, 2, "--resume", "--checkpoint-every=5")
    assert more.ended() == [0, 0], more.everything()
    check_equal(run.folder, undisturbed)


@SLOW
def test_a_process_that_cannot_write_its_part_ends_all(tmp_path):
    """It says so at the next save, while the other one still waits for its part."""
    full = {1: {"AT_STEP": "5 SIGXFSZ writing"}}
    run = Run(tmp_path / "run", 2, "--fsdp=4", disturb=full)
    steps = run.folder / "metrics.jsonl"
    run.until(lambda: steps.exists() and steps.read_bytes().count(b"\n") >= 10)
    assert run.ended(60) == [1, 2], run.everything()
    reason = "Checkpoint 5 could not be saved in"
    assert reason in run.said(1).splitlines()[-1]
    line = run.said(0).splitlines()[-1]
    assert "process 1 on" in line and reason in line and "Error writing" in line
    assert Checkpoints(run.folder / "checkpoints").steps() == [0]


@SLOW
def test_a_process_that_sleeps_only_delays(undisturbed, tmp_path):
    run = Run(tmp_path / "run", 2, disturb={0: {"SLEEP": "0.3"}})
    run.until(lambda: Checkpoints(run.folder / "checkpoints").latest is not None)
    run.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(30)
    run.processes[1].send_signal(signal.SIGCONT)
    assert run.ended() == [0, 0], run.everything()
    check_equal(run.folder, undisturbed)


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory):
    """A run of 16 shards on one device, and one on 8 of two processes that was told to stop."""
    folder = tmp_path_factory.mktemp("sixteen")
    whole = Run(folder / "whole", 1, "--shards=16", devices=1)
    assert whole.ended() == [0], whole.everything()
    slow = {"SLEEP": "0.3"}
    disturb = {0: {**slow, "AT_STEP": "5 SIGTERM"}, 1: slow}
    stopped = Run(folder / "stopped", 2, "--shards=16", devices=8, disturb=disturb)
    assert stopped.ended() == [0, 0], stopped.everything()
    return whole.folder, stopped.folder


@SLOW
@pytest.mark.parametrize("number, devices", [(1, 1), (2, 8), (1, 16), (4, 16), (4, 4)])
def test_a_checkpoint_restores_on_other_devices_of_other_processes(
    sixteen, tmp_path, number, devices
):
    """Replay, environments, keys and optimiser go over from 8 devices of 2 processes."""
    expected, stopped = sixteen
    shutil.copytree(stopped, tmp_path / "run")
    more = Run(tmp_path / "run", number, "--resume", devices=devices)
    assert more.ended() == [0] * number, more.everything()
    check_equal(more.folder, expected)


@SLOW
def test_a_run_moves_from_8_devices_to_2_and_to_4(sixteen, tmp_path):
    expected, stopped = sixteen
    shutil.copytree(stopped, tmp_path / "run")
    on = {"SLEEP": "0.3", "AT_STEP": "12 SIGTERM"}
    two = Run(tmp_path / "run", 1, "--resume", devices=2, disturb={0: on})
    assert two.ended() == [0], two.everything()
    saved = Checkpoints(two.folder / "checkpoints").latest
    assert saved is not None and 12 <= saved < 24
    four = Run(two.folder, 2, "--resume", devices=4)
    assert four.ended() == [0, 0], four.everything()
    check_equal(four.folder, expected)


@SLOW
def test_devices_that_the_shards_of_a_run_do_not_divide_over(undisturbed):
    run = Run(undisturbed, 1, "--resume", devices=16)
    assert run.ended() == [2]
    line = run.said(0).splitlines()[-1]
    assert "--shards 8 does not divide over 16 devices; give 1, 2, 4 or 8" in line


@SLOW
def test_eight_devices_compute_the_same_in_one_two_and_four_processes(tmp_path):
    """20 steps: again with the same processes bit for bit, with others up to the order of sums."""
    flags = "--steps=20", "--checkpoint-every=20"
    runs = {}
    for number, again in [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (4, 1)]:
        run = Run(tmp_path / f"{number}-{again}", number, *flags, devices=8)
        assert run.ended(900) == [0] * number, run.everything()
        runs[number, again] = run.folder
    lines = {key: (folder / "metrics.jsonl").read_bytes() for key, folder in runs.items()}
    assert lines[1, 0].count(b"\n") == 20
    for number in (1, 2, 4):
        assert lines[number, 0] == lines[number, 1]
        check_equal(runs[number, 0], runs[1, 0])
