"""Environments by name."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from zero_envs import (
    AbstractContinuousEnvironment,
    BraxEnvironment,
    CartPole,
    environment_facts,
    Game2048,
    known_environments,
    make,
    PgxEnvironment,
)


#: The environments of this package.
OWN = (
    *("2048", "cartpole", "lasertag", "lightdark", "lightdark-10", "lightdark-5", "minesweeper"),
    *("monsters", "othello", "pendulum", "rocksample-11-11", "rocksample-15-15", "rocksample-7-8"),
    *("tag", "tiger"),
)
#: Their registries have them, and `make` refuses them; of MuJoCo Playground it refuses all robots.
REFUSED = {
    "gymnasium/Pusher-v4",
    "gymnax/MNISTBandit-bsuite",
    "jumanji/Connector-v3",
    "jumanji/LevelBasedForaging-v0",
    "jumanji/SearchAndRescue-v0",
    "pgx/sparrow_mahjong",
}


def test_every_kind_of_name():
    assert isinstance(make("cartpole", max_steps=7), CartPole)
    assert isinstance(make("2048"), Game2048)
    assert isinstance(make("brax/inverted_pendulum", backend="generalized"), BraxEnvironment)
    game = make("pgx/tic_tac_toe")
    assert isinstance(game, PgxEnvironment) and game.num_actions == 9
    assert isinstance(make("zero_envs:Pendulum"), type(make("pendulum")))


def test_a_class_of_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from functools import partial\nfrom typing import Any\n"
        "from zero_envs import AbstractDiscreteEnvironment, CartPole\n\n\n"
        "class Mine(CartPole):\n    pass\n\n\n"
        "def short() -> CartPole:\n    return Mine(max_steps=3)\n\n\n"
        "def pair() -> CartPole | Mine:\n    return Mine()\n\n\n"
        "def some() -> AbstractDiscreteEnvironment[Any]:\n    return Mine()\n\n\n"
        "class Made:\n    def __call__(self) -> Mine:\n        return Mine()\n\n\n"
        "made, of_class, of_function = Made(), partial(Mine, max_steps=3), partial(short)\n"
    )
    for name in ("short", "pair", "some", "made", "of_class", "of_function"):
        assert type(make(f"{path}:{name}")).__name__ == "Mine"
    one, other = make(f"{path}:Mine"), make(f"{path}:Mine", max_steps=3)
    assert type(one).__name__ == "Mine" and type(one) is type(other)
    with pytest.raises(ValueError, match=r"mine.py has no Other; give module:Class"):
        make(f"{path}:Other")


@pytest.mark.parametrize(
    "text, said",
    [
        ("class X(:\n", "line 1: SyntaxError: invalid syntax"),
        (
            "import no_such_module\n",
            "line 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("\nraise RuntimeError('boom')\n", "line 2: RuntimeError: boom"),
        (
            "import zero_envs\ndef X() -> zero_envs.CartPole:\n    return x\n",
            "line 3: NameError: name 'x' is not defined",
        ),
        (
            "import zero_envs\nclass X(zero_envs.CartPole):\n"
            "    def __init__(self): raise ValueError\n",
            "line 3: ValueError",
        ),
    ],
)
def test_what_own_code_raises_is_one_line_that_says_where(tmp_path, monkeypatch, text, said):
    """Twice: a module that was not imported to its end is not kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(text)
    for _ in range(2):
        with pytest.raises(ValueError) as raised:
            make("broken.py:X")
        assert str(raised.value) == f"broken.py, {said}"


def test_names_are_those_of_the_registries():
    """They are read without importing libraries that take seconds."""
    import ale_py
    import brax.envs
    import gymnasium
    import gymnax
    import mujoco_playground
    import pgx
    from jumanji.registration import registered_environments

    names = known_environments()
    assert {name for name in names if "/" not in name} == {*OWN}
    registered = {f"brax/{name}" for name in brax.envs._envs}
    gymnasium.register_envs(ale_py)
    # Of those that do more than raise, and are not of a test.
    places = {name: str(x.entry_point) for name, x in gymnasium.registry.items()}
    ours = [name for name, x in places.items() if x.startswith("gymnasium.") and "/" not in name]
    registered |= {f"gymnasium/{name}" for name in ours}
    atari = [name for name in gymnasium.registry if name.startswith("ALE/")]
    registered |= {f"ale/{name[4:-3]}" for name in atari}
    registered |= {f"gymnax/{name}" for name in gymnax.registered_envs}
    registered |= {f"jumanji/{name}" for name in registered_environments()}
    registered |= {f"playground/{name}" for name in mujoco_playground.dm_control_suite.ALL_ENVS}
    registered |= {f"pgx/{name}" for name in pgx.available_envs()}
    assert {name for name in names if "/" in name} == registered - REFUSED


