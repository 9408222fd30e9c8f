"""Writes docs/names.md, a line for every public name: `python docs/_names.py`."""

import importlib
import inspect
import pathlib
import re


PAGE = pathlib.Path(__file__).with_name("names.md")
MODULES = (
    "zero_envs",
    "zero_envs.testing",
    "zero_search",
    "zero_search.mctx",
    "zero_memory",
    "zero_nets",
    "zero_train",
    "zero_train.returns",
    "zero_train.losses",
    "zero_train.app",
)


def public(module: str) -> dict[str, object]:
    """The classes, functions and constants that a module exports and that are ours, by name."""
    found = importlib.import_module(module)
    kept = {}
    for name, value in sorted(vars(found).items(), key=lambda item: item[0].lower()):
        code = inspect.isclass(value) or inspect.isroutine(value)
        if name.startswith("_") or not (code or isinstance(value, tuple)):
            continue
        if not code or str(value.__module__).startswith(module.partition(".")[0]):
            kept[name] = value
    return kept


def about(value: object) -> str:
    """The first sentence of a docstring, in one line of Markdown and without references."""
    if isinstance(value, tuple):
        return f"`{value!r}`"
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    paragraph = re.sub(r"\[`[\w.]*?(\w+)`\]\[\]", r"`\1`", paragraph)
    paragraph = re.sub(r" \([^()]*(\d{4}|https:)[^()]*(\([^()]*\)[^()]*)*\)", "", paragraph)
    sentence = re.split(r"(?<=[^.][a-z0-9)`\]])[.:](?: |$)", paragraph, maxsplit=1)[0]
    return sentence.rstrip(".:,").replace("|", "\\|")


def page() -> str:
    """The page."""
    parts = [
        "# All public names\n\n"
        "A line for every public name of the packages: the first sentence of its docstring. "
        "`help(name)` prints the rest.\n"
    ]
    for module in MODULES:
        rows = [f"| `{name}` | {about(value)} |" for name, value in public(module).items()]
        parts.append("\n".join([f"## {module}\n", "| name | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
