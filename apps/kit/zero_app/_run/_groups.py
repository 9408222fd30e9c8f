"""Runs that differ in the seed alone, taken together, and what was measured of them."""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .._command._errors import UsageError
from .._command._lazy import zero_train
from ._disk import children
from ._measures import Measure, measured
from ._options import MAY_DIFFER
from ._provenance import CONFIG
from ._report import MAX_SERIES, StoredRun
from ._results import natural
from ._stored import no_run


#: Runs by the name of their configuration, in each group one for a seed.
Groups = Mapping[str, Sequence[StoredRun]]
#: Groups of runs, each with the folder that was given.
Parts = list[list[tuple[str, StoredRun]]]
#: The entries of a configuration that may differ in a group.
_ANY = ("seed", *MAY_DIFFER)
# The letters of a name that says what differs.
_LONGEST = 60


def run_folders(given: str) -> list[pathlib.Path]:
    """A folder that holds a run, or those in it that do, as where several seeds were trained."""
    folder, holds = pathlib.Path(given), lambda path: os.path.lexists(path / CONFIG)
    if holds(folder):
        return [folder]
    inside = sorted(filter(holds, children(folder)), key=lambda path: natural(path.name))
    if not inside:
        raise UsageError(f"{no_run(folder)}; give folders of runs.")
    return inside


def grouped(runs: Sequence[tuple[str, StoredRun]]) -> dict[str, list[StoredRun]]:
    """Puts runs together whose stored configurations differ only in the seed, and in what changes
    no result. A second run of a seed, such as one of other code, belongs to another group, with the
    others of its folder. Each run comes with the folder that was given, which may have held
    several."""
    if len(runs) < 2:
        given = "1 run was" if runs else "no run was"
        raise UsageError(f"{given} given; give the folders of two or more.")
    paths = [run.folder.resolve() for _, run in runs]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UsageError(f"the same run was given twice, {twice}; give different runs.")
    worlds = list(dict.fromkeys(run.environment for _, run in runs))
    if len(worlds) > 1:
        raise UsageError(
            f"runs of different environments were given, {' and '.join(worlds[:2])}, whose figures "
            "do not compare; give runs of one."
        )
    parts: dict[tuple[str, str], Parts] = {}
    for given, run in runs:
        own = {key: value for key, value in run.config.items() if key not in _ANY}
        kind = json.dumps(own, sort_keys=True), given
        _first_without([run], parts.setdefault(kind, [])).append((given, run))
    kinds: dict[str, Parts] = {}
    for (kind, _), split in parts.items():  # what one folder has of a kind stays together
        for part in split:
            members = [run for _, run in part]
            _first_without(members, kinds.setdefault(kind, [])).extend(part)
    groups = [group for every in kinds.values() for group in every]
    if len(groups) > MAX_SERIES:
        raise UsageError(
            f"runs of {len(groups)} configurations were given; give those of at most {MAX_SERIES}, "
            "with any number of seeds."
        )
    members = [[run for _, run in group] for group in groups]
    origins = [dict.fromkeys(given for given, _ in group) for group in groups]
    return dict(zip(_names(origins, members), members, strict=True))


def _first_without(runs: Sequence[StoredRun], groups: Parts) -> list[tuple[str, StoredRun]]:
    """The first of the groups that has none of the seeds of these runs, or a new one."""
    seeds = {run.config.get("seed") for run in runs}
    for group in groups:
        if seeds.isdisjoint(run.config.get("seed") for _, run in group):
            return group
    groups.append([])
    return groups[-1]


def _names(given: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Short names that differ: of the folders that were given, where each has one group, or else of
    what differs between the groups."""
    known = [pathlib.Path(next(iter(one))).resolve().name for one in given if len(one) == 1]
    if len(set(known)) == len(groups):
        return known
    if any(len(runs) > 1 for runs in groups):
        rows = differences({str(i): runs for i, runs in enumerate(groups)}, but=_ANY)
        columns = list(zip(*rows, strict=True))[1:]
        keys = [row[0] for row in rows]
        said = [" ".join(map("=".join, zip(keys, column, strict=True))) for column in columns]
        if len(set(said)) == len(groups) and max(map(len, said)) <= _LONGEST:
            return said
    first = [str(runs[0].folder) for runs in groups]
    more = [f" and {len(runs) - 1} more" if len(runs) > 1 else "" for runs in groups]
    return list(map("".join, zip(first, more, strict=True)))


def differences(groups: Groups, *, but: Sequence[str] = ()) -> list[list[str]]:
    """The entries of the configurations that are not the same in all groups, with the values of
    each, `but` for those of these names."""
    keys = dict.fromkeys(key for runs in groups.values() for run in runs for key in run.config)

    def values(key: str, runs: Sequence[StoredRun]) -> str:
        return ", ".join(dict.fromkeys(str(run.config.get(key, "absent")) for run in runs))

    rows = [[key, *(values(key, runs) for runs in groups.values())] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1 and row[0] not in but]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """What was measured of the runs of a group: at the `steps` at which all of them were evaluated,
    at least one, the `means` of the episodes of each run."""

    steps: list[int]
    means: Float[np.ndarray, "steps runs"]

    @functools.cached_property
    def middle(self) -> "zero_train.Estimate":
        """The interquartile mean over the runs at each step, with its interval."""
        return zero_train.stratified_bootstrap(zero_train.interquartile_mean, self.means[..., None])


def evaluated(name: str, runs: Sequence[StoredRun]) -> dict[tuple[str, Measure], Evaluated]:
    """What was measured of all runs of a group, by how it is called; nothing before any
    evaluation."""
    each: list[dict[tuple[str, Measure], dict[int, float]]] = []
    for run in runs:
        each.append({})
        for row in run.evaluations:
            for key in measured(row):
                each[-1].setdefault(key, {})[row["step"]] = row[key[1].name]
    found = {}
    for key in each[0]:
        columns = [one.get(key, {}) for one in each]
        if steps := sorted(set(columns[0]).intersection(*columns)):
            means = np.array([[column[step] for column in columns] for step in steps], np.float64)
            found[key] = Evaluated(steps, means)
    if any(each) and not found:
        raise UsageError(
            f"there is no step at which all {len(runs)} runs of {name} were evaluated; train them "
            "on, or leave some out."
        )
    return found
