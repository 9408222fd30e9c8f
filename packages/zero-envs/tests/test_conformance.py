"""Every game of pgx keeps every promise."""

import jax.random as jr
import pgx
import pytest

from zero_envs import PgxEnvironment
from zero_envs.testing import check_environment, EnvironmentReport


# How many steps until a few of 8 random games have ended.
FAST = {"kuhn_poker": 6, "tic_tac_toe": 12, "othello": 70}
SLOW = {
    "2048": 250,
    "animal_shogi": 260,
    "backgammon": 300,
    "chess": 520,
    "connect_four": 45,
    "gardner_chess": 260,
    "go_9x9": 170,
    "go_19x19": 730,
    "hex": 130,
    "leduc_holdem": 12,
    "minatar-asterix": 250,
    "minatar-breakout": 100,
    "minatar-freeway": 2600,
    "minatar-seaquest": 250,
    "minatar-space_invaders": 250,
    "shogi": 700,
}
THREE_PLAYERS = {"sparrow_mahjong"}


def _check(game: str, num_steps: int) -> EnvironmentReport:
    report = check_environment(PgxEnvironment(game), key=jr.key(0), num_steps=num_steps)
    assert report.terminated > 0, "no game ended, so no end was checked"
    assert report.truncated == 0
    return report


@pytest.mark.parametrize("game", FAST)
def test_quick_games(game: str):
    """Two players with passes, a card game, and one that ends in a few moves."""
    assert _check(game, FAST[game]).same_player == 0


@pytest.mark.slow
@pytest.mark.parametrize("game", SLOW)
def test_the_other_games(game: str):
    """All else that pgx has for one or two players."""
    report = _check(game, SLOW[game])
    if PgxEnvironment(game).num_players == 1:
        assert report.opponent == 0


def test_no_game_is_left_out():
    """A game that pgx adds must be added here."""
    assert FAST.keys() | SLOW.keys() | THREE_PLAYERS == set(pgx.available_envs())
