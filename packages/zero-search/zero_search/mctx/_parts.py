"""mctx's Q transforms as this package's."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import mctx

from .._qtransform import (
    AbstractQTransform,
    ByMinMax,
    ByParentAndSiblings,
    CompletedByMixedValue,
)


# mctx's, ours, and our names for those of mctx's options that have another.
_KNOWN: list[tuple[Callable[..., Any], AbstractQTransform, dict[str, str]]] = [
    (mctx.qtransform_by_min_max, ByMinMax(0, 1), {"min_value": "low", "max_value": "high"}),
    (mctx.qtransform_by_parent_and_siblings, ByParentAndSiblings(), {}),
    (mctx.qtransform_completed_by_mix_value, CompletedByMixedValue(), {}),
]


def as_qtransform(given: Callable[..., Any]) -> AbstractQTransform:
    """Our part for one of mctx's functions, or a `functools.partial` of one with options."""
    if isinstance(given, AbstractQTransform):
        return given
    function, positional, options = given, (), {}
    if isinstance(given, functools.partial):
        function, positional, options = given.func, given.args, given.keywords
    for theirs, ours, names in _KNOWN:
        if function is theirs and not positional:
            # Complains of what the function itself would.
            inspect.signature(function).bind(None, None, **options)
            return with_options(ours, **{names.get(name, name): x for name, x in options.items()})
    raise ValueError(
        f"`qtransform={given}`: must be one of mctx's three, a `functools.partial` of "
        "one with keywords, or a `zero_search.AbstractQTransform`: write yours as that."
    )


def with_options(part: Any, **options: Any) -> Any:
    """The part with other options, which may be traced numbers as in mctx."""
    names = list(options)
    where = lambda p: tuple(getattr(p, name) for name in names)
    return eqx.tree_at(where, part, tuple(options.values())) if names else part
