"""Tables for a terminal, a page, Markdown and LaTeX."""

import dataclasses
import re
from collections.abc import Sequence

import rich.box
from rich.console import Console
from rich.table import Table as Drawn

from .._command._errors import as_line
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
    """A table whose cells are plain text.

    **Attributes:**

    - `title`, `header`, `rows`: the first column names the rows.
    - `note`: sentences below it.
    """

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
        return "\n".join(
            [
                "\\begin{table}",
                "\\centering",
                f"\\caption{{{mark(' '.join(filter(None, [f'{self.title}.', self.note])))}}}",
                f"\\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                "\\toprule",
                line(self.header),
                "\\midrule",
                *map(line, self.rows),
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}\n",
            ]
        )


def as_document(tables: Sequence[Table], ending: str) -> str:
    """The tables as a file with this ending, .md or .tex."""
    if ending == ".md":
        return "\n".join(one.markdown() for one in tables)
    return "\n".join(["% needs \\usepackage{booktabs}", *(one.latex() for one in tables)])
