"""The page on environments of one's own: its game is Chomp, and the commands know it."""

import functools as ft
import re

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from zero_app import run
from zero_cli._apps import APP

from . import workspace


@pytest.fixture(scope="module")
def page():
    return workspace.run_page("your-own-environment")


@ft.cache
def wins(bar):
    """Whether the player to move wins, by all games from a bar of such rows."""
    return any(not wins(eaten) for _, eaten in moves(bar) if any(eaten))


def moves(bar):
    squares = ((row, column) for row, length in enumerate(bar) for column in range(length))
    for row, column in squares:
        yield (row, column), bar[:row] + tuple(min(length, column) for length in bar[row:])


def test_the_search_finds_the_move_that_wins(page):
    names, printed, said = page
    assert printed == said
    winning = [square for square, left in moves((3, 3)) if any(left) and not wins(left)]
    assert said[-1] == str(*winning)
    assert names.env.render(names.states[0]).count("<rect") == 6


def test_moves_eat_what_they_should(page):
    env = page[0].Chomp()
    step = jax.jit(lambda state, action: env.step(state, action, key=jr.key(0)))
    for bar in [(4, 4, 4), (4, 2, 1), (3, 3, 0), (1, 0, 0)]:
        state = jnp.arange(4)[None] < jnp.array(bar)[:, None]
        for (row, column), expected in moves(bar):
            left, transition = step(state, jnp.int32(4 * row + column))
            assert tuple(left.sum(axis=1).tolist()) == expected
            assert bool(transition.last) == (not any(expected)) == (transition.reward == -1)


def test_the_commands_know_it(tmp_path, capsys):
    text = (workspace.ROOT / "docs" / "your-own-environment.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    (tmp_path / "chomp.py").write_text(code, encoding="utf-8")
    run(APP, ["list", f"{tmp_path}/chomp.py:Chomp"])
    assert "alphazero" in capsys.readouterr().out
