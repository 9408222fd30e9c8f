"""Sweeps: many runs with other flags, chosen by Optuna."""

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .._command._config import AbstractConfig
from .._command._errors import as_line, flag, NonFiniteError, UsageError, warn
from ._app import App
from ._disk import write_whole
from ._folder import RunFolder
from ._lines import lines_of
from ._measures import MEASURES
from ._options import folder_of, following, of_seeds, Options
from ._provenance import CONFIG, finished_steps
from ._space import space_of, Sweep
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
    workers of the sweep together; what was there already counts.

    A trial's value is the mean over its seeds of what the last evaluation measured. A trial whose
    worker was killed is begun anew by another one, and goes on where it has its folder.

    **Arguments:**

    - `seeds`: those of `--seeds`.
    - `trains`: the command that trains, for what is said at the end.

    **Raises:** [`zero_app.UsageError`][] where the storage has a sweep over something else.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # A worker's signs of life are an experiment of Optuna's since 2021.
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    space = space_of(config, asked.over, asked.sampler)
    study, url = _study(config, asked, space, seeds)
    ends = None if asked.minutes is None else began + 60 * asked.minutes
    objective = _Objective(app, config, asked, seeds, preset, space, ends)
    print(f"the trials are in {url}; `optuna-dashboard {url}` shows them", flush=True)
    failures = (NonFiniteError, UsageError, _SuperfluousError)
    while ends is None or time.monotonic() < ends:
        trials = study.get_trials(deepcopy=False)
        of = lambda state, trials=trials: any(trial.state.name == state for trial in trials)
        enough = sum(_AGAIN not in x.user_attrs for x in trials) >= asked.trials
        if enough and not of("WAITING"):
            if not of("RUNNING"):
                break
            optuna.storages.fail_stale_trials(study)
            time.sleep(1)
            continue
        try:
            study.optimize(objective, n_trials=1, catch=failures)
        except (_StoppedError, KeyboardInterrupt):
            _again(study, study.trials[-1])
            print("the sweep is stopped; the same command goes on with it")
            break
    _finish(config, asked, study, trains)


#: The attribute of a trial that is begun anew: the number of the first one.
_AGAIN = "trial"


def _again(study: Any, trial: Any) -> None:
    study.enqueue_trial(trial.params, {_AGAIN: trial.user_attrs.get(_AGAIN, trial.number)})


def _study(
    config: AbstractConfig, asked: Sweep, space: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[Any, str]:
    """The study in the storage, and its URL."""
    import optuna
    import sqlalchemy.exc

    asked.out.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(asked.out / CONFIG):
        raise UsageError(f"{asked.out} holds a run; give a sweep another --out.")
    url = asked.storage or f"sqlite:///{asked.out / 'sweep.db'}"
    samplers: dict[str, Callable[[], Any]] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "grid": lambda: optuna.samplers.GridSampler({k: x.choices for k, x in space.items()}),
    }
    try:
        storage = optuna.storages.RDBStorage(
            url, heartbeat_interval=_BEAT, grace_period=_GONE, heartbeat_stale_trial_callback=_again
        )
        study = optuna.create_study(
            storage=storage,
            sampler=samplers[asked.sampler](),
            pruner=optuna.pruners.MedianPruner() if asked.prune else optuna.pruners.NopPruner(),
            study_name=asked.out.name,
            direction="maximize",
            load_if_exists=True,
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as e:
        reason = as_line(str(e)).partition(" (Background")[0][:200]
        raise UsageError(f"--storage {url} cannot be used ({reason}); give another one.") from e
    plain = {name: repr(one) for name, one in space.items()}
    fixed = {k: v for k, v in dataclasses.asdict(config).items() if k not in space}
    ours = json.loads(json.dumps({"space": plain, "seeds": [*seeds], "fixed": fixed}))
    theirs = study.user_attrs.get("sweep")
    if theirs is None:
        study.set_user_attr("sweep", ours)
    elif theirs != ours:
        other = next(name for name in ours if ours[name] != theirs[name])
        what = {"space": "over something else", "seeds": "of other seeds"}.get(
            other, "with other flags"
        )
        raise UsageError(f"{url} has a sweep called {asked.out.name} {what}; give another --out.")
    return study, url


@dataclasses.dataclass(frozen=True)
class _Objective:
    """Trains the runs of a trial."""

    app: App[Any]
    config: AbstractConfig
    asked: Sweep
    seeds: Sequence[int]
    preset: str
    space: Mapping[str, Any]
    ends: float | None

    def __call__(self, trial: Any) -> float:
        first = trial.user_attrs.get(_AGAIN, trial.number)
        earlier = trial.study.get_trials(deepcopy=False)[: trial.number]
        if first == trial.number:
            if sum(_AGAIN not in x.user_attrs for x in earlier) >= self.asked.trials:
                trial.set_user_attr(_AGAIN, -1)
                raise _SuperfluousError
        config = dataclasses.replace(self.config, **_chosen(trial, self.space))
        print(f"trial {first}: {_words(trial)}", flush=True)
        left = None if self.ends is None else max(0.0, self.ends - time.monotonic()) / 60
        out = self.asked.out / f"trial-{first}"
        options = Options(out=out, resume=True, launch=self.asked.launch, max_minutes=left)
        values: list[float] = []
        for one, where in of_seeds(config, options, self.seeds):
            done = len(values) * self.app.num_steps(one)
            told = lambda step, result, done=done, before=tuple(values): _report(
                trial, done + step, [*before, *value_of(result.rows)]
            )
            where = dataclasses.replace(where, resume=os.path.lexists(where.out / CONFIG))
            one = following(one, where)
            RunFolder.check(**folder_of(one, where))
            train(self.app, one, where, self.preset, told=told)
            if not finished_steps(where.out):
                raise _StoppedError
            values += value_of(lines_of(where.out / "evaluations.jsonl"))
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
    """What the last of these lines of evaluations measured: the first of the measures that
    `compare` knows, which is a score, a share of games won, or a mean return."""
    for row in reversed([*rows]):
        for measure in MEASURES:
            if row.get(measure.name) is not None:
                return [float(row[measure.name])]
    return []


def _report(trial: Any, step: int, values: Sequence[float]) -> None:
    import optuna

    if values:
        trial.report(sum(values) / len(values), step)
    if trial.should_prune():
        raise optuna.TrialPruned


def _finish(config: AbstractConfig, asked: Sweep, study: Any, trains: str) -> None:
    """Says what was found, and writes best.json."""
    done = [x for x in study.get_trials(deepcopy=False) if x.state.name in ("COMPLETE", "PRUNED")]
    complete = [x for x in done if x.state.name == "COMPLETE"]
    if not complete:
        warn("no trial was trained to its end")
        return
    number = lambda trial: trial.user_attrs.get(_AGAIN, trial.number)
    print(f"{len(done)} trials, {len(done) - len(complete)} of them pruned; the best:")
    for trial in sorted(complete, key=lambda x: -x.value)[:5]:
        print(f"  {trial.value:.6g}  trial {number(trial)}: {_words(trial)}")
    best = study.best_trial
    stored = dataclasses.asdict(dataclasses.replace(config, **best.params))
    write_whole(asked.out / "best.json", json.dumps(stored, indent=2) + "\n")
    print(f"{trains} --config {asked.out / 'best.json'} trains it")
