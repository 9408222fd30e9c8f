"""Whatever happens to a file of a run: it is named or harmless, and weights are never others."""

import dataclasses
import functools as ft
import os
import pathlib
import random
import shlex
import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import App, CheckpointError, Checkpoints, load, run, RunError, UsageError
from zero_train import template

from .damages import DAMAGES
from .test_kills import app_of
from .test_processes import SMALLEST


#: How many damages each file of a run gets: all for Nim's, one at random for those of an app's,
#: or as many as `DAMAGES` says.
EACH = os.environ.get("DAMAGES")
#: What no command reads but to show it, or which `--resume` writes again.
HARMLESS = ("report.html", "finished", "elo.json", "boards.json", "events.out")


def bits(tree: Any) -> list[bytes]:
    found = []
    for x in filter(lambda x: isinstance(x, jax.Array | np.ndarray), jax.tree.leaves(tree)):
        key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        found.append(np.asarray(jax.random.key_data(x) if key else x).tobytes())
    return found


def tried(capsys: pytest.CaptureFixture[str], use: Callable[[], Any]) -> tuple[Any, str]:
    """What is returned, or `None`, and what is said of errors."""
    capsys.readouterr()
    try:
        return use(), capsys.readouterr().err
    except (UsageError, RunError, CheckpointError) as e:
        assert "\n" not in str(e)
        return None, str(e)
    except OSError as e:  # which commands make one line of
        return None, f"{e.filename} {e.strerror}"


class Whole:
    """A run that is well, of 9 steps with checkpoints after 6 and 9 of them, and evaluations."""

    def __init__(self, app: App, folder: pathlib.Path, words: list[str]):
        # One loop for all, so that each program is compiled once.
        app = dataclasses.replace(app, build=ft.cache(app.build))
        self.app, self.folder, self.words = app, folder, words
        run(app, ["train", *words, f"--out={folder}"])
        self.template = template(load(app, folder).loop)
        self.players = {step: self.player(folder, step) for step in (0, 3, 6, 9)}
        self.state, self.later = self.states(folder), self.metrics(folder)

    def player(self, folder: pathlib.Path, step: int) -> list[bytes]:
        return bits(load(self.app, f"{folder}@{step}").player)

    def states(self, folder: pathlib.Path) -> list[bytes]:
        return bits(Checkpoints(folder / "checkpoints").restore(self.template, step=9))

    def metrics(self, folder: pathlib.Path) -> list[bytes]:
        return (folder / "metrics.jsonl").read_bytes().splitlines()[-3:]

    def files(self) -> list[pathlib.Path]:
        """Those of the newest checkpoint and player, and those beside them."""
        names = (p.relative_to(self.folder) for p in self.folder.rglob("*") if p.is_file())
        return sorted(name for name in names if len(name.parts) == 1 or name.parts[1] == "00000009")

    def check(self, capsys: pytest.CaptureFixture[str], folder: pathlib.Path, name: str) -> None:
        """Of a damaged copy in `folder`: what is loaded, and what becomes of it when it goes on."""
        parts = pathlib.PurePath(name).parts
        # One line of a configuration says that the run has another one.
        where = folder if name == "config.json" else folder.joinpath(*parts[:2])
        loaded, said = tried(capsys, lambda: load(self.app, folder))
        if loaded is None or loaded.step < 9:
            assert str(where) in said
        if loaded is not None:
            assert bits(loaded.player) == self.players[loaded.step]
        resume = ["train", *self.words, "--resume", f"--out={folder}"]
        resumed, said = tried(capsys, lambda: (run(self.app, resume), 9))
        if not any(harmless in name for harmless in HARMLESS):
            # The intervals of checkpoints may be others, and the command line gives them anew.
            assert str(where) in said or (resumed and name == "config.json")
        if resumed is not None:
            assert self.states(folder) == self.state
            assert name == "metrics.jsonl" or self.metrics(folder) == self.later
            assert bits(load(self.app, folder).player) == self.players[9]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nim", "othello", "monsters"])
def test_whatever_happens_to_a_file_of_a_run_is_named_or_harmless(tmp_path, name, capsys):
    """Every damage to every file of Nim's, one at random to every file of an app's."""
    app, flags = app_of(name), shlex.split(SMALLEST[name][1])
    words = ["--preset=tiny", "--steps=9", "--evaluate-every=3", "--checkpoint-every=3", *flags]
    whole, randomly = Whole(app, tmp_path / "whole", words), random.Random(0)
    each = int(EACH or (len(DAMAGES) if name == "nim" else 1))
    number = 0
    for file in whole.files():
        for damage in randomly.sample(DAMAGES, each):
            number += 1
            folder = tmp_path / f"{number}"
            shutil.copytree(whole.folder, folder)
            damage(folder / file, randomly)
            with capsys.disabled():
                print(f"{name}: {damage.__name__} {file}", flush=True)
            whole.check(capsys, folder, str(file))
            shutil.rmtree(folder)
    assert number > 20
