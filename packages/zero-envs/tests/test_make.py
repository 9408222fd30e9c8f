"""Environments by name."""

import pytest

from zero_envs import BraxEnvironment, CartPole, environment_names, Game2048, make, PgxEnvironment


def test_every_kind_of_name():
    assert isinstance(make("cartpole", max_steps=7), CartPole)
    assert isinstance(make("2048"), Game2048)
    assert isinstance(make("brax/inverted_pendulum", backend="generalized"), BraxEnvironment)
    game = make("pgx/tic_tac_toe")
    assert isinstance(game, PgxEnvironment) and game.num_actions == 9
    assert isinstance(make("zero_envs:Pendulum"), type(make("pendulum")))


def test_a_class_of_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from zero_envs import CartPole\n\n\nclass Mine(CartPole):\n    pass\n")
    one, other = make(f"{path}:Mine"), make(f"{path}:Mine", max_steps=3)
    assert type(one).__name__ == "Mine" and type(one) is type(other)
    with pytest.raises(ValueError, match=r"no attribute 'Other'; give module:Class"):
        make(f"{path}:Other")


def test_names_are_listed_with_their_library():
    names = environment_names()
    assert len(names) == len(set(names)) > 50
    assert {"2048", "brax/ant", "cartpole", "jumanji/Snake-v1", "pgx/othello"} <= set(names)


@pytest.mark.parametrize(
    "name, message",
    [
        ("cartpol", r'make\("cartpol"\): .*Did you mean cartpole'),
        ("pgx/otello", "Did you mean othello"),
        ("atari/pong", r"no such library. Allowed: brax/NAME, jumanji/NAME, pgx/NAME"),
        ("jumanj/Snake-v1", "Did you mean jumanji/Snake-v1"),
        ("no_such_module:Game", r"No module named 'no_such_module'; give module:Class"),
        ("missing.py:Game", r"there is no file missing.py"),
        ("zero_envs:TimeLimit", r"missing .*; give a class that needs no other arguments"),
        ("zero_envs:__version__", "is not callable"),
        (":Game", "Empty module name"),
    ],
)
def test_unknown_names_are_refused_with_similar_ones(name, message):
    with pytest.raises(ValueError, match=message) as raised:
        make(name)
    assert "\n" not in str(raised.value)
