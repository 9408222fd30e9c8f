"""Tables for a terminal, a page, Markdown and LaTeX, and of every episode for other programs."""

import csv
import dataclasses
import importlib.util
import io
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table as Drawn

from .._command._errors import as_line, UsageError
from ._disk import write_whole
from ._film import check_path
from ._groups import Groups
from ._measures import identifying, NAMING
from ._options import MISSING
from ._page import table, text


#: What stands for a character in LaTeX.
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclasses.dataclass(frozen=True)
class Table:
    """A table whose cells are plain text, of which the first column names the rows. The `note` are
    sentences below it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def print(self, console: Console) -> None:
        """Draws the table in a terminal."""
        box = rich.box.SIMPLE if console.is_terminal else rich.box.ASCII
        drawn = Drawn(title=self.title, title_justify="left", box=box)
        for name in self.header:
            drawn.add_column(as_line(name), overflow="fold")
        for row in self.rows:
            drawn.add_row(*map(as_line, row))
        console.print(drawn)

    def html(self) -> str:
        """A part of a page."""
        note = f"<p>{text(self.note)}</p>" if self.note else ""
        return table(self.title, self.header, self.rows) + note

    def markdown(self) -> str:
        """A table of GitHub's Markdown under a heading."""
        mark = lambda cell: re.sub(r"([\\`*_{}\[\]<>&|~#$])", r"\\\1", as_line(cell))
        line = lambda cells: f"| {' | '.join(cells)} |"
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [line(map(mark, cells)) for cells in (self.header, *self.rows)]
        note = f"\n{mark(self.note)}\n" if self.note else ""
        return "\n".join([f"## {mark(self.title)}\n", lines[0], line(rule), *lines[1:], note])

    def latex(self) -> str:
        """A table for the package booktabs."""
        mark = lambda cell: "".join(_LATEX.get(character, character) for character in as_line(cell))
        line = lambda cells: f"{' & '.join(map(mark, cells))} \\\\"
        caption = mark(" ".join(filter(None, [f"{self.title}.", self.note])))
        top = ["\\begin{table}", "\\centering", f"\\caption{{{caption}}}"]
        top += [f"\\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}", "\\toprule"]
        rows = [line(self.header), "\\midrule", *map(line, self.rows)]
        return "\n".join([*top, *rows, "\\bottomrule", "\\end{tabular}", "\\end{table}\n"])


def as_document(tables: Sequence[Table], ending: str) -> str:
    """The tables as a file with this ending, .md or .tex."""
    if ending == ".md":
        return "\n".join(one.markdown() for one in tables)
    return "\n".join(["% needs \\usepackage{booktabs}", *(one.latex() for one in tables)])


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
    written = io.StringIO()
    writer = csv.DictWriter(written, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, written.getvalue())


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
