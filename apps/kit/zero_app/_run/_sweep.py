"""Sweeps: many runs with other flags, chosen by Optuna."""

import dataclasses
import itertools
import json
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .._command._config import AbstractConfig
from .._command._errors import as_line, flag, NonFiniteError, UsageError, warn
from ._app import App, sharing
from ._disk import write_whole
from ._evaluation import EvaluationResult
from ._folder import RunFolder, StopSignal
from ._lines import lines_of, RunError
from ._measures import measured
from ._options import folder_of, following, of_seeds, Options
from ._provenance import CONFIG, finished_steps
from ._space import grid_of, space_of, Sweep
from ._train import train


Config = TypeVar("Config", bound=AbstractConfig)

#: The seconds between two signs of life of a worker, and those after which it counts as gone.
_BEAT, _GONE = 5, 30


class _StoppedError(Exception):
    """A signal came, or the time is over, before a trial was done."""


class _SuperfluousError(Exception):
    """Another worker has begun the last trial."""


def sweep(
    app: App[Config],
    config: Config,
    asked: Sweep,
    seeds: Sequence[int],
    preset: str,
    *,
    began: float,
    trains: str,
) -> None:
    """Trains a run for each trial, in `OUT/trial-0` and so on, until there are enough, by all
    workers of the sweep together; what was there already counts. At the end it says how the command
    `trains` trains the best.

    A trial's value is the mean over its seeds of what the last evaluation measured. A trial whose
    worker was killed is begun anew by another one, and goes on where it has its folder.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # A worker's signs of life are an experiment of Optuna's since 2021.
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    space = space_of(config, asked.over, asked.sampler)
    study, url = _study(config, asked, space, seeds)
    number = min(asked.trials, len(grid_of(space)) if asked.sampler == "grid" else asked.trials)
    ends = None if asked.minutes is None else began + 60 * asked.minutes
    stop = StopSignal(None if ends is None else ends - time.monotonic())
    objective = _Objective(sharing(app), config, asked, seeds, preset, space, number, stop)
    print(f"the trials are in {url}; `optuna-dashboard {url}` shows them", flush=True)
    failures, stopped = (NonFiniteError, UsageError, RunError, _SuperfluousError), True
    while True:
        trials = study.get_trials(deepcopy=False)
        of = lambda state, trials=trials: any(trial.state.name == state for trial in trials)
        enough = sum(_AGAIN not in x.user_attrs for x in trials) >= number
        if enough and not of("WAITING") and not of("RUNNING"):
            stopped = False
            break
        if stop.requested or (ends is not None and time.monotonic() >= ends):
            print("the sweep is stopped; the same command goes on with it")
            break
        if enough and not of("WAITING"):
            optuna.storages.fail_stale_trials(study)
            time.sleep(1)
            continue
        try:
            study.optimize(objective, n_trials=1, catch=failures)
        except (_StoppedError, KeyboardInterrupt):
            stop.requested = True
    _finish(config, asked, study, trains, stopped=stopped)


#: The attribute of a trial that is begun anew: the number of the first one. A trial that is left
#: out has another number there.
_AGAIN, _SUPERFLUOUS = "trial", -1


def _again(study: Any, trial: Any) -> None:
    study.enqueue_trial(trial.params, {_AGAIN: trial.user_attrs.get(_AGAIN, trial.number)})


def _study(
    config: AbstractConfig, asked: Sweep, space: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[Any, str]:
    """The study in the storage, and its URL."""
    import optuna
    import sqlalchemy
    import sqlalchemy.exc

    if not asked.storage and {*"?{}"} & {*str(asked.out)}:
        raise UsageError(
            f"--out {asked.out} was given; give a name without ?, {{ and }}, which have "
            "a meaning in the URL of its database, or --storage."
        )
    asked.out.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(asked.out / CONFIG):
        raise UsageError(f"{asked.out} holds a run; give a sweep another --out.")
    url, shown, name = asked.storage, "--storage", asked.out.resolve().name
    url = url or f"sqlite:///{asked.out / 'sweep.db'}"
    samplers = {"tpe": optuna.samplers.TPESampler}
    try:
        shown = sqlalchemy.make_url(url).render_as_string()  # without the password
        storage = optuna.storages.RDBStorage(
            url, heartbeat_interval=_BEAT, grace_period=_GONE, heartbeat_stale_trial_callback=_again
        )
        study = optuna.create_study(
            storage=storage,
            # The points of a grid are enqueued, so that no two workers draw the same.
            sampler=samplers.get(asked.sampler, optuna.samplers.RandomSampler)(),
            pruner=optuna.pruners.MedianPruner() if asked.prune else optuna.pruners.NopPruner(),
            study_name=name,
            direction="maximize",
            load_if_exists=True,
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, LookupError, ValueError) as e:
        reason = as_line(str(e)).partition(" (Background")[0][:200]
        raise UsageError(f"{shown} cannot be used ({reason}); give another --storage.") from e
    plain = {name: repr(one) for name, one in space.items()}
    fixed = {k: v for k, v in dataclasses.asdict(config).items() if k not in space}
    ours = json.loads(json.dumps({"space": plain, "seeds": [*seeds], "fixed": fixed}))
    theirs = study.user_attrs.get("sweep")
    if theirs is None and any(asked.out.glob("trial-*")):
        raise UsageError(f"{asked.out} has trials, and {shown} none of them; give another --out.")
    if theirs is None:
        study.set_user_attr("sweep", ours)
    elif theirs != ours:
        other = next(name for name in ours if ours[name] != theirs[name])
        what = {"space": "over something else", "seeds": "of other seeds"}.get(
            other, "with other flags"
        )
        raise UsageError(f"{shown} has a sweep called {name} {what}; give another --out.")
    # Points that were left out because there were enough trials may be wanted now.
    every = study.get_trials(deepcopy=False)
    known = [_point(x) for x in every if x.user_attrs.get(_AGAIN) != _SUPERFLUOUS]
    for point in grid_of(space)[: asked.trials] if asked.sampler == "grid" else ():
        if point not in known:  # Optuna itself takes points for equal that are near each other
            study.enqueue_trial(point)
    return study, shown


def _point(trial: Any) -> Mapping[str, Any] | int:
    """The point of a grid that a trial was enqueued with, which another worker may have enqueued
    too; of other trials their number."""
    return trial.system_attrs.get("fixed_params", trial.number)


@dataclasses.dataclass(frozen=True)
class _Objective:
    """Trains the runs of a trial."""

    app: App[Any]
    config: AbstractConfig
    asked: Sweep
    seeds: Sequence[int]
    preset: str
    space: Mapping[str, Any]
    number: int
    stop: StopSignal

    def __call__(self, trial: Any) -> float:
        first = trial.user_attrs.get(_AGAIN, trial.number)
        every = trial.study.get_trials(deepcopy=False)
        earlier = every[: trial.number]
        if first == trial.number:
            fresh = [x for x in earlier if _AGAIN not in x.user_attrs]
            tried = map(_point, fresh) if self.asked.sampler == "grid" else ()
            if len(fresh) >= self.number or _point(every[trial.number]) in tried:
                trial.set_user_attr(_AGAIN, _SUPERFLUOUS)
                raise _SuperfluousError
        try:
            return self._worth(trial, first)
        except (_StoppedError, KeyboardInterrupt):
            _again(trial.study, trial)
            raise
        except (NonFiniteError, UsageError, RunError) as e:
            warn(f"trial {first} failed: {e}")
            raise

    def _worth(self, trial: Any, first: int) -> float:
        config = dataclasses.replace(self.config, **_chosen(trial, self.space))
        print(f"trial {first}: {_words(trial)}", flush=True)
        out = self.asked.out / f"trial-{first}"
        asked = self.asked
        options = Options(out=out, resume=True, launch=asked.launch, run_code=asked.run_code)
        values: list[float] = []
        for one, where in of_seeds(config, options, self.seeds):
            done, log = len(values) * self.app.num_steps(one), where.out / "evaluations.jsonl"
            where = dataclasses.replace(where, resume=os.path.lexists(where.out / CONFIG))
            one = following(one, where)
            RunFolder.check(**folder_of(one, where))
            told = _Told(trial, done, [*values])
            for step, rows in itertools.groupby(lines_of(log), lambda row: row["step"]):
                told.report(step, rows)  # to a trial that goes on with the runs of an earlier one
            if not self.stop.requested:
                train(self.app, one, where, self.preset, stop=self.stop, told=told)
            if not finished_steps(where.out):
                raise _StoppedError
            values += value_of(lines_of(log))
        if not values:
            raise UsageError(f"the runs in {out} were not evaluated; give --evaluate-every less.")
        return sum(values) / len(values)


def _chosen(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """What the sampler chooses for each flag."""
    chosen = {}
    for name, one in space.items():
        if hasattr(one, "choices"):
            chosen[name] = trial.suggest_categorical(name, one.choices)
        else:
            suggest = trial.suggest_int if isinstance(one.low, int) else trial.suggest_float
            chosen[name] = suggest(name, one.low, one.high, log=one.log)
    return chosen


def _words(trial: Any) -> str:
    shown = {k: f"{x:.4g}" if isinstance(x, float) else x for k, x in trial.params.items()}
    return ", ".join(f"{flag(name)} {value}" for name, value in shown.items())


def value_of(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """What the last of these evaluations measured, where more is better: of its first line the
    first of the measures that `compare` knows, which is a score, a share of games won, or a mean
    return."""
    rows = [*rows]
    for row in rows:
        if row.get("step") == rows[-1].get("step"):
            for _, measure in measured(row):
                return [measure.better * float(row[measure.name])]
    return []


class _Told:
    """Reports each evaluation of a run to its trial, once, and ends a run that is to be pruned."""

    def __init__(self, trial: Any, done: int, before: Sequence[float]):
        """`done` steps were done by the trial's earlier seeds, whose values are `before`."""
        self._trial, self._done, self._before = trial, done, before
        self._steps: set[int] = set()

    def report(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        values = [*self._before, *value_of(rows)]
        if values and step not in self._steps:
            self._trial.report(sum(values) / len(values), self._done + step)
        self._steps.add(step)

    def __call__(self, step: int, result: EvaluationResult) -> None:
        import optuna

        self.report(step, result.rows)
        if self._trial.should_prune():
            raise optuna.TrialPruned


def _finish(
    config: AbstractConfig, asked: Sweep, study: Any, trains: str, *, stopped: bool
) -> None:
    """Says what was found, and writes best.json."""
    done = [x for x in study.get_trials(deepcopy=False) if x.state.name in ("COMPLETE", "PRUNED")]
    complete = [x for x in done if x.state.name == "COMPLETE"]
    if not complete:
        if stopped:
            return warn("no trial was trained to its end yet")
        raise UsageError("no trial was trained to its end; the lines above say why.")
    number = lambda trial: trial.user_attrs.get(_AGAIN, trial.number)
    print(f"{len(done)} trials, {len(done) - len(complete)} of them pruned; the best:")
    for trial in sorted(complete, key=lambda x: -x.value)[:5]:
        print(f"  {trial.value:.6g}  trial {number(trial)}: {_words(trial)}")
    best = study.best_trial
    stored = dataclasses.asdict(dataclasses.replace(config, **best.params))
    write_whole(asked.out / "best.json", json.dumps(stored, indent=2) + "\n")
    print(f"{trains} --config {asked.out / 'best.json'} trains it")
