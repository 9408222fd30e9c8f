"""`minesweeper train`."""

import dataclasses
import functools as ft
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import data_mesh, ExpertIterationState
from zero_train.app import AbstractRun, as_usage_error, Options, Records, Standing

from ._agents import build_agent, FOLLOWED
from ._boards import FILE, guesses, opinions
from ._build import build_env, build_learner, build_loop, learning_rate
from ._config import Config
from ._eval import result_row
from ._measure import measure
from ._report import write_report


#: Who is measured at the end besides.
COMPARED = ("belief-constant", "tiebreak", "minprob")
# Boards in the report.
_PICTURED = 5


def train(config: Config, options: Options) -> None:
    """Trains until the configured steps are done, the time is up, or a signal asks to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    run = lambda records: _Run(config, records)
    zero_train.app.train(config, loop, options, run, steps=config.steps)
    print(f"The run is in {options.out}; look at it with: minesweeper watch {options.out}")


class _Run(AbstractRun):
    """Measures the network alone and inside the search, beside who has no network."""

    project = "zero-minesweeper"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_error": "value error",
        "auxiliary_loss": "mine loss",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config, records: Records):
        self._config = config
        self._schedule = learning_rate(config)
        self._env = build_env(config)
        self._learner = build_learner(config)
        self._key = jr.fold_in(jr.key(config.seed), 1)
        self._folder = records.folder

    def player(self, agent: ExpertIterationState) -> PyTree[Array]:
        return agent.params

    def measure(self, step: int) -> Mapping[str, Any]:
        rate: Any = self._schedule(step * self._config.updates - 1)
        return {"learning_rate": float(rate)}

    def evaluate(self, step: int, player: PyTree[Array]) -> Standing | None:
        config = self._config
        last = step == config.steps
        if step % config.evaluate_every and not last:
            return None
        # It lies on every device of the mesh, and an evaluation would run on all of them.
        player = jax.device_put(player, jax.devices()[0])
        thoughts = opinions(self._env, self._guesses, self._learner.evaluator(player))
        self._folder.write(FILE, json.dumps(thoughts))
        names = FOLLOWED + COMPARED if last else FOLLOWED
        rows = [self._row(name, player, (4 if last else 1) * config.boards) for name in names]
        network, belief = rows[:2]
        return Standing(
            rows=rows,
            metrics={
                "win_rate": belief["win_rate"],
                "win_se": belief["win_se"],
                "network_win_rate": network["win_rate"],
            },
            figures={
                "wins": f"{belief['win_rate']:.3f} ± {belief['win_se']:.3f}",
                "network alone": f"{network['win_rate']:.3f} ± {network['win_se']:.3f}",
            },
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)

    @ft.cached_property
    def _guesses(self) -> list[Any]:
        """The same boards every time; to find them takes seconds."""
        key = jr.fold_in(jr.key(self._config.seed), 2)
        return guesses(self._env, _PICTURED, key=key)

    def _row(self, name: str, params: PyTree[Array], boards: int) -> dict[str, Any]:
        config = self._config
        actor = build_agent(
            name,
            self._env,
            config=dataclasses.replace(config, player_simulations=config.simulations),
            evaluate=self._learner.evaluator(params),
        )
        # The same boards for everybody, every time.
        key = jr.clone(self._key)
        once = config.boards  # so that the last evaluation is no other program
        measured = measure(self._env, actor, boards=boards, key=key, timed=False, at_once=once)
        row = result_row(name, measured)
        # A clock's figure would differ in a run that was resumed.
        del row["moves_per_second"]
        return row
