"""`othello train`."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import data_mesh, ExpertIterationState, Loop
from zero_train.app import AbstractRun, as_usage_error, EvaluationResult, Options, RunFiles

from ._build import build_loop, learning_rate
from ._config import Config
from ._ladder import Ladder
from ._report import write_report


def train(config: Config, options: Options) -> None:
    """Trains until all steps are done, the time is up, or the process gets a signal to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    run = lambda files: _Run(config, loop, files)
    if zero_train.app.train(config, loop, options, run, steps=config.steps):
        print(f"The run is in {options.out}. To play against it: othello play {options.out}")


class _Run(AbstractRun):
    """Evaluates players by matches and their Elo ratings."""

    project = "zero-othello"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_loss": "value loss",
        "policy_entropy": "policy entropy",
        "value_error": "value error",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config, loop: Loop, files: RunFiles):
        self._config = config
        self._folder = files.folder
        self._schedule = learning_rate(config)
        # `build_loop` made them; the types of a `Loop` are more general.
        env: Any = loop.env
        agent: Any = loop.agent
        like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).target
        load = lambda step: files.parameters.restore(like, step=step)
        self._ladder = Ladder(config, env, agent, load, files.evaluations)
        self._write_elo()

    def parameters(self, agent: ExpertIterationState) -> PyTree[Array]:
        return agent.target

    def measure(self, step: int) -> Mapping[str, Any]:
        rate: Any = self._schedule(step * self._config.updates - 1)
        return {"learning_rate": float(rate)}

    def evaluate(self, step: int, parameters: PyTree[Array]) -> EvaluationResult | None:
        if step % self._config.ladder_every and step != self._config.steps:
            return None
        rows = self._ladder.meet(step, parameters)
        self._write_elo()
        elo, se = self._ladder.rating(step)
        return EvaluationResult(
            rows=rows,
            metrics={"elo": elo, "elo_se": se},
            figures={"Elo": f"{elo:.0f} ± {se:.0f}"},
            headline=_headline(rows[-1]),
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)

    def _write_elo(self) -> None:
        if self._ladder.rows:
            ratings = {"players": self._ladder.ratings()}
            self._folder.write("elo.json", json.dumps(ratings, indent=1) + "\n")


def _headline(row: Mapping[str, Any]) -> str:
    score, low, high = (100 * row[name] for name in ("score", "score_low", "score_high"))
    return (
        f"{score:.1f} % against {row['opponent']} ({low:.1f} to {high:.1f}; "
        f"{row['wins']} won, {row['draws']} drawn, {row['losses']} lost)"
    )
