"""`othello train`: the loop around the loop, with the clock, the log and the disk."""

import dataclasses
import importlib.util
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_train import (
    check_finite,
    Checkpoints,
    data_mesh,
    fill,
    init,
    Loop,
    LoopState,
    read_lines,
    RunFolder,
    Sink,
    step,
    StopSignal,
    template,
)

from ._build import build_loop, learning_rate
from ._config import Config
from ._errors import as_usage_error, UsageError
from ._ladder import Ladder
from ._report import write_report
from ._sinks import TensorBoardSink, WandbSink
from ._view import View


#: A resumed run may save more or less often; everything else must be as it was.
MAY_DIFFER = ("checkpoint_every",)


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run is run. Unlike `Config`, nothing here changes its numbers."""

    out: pathlib.Path
    resume: bool = False
    max_minutes: float | None = None
    devices: int = 1
    wandb: bool = False


def train(config: Config, options: Options) -> None:
    """Trains until the configured steps are done, the time is up, or a signal asks to stop.

    In each case the whole state is saved, so that `--resume` goes on exactly where it was.
    """
    started = time.monotonic()
    if options.wandb and importlib.util.find_spec("wandb") is None:
        raise UsageError("--wandb needs the extra wandb; add `--extra wandb`, or leave it out.")
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    stored = dataclasses.asdict(config)
    with (
        StopSignal() as stop,
        RunFolder.create(
            options.out, stored, resume=options.resume, may_differ=MAY_DIFFER
        ) as folder,
    ):
        books = _Books(config, loop, folder)
        state, done = books.restore() if options.resume else (None, 0)
        with View(config.steps, start=done) as view, _Sinks(folder, done, options.wandb) as sinks:
            if state is None:
                view.note("compiling, then filling the replay with the first games")
                state = fill(loop, init(loop, key=jr.fold_in(jr.key(config.seed), 0)))
                books.save(0, state)
                view.note(f"the first games were over after {time.monotonic() - started:.0f} s")
            try:
                while done < config.steps and not stop.requested:
                    if options.max_minutes is not None:
                        if time.monotonic() - started > 60 * options.max_minutes:
                            view.note(f"--max-minutes {options.max_minutes:g} are over")
                            break
                    began = time.perf_counter()
                    state, new = step(loop, state)
                    new = jax.device_get(new)
                    seconds = time.perf_counter() - began
                    done += 1
                    metrics = books.record(done, new, state.agent.average)
                    timings = _timings(new, seconds)
                    folder.log(done, metrics, timings)
                    sinks.log(done, metrics | timings)
                    view.update(done, metrics, timings)
                    if "elo" in metrics:
                        view.standing(metrics["elo"], metrics["elo_se"], books.ladder.rows[-1])
                    if done % config.checkpoint_every == 0:
                        books.save(done, state)
                if stop.requested:
                    view.note(f"{stop.name} came: saving; go on with --resume")
                books.save(done, state)
            finally:
                write_report(folder.path)
    print(f"The run is in {options.out}; play against it with: othello play {options.out}")


class _Books:
    """What a run keeps on disk besides its log: checkpoints, players and their ladder."""

    def __init__(self, config: Config, loop: Loop, folder: RunFolder):
        self._config = config
        self._loop = loop
        self._folder = folder
        self._checkpoints = Checkpoints(folder.path / "checkpoints")
        self._players = Checkpoints(folder.path / "players", keep=None)
        self._schedule = learning_rate(config)
        self._totals = {"positions": 0, "games": 0}
        self.ladder = self._new_ladder([])

    def restore(self) -> tuple[LoopState, int]:
        """The last checkpoint and its step; what came after it is forgotten."""
        state = self._checkpoints.restore(template(self._loop))
        done = int(state.agent.updates) // self._config.updates
        self._folder.rewind(done)
        self._players.rewind(done)
        lines = read_lines(self._folder.path / "metrics.jsonl")
        if lines:
            self._totals = {name: int(lines[-1][name]) for name in self._totals}
        self.ladder = self._new_ladder(read_lines(self._folder.path / "evaluations.jsonl"))
        self._write_elo()
        return state, done

    def record(self, done: int, new: Mapping[str, Any], params: PyTree[Array]) -> dict[str, Any]:
        """Everything to log of a step, with its Elo if it is the ladder's turn.

        **Raises:** [`zero_train.NonFiniteError`][] before anything is written; the update itself
        has refused to learn from such a step.
        """
        check_finite(done, new)
        for name in self._totals:
            self._totals[name] += int(new[name])
        rate: Any = self._schedule(done * self._config.updates - 1)
        metrics = {**new, **self._totals, "learning_rate": float(rate)}
        if done % self._config.ladder_every == 0 or done == self._config.steps:
            self._players.save(done, params)
            for row in self.ladder.meet(done, params):
                self._folder.log_evaluation(done, row)
            self._write_elo()
            metrics["elo"], metrics["elo_se"] = self.ladder.rating(done)
        return metrics

    def save(self, done: int, state: LoopState) -> None:
        """Saves the whole state, and the player it holds."""
        if done not in self._checkpoints.steps():
            self._checkpoints.save(done, state)
        if done not in self._players.steps():
            self._players.save(done, state.agent.average)

    def _write_elo(self) -> None:
        if self.ladder.rows:
            ratings = {"players": self.ladder.ratings()}
            self._folder.write("elo.json", json.dumps(ratings, indent=1) + "\n")

    def _new_ladder(self, rows: list[dict[str, Any]]) -> Ladder:
        # `build_loop` made them; a Loop only promises any environment and agent.
        env: Any = self._loop.env
        agent: Any = self._loop.agent
        return Ladder(self._config, env, agent, self._player, rows)

    def _player(self, number: int) -> PyTree[Array]:
        like = jax.eval_shape(lambda: self._loop.agent.init(key=jr.key(0))).average
        return self._players.restore(like, step=number)


class _Sinks:
    """TensorBoard always, Weights & Biases on request."""

    def __init__(self, folder: RunFolder, done: int, wandb: bool):
        self._sinks: list[Sink] = [TensorBoardSink(folder.path, resumed_at=done or None)]
        if wandb:
            self._sinks.append(WandbSink("zero-othello", folder.path, folder.config))

    def __enter__(self) -> "_Sinks":
        return self

    def __exit__(self, *_: object) -> None:
        for sink in self._sinks:
            sink.close()

    def log(self, done: int, metrics: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.log(done, metrics)


def _timings(new: Mapping[str, Any], seconds: float) -> dict[str, float]:
    rates = {f"{name}_per_second": int(new[name]) / seconds for name in ("positions", "games")}
    return {"seconds": seconds, **rates}
