"""A run from start to finish, and what can be done with it."""

import concurrent.futures
import dataclasses
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_cli
from zero_app import Game, game_frames, load, read_lines, UsageError, with_simulations
from zero_cli._agents import agents_of, OWN_APPS, SYMMETRIES
from zero_cli._apps import APP, pretrained
from zero_cli._board import Board
from zero_cli._build import build_loop, build_network
from zero_cli._config import presets
from zero_cli._worlds import build_world
from zero_envs import EnvironmentFacts, known_environments
from zero_nets import BoardSymmetries, MultiDiscrete, PartsNet, TanhGaussian
from zero_search import CompletedByMixedValue, Temperature
from zero_train import RandomActor


def test_the_folder_holds_what_it_should(tiny_run, small_config, check_episodes):
    check_episodes(tiny_run)
    names = {path.name.split(".out.")[0] for path in tiny_run.iterdir()}
    assert {"config.json", "metrics.jsonl", "evaluations.jsonl", "parameters"} <= names
    lines = read_lines(tiny_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(math.isfinite(x) for line in lines for x in line.values())
    # Games of 5 to 9 moves end in every step of 8 rows.
    assert all(5 <= line["episode_length_mean"] <= 9 for line in lines)
    assert all(-1 <= line["episode_return_mean"] <= 1 for line in lines)
    rows = read_lines(tiny_run / "evaluations.jsonl")
    assert [row["step"] for row in rows] == [2, 4]
    assert all(row["wins"] + row["draws"] + row["losses"] == small_config.games for row in rows)
    page = (tiny_run / "report.html").read_text()
    assert "pgx/tic_tac_toe" in page and "Length of games" in page


def test_eval_prints_one_json_line(zero, tiny_run):
    code, out, err = zero("eval", tiny_run, "--games", 4, "--simulations", 2, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    row = json.loads(out)
    assert row["env"] == "pgx/tic_tac_toe" and row["opponent"] == "random"
    assert row["score"] == (row["wins"] + row["draws"] / 2) / 4 and row["step"] == 4
    code, _, err = zero("eval", tiny_run, "--opponent", "othello")
    known = "random, perfect, uct-20, uct-200, uct-1000, uct-5000, ladder"
    assert code == 2 and f"give {known}, or another run or a file of a player of" in err
    code, _, err = zero("eval", tiny_run, "--opponent", "pgx/connect_four")
    assert code == 2 and "plays pgx/connect_four, and not pgx/tic_tac_toe." in err


def test_the_report_is_written_again(zero, tiny_run):
    page = tiny_run / "report.html"
    before = page.read_text()
    page.unlink()
    code, out, _ = zero("report", tiny_run, "--episodes", 0)
    assert code == 0 and str(page) in out and page.read_text() == before


def test_a_game_in_the_terminal(zero, tiny_run, monkeypatch):
    """Every legal move is tried in turn, until somebody has won or the board is full."""
    cells = [f"{column}{row}" for row in (1, 2, 3) for column in "abc"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(["z9", "moves", *cells, "q", ""])))
    code, out, _ = zero("play", tiny_run, "--simulations", 2)
    assert code == 0
    assert '"z9" is no move here' in out and "Legal: a1 b1 c1 a2 b2 c2 a3 b3 c3" in out
    ends = {f"{who} wins, you {what}": who for who, what in (("X", "win"), ("O", "lose"))}
    (end,) = (line[18:-1] for line in out.splitlines() if line.startswith("The game is over: "))
    winner = (ends | {"draw": None})[end]
    last = out.split("   a b c\n")[-1].splitlines()[:3]
    stones = "".join(line[3:].replace(" ", "") for line in last)
    assert stones.count("X") - stones.count("O") in (0, 1)
    lines = [stones[i : i + 3] for i in (0, 3, 6)] + [stones[i::3] for i in range(3)]
    lines += [stones[::4], stones[2:7:2]]
    complete = {stone for stone in "XO" if 3 * stone in lines}
    assert complete == ({winner} - {None})
    assert winner or "." not in stones


def test_a_side_is_chosen_by_its_name_too(zero, tiny_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    assert "You play X and move first." in zero("play", tiny_run, "--colour", "X")[1]
    code, _, err = zero("play", tiny_run, "--seat", "up")
    assert code == 2 and "--seat up was given; give one of first, second, X, O." in err


def test_time_is_refused_for_a_player_that_has_no_use_for_it(zero, tiny_run):
    for flags in (("--ponder",), ("--seconds", 1)):
        code, _, err = zero("play", tiny_run, "--simulations", 0, *flags)
        assert code == 2 and "--seconds and --ponder are for a search whose tree" in err


def test_a_game_against_itself(zero, tiny_run):
    code, out, _ = zero("watch", tiny_run, "--simulations", 2, "--delay", 0)
    assert code == 0
    moves = [line.split() for line in out.splitlines() if ", value " in line]
    assert [move[1] for move in moves] == ["X" if i % 2 == 0 else "O" for i in range(len(moves))]
    assert len({move[2] for move in moves}) == len(moves) >= 5
    assert out.strip().endswith(("; X wins", "; O wins", "; draw"))


def test_films_of_games(zero, tiny_run, tmp_path, without_charts):
    """A file of one, and the report with one of the first and of the newest player."""
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    code, out, _ = zero("watch", folder, "--simulations", 2, "--save", tmp_path / "game.gif")
    pictures = int(out.split()[0])
    assert code == 0 and out == f"{pictures} pictures are in {tmp_path / 'game.gif'}\n"
    assert 6 <= pictures <= 10  # the empty board, and 5 to 9 moves
    assert (tmp_path / "game.gif").read_bytes().startswith(b"GIF89a")
    code, _, err = zero("watch", folder, "--save", "game.mp4")
    assert code == 2 and "--save game.mp4 was given; give a file that ends with .gif" in err
    for number in (2, 0):  # without any, those of before stay
        with without_charts():
            code, _, _ = zero("report", folder, "--episodes", number)
        page = (folder / "report.html").read_text()
        assert code == 0 and page.count("<template>") == 2
        assert all(title in page for title in ("<h3>Before training", "<h3>The player of step 4"))


def test_runs_beside_each_other(zero, tiny_run, tmp_path):
    other = shutil.copytree(tiny_run, tmp_path / "copy")
    code, out, _ = zero("compare", tiny_run, other, "--out", tmp_path / "page.html")
    assert code == 0 and re.search(r"\+0(\.0+)? ± ", out)
    assert (tmp_path / "page.html").read_text().count("<svg") >= 3 * 5


def board_of(name: str, picture: str = "none.svg") -> Board:
    return Board(build_world(name), pathlib.Path(picture))


def test_a_game_for_one_player(tmp_path):
    """No side, no board of stones: numbers of actions, and a picture."""
    board = board_of("cartpole", f"{tmp_path}/made/{{:02}}.svg")
    game = Game.start(build_world("cartpole").env, RandomActor(), board, key=jr.key(0))
    for _ in range(3):
        game = game.play(int(game.plan.action))
    assert game.first_moves and game.total == 3.0 and not game.over and board.name(1) == "1"
    path = tmp_path / "made" / "03.svg"
    assert board.draw(game, plain=True) == f"The board is drawn in {path}."
    assert path.read_text().startswith("<svg")
    path.unlink()
    os.mkfifo(path)  # a writer would wait for ever
    with pytest.raises(OSError, match="it is no regular file"):
        board.draw(game, plain=True)


def test_an_episode_of_continuous_actions():
    """A picture of every state, and what led to it: no board, no names of actions."""
    start, *steps = game_frames(pretrained("pendulum"), board_of("pendulum"), jr.key(0))
    assert len(steps) == 200 and start.caption == "the start"
    assert all(frame.svg.startswith("<svg") for frame in steps)
    said = [re.fullmatch(r"(\d+)\. ([+-]\S+), reward (\S+?)(; .*)?", x.caption) for x in steps]
    rows = [match.groups() for match in said if match]
    assert [int(row[0]) for row in rows] == list(range(1, 201))
    assert all(-1 <= float(row[1]) <= 1 for row in rows)
    end = re.fullmatch(r"; return (\S+), truncated", rows[-1][3])
    assert end and float(end[1]) == pytest.approx(sum(float(row[2]) for row in rows), abs=2)


def test_a_game_of_ones_own_has_two_players_if_the_turn_passes():
    agents = agents_of("nim", build_world("zero_envs.testing:Nim").facts)
    assert agents == ("alphazero", "muzero", "stochastic")
    assert build_world("zero_envs.testing:Corridor").players == 1
    agents = agents_of("pendulum", build_world("zero_envs:Pendulum").facts)
    assert agents == ("spo", "mpo", "ppo", "vmpo", "sampled", "sampled-alphazero")
    facts, observers = known_environments(), ("ppo", "vmpo", "mpo", "muzero", "stochastic")
    assert agents_of("jumanji/Minesweeper-v0", facts["jumanji/Minesweeper-v0"]) == observers
    assert agents_of("minesweeper", facts["minesweeper"]) == ("expert", *observers)
    assert agents_of("pgx/kuhn_poker", facts["pgx/kuhn_poker"]) == ()
    # Its players move several times in a turn, and those of another game with dice may not.
    dice = EnvironmentFacts("discrete", 2, chance=True)
    assert agents_of("mine.py:Dice", dice) == ("alphazero", "muzero", "stochastic")
    assert agents_of("pgx/backgammon", facts["pgx/backgammon"]) == ("alphazero",)


@pytest.mark.parametrize(
    "agent, flags",
    [("muzero", "--value-prefix 2 --correction 1 --reanalyse 0.5"), ("stochastic", "")],
)
def test_a_model_is_learned_and_plays(agent, flags, zero, tmp_path, without_charts):
    """Training, the network without a search, and what its networks do not fit."""
    run, small = f"{tmp_path}/run", "--preset tiny --envs 8 --batch 8 --updates 1 --steps 2".split()
    train = ("train", "zero_envs.testing:Nim", *small, "--games", "4", "--simulations", "2")
    with without_charts():
        code, _, err = zero(*train, "--agent", agent, *flags.split(), "--out", run)
    assert code == 0, err
    code, out, _ = zero("eval", run, "--simulations", "0", "--games", "4", "--json", "--run-code")
    assert code == 0 and json.loads(out)["simulations"] == 0
    code, _, err = zero("play", run, "--seconds", "1", "--run-code")
    assert code == 2 and "over a learned model" in err
    code, _, err = zero(
        *train, "--agent", "alphazero", "--out", f"{tmp_path}/other", "--init", run, "--run-code"
    )
    assert code == 2 and err.count("\n") == 1 and "ExpertIteration.init" in err
    code, _, err = zero(*train, "--agent", agent, "--out", f"{tmp_path}/none", "--capacity", "8")
    assert code == 2 and "--capacity 8 has no window of --model-steps 5" in err


@pytest.mark.parametrize(
    "agent, flags",
    [
        ("alphazero", "entropy-bonus n-steps candidates window entropy-decay model-steps"),
        ("alphazero", "consistency correction reward-weight value-prefix"),
        ("stochastic", "value-prefix value-mix average window entropy-decay candidates"),
        ("stochastic", "player-exploration prior-temperature value-scale"),
    ],
)
def test_what_has_no_effect_with_an_agent_is_refused(agent, flags, zero):
    for name in flags.split():
        value = "0.5" if name in ("value-mix", "average", "entropy-decay") else "2"
        code, _, err = zero("train", "pgx/tic_tac_toe", "--agent", agent, f"--{name}", value)
        said = f"--{name} has no effect with --agent {agent}; leave it out."
        assert code == 2 and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words, said",
    [
        ("pgx/tic_tac_toe --exploration 2", "with --agent alphazero --search gumbel; leave it out"),
        ("pgx/tic_tac_toe --noise 0.5", "--noise has no effect with --search gumbel; leave it"),
        ("pgx/tic_tac_toe --agent stochastic --memory", "--memory has no effect with --agent st"),
        ("pgx/tic_tac_toe --agent muzero --considered 2", "no effect with --search muzero; lea"),
        ("pgx/tic_tac_toe --agent muzero --memory-steps 2", "no effect with --no-memory; leave it"),
        ("pgx/tic_tac_toe --agent muzero --no-symmetries", "--no-symmetries has no effect with"),
        ("2048 --agent expert --entropy-decay 0.5", "no effect with --entropy-bonus 0.0; leave"),
        ("2048 --agent expert --no-symmetries", "--no-symmetries has no effect with --env 2048;"),
        ("2048 --network a.py:B --blocks 5", "--blocks has no effect with --network a.py:B; le"),
        ("tag --exploration 2", "with --agent expert --search gumbel --value-scale 0.02; leave"),
        ("cartpole --agent muzero --value-prefix 6", "--value-prefix 6 is more than --model-step"),
    ],
)
def test_what_has_no_effect_is_refused(words, said, zero):
    code, _, err = zero("train", *words.split())
    assert code == 2 and said in err and err.count("\n") == 1


def test_a_network_that_an_agent_does_not_have_is_refused_wherever_it_is_said():
    """As by the configuration of another run, or in a trial of a sweep."""
    config = presets("cartpole", "muzero", 4, 1)["tiny"]
    for given in ({"memory": True}, {"value_prefix": 2}):
        with pytest.raises(UsageError, match="has no effect with --agent stochastic; leave it ou"):
            dataclasses.replace(config, agent="stochastic", **given)


def test_what_a_flag_is_by_default_is_harmless(zero, tiny_run):
    """Who turns off what a preset has may say all of it."""
    words = "tag --search puct --value-scale 0 --no-memory --exploration 2"
    code, _, err = zero("train", *words.split(), "--out", tiny_run.parent)
    assert code == 2 and "holds no run to --resume" in err


def test_what_a_preset_says_for_another_search_is_left_out():
    """Tag is searched by Gumbel on Q-values as they are, unless PUCT is asked for."""
    config = presets("tag", "expert", 34, 1)["quick"]
    assert config.value_scale
    plain = dataclasses.replace(config, value_scale=0.0, search="puct").planners()
    assert dataclasses.replace(config, search="puct").planners() == plain


def test_what_is_given_reaches_the_agent():
    config = presets("cartpole", "muzero", 4, 1)["tiny"]
    given = {"reward_weight": 3.0, "correction": 7, "temperature": 0.4, "value_prefix": 2}
    agent: Any = build_loop(dataclasses.replace(config, memory=True, **given)).agent
    assert (agent.reward_weight, agent.correction, agent.memory_steps) == (3.0, 7, 16)
    assert agent.explorer.readout.temperature == Temperature(1.0, 0.4, 0)
    network = agent.network(key=jr.key(0))
    assert network.prefix_steps == 2 and network.memory is not None


def test_what_is_given_of_beliefs_reaches_the_agent():
    """An entropy bonus that falls, Q-values as they are, and a network of the parts."""
    world = build_world("rocksample-7-8")
    config = presets(world.name, "expert", world.size, 1)["quick"]
    total = config.steps * config.updates
    given = {"entropy_bonus": 0.2, "entropy_decay": 0.25}
    agent: Any = build_loop(dataclasses.replace(config, **given)).agent
    bonuses = [agent.entropy_bonus(jnp.int32(x)) for x in (0, total // 2, total, 2 * total)]
    np.testing.assert_allclose(bonuses, [0.2, 0.1, 0.05, 0.05], rtol=1e-5)
    for planner, noise in ((agent.explorer, 1.0), (agent.planner, 0.0)):
        assert planner.root.gumbel_scale == noise
        for part in (planner.root, planner.selection, planner.readout):
            assert part.qtransform == CompletedByMixedValue(0.005, rescale_values=False)
    network = eqx.filter_eval_shape(agent.network, key=jr.key(0))
    assert isinstance(network, PartsNet) and network.part_policy.out_size == 1


@pytest.mark.slow
def test_a_model_with_a_memory_plays(zero, tmp_path, without_charts):
    """Training with plans made anew, the player, and its network without a search; no command
    shows what takes single states."""
    run = tmp_path / "run"
    small = "--preset tiny --envs 8 --batch 8 --updates 1 --steps 2 --games 2 --simulations 2"
    memory = ("--memory", "--memory-steps", "3", "--value-prefix", "2")
    train = ("train", "cartpole", "--agent", "muzero", *memory)
    with without_charts():
        code, _, err = zero(*train, *small.split(), "--reanalyse", "0.5", "--out", run)
    assert code == 0, err
    for number in (0, 2):
        code, out, _ = zero("eval", run, "--simulations", number, "--games", 2, "--json")
        row = json.loads(out)
        assert code == 0 and row["simulations"] == number and 8 <= row["return_mean"] <= 100
    code, out, _ = zero("watch", run, "--simulations", 2)
    assert code == 0 and ", value " in out and "imagined" not in out
    code, _, err = zero("export", run, "--out", tmp_path / "exported")
    assert code == 2 and "has a memory, and only networks without are exported" in err
    player, env = load(APP, run).player, build_world("cartpole").env
    # At every move of an episode the prior of the search is the policy of the network alone.
    games = [
        Game.start(env, with_simulations(player, number), board_of("cartpole"), key=jr.key(0))
        for number in (2, 0)
    ]
    for _ in range(3):
        searched, alone = games
        np.testing.assert_allclose(searched.prior, alone.plan.weights, rtol=1e-4)
        games = [game.play(int(searched.plan.action)) for game in games]


@pytest.mark.parametrize("agent", ["sampled", "sampled-alphazero"])
def test_continuous_actions_are_played_by_candidates(agent, zero, tmp_path, without_charts):
    """Training, the player and its policy without a search."""
    small = "--preset tiny --envs 8 --batch 8 --updates 1 --steps 2 --games 2 --simulations 2"
    train = ("train", "pendulum", "--agent", agent, *small.split(), "--max-moves", "3")
    with without_charts():
        code, _, err = zero(*train, "--candidates", "3", "--out", f"{tmp_path}/run")
    assert code == 0, err
    for number in ("0", "2"):
        code, out, _ = zero(
            "eval", f"{tmp_path}/run", "--simulations", number, "--games", "2", "--json"
        )
        row = json.loads(out)
        assert code == 0 and row["simulations"] == int(number) and -60 < row["return_mean"] < 0
    code, _, err = zero(*train, "--network", "m:Net", "--out", f"{tmp_path}/own")
    assert code == 2 and f"--agent {agent} has networks of its own" in err


def test_lines_of_a_board_are_looked_up():
    world = build_world("pgx/tic_tac_toe")
    config = presets("pgx/tic_tac_toe", "alphazero", world.size, world.players)["tiny"]
    config = dataclasses.replace(config, network="lines", blocks=3)
    network: Any = eqx.filter_eval_shape(build_network, config, world, key=jr.key(0))
    # Four sides share a table, as do both lines through the middle, and both diagonals.
    assert network.lines.table.shape == (3 * 27, 3, config.channels) and len(network.blocks) == 2


@pytest.mark.parametrize(
    "agent, env, distribution",
    [
        ("expert", "cartpole", jax.ShapeDtypeStruct),
        ("expert", "pgx/tic_tac_toe", jax.ShapeDtypeStruct),
        ("muzero", "cartpole", jax.ShapeDtypeStruct),
        ("sampled-alphazero", "pendulum", TanhGaussian),
        ("sampled", "pendulum", TanhGaussian),
        ("sampled-alphazero", "jumanji/FlatPack-v0", MultiDiscrete),
        ("sampled", "jumanji/FlatPack-v0", MultiDiscrete),
    ],
)
def test_images_are_seen_by_convolutions(agent, env, distribution):
    """A world whose observation is replaced by an image: a cell has a part in its neighbours."""
    world, image = build_world(env), jax.ShapeDtypeStruct((4, 3, 2), jnp.float32)
    seen = dataclasses.replace(world, observation=SimpleNamespace(features=image))
    config = presets(env, agent, seen.size, world.players)["tiny"]
    network: Any = eqx.filter_eval_shape(build_network, config, seen, key=jr.key(0))
    if config.learns_model:
        encoder = network.encoder
        predict = lambda network, x: network.predict(network.represent(x))
    else:
        encoder, predict = network.layers[0], lambda network, x: network(x)
    assert encoder.stem.weight.shape == (3, 3, 2, config.channels)
    policy, value = eqx.filter_eval_shape(predict, network, image)
    assert value.shape == (301,) and isinstance(policy, distribution)


@pytest.mark.parametrize("name, most", [("pgx/backgammon", 3.0), ("pgx/connect_four", 1.0)])
def test_values_have_the_range_of_returns(name, most):
    """Backgammon pays up to 3. The weights are so large that all values are at the ends."""
    world = build_world(name)
    config = presets(name, "alphazero", world.size)["tiny"]

    @jax.jit
    def values():
        net = build_network(config, world, key=jr.key(0))
        large = jax.tree.map(lambda w: 1e3 * w if eqx.is_inexact_array(w) else w, net)
        features = jax.vmap(lambda key: world.env.observe(world.env.init(key=key)).features)
        return jax.vmap(large)(features(jr.split(jr.key(1), 8)))[1]

    np.testing.assert_allclose(np.abs(values()), most, rtol=1e-3)


def test_names_of_moves():
    connect = board_of("pgx/connect_four")
    assert [connect.name(a) for a in (0, 6)] == ["1", "7"] and connect.action("3") == 2
    go = board_of("pgx/go_9x9")
    assert [go.name(a) for a in (0, 8, 9, 81)] == ["a9", "j9", "a8", "pass"]
    assert go.action("pass") == 81
    with pytest.raises(ValueError, match='"z1" is no move here'):
        go.action("z1")
    backgammon = board_of("pgx/backgammon")
    assert [backgammon.name(a) for a in (0, 6, 14, 155)] == ["none-1", "bar-1", "24-3", "1-6"]
    for name in ("chess", "gardner_chess", "shogi", "animal_shogi", "backgammon"):
        board = board_of(f"pgx/{name}")
        assert board.name(board.action(board.example)) == board.example


def test_boards_are_those_of_pgx():
    board = board_of("pgx/connect_four")
    env = build_world("pgx/connect_four").env
    game = Game.start(env, RandomActor(), board, key=jr.key(0))
    for name in "443":
        game = game.play(board.action(name))
    assert board.draw(game, plain=True).splitlines()[-3:] == [
        "   . . . O . . .",
        "   . . X X . . .",
        "   X red   O yellow",
    ]


def start_of(name: str) -> tuple[Board, Game]:
    board = board_of(name)
    return board, Game.start(build_world(name).env, RandomActor(), board, key=jr.key(0))


def test_boards_of_pieces_and_of_backgammon():
    board, game = start_of("pgx/gardner_chess")
    for name in ("b2b3", "c4b3"):  # black's pawn takes white's
        game = game.play(board.action(name, game.first_moves))
    assert board.draw(game, plain=True).splitlines() == [
        "  a b c d e",
        "5 r n b q k",
        "4 p p . p p",
        "3 . p . . .",
        "2 P . P P P",
        "1 R N B Q K",
        "white in capital letters, black in small ones",
    ]
    board, game = start_of("pgx/animal_shogi")
    assert board.draw(game.play(board.action("2c2b")), plain=True).splitlines() == [
        "  3 2 1",
        "a g l e",
        "b . C .",
        "c . . .",
        "d E L G",
        "black in capital letters, white in small ones",
        "In hand: black: 1 chick; white: none",
    ]
    board, game = start_of("pgx/backgammon")
    *points, checkers, sides = board.draw(game, plain=True).splitlines()
    assert [line.split() for line in points] == [
        [str(i) for i in range(13, 25)],
        "X5 . . . O3 . O5 . . . . X2".split(),
        [str(i) for i in range(12, 0, -1)],
        "O5 . . . X3 . X5 . . . . O2".split(),
    ]
    dice = [
        int(die) for die in checkers.removeprefix("bar: X 0, O 0; off: X 0, O 0; dice: ").split()
    ]
    assert {int(board.name(a)[-1]) for a in game.legal} <= set(dice) and len(dice) == 2
    assert sides == "X first   O second"
    while game.first_moves:  # X moves from its largest stack on point 13 or 6, and hits nobody
        game = game.play(next(a for a in game.legal if board.name(a).startswith(("13-", "6-"))))
    upper, above, lower, below = map(str.split, board.draw(game, plain=True).splitlines()[:4])
    shown = dict(zip(upper + lower, above + below, strict=True))
    theirs = {point: word for point, word in shown.items() if "O" in word}
    assert theirs == {"24": "O2", "13": "O5", "8": "O3", "6": "O5"}


@pytest.mark.slow
def test_symmetries_keep_the_game():
    """A turned position has the turned moves: of every game that is said to have symmetries."""
    for name, said in SYMMETRIES.items():
        env: Any = build_world(name).env
        symmetries = BoardSymmetries(**said)
        assert symmetries.num_actions == env.num_actions
        step, observe = jax.jit(env.step), jax.jit(env.observe)
        for index in range(symmetries.size):
            one = other = env.init(key=jr.key(0))
            for key in jr.split(jr.key(index), 6):
                legal = observe(one).legal
                action = jr.categorical(key, np.where(legal, 0.0, -np.inf))
                one, _ = step(one, action, key=key)
                other, _ = step(other, symmetries.action(action, index), key=key)
                seen, turned = observe(one), observe(other)
                np.testing.assert_array_equal(
                    symmetries.features(seen.features, index), turned.features
                )
                np.testing.assert_array_equal(symmetries.actions(seen.legal, index), turned.legal)


@pytest.mark.slow
def test_tic_tac_toe_is_never_lost(zero, tmp_path):
    """Against every reply there is, from either seat, after the quick preset."""
    code, _, _ = zero("train", "pgx/tic_tac_toe", "--out", tmp_path / "run")
    assert code == 0
    trained = load(APP, tmp_path / "run")
    env: Any = trained.loop.env
    actor = with_simulations(trained.player, 64)
    step = jax.jit(jax.vmap(lambda s, a: env.step(s, a, key=jr.key(0))))
    observe, act = jax.jit(jax.vmap(env.observe)), eqx.filter_jit(actor.act)
    for player_first in (True, False):
        state = jax.vmap(lambda key: env.init(key=key))(jr.key(0)[None])
        boards, mine = [state], player_first
        while boards:
            batch = jax.tree.map(lambda *x: jnp.concatenate(x), *boards)
            seen, size = observe(batch), len(boards)
            if mine:
                carry = actor.init(batch)
                actions = np.asarray(act(batch, seen, carry, key=jr.split(jr.key(1), size))[0])
                pairs = [(i, a) for i, a in enumerate(actions)]
            else:
                pairs = [tuple(pair) for pair in np.argwhere(np.asarray(seen.legal))]
            rows, moves = (np.array(x) for x in zip(*pairs, strict=True))
            chosen = jax.tree.map(lambda x, rows=rows: x[rows], batch)
            after, transition = step(chosen, moves.astype(np.int32))
            if not mine:
                assert not np.any(transition.reward > 0)
            going = np.flatnonzero(~np.asarray(transition.last))
            boards = [jax.tree.map(lambda x, i=i: x[i : i + 1], after) for i in going]
            mine = not mine


@pytest.mark.slow
def test_every_environment_of_the_list_trains(tmp_path):
    names = known_environments()

    def trained(name: str) -> str:
        """What went wrong, if anything did."""
        if name in OWN_APPS or not agents_of(name, names[name]):
            return ""
        words = "train", name, "--preset", "tiny", "--out", tmp_path / name.replace("/", "-")
        # In a process of its own: together they would need all memory.
        command = [sys.executable, "-m", "zero_cli", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        return "" if done.returncode == 0 else f"{done.returncode}: {done.stderr[-500:]}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names, pool.map(trained, names), strict=True))
    failed = {name: why for name, why in found.items() if why}
    assert failed == {}


def test_a_run_is_trained_from_python(tmp_path):
    """As by the command, with flags as keywords."""
    flags = {"preset": "tiny", "steps": 1, "games": 2, "symmetries": False}
    trained = zero_cli.train("pgx/tic_tac_toe", out=tmp_path / "run", **flags)
    assert trained.config["env"] == "pgx/tic_tac_toe" and not trained.config["symmetries"]
    assert len(trained.log) == 1 and trained.evaluations[0]["played"] == 2
    with pytest.raises(UsageError, match="--stepps is no flag of zero train pgx/tic_tac_toe; did"):
        zero_cli.train("pgx/tic_tac_toe", out=tmp_path / "other", stepps=1)
