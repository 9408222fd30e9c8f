"""A run of many steps needs no more memory the longer it takes."""

import os
import pathlib

import pytest

from .test_processes import Run


#: How many steps; 100 000 take a quarter of an hour on a busy core. There must be enough for a
#: report before the end, the first of which is due after 200 seconds.
STEPS = int(os.environ.get("STEPS", "100000"))
_EVALUATIONS = 50


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="memory is read there")
def test_a_long_run_needs_no_more_memory_towards_its_end(tmp_path):
    """With logs, evaluations, reports, and checkpoints by the clock. The first report, which is
    due after 200 seconds, imports what draws it, so memory is compared from then on."""
    often = f"--evaluate-every={STEPS // _EVALUATIONS}"
    run = Run(tmp_path / "run", 1, f"--steps={STEPS}", often, "--checkpoint-every=0", devices=1)
    evaluations, pages = run.folder / "evaluations.jsonl", []
    report = run.folder / "report.html"
    for number in (_EVALUATIONS // 10, _EVALUATIONS - 1):
        run.until(
            lambda n=number: report.exists() and evaluations.exists() and _lines(evaluations) >= n,
            4 * 3600,
        )
        memory = pathlib.Path(f"/proc/{run.processes[0].pid}/statm").read_text()
        pages.append(int(memory.split()[1]))
    assert run.ended() == [0], run.everything()
    print(
        f"resident pages after a tenth of {STEPS} steps and a report, and towards the end: {pages}"
    )
    assert pages[1] <= 1.03 * pages[0]


def _lines(path: pathlib.Path) -> int:
    return path.read_bytes().count(b"\n")
