"""The scripts of docs/many-hosts.md: their syntax, and flags that `train` has."""

import re
import subprocess

import pytest
import yaml

from zero_othello._config import PRESETS
from zero_train.app import Options

from . import workspace


SCRIPTS = sorted((workspace.ROOT / "docs" / "launch").iterdir())


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.name for path in SCRIPTS])
def test_a_script_is_well_formed_and_its_flags_exist(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        subprocess.run(["bash", "-n", str(path)], check=True)
    else:
        (group,) = yaml.safe_load(text)["spec"]["replicatedJobs"]
        job = group["template"]["spec"]
        (container,) = job["template"]["spec"]["containers"]
        (text,) = container["args"]
        script = tmp_path / "pod.sh"
        script.write_text(text)
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert f"--num-processes {job['parallelism']}" in text
        assert job["completions"] == job["parallelism"]
    command = text[text.index("othello train") :].replace("\\\n", " ").splitlines()[0]
    fields = {*vars(next(iter(PRESETS.values()))), *Options.__dataclass_fields__, "preset"}
    flags = re.findall(r"--([a-z-]+)", command)
    assert flags and {flag.replace("-", "_") for flag in flags} <= fields