@pytest.mark.parametrize(
    "names",
    [
        [
            *(*OWN, "brax/inverted_pendulum", "jumanji/Minesweeper-v0", "pgx/2048"),
            *("pgx/backgammon", "pgx/kuhn_poker", "gymnax/Catch-bsuite", "gymnax/PointRobot-misc"),
            "playground/CartpoleBalance",
        ],
        pytest.param(None, marks=pytest.mark.slow),
    ],
)
def test_what_is_known_of_an_environment_is_so(names):
    """Actions, players and hidden parts are said before it is made."""
    known = known_environments()
    for name in names or known:
        assert environment_facts(make(name)) == known[name], name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_listed_is_refused(name):
    with pytest.raises(ValueError):
        make(name)


def test_listing_imports_no_library():
    """They take seconds, JAX included."""
    listed = (
        "import sys, zero_envs; assert len(zero_envs.known_environments()) > 50; "
        "libraries = {'brax', 'gymnax', 'jumanji', 'mujoco_playground', 'pgx', 'jax', 'numpy'}; "
        "assert not libraries & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", listed], check=True)


@pytest.mark.parametrize(
    "name, message",
    [
        ("cartpol", r'make\("cartpol"\): .*Did you mean cartpole'),
        ("connect_four", "Did you mean pgx/connect_four. Allowed: 2048, ale/NAME, brax/NAME, cart"),
        ("Ant", "Did you mean brax/ant. Allowed"),
        ("chess", "Did you mean pgx/chess. Allowed"),
        ("snake", "Did you mean jumanji/Snake-v1. Allowed"),
        (
            "pgx/otello",
            "Did you mean othello or ale/Othello or pgx/othello. Allowed: pgx/2048, pgx/",
        ),
        ("jumanji/Nope", "no such environment. Allowed: jumanji/BinPack-v2"),
        ("brax/antt", "Did you mean brax/ant.* Allowed: brax/ant, brax/fast"),
        (
            "atari/pong",
            r"no such library. Allowed: ale/NAME, brax/NAME, envpool/NAME, gymnasium/NAME, gymn",
        ),
        ("WalkerRun", "Did you mean playground/WalkerRun. Allowed"),
        ("jumanj/Snake-v1", "Did you mean jumanji/Snake-v1"),
        ("no_such_module:Game", r"there is no module no_such_module; give module:Class"),
        ("missing.py:Game", r"there is no file missing.py"),
        ("zero_envs:TimeLimit", r"missing .*; give a class that needs no other arguments"),
        ("zero_envs:__version__", "it is a str and no environment; give a class derived from"),
        ("os:getcwd", "it is a function, and does not say that it returns an environment"),
        ("shutil:which", "it is a function, and does not say that it returns an environment"),
        ("webbrowser:register_standard_browsers", "it is a function, and does not say that it"),
        (":Game", '":Game" does not name a module and a class; give module:Class'),
        ("builtins:dict", "it is a dict and no environment; give a class derived from"),
        ("zero_envs:CartPol", "zero_envs has no CartPol, but CartPole"),
    ],
)
def test_unknown_names_are_refused_with_similar_ones(name, message):
    with pytest.raises(ValueError, match=message) as raised:
        make(name)
    assert "\n" not in str(raised.value)
    assert not any(name in str(raised.value) for name in REFUSED)


@pytest.mark.parametrize("name", ["pgx/tic_tac_toe", "jumanji/Maze-v0"])
def test_a_library_that_mixes_dtypes_in_double_precision_is_named(float64, name):
    env: Any = make(name)
    state = jax.eval_shape(lambda key: env.init(key=key), jr.key(0))
    with pytest.raises(ValueError, match="cannot be played in double precision") as error:
        jax.eval_shape(lambda s, k: env.step(s, jnp.int32(0), key=k), state, jr.key(0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [*OWN, "pgx/backgammon"])
def test_states_are_the_same_in_double_precision(name, request):
    env: Any = make(name)

    def run(key):
        init_key, step_key = jr.split(key)
        state, action = env.init(key=init_key), jnp.int32(0)
        if isinstance(env, AbstractContinuousEnvironment):
            action = jnp.zeros((env.action_size,), jnp.float32)
        return state, env.observe(state), env.step(state, action, key=step_key)

    single = jax.eval_shape(run, jr.key(0))
    request.getfixturevalue("float64")
    assert jax.eval_shape(run, jr.key(0)) == single
