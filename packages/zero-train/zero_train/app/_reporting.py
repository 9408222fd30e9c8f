"""The report of a run while it goes on, and at its end."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import jax

from .. import RunError, RunFolder
from ._app import App, write_report
from ._report import PRESET


def write_preset(app: App[Any], folder: RunFolder) -> None:
    """Keeps the preset that the run begins with, from which the report says what differs."""
    name = app.preset or next(iter(app.presets))
    preset = {"name": name, "config": dataclasses.asdict(app.presets[name])}
    folder.write(PRESET, json.dumps(preset, indent=2) + "\n")


class Report:
    """The report of a run that goes on, written again where that costs less than 1 % of its time.

    It is read again by the browser, too.
    """

    def __init__(self, app: App[Any], folder: RunFolder):
        self._app, self._folder = app, folder
        self._began, self._spent, self._last = time.monotonic(), 0.0, _FIRST_REPORT

    def write_if_due(self) -> None:
        """Writes it where enough time has passed. A disk that refuses it does not end the run."""
        now = time.monotonic()
        if jax.process_index() > 0 or 100 * (self._spent + self._last) > now - self._began:
            return
        with contextlib.suppress(OSError, RunError):
            write_report(self._app, self._folder.path, refresh=_REFRESH)
        self._last = time.monotonic() - now
        self._spent += self._last


#: The seconds that the first report is expected to take, and between two readings by a browser.
_FIRST_REPORT, _REFRESH = 2.0, 60


@contextlib.contextmanager
def reported(app: App[Any], folder: RunFolder) -> Iterator[Report]:
    """Writes the report at the end. Where an error ends the run, that error is raised, and not
    another one that the report may meet for the same reason, such as a full disk."""
    report = Report(app, folder)
    if jax.process_index() > 0:
        yield report
        return
    try:
        yield report
    except BaseException:
        with contextlib.suppress(OSError, RunError):
            write_report(app, folder.path)
        raise
    write_report(app, folder.path)
