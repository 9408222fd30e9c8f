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

from zero_app import AbstractConfig, App, run, save_player, sentence, Trained, UsageError
from zero_envs.testing import Corridor, Nim
from zero_search import Hindsight, TreeSearch
from zero_train import EnvironmentModel, PolicyActor

from .nim_agent import nim_agent, nim_loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    env: str = "nim"
    heap: int = 15
    trees: int = 0
    """Of a planner in hindsight, which has no number of simulations that could be changed."""


def build(config):
    env = Nim(config.heap) if config.env == "nim" else Corridor(5)
    sizes = env if isinstance(env, Nim) else Nim(heap=4, most=2)
    planner = TreeSearch.alphazero(8)
    agent = nim_agent(
        sizes,
        model=ft.partial(EnvironmentModel, env),
        planner=Hindsight(planner, config.trees) if config.trees else planner,
    )
    return nim_loop(1, env=env, agent=agent)


def perfect(obs):
    """Leaves a multiple of 4 where it can."""
    return jax.nn.one_hot(jnp.argmax(obs.features) % 4 - 1, 3), jnp.zeros(())


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Players that have learned nothing, but for that of the corridor, which goes right."""
    folder = tmp_path_factory.mktemp("players")
    opponents = {"perfect": lambda env: PolicyActor(perfect)}
    app = App("nim", "Nim.", {"tiny": Config()}, build, players=folder, opponents=opponents)
    for name, config in {
        "nim": Config(),
        "other": Config(seed=1),
        "small": Config(heap=7),
        "guesses": Config(trees=2),
        "corridor": Config(env="corridor"),
    }.items():
        loop = build(config)
        player: Any = loop.agent.actor(loop.agent.init(key=jr.key(config.seed)), explore=False)
        if name == "corridor":
            bias = lambda p: p.model.evaluate.network.policy.bias
            player = eqx.tree_at(bias, player, jnp.array([0.0, 100.0]))
        save_player(folder / f"{name}.safetensors", app, Trained(config, loop, player, 3))
    return app


@pytest.fixture
def said(app, capsys):
    """`said(WORDS)`: what `nim eval WORDS` prints."""

    def said(*words: str, **own: Any) -> str:
        run(dataclasses.replace(app, **own), ["eval", *words])
        return capsys.readouterr().out

    return said


@pytest.fixture
def asked(said, monkeypatch):
    """`asked(WORDS)`: environment, player, opponent and options of the games, of which none is
    played, and what is printed."""
    given: list[Any] = []
    row = {"return_mean": 0.0, "return_se": 0.0, "episodes": 2, "length_mean": 0.0, "truncated": 1}

    def measure(*players, **options):
        given[:] = *players, options
        return row, {}

    monkeypatch.setattr("zero_app._run._eval.measure", measure)
    return lambda *words, **own: (said(*words, **own), *given)


def test_episodes_that_were_cut_off_are_said(asked):
    said, *_ = asked("corridor")
    assert said.endswith("in 2 episodes of 0.0 steps, 1 of them cut off\n")


ALONE = "--simulations", "0", "--games", "20"


def test_the_score_of_a_player(said):
    """Without a search two players repeat every game with the seats exchanged. From every opening a
    perfect player wins one game of the two at least."""
    row = lambda *words: json.loads(said(*words, "--json", *ALONE))
    score = lambda one, other: row(one, "--opponent", other)["score"]
    assert score("nim", "other") == 1 - score("other", "nim") != 0.5 == score("nim", "nim")
    found = row("nim", "--opponent", "perfect")
    # Two random moves take 2 to 6 objects, so 10 games differ at the most.
    assert found["played"] == 20 > found["games"] == found["distinct"] <= 10
    assert found["score"] == (found["wins"] + found["draws"] / 2) / found["games"] <= 0.5
    known = {"env": "nim", "step": 3, "simulations": 0, "opponent": "perfect"}
    assert list(found.items())[:4] == [*known.items()]
    line = f"nim (nim, step 3, the network alone): {100 * found['score']:.1f} % against perfect (95"
    assert said("nim", "--opponent", "perfect", *ALONE).startswith(line)


def test_games_that_do_not_differ_are_said(said):
    words = "nim", "--opponent", "perfect", *ALONE, "--opening-plies", "0"
    first, second = said(*words).splitlines()
    assert first.endswith(" lost; 2 of the 20 games differ, and equal ones count once)")
    assert second == "More games differ with more random moves than --opening-plies 0."
    assert json.loads(said(*words, "--json"))["games"] == 2
    # Of random games many may be the same, and all count.
    line = said("nim", "--opponent", "random", *ALONE)
    assert "count once" not in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "games, distinct, end",
    [(20, 20, ""), (20, 10, ""), (20, 9, "; 9 of the 20 games differ"),
     (18, 18, "; 18 of the 20 games differ, and equal ones count once")],
)  # fmt: skip
def test_how_many_games_differ_is_said_where_it_matters(games, distinct, end):
    row: dict[str, Any] = dict(score=1, score_low=0, score_high=1, draws=0, losses=0, unfinished=0)
    row |= dict(wins=games, games=games)
    assert sentence(row, "it").endswith(", 0 lost)")
    assert sentence(row | dict(played=20, distinct=distinct), "it").endswith(f", 0 lost{end})")


def test_the_return_of_one_player(said):
    row = json.loads(said("corridor", "--json", *ALONE))
    assert (row["env"], row["return_mean"], row["length_mean"]) == ("corridor", 1, 4)
    assert "opponent" not in row
    assert "): return 1 ± 0 (95 % interval) in 20 episodes of 4.0" in said("corridor", *ALONE)


def test_both_players_have_as_many_simulations(asked):
    """Where a planner has such a number."""
    words = "nim", "--opponent", "other"
    for number, given in ((8, ()), (5, ("--simulations", "5"))):
        out, _, player, other, options = asked(*words, *given)
        assert player.planner.num_simulations == other.planner.num_simulations == number
        assert f"(nim, step 3, search with {number} simulations a move)" in out
        assert options["max_moves"] == 1000 and options["opening_plies"] == 2
    out, _, player, other, options = asked("guesses", "--opponent", "nim", opening_plies=6)
    assert (player.planner.num_trees, other.planner.num_simulations) == (2, 8)
    assert "(nim, step 3, search):" in out and options["opening_plies"] == 6
    assert asked(*words, "--opening-plies", "0")[4]["opening_plies"] == 0
    assert asked("nim", "--opponent", "guesses")[3].planner.num_trees == 2


def test_a_trained_opponent_plays_in_the_environment_of_the_player(asked):
    """Which another run may have made by another engine, with other states."""

    base: Any = Nim

    class Engine(base):
        def init(self, *, key):
            return (Nim.init(self, key=key),)

        def step(self, state, action, *, key):
            after, transition = Nim.step(self, state[0], action, key=key)
            return (after,), transition

        def observe(self, state):
            return Nim.observe(self, state[0])

    class Rich(Engine):
        max_return: float = 3.0

    class Other(Nim):
        """Of equal states."""

    def own(kind):
        def built(config):
            loop = build(config)
            return loop if config.seed else dataclasses.replace(loop, env=kind(15))

        return built

    _, env, _, other, _ = asked("nim", "--opponent", "other", build=own(Engine))
    assert type(env) is type(other.model.env) is Engine
    # It may have been trained with other rewards, with which it plans.
    _, env, _, other, _ = asked("nim", "--opponent", "other", build=own(Other))
    assert type(env) is Other and type(other.model.env) is Nim
    with pytest.raises(UsageError, match="returns of up to 1 by another engine.*here.*up to 3;"):
        asked("nim", "--opponent", "other", build=own(Rich))


@pytest.mark.parametrize(
    "words, message",
    [
        (["nim", "--games", "7"], "--games 7 was given; give an even number, for both seats."),
        (
            ["nim", "--opponent", "edax"],
            "--opponent edax is unknown; give random, perfect, pretrained, or another run or a "
            "file of a player of `nim`.",
        ),
        (["nim", "--opponent", "corridor"], "--opponent corridor plays corridor, and not nim."),
        (
            ["nim", "--opponent", "small"],
            "plays a game with observations of [8], [3], and not a game with observations of [16],",
        ),
        (["corridor", "--opponent", "perfect"], "has one player; leave --opponent out."),
        (["corridor", "--opening-plies", "4"], "has one player; leave --opening-plies out."),
        (["guesses", "--simulations", "4"], "guesses has none to set; leave --simulations out."),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(asked, words, message):
    with pytest.raises(UsageError) as caught:
        asked(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)
