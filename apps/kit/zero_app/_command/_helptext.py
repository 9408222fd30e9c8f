"""The texts of `--help`, as wide as the terminal."""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import shutil
import textwrap
from typing import Any


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
