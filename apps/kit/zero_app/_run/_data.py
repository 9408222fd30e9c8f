"""Every episode of the evaluations of runs, as a table for other programs."""

import csv
import importlib.util
import io
import pathlib
from collections.abc import Iterator
from typing import Any

from .._command._errors import UsageError
from ._disk import write_whole
from ._film import check_path
from ._groups import Groups
from ._measures import identifying, NAMING
from ._options import MISSING


def check_data(path: pathlib.Path | None, flag: str) -> None:
    """Refuses a file that `write_data` cannot write."""
    check_path(path, flag, [".csv", ".parquet"])
    if path is not None and path.suffix == ".parquet" and not importlib.util.find_spec("pyarrow"):
        raise UsageError(MISSING.format(f"{flag} {path}", "pyarrow"))


def write_data(path: pathlib.Path, groups: Groups) -> None:
    """Writes a row for each episode, as CSV or Parquet."""
    rows = list(_rows(groups))
    if not rows:
        raise UsageError(
            f"{path} would be empty: no run has an episodes.jsonl, as those of older versions and "
            "those that were not evaluated; leave the flag out."
        )
    there = dict.fromkeys(name for row in rows for name in row)
    # Whose episode it is stands before what it was.
    names = [*_ABOUT, *(name for name in NAMING if name in there)]
    names += [name for name in there if name not in names]
    if path.suffix == ".parquet":
        return _write_parquet(path, {name: [row.get(name) for row in rows] for name in names})
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


_ABOUT = ("configuration", "run", "seed", "step", "positions", "episode")


def _rows(groups: Groups) -> Iterator[dict[str, Any]]:
    for name, runs in groups.items():
        for run in runs:
            seed = run.config.get("seed")
            for row in run.episodes():
                lists = {key: values for key, values in row.items() if isinstance(values, list)}
                where = name, str(run.folder), seed, row["step"], row.get("positions")
                for number, each in enumerate(zip(*lists.values(), strict=True)):
                    about = dict(zip(_ABOUT, (*where, number), strict=True))
                    yield about | identifying(row) | dict(zip(lists, each, strict=True))


def _write_parquet(path: pathlib.Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    content = io.BytesIO()
    try:
        pyarrow.parquet.write_table(pyarrow.table(columns), content)
    except pyarrow.ArrowException as e:
        raise UsageError(f"{path} cannot be written: {e}; give a file that ends with .csv.") from e
    write_whole(path, content.getvalue())
