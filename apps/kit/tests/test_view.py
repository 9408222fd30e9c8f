import io
import types

import pytest
from rich.console import Console

from zero_app import View
from zero_app._run import _view
from zero_app._run._view import clock, number


METRICS = {"loss": 3.25, "policy_loss": 2.9, "value_error": 0.625, "games": 12, "positions": 4096}
HEADLINE = (
    "search with 64 simulations a move: 92.0 % against random (95 % interval 88.6 to 95.4; 200 "
    "games: 180 won, 8 drawn, 12 lost)"
)


def _timings(seconds: float, **more: float) -> dict[str, float]:
    return {"seconds": seconds, "positions_per_second": 1234.5, "games_per_second": 20.25, **more}


def _run(console: Console, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(_view, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    with View(40, start=10, console=console) as view:
        view.note("[not markup] starting")
        view.update(11, METRICS, _timings(50.0, host_bytes=1.25e9, device_bytes=4.8e9))
        for step in range(12, 21):
            now[0] += 3.0
            view.update(step, METRICS, _timings(3.0))
        view.evaluation({"Elo": "512 ± 32"}, HEADLINE)
        for expected in (19.0, 41.0):
            with view.waiting("compiling", expected):
                for _ in range(6):
                    now[0] += 5.0
                    view.still()


def test_without_a_terminal_there_are_plain_lines(monkeypatch):
    """After the first step, and every 20 seconds, also while something takes long."""
    text = io.StringIO()
    _run(Console(file=text, width=60), monkeypatch)
    metrics = "loss 3.25  policy loss 2.9  value error 0.625  1,234 positions/s  20.2 games/s"
    assert text.getvalue().splitlines() == [
        "[not markup] starting",
        f"step 11/40  {metrics}  time left unknown",
        # 22 steps of 3 s to go: the first step's compilation does not count.
        f"step 18/40  {metrics}  1:06 left",
        f"Elo 512 ± 32; {HEADLINE}",
        "compiling: 20 s so far",
        "compiling (took 41 s last time)",
        "compiling: 20 s so far",
    ]


def test_a_terminal_shows_everything(monkeypatch):
    text = io.StringIO()
    _run(Console(file=text, force_terminal=True, color_system=None, width=90), monkeypatch)
    lines = text.getvalue().splitlines()
    assert any("[not markup] starting" in line for line in lines)
    last = [" ".join(line.split()) for line in lines[-16:]]
    assert any(line.endswith("20/40 steps, 1:00 left") for line in last)
    assert [line[0] for line in lines[-3:-1]] == [" ", " "]  # of the headline, which is indented
    shown = " ".join(last)
    for part in (
        "loss 3.25",
        "policy loss 2.9",
        "value error 0.625",
        "positions 4,096",
        "positions a second 1,234",
        "games 12",
        "games a second 20.2",
        "last step 3 s",
        "memory 1.25 GB",
        "device memory 4.8 GB",
        "Elo 512 ± 32",
        HEADLINE,
    ):
        assert part in shown


def test_the_terminal_is_given_back_after_an_error():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    with pytest.raises(RuntimeError), View(3, console=console):
        raise RuntimeError
    assert text.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again


@pytest.mark.parametrize(
    ("value", "text"), [(125.2, "2:05"), (7384.0, "2:03:04"), (0.4, "0:00"), (59.7, "1:00")]
)
def test_clock(value, text):
    assert clock(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456, "0.123"), (99.94, "99.9"), (123456.7, "123,457")]
)
def test_number(value, text):
    assert number(value) == text
