"""Several processes of one run, on this machine: real ones, with two virtual devices each."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from zero_train import Checkpoints, read_lines
from zero_train.app import Launch, UsageError


FOLDER = pathlib.Path(__file__).parents[1]
DEVICES = 4


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Run:
    """The processes of a run, started at once; of each its own flags and environment."""

    def __init__(self, folder, number, *flags, own=(), disturb=()):
        self.folder = folder
        port, self.logs, self.processes = free_port(), [], []
        for i in range(number):
            words = ["train", f"--out={folder}", f"--devices={DEVICES}", *flags]
            if number > 1:
                words += [f"--coordinator=127.0.0.1:{port}", f"--num-processes={number}"]
                words += [f"--process-id={i}", *dict(own).get(i, [])]
            log = folder.with_name(f"{folder.name}-{time.monotonic_ns()}-{i}.txt")
            # Without what the tests around this one want of their own JAX.
            kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "AT_STEP")}
            environment = {**kept, "JAX_PLATFORMS": "cpu", **dict(disturb).get(i, {})}
            self.logs.append(log)
            with log.open("w") as file:
                command = [sys.executable, "-m", f"{FOLDER.name}.tests.processes", *words]
                self.processes.append(
                    subprocess.Popen(
                        command, cwd=FOLDER.parent, stdout=file, stderr=file, env=environment
                    )
                )

    def ended(self, seconds: float = 300) -> list[int]:
        """Waits for all, and returns their exit codes."""
        until = time.monotonic() + seconds
        try:
            return [p.wait(max(0.0, until - time.monotonic())) for p in self.processes]
        finally:
            for process in self.processes:
                process.kill()

    def said(self, process: int) -> str:
        return self.logs[process].read_text()

    def everything(self) -> str:
        return "\n".join(self.said(i) for i in range(len(self.logs)))

    def until(self, what, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end and self.processes[0].poll() is None, self.everything()
            time.sleep(0.05)


def check_equal(folder, expected) -> None:
    """The runs are equal to rounding: sums over devices are taken in another order where these
    belong to other processes."""
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        rows, wanted = read_lines(folder / name), read_lines(expected / name)
        assert len(rows) == len(wanted)
        for row, other in zip(rows, wanted, strict=True):
            assert row == pytest.approx(other, rel=1e-3, abs=1e-4, nan_ok=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run of one process."""
    run = Run(tmp_path_factory.mktemp("one") / "run", 1)
    assert run.ended() == [0], run.everything()
    return run.folder


def test_two_processes_stop_together_go_on_and_do_what_one_does(undisturbed, tmp_path):
    slow = {"SLEEP": "0.3"}
    run = Run(tmp_path / "run", 2, disturb={0: slow, 1: {**slow, "AT_STEP": "4 SIGTERM"}})
    assert run.ended() == [0, 0], run.everything()
    assert "SIGTERM came: saving" in run.said(0)
    saved = Checkpoints(run.folder / "checkpoints").latest
    assert saved is not None and 4 <= saved < 24
    more = Run(run.folder, 2, "--resume")
    assert more.ended() == [0, 0], more.everything()
    check_equal(run.folder, undisturbed)
    assert (run.folder / "report.html").exists()
    assert "step 24/24" in more.said(0) and "step" not in more.said(1)


def test_processes_that_do_not_belong_together(tmp_path):
    run = Run(tmp_path / "run", 2, own={1: ["--seed=3"]})
    assert run.ended() == [2, 2]
    for process in (0, 1):
        line = run.said(process).splitlines()[-1]
        assert "process 1 on" in line and "has --seed 3, and process 0 on" in line
    assert not run.folder.exists()


def test_what_one_process_refuses_stops_the_other(undisturbed):
    """Process 0 looks at the folder, which holds a run."""
    run = Run(undisturbed, 2)
    assert run.ended(60) == [2, 1]
    assert "is not empty, it holds a run already" in run.said(0).splitlines()[-1]
    line = run.said(1).splitlines()[-1]
    assert "process 0 on" in line and "stopped: The run folder" in line


def test_no_coordinator(monkeypatch):
    code = (
        "import zero_train.app._processes as p; p._PATIENCE = 0.5\n"
        "from zero_train.app import Launch, start_jax\n"
        f"start_jax(Launch(coordinator='127.0.0.1:{free_port()}', process_id=1, num_processes=2))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = ran.stderr.splitlines()[-1]
    assert ran.returncode and "process 1 could not reach process 0 at --coordinator 127" in line


@pytest.mark.parametrize(
    "given, message",
    [
        ({"process_id": 1}, "--coordinator and --num-processes was left out; give"),
        (
            {"coordinator": "here", "process_id": 0, "num_processes": 2},
            "--coordinator here was given; give HOST:PORT of process 0",
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
    assert Launch(coordinator="a:1", process_id=0, num_processes=2).processes == 2


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("delay", [0.0, 0.7, 1.9, 3.3])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(undisturbed, tmp_path, victim, delay):
    """Killed in collecting, updating or saving, as it happens: every step saves here."""
    slow = {i: {"SLEEP": "0.2"} for i in (0, 1)}
    run = Run(tmp_path / "run", 2, "--checkpoint-every=1", disturb=slow)
    run.until(lambda: Checkpoints(run.folder / "checkpoints").latest is not None)
    time.sleep(delay)
    run.processes[victim].send_signal(signal.SIGKILL)
    began = time.monotonic()
    codes = run.ended(60)
    assert time.monotonic() - began < 60 and codes[victim] == -9 and codes[1 - victim] != 0
    survivor = run.said(1 - victim)
    assert f"process {victim} on {socket.gethostname()} ended without a word" in survivor
    more = Run(run.folder, 2, "--resume", "--checkpoint-every=5")
    assert more.ended() == [0, 0], more.everything()
    check_equal(run.folder, undisturbed)


@pytest.mark.slow
def test_a_process_that_sleeps_only_delays(undisturbed, tmp_path):
    run = Run(tmp_path / "run", 2, disturb={0: {"SLEEP": "0.3"}})
    run.until(lambda: Checkpoints(run.folder / "checkpoints").latest is not None)
    run.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(30)
    run.processes[1].send_signal(signal.SIGCONT)
    assert run.ended() == [0, 0], run.everything()
    check_equal(run.folder, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_checkpoint_restores_in_other_numbers_of_processes(undisturbed, tmp_path, number):
    """Replay, environments, keys and optimiser go over from 2 processes."""
    slow = {"SLEEP": "0.3"}
    run = Run(tmp_path / "run", 2, disturb={0: {**slow, "AT_STEP": "5 SIGTERM"}, 1: slow})
    assert run.ended() == [0, 0], run.everything()
    more = Run(run.folder, number, "--resume")
    assert more.ended() == [0] * number, more.everything()
    check_equal(run.folder, undisturbed)


@pytest.mark.slow
def test_eight_devices_compute_the_same_in_one_two_and_four_processes(tmp_path):
    """20 steps: again with the same processes bit for bit, with others up to the order of sums."""
    flags = "--devices=8", "--steps=20", "--checkpoint-every=20"
    runs = {}
    for number, again in [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (4, 1)]:
        run = Run(tmp_path / f"{number}-{again}", number, *flags)
        assert run.ended(900) == [0] * number, run.everything()
        runs[number, again] = run.folder
    lines = {key: (folder / "metrics.jsonl").read_bytes() for key, folder in runs.items()}
    assert lines[1, 0].count(b"\n") == 20
    for number in (1, 2, 4):
        assert lines[number, 0] == lines[number, 1]
        check_equal(runs[number, 0], runs[1, 0])
