"""The perfect player of a small game."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import measure, UsageError
from zero_cli import _perfect
from zero_cli._worlds import build_world
from zero_envs.testing import Nim


def test_it_knows_every_position_of_tic_tac_toe_and_draws_with_itself():
    env = build_world("pgx/tic_tac_toe").env
    player: Any = _perfect.perfect(env)
    table = player.evaluate
    seen, logits, values = table.args
    # Of 5 478 positions 958 are ends; the opening is a draw, whichever move begins.
    assert seen.shape == (4520, 18)
    assert values[0] == 0 and np.array_equal(logits[0], np.zeros(9))
    games: dict[str, Any] = {"players": 2, "games": 64, "max_moves": 9, "opening_plies": 0}
    row, _ = measure(env, player, player, **games, key=jax.random.key(0))
    assert row["draws"] == row["played"] == 64
    row, _ = measure(env, player, None, **games, key=jax.random.key(1))
    assert row["losses"] == 0 < row["wins"]


def test_a_run_can_meet_it(zero, tiny_run):
    flags = ["--opponent", "perfect", "--games", 16, "--opening-plies", 0]
    code, out, _ = zero("eval", tiny_run, *flags)
    assert code == 0 and "against perfect" in out and " 0 won" in out


class Toss(Nim):
    """Nim in which a toss decides whether a stone more is taken, beside an array."""

    beside: Any = None

    def step(self, state, action, *, key):
        more = jax.random.bernoulli(key).astype(jnp.int32)
        return super().step(state, jnp.minimum(action + more, self.most - 1), key=key)


def test_chance_in_a_move_is_refused():
    with pytest.raises(UsageError, match="with chance"):
        _perfect.perfect(Toss(heap=9, most=3, beside=jnp.zeros(2)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pgx/animal_shogi", "of more than 100 positions"),
        ("pgx/kuhn_poker", "with chance or hidden parts"),
    ],
)
def test_other_games_are_refused(name, said, monkeypatch):
    monkeypatch.setattr(_perfect, "POSITIONS", 100)
    with pytest.raises(UsageError, match=said):
        _perfect.perfect(build_world(name).env)
