"""The page on environments, and the README: their programs print, and their tables say, what is."""

import contextlib
import io
import re
from typing import Any

import jax
import pytest

from zero_envs import BraxEnvironment, JumanjiEnvironment, known_environments, make

from . import workspace


TEXT = (workspace.ROOT / "docs" / "environments.md").read_text(encoding="utf-8")


def _run(text: str, name: str) -> tuple[str, str]:
    """The program of a page, and what it prints."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, name, "exec"), {"__name__": "page"})
    return code, out.getvalue()


def test_the_page_prints_what_it_says():
    code, printed = _run(TEXT, "docs/environments.md")
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == 8 and printed.splitlines() == said


def test_the_readme_runs():
    path = workspace.ROOT / "packages" / "zero-envs" / "README.md"
    _, printed = _run(path.read_text(encoding="utf-8"), path.name)
    assert "<svg" in printed and "terminated=" in printed


def _rows(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, one for each name in the first column."""
    table = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [
        [name, *(column.strip() for column in columns)]
        for first, *columns in cells
        for name in re.findall("`(.*?)`", first)
    ]


@pytest.mark.slow
def test_the_table_of_brax():
    for name, observed, actions in _rows("brax"):
        env = BraxEnvironment(name)
        seen: Any = jax.eval_shape(lambda env=env: env.init(key=jax.random.key(0))).observation
        assert (seen.shape, env.action_size) == ((int(observed),), int(actions)), name


@pytest.mark.slow
def test_the_table_of_jumanji():
    for name, actions, features, limits in _rows("Jumanji"):
        env = JumanjiEnvironment(name)
        seen: Any = jax.eval_shape(lambda env=env: env.observe(env.init(key=jax.random.key(0))))
        assert (env.num_actions, f"`{list(seen.features.shape)}`") == (int(actions), features), name
        assert str(env.max_steps or "") in limits.split(", "), name


def test_the_table_of_gymnax_has_all_names():
    known = {name for name in known_environments() if name.startswith("gymnax/")}
    assert {f"gymnax/{name}" for name, *_ in _rows("gymnax")} == known


@pytest.mark.slow
def test_the_table_of_gymnax():
    for name, actions, features, limit in _rows("gymnax"):
        env: Any = make(f"gymnax/{name}")
        seen: Any = jax.eval_shape(lambda env=env: env.observe(env.init(key=jax.random.key(0))))
        size = getattr(env, "action_size", 0)
        said = f"{size} number{'s' if size > 1 else ''}" if size else str(env.num_actions)
        said += ", hidden" if env.hidden else ""
        assert (said, f"`{list(seen.features.shape)}`") == (actions, features), name
        assert env.max_steps == int(limit), name
