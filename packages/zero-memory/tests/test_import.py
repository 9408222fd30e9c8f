"""Without flashbax there are whole episodes, and a line that says what windows need."""

import subprocess
import sys


WINDOWS = ("Latest", "TrajectoryBuffer", "PrioritisedTrajectoryBuffer")
CODE = f"""
import sys

sys.modules["flashbax"] = None  # as where it is not installed
import zero_memory

zero_memory.EpisodeBuffer(capacity=8, num_envs=1, batch_size=1)
assert not hasattr(zero_memory, "Latst")
for name in {WINDOWS}:
    try:
        exec(f"from zero_memory import {{name}}")
    except ImportError as e:
        print(e)
"""


def test_flashbax_is_needed_for_windows_alone():
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"zero_memory.{name} needs flashbax: install zero-memory[windows]." for name in WINDOWS
    ]
