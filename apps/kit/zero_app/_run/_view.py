"""The live view of a run while it trains."""

import collections
import contextlib
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


#: What the view calls the metrics that it shows, of those that there are.
SHOWN = {
    "loss": "loss",
    "policy_loss": "policy loss",
    "value_loss": "value loss",
    "auxiliary_loss": "auxiliary loss",
    "policy_entropy": "policy entropy",
    "value_error": "value error",
    "temperature": "temperature",
    "kl_nonparametric_relative": "KL of improvement",
    "kl_relative": "KL of policy",
    "kl_relative_mean": "KL of mean",
    "kl_relative_stddev": "KL of deviation",
    "failures": "failed episodes",
    "episode_return_mean": "return while exploring",
    "episode_length_mean": "length while exploring",
    "learning_rate": "learning rate",
}
#: The seconds between two plain lines.
EVERY = 20.0


class View:
    """A live view in a terminal, or else plain lines: one after the first step, and then one every
    few seconds.

    Use it in a `with` statement: on leaving, the terminal is given back with the last numbers on
    it. Whatever is printed meanwhile must go through `note`.
    """

    def __init__(self, total: int, *, start: int = 0, console: Console | None = None):
        """A run of `total` steps, of which `start` were done before."""
        self._total = total
        self._step = start
        self._last = -math.inf
        self._console = Console(highlight=False) if console is None else console
        self._metrics: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._figures: Mapping[str, str] = {}
        self._headline = ""
        self._waiting: tuple[str, str, float | None, float] | None = None
        # The first step also compiles, so it says nothing about the others.
        self._seconds: collections.deque[float] = collections.deque(maxlen=20)
        self._fresh = True
        live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4)
        self._live = live if self._console.is_terminal else None

    def __enter__(self) -> "View":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, step: int, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """Shows a step, with metrics as in metrics.jsonl. `timings` are `seconds` (of this step)
        and any of `positions_per_second`, `games_per_second`, `host_bytes` and `device_bytes`. Of
        what is missing, such as the returns of a step in which no episode ended, earlier values
        stay."""
        self._step = step
        self._metrics.update(metrics)
        self._timings.update(timings)
        if not self._fresh and "seconds" in timings:
            self._seconds.append(float(timings["seconds"]))
        fresh, self._fresh = self._fresh, False
        if self._due() or (self._live is None and (fresh or step == self._total)):
            self.note(self._line())

    def evaluation(self, figures: Mapping[str, str], headline: str) -> None:
        """Shows the result of an evaluation: labelled figures beside the progress, and a line below
        them."""
        self._figures, self._headline = figures, headline
        if self._live is None:
            said = [*(f"{label} {figure}" for label, figure in figures.items()), headline]
            self.note("; ".join(filter(None, said)))

    @contextlib.contextmanager
    def waiting(self, what: str, expected: float | None) -> Iterator[None]:
        """Shows a moving bar in place of that of the steps, for something that takes long; without
        a terminal a line, unless it is known that it takes less than `EVERY` seconds. `expected` is
        how many seconds it took last time, if that is known."""
        last_time = "" if expected is None else f" (took {expected:.0f} s last time)"
        if self._live is None and (expected is None or expected > EVERY):
            self.note(f"{what}{last_time}")
        self._waiting = what, last_time, expected, time.monotonic()
        self._last = time.monotonic()
        try:
            yield
        finally:
            self._waiting = None

    def still(self) -> None:
        """Says where there is no terminal that what takes long still goes on. Call it often."""
        if self._waiting is not None and self._due():
            what, _, _, began = self._waiting
            self.note(f"{what}: {time.monotonic() - began:.0f} s so far")

    def _due(self) -> bool:
        """Whether it is time for another plain line."""
        now = time.monotonic()
        if self._live is not None or now - self._last < EVERY:
            return False
        self._last = now
        return True

    def note(self, text: str) -> None:
        """Prints a line, above the live view."""
        self._console.print(Text(text), soft_wrap=True)

    def _left(self) -> str:
        if self._step >= self._total:
            return "done"
        if not self._seconds:
            return "time left unknown"
        mean = statistics.fmean(self._seconds)
        return f"{clock(mean * (self._total - self._step))} left"

    def _rate(self, what: str) -> str | None:
        rate = self._timings.get(f"{what}_per_second")
        return None if rate is None else f"{number(float(rate))} {what}/s"

    def _line(self) -> str:
        """The plain form."""
        parts = [f"step {self._step}/{self._total}"]
        parts += [f"{label} {value}" for label, value in self._learning().items()]
        parts += [x for x in (self._rate("positions"), self._rate("games")) if x is not None]
        return "  ".join([*parts, self._left()])

    def _render(self) -> RenderableType:
        """The live form: a bar, then two columns."""
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        if self._waiting is not None:
            what, last_time, expected, began = self._waiting
            seconds = time.monotonic() - began
            known = expected is not None and seconds < expected
            progress = ProgressBar(total=expected, completed=seconds) if known else None
            bar.add_row(
                progress or ProgressBar(pulse=True), Text(f"{what}: {seconds:.0f} s{last_time}")
            )
        else:
            state = f"{self._step}/{self._total} steps, {self._left()}"
            bar.add_row(ProgressBar(total=self._total, completed=self._step), state)
        if not self._metrics:
            return bar

        columns = Table.grid(padding=(0, 4))
        columns.add_row(_pairs(self._learning()), _pairs(self._progress()))
        parts: list[RenderableType] = [bar, Text(), columns]
        if self._headline:
            parts.append(Padding(Text(self._headline), (1, 0, 0, 1)))
        return Group(*parts)

    def _learning(self) -> dict[str, str]:
        shown = {}
        for name, label in SHOWN.items():
            if name in self._metrics:
                value = f"{float(self._metrics[name]):.4g}"
                if name.startswith("kl_"):
                    value += " times its bound"
                elif name.startswith("episode_") and "episode_count" in self._metrics:
                    value += f" (mean of {int(self._metrics['episode_count'])} episodes)"
                shown[label] = value
        return shown

    def _progress(self) -> dict[str, str]:
        shown = {}
        for what in ("positions", "games"):
            if what in self._metrics:
                shown[what] = f"{int(self._metrics[what]):,}"
            if (rate := self._rate(what)) is not None:
                shown[f"{what} a second"] = rate.split()[0]
        if "seconds" in self._timings:
            shown["last step"] = f"{float(self._timings['seconds']):.3g} s"
        for name, label in (("host_bytes", "memory"), ("device_bytes", "device memory")):
            if name in self._timings:
                shown[label] = f"{float(self._timings[name]) / 1e9:.3g} GB"
        return shown | dict(self._figures)


def clock(seconds: float) -> str:
    """`125.2` as `2:05`, `7384` as `2:03:04`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(value: float) -> str:
    """Three digits of a small number, whole thousands of a large one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _pairs(rows: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right", min_width=8)
    for label, value in rows.items():
        table.add_row(Text(label), Text(value))
    return table
