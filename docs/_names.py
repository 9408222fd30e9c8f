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
    "zero_app",
)


def public(module: str) -> dict[str, str]:
    """What is said about the classes, functions, constants and types that a module exports and that
    are ours, by name: docstrings, and the `#:` comments of those that have none."""
    found = importlib.import_module(module)
    package = module.partition(".")[0]
    assert found.__file__ is not None
    sources = [
        file.read_text() for file in sorted(pathlib.Path(found.__file__).parent.rglob("*.py"))
    ]
    kept = {}
    for name, value in sorted(inspect.getmembers(found), key=lambda item: item[0].lower()):
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if inspect.isclass(value) or inspect.isroutine(value):
            if str(value.__module__).startswith(package):
                kept[name] = inspect.getdoc(value) or ""
            continue
        comment = re.compile(rf"((?:^#: .*\n)+){name}\b.* = ", re.MULTILINE)
        if match := next(filter(None, map(comment.search, sources)), None):
            kept[name] = match[1].replace("#: ", "")
    return kept


def about(said: str) -> str:
    """The first sentence of a docstring, in one line of Markdown and without references."""
    paragraph = " ".join(said.partition("\n\n")[0].split())
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
        rows = [f"| `{name}` | {about(said)} |" for name, said in public(module).items()]
        parts.append("\n".join([f"## {module}\n", "| name | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
