"""The scripts of docs/many-hosts.md: their syntax, flags that `train` has, and what they do when it
was told to stop."""

import os
import pathlib
import re
import subprocess
import time

import pytest
import yaml

from zero_app import Launch, Options
from zero_othello._config import PRESETS

from . import workspace


SCRIPTS = sorted((workspace.ROOT / "docs" / "launch").iterdir())


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.name for path in SCRIPTS])
def test_a_script_is_well_formed_and_its_flags_exist(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        subprocess.run(["bash", "-n", str(path)], check=True)
    else:
        job, text = _pod(path)
        script = tmp_path / "pod.sh"
        script.write_text(text)
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert f"--num-processes {job['parallelism']}" in text
        assert job["completions"] == job["parallelism"]
    command = text[text.index("othello train") :].replace("\\\n", " ").splitlines()[0]
    kinds = next(iter(PRESETS.values())), Options, Launch
    fields = {"preset", *(name for kind in kinds for name in kind.__dataclass_fields__)}
    flags = re.findall(r"--([a-z-]+)", command)
    assert flags and {flag.replace("-", "_") for flag in flags} <= fields


def _pod(path: pathlib.Path) -> tuple[dict, str]:
    """The job of a JobSet, and what each of its pods runs."""
    (group,) = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    (text,) = container["args"]
    return job, text


#: A run that is told to stop the first time, and has done all its steps the second time.
_TRAIN = """#!/bin/sh
echo "$@" >> calls.txt
if [ -f run/config.json ]; then touch run/finished; fi
mkdir -p run; touch run/config.json
"""


@pytest.fixture
def commands(tmp_path):
    """A function that puts a command on the PATH, and the environment that has it."""
    (tmp_path / "bin").mkdir()

    def put(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    return put, {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_slurm_requeues_a_run_until_all_steps_are_done(tmp_path, commands):
    put, environment = commands
    put("srun", _TRAIN)
    put("scontrol", '#!/bin/sh\necho "scontrol $@" >> calls.txt\n')
    environment |= {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7", "RUN": "run"}
    script = workspace.ROOT / "docs" / "launch" / "slurm.sh"
    for _ in range(2):
        subprocess.run(["bash", str(script)], cwd=tmp_path, env=environment, check=True)
    first, requeue, second = (tmp_path / "calls.txt").read_text().splitlines()
    assert first.endswith("--out run") and requeue == "scontrol requeue 7"
    assert second.endswith("--out run --resume")
    put("srun", "#!/bin/sh\nexit 2\n")  # an error would only come again
    (tmp_path / "run" / "finished").unlink()
    assert subprocess.run(["bash", str(script)], cwd=tmp_path, env=environment).returncode == 2
    assert len((tmp_path / "calls.txt").read_text().splitlines()) == 3


def test_a_pod_fails_until_all_steps_are_done(tmp_path, commands):
    put, environment = commands
    environment |= {"JOB_COMPLETION_INDEX": "0"}
    _, text = _pod(workspace.ROOT / "docs" / "launch" / "jobset.yaml")
    command = ["sh", "-c", text.replace("/runs/othello", "run")]
    put("othello", _TRAIN)
    for code in (1, 0):
        assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == code
    # What tells the shell to stop is passed on, and the shell waits until all is saved.
    stops = "trap 'sleep 0.3; touch saved; exit 0' TERM; touch begun; while :; do sleep 0.05; done"
    put("othello", f"#!/bin/sh\n{stops}\n")
    (tmp_path / "run" / "finished").unlink()
    pod = subprocess.Popen(command, cwd=tmp_path, env=environment)
    until = time.monotonic() + 20
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    pod.terminate()
    assert pod.wait(20) == 1 and (tmp_path / "saved").exists()
