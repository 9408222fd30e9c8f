"""Words of a command line as the fields of a dataclass, the texts of `--help`, and what is wrong
with the words in one line."""

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import io
import itertools
import os
import pathlib
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import tyro

from ._config import check_fields
from ._errors import flag, UsageError


Arguments = TypeVar("Arguments")


def parse(kind: type[Arguments], prog: str, words: Sequence[str]) -> Arguments:
    """Parses the words of a command line with tyro. `kind` is a dataclass with a flag for each
    field, documented by the string below it, with numbers as in [`zero_app.AbstractConfig`][];
    `prog` is the command as the user writes it, such as `othello eval`. `--help` raises
    `SystemExit`."""
    arguments = parse_words(kind, prog, words)
    check_fields(arguments)
    return arguments


def peek(kind: type[Arguments], prog: str, words: Sequence[str]) -> Arguments:
    """Parses the flags of `kind` and ignores all others, for what must be known before
    [`zero_app.run`][] is called."""
    return _known(kind, prog, words, add_help=False)[0]


def parse_words(kind: Any, prog: str, words: Sequence[str], **options: Any) -> Any:
    """Parses words as `parse` does, without checking numbers. `options` are tyro's."""
    arguments, unknown = _known(kind, prog, words, **options)
    for name, value in _texts(arguments):
        given = f"{name}=" in words or (name, "") in itertools.pairwise(words)
        if given or value == "":
            said = name if given else name.removeprefix("--").upper()  # it has no flag
            raise UsageError(f"{said} was given without a value; give it one.")
    if unknown:
        given = unknown[0].partition("=")[0]
        switches = [flag(field.name) for field, x in _values(arguments) if isinstance(x, bool)]
        for name in (name for name in switches if f"{name}={unknown[0]}" in words):
            raise UsageError(
                f"{name}={unknown[0]} was given; {name} takes no value, give it or leave it out."
            )
        # The dashes, which all have, would make any two short names similar.
        flags = [flag(field.name).removeprefix("--") for field, _ in _values(arguments)]
        near = difflib.get_close_matches(given.removeprefix("--"), flags, 1, 0.7)
        hint = f"did you mean --{near[0]}?" if near else f"see {prog} --help."
        raise UsageError(f"{given} is no flag of {prog}; {hint}")
    return arguments


def _known(kind: Any, prog: str, words: Sequence[str], **options: Any) -> tuple[Any, list[str]]:
    """The parsed flags, and the words that tyro does not know."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            # Below some width its help is never done.
            if shutil.get_terminal_size().columns < 40:
                os.environ["COLUMNS"] = "40"
            if {"-h", "--help"} & {*words} and options.get("add_help", True):
                explain(options.get("default", kind))
                # tyro would join lines that begin with a letter.
                options["description"] = filled(options.get("description") or kind.__doc__, " ")
            return tyro.cli(kind, prog=prog, args=words, return_unknown_args=True, **options)
    except SystemExit as e:
        if not e.code:
            raise  # --help
        raise UsageError(_one_line(complaint.getvalue())) from e


def explain(kind: Any) -> None:
    """Gives tyro the string below each field of a dataclass or an instance, also of those inside,
    as one paragraph. By itself tyro (1.0.17) breaks it where the source does."""
    owners = (kind if isinstance(kind, type) else type(kind)).__mro__
    for owner in filter(dataclasses.is_dataclass, owners):
        # Without the source, as in a notebook, tyro has no texts either.
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            _explain(owner)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(inside := getattr(kind, field.name, None)):
            explain(inside)


@functools.cache
def _explain(owner: Any) -> None:
    body: Any = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    for field, below in itertools.pairwise(body.body):
        match field, below:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                own = owner.__dataclass_fields__[name]
                own.metadata = {**own.metadata, "help": " ".join(said.split())}


def filled(text: str, indent: str, first: str = "") -> str:
    """A paragraph as wide as the terminal, which begins with `first`."""
    width = min(100, shutil.get_terminal_size().columns)
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=first or indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _values(arguments: Any) -> Iterator[tuple[dataclasses.Field, Any]]:
    """All fields and their values, with those of dataclasses inside."""
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if dataclasses.is_dataclass(value):
            yield from _values(value)
        else:
            yield field, value


def _texts(arguments: Any) -> Iterator[tuple[str, Any]]:
    """The flags and the values of all fields where nothing at all is no value: Python makes the
    working folder of it, and a server all addresses. Others are empty by default."""
    for field, value in _values(arguments):
        if isinstance(value, tuple) and "" in value:
            yield flag(field.name), ""
        elif isinstance(value, str | pathlib.Path) and field.default != "":
            yield flag(field.name), value


def _one_line(text: str) -> str:
    """tyro draws a box of many lines, and has no public way to its message alone. The box's title
    and first paragraph say what is wrong; the words of Python in them are replaced by ours."""
    lines = [line.strip(" \u2500\u2502\u256d\u256e\u2570\u256f-+|") for line in text.splitlines()]
    said = itertools.takewhile(
        lambda line: not line.startswith(("Argument helptext", "For full helptext")),
        filter(None, lines),
    )
    title, *rest = said
    # Complaints about each of several types that a value might have are left out.
    text = " ".join(rest).partition(" Got errors:")[0].rstrip(".")
    for pattern, ours in _COMPLAINTS:
        if found := re.search(pattern, text):
            parts = found.groupdict(default="")
            choices = re.findall("'(.*?)'", parts.get("choices", ""))
            if "None" in choices:  # these come in any order
                choices = sorted({*choices} - {"None"})
            return f"{parts['flag']} {ours.format(**parts, allowed=', '.join(choices))}."
    text = f"{text.removeprefix('Error parsing ')}."
    # Some say their title again.
    return text if text.lower().startswith((title.lower(), "--")) else f"{title}: {text}"


_FLAG, _VALUE = r"(?P<flag>--[\w-]+)", r"(?P<quote>['\"])(?P<value>.*)(?P=quote)"
_WHOLE, _ANY = "{value} was given; give a whole number", "{value} was given; give a number"
#: Patterns of tyro's messages about a flag, and our messages for them.
_COMPLAINTS = (
    (rf"{_FLAG}: invalid literal for int.*: {_VALUE}", _WHOLE),
    (rf"{_FLAG}: could not convert string to float: {_VALUE}", _ANY),
    (rf"{_FLAG}: no type matching .*\bINT could be instantiated from \[{_VALUE}\]", _WHOLE),
    (rf"{_FLAG}: no type matching .*\bFLOAT could be instantiated from \[{_VALUE}\]", _ANY),
    (
        rf"invalid choice '(?P<value>.*)' for argument '{_FLAG}'. Expected one of (?P<choices>.*)",
        "{value} was given; give one of {allowed}",
    ),
    (rf"Missing value for argument '{_FLAG}'", "was given without a value; give it one"),
    (r"Missing from (?P<flag>[\w ]+): (?P<value>\S+)", "needs {value} first; see {flag} --help"),
)
