"""Without flashbax there are whole episodes, and a line that says what windows need."""

import subprocess
import sys

import pytest


CODE = """
import sys

sys.modules["flashbax"] = None  # as where it is not installed
import zero_memory

zero_memory.EpisodeBuffer(capacity=8, num_envs=1, batch_size=1)
assert not hasattr(zero_memory, "Latst")
from zero_memory import {name}
"""


@pytest.mark.parametrize("name", ["Latest", "TrajectoryBuffer", "PrioritisedTrajectoryBuffer"])
def test_flashbax_is_needed_for_windows_alone(name):
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(name=name)], capture_output=True, text=True
    )
    said = ran.stderr.splitlines()[-1]
    assert said == f"ImportError: zero_memory.{name} needs flashbax: install zero-memory[windows]."
