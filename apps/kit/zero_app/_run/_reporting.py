"""The report of a run while it goes on and at its end, and the episodes in it."""

import contextlib
import dataclasses
import json
import pathlib
import time
from typing import Any

import jax.random as jr
import numpy as np

from zero_train import is_writer

from .._command._errors import warn
from ._app import App, write_report
from ._checkpoint import Checkpoints
from ._disk import write_whole
from ._film import FILMS, pack
from ._folder import RunFolder
from ._lines import RunError
from ._players import load, player_of, player_shapes
from ._provenance import PLAYERS, run_of


def play_films(
    app: App[Any], run: str, number: int, seed: int = 0, *, run_code: bool = False
) -> None:
    """Plays episodes of so many players of a run, of an app that has pictures of them, from the
    first to the newest, and keeps them in its folder for this report and all later ones, in place
    of the earlier ones. All begin with the same randomness."""
    assert app.episode is not None
    newest = load(app, run, run_code=run_code)
    saved = Checkpoints(pathlib.Path(run) / PLAYERS, keep=None)
    steps = [step for step in saved.steps() if step <= newest.step]
    # Evenly over the training, and the newest in any case.
    goals = np.linspace(newest.step, 0, number)
    chosen = sorted({min(steps, key=lambda step: abs(step - goal)) for goal in goals})
    shapes, played = player_shapes(newest.loop), {}
    for step in chosen:
        one = newest
        if step != newest.step:
            actor = player_of(newest.loop, saved.restore(shapes, step=step))
            one = dataclasses.replace(newest, player=actor, step=step)
        frames = list(app.episode(one, jr.key(seed)))
        # A long episode is shown in fewer pictures, with its end.
        every = max(1, -(-len(frames) // _MOST_FRAMES))
        shown = frames[:-1:every] + frames[-1:]
        heading = f"The player of step {step:,}" if step else "Before training"
        played[heading] = pack(shown)
    kept = {"run": run_of(pathlib.Path(run)), "films": played}
    write_whole(pathlib.Path(run) / FILMS, json.dumps(kept))


#: The pictures of an episode in a report.
_MOST_FRAMES = 200


class Report:
    """The report of a run that goes on, written again where that costs less than 1 % of its time,
    and read again by the browser. It is also written at the end of a `with` block.

    Where an error ends the block, that error is raised, and not another one that the report may
    meet for the same reason, such as a full disk. A damaged log does not end the run.
    """

    def __init__(self, app: App[Any], folder: RunFolder):
        self._app, self._folder = app, folder
        self._began, self._spent, self._last = time.monotonic(), 0.0, _FIRST_REPORT

    def write_if_due(self) -> None:
        """Writes it where enough time has passed. A disk that refuses it does not end the run, nor
        does a mistake in an app's page."""
        now = time.monotonic()
        if not is_writer() or 100 * (self._spent + self._last) > now - self._began:
            return
        # At the end of the run an error is heard.
        with contextlib.suppress(Exception):
            write_report(self._app, self._folder.path, refresh=_REFRESH)
        self._last = time.monotonic() - now
        self._spent += self._last

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if not is_writer():
            return
        if error is not None:
            with contextlib.suppress(Exception):
                write_report(self._app, self._folder.path)
            return
        try:
            write_report(self._app, self._folder.path)
        except RunError as e:
            warn(str(e))


#: The seconds that the first report is expected to take, and between two readings by a browser.
_FIRST_REPORT, _REFRESH = 2.0, 60
