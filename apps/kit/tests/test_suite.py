"""Solved positions of a game, and what `eval --suite` says of a player."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import (
    App,
    load,
    run,
    RunError,
    save_player,
    Suite,
    Trained,
    UsageError,
    who,
    with_simulations,
)
from zero_app._run._suite import suite_sentence
from zero_envs.testing import Nim
from zero_train import PolicyActor

from .test_eval import build, Config


HEAP = 15


def nim_suite() -> Suite:
    """Every heap that may be reached by taking 1, 2, ... objects one after the other. The score of
    a move is 1 if it leaves a multiple of 4."""
    positions = []
    for taken in ([], [0], [0, 1], [0, 1, 2], [0, 1, 2, 0]):
        left = HEAP - sum(taken) - len(taken)
        won = {action: (left - action - 1) % 4 == 0 for action in range(min(3, left))}
        positions.append((taken, {action: 1 if won[action] else -1 for action in won}))
    return Suite.of(positions, 3)


def takes(action: int) -> PolicyActor:
    return PolicyActor(jax.tree_util.Partial(_takes, jnp.asarray(action)))


def _takes(action, obs):
    return jax.nn.one_hot(action, 3), jnp.zeros(())


def best(obs):
    return jax.nn.one_hot(jnp.argmax(obs.features) % 4 - 1, 3), jnp.zeros(())


def test_a_player_is_judged_by_the_scores_of_its_moves():
    suite, env = nim_suite(), Nim(HEAP)
    # 15, 14, 12, 9 and 8 objects: from 12 and 8 every move loses.
    assert suite.scores.max(axis=1).tolist() == [1, 1, -1, 1, -1]
    row = suite.measure(env, PolicyActor(best), key=jax.random.key(0))
    assert (row["positions"], row["best"], row["kept"], row["loss_mean"]) == (5, 1, 1, 0)
    assert row["best_low"] == pytest.approx(1 / (1 + 1.959964**2 / 5)) and row[
        "best_high"
    ] == pytest.approx(1)
    row = suite.measure(env, takes(0), key=jax.random.key(1))  # loses from 15 and 14
    assert (row["best"], row["kept"], row["loss_mean"]) == (0.6, 0.6, pytest.approx(0.8))
    assert row["loss_se"] == pytest.approx(np.std([2, 2, 0, 0, 0], ddof=1) / 5**0.5)


def test_a_player_without_numbers_is_not_judged():
    broken = PolicyActor(lambda obs: (jnp.full(3, jnp.nan), jnp.zeros(())))
    with pytest.raises(ValueError, match="action was NaN or out of the environment's range"):
        nim_suite().measure(Nim(HEAP), broken, key=jax.random.key(0))


def test_the_result_may_be_kept_by_worse_moves():
    suite = nim_suite()
    scores = np.where(suite.scores == 1, [3, 5, 7], suite.scores)
    row = dataclasses.replace(suite, scores=scores).measure(
        Nim(HEAP), PolicyActor(best), key=jax.random.key(0)
    )
    assert row["best"] == row["kept"] == 1
    scores = np.where(suite.scores == 1, 3, 2)
    row = dataclasses.replace(suite, scores=scores).measure(
        Nim(HEAP), takes(0), key=jax.random.key(0)
    )
    assert (row["best"], row["kept"], row["loss_mean"]) == (0.6, 1, pytest.approx(0.4))


def test_files_hold_what_was_written(tmp_path):
    suite, path = nim_suite(), tmp_path / "all.npz"
    suite.write(path)
    read = Suite.read(path)
    assert np.array_equal(read.moves, suite.moves) and np.array_equal(read.scores, suite.scores)
    for content in (b"", b"no", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(RunError, match="is no suite of positions"):
            Suite.read(path)
    np.savez(path, moves=suite.moves)
    with pytest.raises(RunError, match="is no suite of positions"):
        Suite.read(path)
    with pytest.raises(ValueError, match="without a legal move"):
        Suite(suite.moves, np.full((5, 3), -128))


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Two suites of Nim, and none of the corridor."""
    folder = tmp_path_factory.mktemp("suites")
    (folder / "nim").mkdir()
    for name in ("early", "late"):
        nim_suite().write(folder / "nim" / f"{name}.npz")
    app = App("nim", "Nim.", {"tiny": Config()}, build, players=folder, suites=folder)
    for config in (Config(), Config(env="corridor")):
        loop = build(config)
        player = loop.agent.actor(loop.agent.init(key=jax.random.key(0)), explore=False)
        save_player(folder / f"{config.env}.safetensors", app, Trained(config, loop, player, 3))
    return app


def test_eval_prints_a_line_for_each_suite(app, capsys):
    said = lambda *words: (run(app, ["eval", "nim", *words]), capsys.readouterr().out)[1]
    trained, env = load(app, "nim"), Nim(HEAP)
    for number in (0, 16):
        player = with_simulations(trained.player, number)
        row = nim_suite().measure(env, player, key=jax.random.key(7))
        flags = "--simulations", str(number), "--seed", "7"
        known = {"env": "nim", "step": 3, "simulations": number, "suite": "late"}
        assert json.loads(said("--suite", "late", "--json", *flags)) == known | row
        first, second = said("--suite", "all", *flags).splitlines()
        assert first.startswith(f"nim (nim, step 3, {who(player)}): early: best move ")
        assert second == first.replace("early", "late")
    row = dict(positions=5, best=0.4, best_low=0.1, best_high=0.75, kept=0.8, kept_low=0.4)
    assert suite_sentence(row | dict(kept_high=1, loss_mean=0.4, loss_se=0.1)) == (
        "best move 40.0 % (10.0 to 75.0), result kept 80.0 % (40.0 to 100.0), mean loss 0.40 ± "
        "0.28 (95 % intervals; 5 positions)"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["nim", "--suite", "end"], "--suite end is unknown; give early, late or all."),
        (["corridor", "--suite", "all"], "--suite all was given, and corridor has none; leave"),
        (["nim", "--suite", "all", "--games", "8"], "--games 8 was given beside --suite, which"),
        (["nim", "--suite", "all", "--opponent", "nim"], "--opponent nim was given beside --suite"),
        (["nim", "--suite", "all", "--opening-plies", "0"], "--opening-plies 0 was given beside"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(app, words, message):
    with pytest.raises(UsageError) as caught:
        run(app, ["eval", *words])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_solver_without_its_compiler_says_what_to_install(monkeypatch):
    from zero_app import compiled

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--extra judges` or install it with `pip install numba`"):
        compiled(lambda x: x)


@pytest.mark.parametrize(
    "moves, scores",
    [
        ([0, 1, 2, 2, 2, 2, 0], {0: 1}),  # past the end of the game
        ([2, 2, 2, 2, 0, 1], {0: 1}),  # takes 2 of the last one
        ([0], {0: 1, 1: 1, 2: 1, 3: 1}),  # another number of actions
        ([0], {0: 1, 1: 1}),  # a legal move without a score
    ],
)
def test_a_suite_of_another_game_is_refused(moves, scores):
    suite = Suite.of([(moves, scores)], max(3, len(scores)))
    with pytest.raises(ValueError, match="of another game"):
        suite.measure(Nim(HEAP), takes(0), key=jax.random.key(0))


@pytest.mark.parametrize(
    "positions", [[], [([], {0: 200})], [([40000], {0: 1})]], ids=["none", "score", "move"]
)
def test_what_a_file_cannot_hold_is_refused(positions):
    with pytest.raises(ValueError, match="scores from -127 to 127"):
        Suite.of(positions, 3)
