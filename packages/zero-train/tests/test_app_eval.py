"""`eval`, which every app has: what it plays, what it prints, and what it refuses."""

import dataclasses
import functools as ft
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from zero_envs.testing import Corridor, Nim
from zero_search import Hindsight, TreeSearch
from zero_train import EnvironmentModel, PolicyActor, RandomActor
from zero_train.app import AbstractConfig, App, run, save_player, Trained, UsageError

from .nim_agent import nim_agent, nim_loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    env: str = "nim"
    heap: int = 15
    guesses: bool = False
    """Plan in hindsight, without a number of simulations that could be changed."""


def build(config):
    env = Nim(config.heap) if config.env == "nim" else Corridor(5)
    sizes = env if isinstance(env, Nim) else Nim(heap=4, most=2)
    planner = TreeSearch.alphazero(8)
    agent = nim_agent(
        sizes,
        model=ft.partial(EnvironmentModel, env),
        planner=Hindsight(planner, num_trees=2) if config.guesses else planner,
    )
    return nim_loop(1, env=env, agent=agent)


def perfect(obs):
    """Leaves a multiple of 4 where it can."""
    return jax.nn.one_hot(jnp.argmax(obs.features) % 4 - 1, 3), jnp.zeros(())


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Players that have learned nothing, but for that of the corridor, which goes right."""
    folder = tmp_path_factory.mktemp("players")
    opponents = {"random": lambda env: RandomActor(), "perfect": lambda env: PolicyActor(perfect)}
    app = App("nim", "Nim.", {"tiny": Config()}, build, players=folder, opponents=opponents)
    for name, seed, config in (
        ("nim", 0, Config()),
        ("other", 1, Config(seed=1)),
        ("small", 0, Config(heap=7)),
        ("guesses", 0, Config(guesses=True)),
        ("corridor", 0, Config(env="corridor")),
    ):
        loop = build(config)
        player: Any = loop.agent.actor(loop.agent.init(key=jr.key(seed)), explore=False)
        right = lambda p: p.model.evaluate.network.policy.bias
        if name == "corridor":
            player = eqx.tree_at(right, player, jnp.array([0.0, 100.0]))
        save_player(folder / f"{name}.safetensors", app, Trained(config, loop, player, 3))
    return app


@pytest.fixture
def played(app, capsys):
    """`played(WORDS)`: the JSON line that `eval WORDS` prints."""

    def played(*words: str) -> dict[str, Any]:
        run(app, ["eval", *words, "--json"])
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        return json.loads(out)

    return played


def test_the_score_of_a_player(app, played, capsys):
    """Without a search two players repeat every game with the seats exchanged. From every opening a
    perfect player wins one game of the two at least."""
    alone = "--simulations", "0", "--games", "20"
    one, two = (played(x, "--opponent", y, *alone) for x, y in (("nim", "other"), ("other", "nim")))
    assert one["score"] + two["score"] == 1 and one["score"] != 0.5
    assert played("nim", "--opponent", "nim", *alone)["score"] == 0.5
    row = played("nim", "--opponent", "perfect", *alone)
    assert row["score"] == (row["wins"] + row["draws"] / 2) / 20 <= 0.5
    first = {"env": "nim", "step": 3, "simulations": 0, "opponent": "perfect", "games": 20}
    assert list(row.items())[:5] == [*first.items()]
    run(app, ["eval", "nim", "--opponent", "perfect", *alone])
    said = f"nim (nim, step 3, the network alone): {100 * row['score']:.1f} % against perfect (95 %"
    assert capsys.readouterr().out.startswith(said)


def test_the_return_of_one_player(app, played, capsys):
    row = played("corridor", "--games", "4", "--simulations", "0")
    assert row["return_mean"] == 1 and row["length_mean"] == 4 and row["episodes"] == 4
    assert "opponent" not in row and row["env"] == "corridor"
    run(app, ["eval", "corridor", "--games", "4", "--simulations", "0"])
    assert "): return 1 ± 0 (standard error) in 4 episodes of 4.0" in capsys.readouterr().out


@pytest.fixture
def asked(app, monkeypatch, capsys):
    """`asked(APP, WORDS)`: the arguments of `measure`, which plays nothing, and what is printed."""
    given: list[Any] = []
    row = {"return_mean": 0.0, "return_se": 0.0, "episodes": 2, "length_mean": 0.0}

    def measure(*players, **options):
        given.append((*players, options))
        return row

    monkeypatch.setattr("zero_train.app._eval.measure", measure)

    def asked(app: App[Config], *words: str) -> Any:
        run(app, ["eval", *words])
        return *given[-1], capsys.readouterr().out

    return asked


def test_both_players_have_as_many_simulations(app, asked):
    env, player, other, options, out = asked(app, "nim", "--opponent", "other")
    assert player.planner.num_simulations == other.planner.num_simulations == 8
    assert "(nim, step 3, 8 simulations a move)" in out
    assert env == Nim(15) and options["opening_plies"] == 2 and options["max_moves"] == 1000
    _, player, other, _, _ = asked(app, "nim", "--opponent", "other", "--simulations", "5")
    assert player.planner.num_simulations == other.planner.num_simulations == 5
    *_, options, _ = asked(dataclasses.replace(app, opening_plies=6), "nim")
    assert options["opening_plies"] == 6


def test_a_player_may_have_no_number_of_simulations(app, asked):
    _, player, other, _, out = asked(app, "guesses", "--opponent", "nim")
    assert player.planner.num_trees == 2 and other.planner.num_simulations == 8
    assert "guesses (nim, step 3):" in out
    _, _, other, _, _ = asked(app, "nim", "--opponent", "guesses", "--simulations", "5")
    assert other.planner.num_trees == 2


def test_a_trained_opponent_plays_in_the_environment_of_the_player(app, asked):
    """Which another run may have made by another engine, with other states."""

    class Engine(Nim):
        pass

    def own(config):
        loop = build(config)
        return loop if config.seed else dataclasses.replace(loop, env=Engine(15))

    env, _, other, _, _ = asked(dataclasses.replace(app, build=own), "nim", "--opponent", "other")
    assert type(env) is type(other.model.env) is Engine


@pytest.mark.parametrize(
    "words, message",
    [
        (["nim", "--games", "7"], "--games 7 was given; give an even number."),
        (
            ["nim", "--opponent", "edax"],
            "--opponent edax is unknown; give random, perfect, corridor, guesses, nim, other, small, "
            "pretrained, or another run or a file of a player of `nim`.",
        ),
        (["nim", "--opponent", "corridor"], "--opponent corridor plays corridor, and not nim."),
        (
            ["nim", "--opponent", "small"],
            "plays a game with observations of [8], [3], and not a game with observations of [16],",
        ),
        (["corridor", "--opponent", "perfect"], "corridor has one player; leave it out."),
        (["guesses", "--simulations", "4"], "player of guesses has no such number; leave it out."),
        (["nowhere"], "nowhere holds no run"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(app, asked, words, message):
    with pytest.raises(UsageError) as caught:
        asked(app, *words)
    assert message in str(caught.value) and "\n" not in str(caught.value)
