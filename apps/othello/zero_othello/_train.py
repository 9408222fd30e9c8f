"""`othello train`: the loop around the loop, with the clock, the log and the disk."""

import dataclasses
import pathlib
import time
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
from ._errors import as_usage_error
from ._ladder import Ladder
from ._report import write_report
from ._sinks import TensorBoardSink, WandbSink
from ._view import View


#: Flags that say how long to train and what to watch: a resumed run may change them.
MAY_DIFFER = ("checkpoint_every",)


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run is run; unlike a [`zero_othello.Config`][], nothing here changes its numbers."""

    out: pathlib.Path
    resume: bool = False
    max_minutes: float | None = None
    devices: int = 1
    wandb: bool = False


def train(config: Config, options: Options) -> None:
    """Trains until the configured steps are done, the time is up, or a signal asks to stop.

    However it ends, the whole state is saved, so that `--resume` goes on exactly where it was.
    """
    started = time.monotonic()
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    stored = dataclasses.asdict(config)
    with RunFolder.create(
        options.out, stored, resume=options.resume, may_differ=MAY_DIFFER
    ) as folder:
        run = _Run(config, loop, folder)
        if options.resume:
            run.restore()
        run.open_sinks(wandb=options.wandb)
        with StopSignal() as stop, View(config.steps, start=run.done) as view:
            run.go(stop, view, started, options.max_minutes)
        write_report(folder.path)
    print(f"The run is in {options.out}; play against it with: othello play {options.out}")


class _Run:
    """One run in progress: the training state and everything that is kept of it on disk."""

    def __init__(self, config: Config, loop: Loop, folder: RunFolder):
        self.config = config
        self.loop = loop
        self.folder = folder
        self.sinks: list[Sink] = []
        self.checkpoints = Checkpoints(folder.path / "checkpoints")
        self.players = Checkpoints(folder.path / "players", keep=None)
        self.schedule = learning_rate(config)
        self.state: LoopState | None = None
        self.done = 0
        self.totals = {"positions": 0, "games": 0}
        self.saved: int | None = None
        self.ladder = self._new_ladder([])

    def restore(self) -> None:
        """Goes back to the last checkpoint and forgets what was logged after it."""
        state = self.checkpoints.restore(template(self.loop))
        self.state = state
        self.done = self.saved = int(state.agent.updates) // self.config.updates
        self.folder.rewind(self.done)
        self.players.rewind(self.done)
        lines = read_lines(self.folder.path / "metrics.jsonl")
        if lines:
            self.totals = {name: int(lines[-1][name]) for name in self.totals}
        self.ladder = self._new_ladder(read_lines(self.folder.path / "evaluations.jsonl"))

    def open_sinks(self, *, wandb: bool) -> None:
        """TensorBoard always, Weights & Biases on request."""
        resumed_at = self.done if self.done else None
        self.sinks.append(TensorBoardSink(self.folder.path, resumed_at=resumed_at))
        if wandb:
            with as_usage_error():
                sink = WandbSink("zero-othello", self.folder.path, self.folder.config)
            self.sinks.append(sink)

    def go(self, stop: StopSignal, view: View, started: float, max_minutes: float | None) -> None:
        """Steps until done, out of time or asked to stop; then saves."""
        state = self.state
        if state is None:
            view.note("compiling, then filling the replay with the first games")
            state = init(self.loop, key=jr.fold_in(jr.key(self.config.seed), 0))
            state = fill(self.loop, state)
            jax.block_until_ready(state)
            view.note(f"first games played after {time.monotonic() - started:.0f} s")
        try:
            while self.done < self.config.steps and not stop.requested:
                if max_minutes is not None and time.monotonic() - started > 60 * max_minutes:
                    view.note(f"--max-minutes {max_minutes:g} are over")
                    break
                state = self._step(state, view)
            if stop.requested:
                view.note(f"{stop.name} came: saving; go on with --resume")
            self._save(state)
        finally:
            for sink in self.sinks:
                sink.close()

    def _step(self, state: LoopState, view: View) -> LoopState:
        began = time.perf_counter()
        state, new = step(self.loop, state)
        metrics: dict[str, Any] = jax.device_get(new)
        seconds = time.perf_counter() - began
        number = self.done + 1
        # Before anything is logged or saved; the update itself has refused to learn from it.
        check_finite(number, metrics)
        counts = {name: int(metrics[name]) for name in self.totals}
        for name, count in counts.items():
            self.totals[name] += count
        self.done = number
        metrics |= self.totals
        rate: Any = self.schedule(number * self.config.updates - 1)
        metrics["learning_rate"] = float(rate)
        timings = {"seconds": seconds} | {
            f"{name}_per_second": count / seconds for name, count in counts.items()
        }
        if number % self.config.ladder_every == 0 or number == self.config.steps:
            metrics |= self._climb(state, view)
        self.folder.log(number, metrics, timings)
        for sink in self.sinks:
            sink.log(number, metrics | timings)
        view.update(number, metrics, timings)
        if number % self.config.checkpoint_every == 0:
            self._save(state)
        return state

    def _climb(self, state: LoopState, view: View) -> dict[str, float]:
        """Puts the current player on the ladder."""
        params = state.agent.average
        self.players.save(self.done, params)
        for row in self.ladder.meet(self.done, params):
            self.folder.log_evaluation(self.done, row)
        self.ladder.write(self.folder.path / "elo.json")
        elo, error = self.ladder.rating(self.done)
        view.standing(elo, error, self.ladder.rows[-1])
        return {"elo": elo, "elo_se": error}

    def _save(self, state: LoopState) -> None:
        if self.saved != self.done:
            self.checkpoints.save(self.done, state)
            if self.done not in self.players.steps():
                self.players.save(self.done, state.agent.average)
            self.saved = self.done

    def _new_ladder(self, rows: list[dict[str, Any]]) -> Ladder:
        # `build_loop` made them; a Loop only promises any environment and agent.
        env: Any = self.loop.env
        agent: Any = self.loop.agent
        return Ladder(self.config, env, agent, self._player, rows)

    def _player(self, number: int) -> PyTree[Array]:
        like = jax.eval_shape(lambda: self.loop.agent.init(key=jr.key(0))).average
        return self.players.restore(like, step=number)
