"""What agents are worth: against the boards themselves, figures that are known, and each other."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import UsageError
from zero_envs import Minesweeper, MinesweeperState
from zero_minesweeper._agents import AGENTS, build_agent
from zero_minesweeper._eval import doubts
from zero_minesweeper._game import act
from zero_minesweeper._measure import boards_at_once, mean_and_error, measure, Played
from zero_train import AbstractActor

from . import helpers


# A short list of states compiles in a third of the time.
SMALL, BOARDS = Minesweeper(3, 4, 2, max_states=32), 250
SAFE = 10


#: Those that need no network and are quick.
SOLVERS = ("tiebreak", "minprob", "rules", "random", "hindsight")
#: Boards of the agent that plans for many futures, which is slow; and of a batch.
FEW = 50


@pytest.fixture(scope="module")
def timed() -> dict[str, tuple[Played, float]]:
    """In batches, so that `minesweeper eval` of so few boards runs the same programs."""
    return {
        name: measure(
            SMALL,
            build_agent(name, SMALL, layouts=64),
            boards=FEW if name == "hindsight" else BOARDS,
            key=jr.key(0),
            at_once=FEW,
        )
        for name in SOLVERS
    }


@pytest.fixture(scope="module")
def measured(timed) -> dict[str, Played]:
    return {name: games for name, (games, _) in timed.items()}


@pytest.mark.parametrize("name", SOLVERS)
def test_luck_is_taken_out_and_nothing_else(timed, name):
    """The estimates have the mean of what happened: risks paid are risks taken."""
    games, speed = timed[name]
    for estimate, real in ((games.win_estimate, games.won), (games.return_estimate, games.safe)):
        gap, error = mean_and_error(np.asarray(estimate, float) - np.asarray(real, float))
        assert abs(gap) < 4 * error + 1e-6
    assert (games.won == (games.safe == SAFE)).all()
    assert (games.moves - games.won * SAFE >= 0).all() and speed > 0


@pytest.mark.parametrize("name", SOLVERS)
def test_what_is_reported_is_the_steadier_estimate(measured, name):
    """As it came for who always risks something, and else without luck."""
    one = measured[name]
    luck = name == "random"
    np.testing.assert_array_equal(one.wins, one.won if luck else one.win_estimate)
    either = [np.var(np.float64(x)) for x in (one.won, one.win_estimate)]
    assert one.wins.var() == pytest.approx(min(either))
    np.testing.assert_array_equal(one.returns, one.safe if luck else one.return_estimate)


def alike(number: int, won: bool, estimate: np.ndarray) -> Played:
    """Games of ten moves each that all ended alike."""
    none, wins = jnp.zeros(number, jnp.int32), jnp.asarray(estimate)
    return Played(
        won=jnp.full(number, won),
        safe=none + SAFE * won,
        win_estimate=wins,
        return_estimate=SAFE * wins,
        needless=none,
        unknown=none,
        moves=none + SAFE,
    )


@pytest.mark.parametrize("won", [True, False])
def test_a_few_games_that_ended_alike_prove_no_certainty(won):
    """All won, or all lost."""
    risk = np.linspace(0.1, 0.18, 10, dtype=np.float32)
    games = alike(10, won, 1 - risk)
    np.testing.assert_allclose(games.wins, 1 - risk)
    np.testing.assert_allclose(games.returns, SAFE * (1 - risk), rtol=1e-6)
    assert games.win_error == pytest.approx(risk.std(ddof=1) / math.sqrt(10))
    wild = eqx.tree_at(lambda x: x.win_estimate, games, jnp.asarray(1 - 16 * risk))
    assert wild.as_it_came and set(wild.wins) == {won}
    # One of twelve, by the rule of succession.
    assert wild.win_error == pytest.approx(math.sqrt(11 / 12 / 12 / 10))


def test_a_board_and_its_luck_depend_on_its_number_alone(measured):
    """Batches change nothing but the clock."""
    agent, heard = build_agent("random", SMALL, layouts=1), []
    options = {"at_once": 13, "timed": False, "progress": heard.append}
    few, speed = measure(SMALL, agent, boards=30, key=jr.key(0), **options)
    many = measured["random"]
    for x, y in zip(jax.tree.leaves(few), jax.tree.leaves(many), strict=True):
        np.testing.assert_allclose(x, y[:30], rtol=1e-6)
    assert heard == [10, 20, 30]
    assert math.isnan(speed)


@pytest.mark.parametrize(
    ("side", "name", "most"),
    [
        (10, "random", 1000),
        (10, "hindsight-128", 1000),
        (10, "hindsight-65536", 2),
        (16, "tiebreak", 244),
        (60, "tiebreak", 5),
    ],
)
def test_so_many_boards_at_once_as_memory_holds(side, name, most):
    env = Minesweeper(side, side, 10)
    assert boards_at_once(env, build_agent(name, env)) == most


def test_what_nobody_can_have_is_told():
    usual, wins = Minesweeper(), np.linspace(0.9, 0.901, 2000, dtype=np.float32)
    games = alike(2000, True, wins)
    (said,) = doubts("cheat", usual, games)
    assert "cheat wins at least 0.90" in said and "at most 0.8711 is possible" in said
    fair = eqx.tree_at(lambda x: x.win_estimate, games, jnp.asarray(wins - 0.04))
    assert not doubts("good", usual, fair)
    assert not doubts("other", SMALL, games)


def test_who_knows_the_posterior_takes_no_needless_risk(measured):
    for name in ("tiebreak", "minprob"):
        assert not measured[name].needless.any()
        won = measured[name].win_estimate
        assert won.std() < 0.5 * measured[name].won.std()
    assert measured["random"].needless.sum() > BOARDS


def test_the_better_reasoning_wins_more(measured):
    """On the same boards, by paired differences."""
    order = ("random", "rules", "minprob")
    for worse, better in zip(order, order[1:], strict=False):
        gain = measured[better].win_estimate - measured[worse].win_estimate
        mean, error = mean_and_error(gain)
        assert mean > 3 * error


def test_many_layouts_are_worth_the_least_likely_mine(measured):
    """Knowing the mines of each, no layout has anything to learn by looking."""
    games = [measured[name].win_estimate[:FEW] for name in ("hindsight", "minprob")]
    mean, error = mean_and_error(games[0] - games[1])
    assert abs(mean) < 4 * error + 0.02


@eqx.filter_jit
def acted(agent: AbstractActor, env: Minesweeper, state: MinesweeperState) -> tuple[Any, Any]:
    """What an agent does in each state, and the record of it."""
    obs, keys = jax.vmap(env.observe)(state), jr.split(jr.key(2), state.over.shape[0])
    return agent.act(state, obs, agent.init(state), key=keys)[:2]


@eqx.filter_jit
def boards(env: Minesweeper) -> tuple[MinesweeperState, MinesweeperState, MinesweeperState]:
    """Boards as they are dealt; the same with one cell open; and these with other mines."""
    new = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(1), 40))
    opened = jax.vmap(lambda s: env.step(s, jnp.int32(5), key=jr.key(0))[0])(new)
    twin = jax.vmap(lambda s, k: env.resample(s, key=k))(opened, jr.split(jr.key(3), 40))
    return new, opened, twin


def test_hindsight_takes_any_of_equally_good_cells():
    """With one layout all its safe cells are; always the first would be a rule of its own."""
    action, _ = acted(build_agent("hindsight-1", SMALL), SMALL, boards(SMALL)[0])
    assert len(set(np.asarray(action).tolist())) > SMALL.num_actions / 2


def test_a_risk_that_is_not_known_counts_as_what_came_of_it():
    tight = Minesweeper(3, 4, 2, max_states=1)
    games = measure(tight, build_agent("rules", tight), boards=FEW, key=jr.key(0))[0]
    assert games.unknown.any() and not games.unknown.all()
    assert np.isfinite(games.win_estimate).all()
    hidden = games.unknown == games.moves - 1  # of the first move the risk is known
    lost = hidden & ~games.won & (games.moves > 1)
    np.testing.assert_allclose(games.win_estimate[lost], 0 - 2 / 12, atol=1e-6)


def one_at_a_time(
    agent: Any, env: Minesweeper, state: MinesweeperState, rows: np.ndarray
) -> tuple[Any, Any]:
    """What an agent does in these rows, by the program of `minesweeper watch`."""
    of_row = lambda row: jax.tree.map(lambda x: jnp.asarray(x[row]), state)
    found = [act(env, agent, of_row(row), jr.key(2)) for row in rows]
    return jax.tree.map(lambda *xs: np.stack(xs), *found)


@pytest.mark.parametrize("name", AGENTS)
def test_no_agent_sees_the_mines(name, judge):
    """Other mines that show the same board: the same move, bit for bit, from the same keys of the
    agent. States hold no key that could be swapped besides."""
    searches = name.startswith("belief")
    table, env = helpers.TABLE, helpers.SMALL if searches else SMALL
    agent = build_agent(name, env, config=table.config, layouts=1, evaluate=judge)
    _, state, twin = boards(env)
    for x in jax.tree.leaves(state):
        assert isinstance(x, jax.Array) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    state, twin = jax.tree.map(np.asarray, (state, twin))
    going = np.flatnonzero(~state.over)
    if searches:
        other = (twin.mines != state.mines).any(axis=(1, 2))
        going = going[other[going]][:4]
        found = [one_at_a_time(agent, env, x, going) for x in (state, twin)]
        assert found[0][1].extra.searched.any()
    else:
        found = [jax.tree.map(lambda x: x[going], acted(agent, env, x)) for x in (state, twin)]
    assert (twin.mines != state.mines)[going].any()
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cheat", "agent 'cheat' is unknown; choose one of network, belief, .*hindsight-32"),
        ("hindsight-0", "agent 'hindsight-0' is unknown"),
        ("network", "network needs a trained network; give the folder of a run"),
        ("belief", "belief needs a trained network; give the folder of a run"),
    ],
)
def test_there_is_no_such_agent(name, message):
    with pytest.raises(UsageError, match=message):
        build_agent(name, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "win", "returned"),
    [("tiebreak", 0.857, 78.0), ("minprob", 0.8127, 74.2), ("rules", 0.747, 71.7)],
)
def test_known_figures_of_the_real_board(name, win, returned):
    env = Minesweeper()
    games = measure(env, build_agent(name, env, layouts=1), boards=1000, key=jr.key(0))[0]
    mean, error = mean_and_error(games.win_estimate)
    assert abs(mean - win) < 4 * error + 0.002
    mean, error = mean_and_error(games.return_estimate)
    assert abs(mean - returned) < 4 * error + 0.2
