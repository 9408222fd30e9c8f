"""What agents are worth: against the boards themselves, figures that are known, and each other."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Minesweeper
from zero_minesweeper._agents import build_agent, SOLVERS
from zero_minesweeper._measure import mean_and_error, measure, Measured
from zero_train.app import UsageError


# A short list of states compiles in a third of the time.
SMALL, BOARDS = Minesweeper(3, 4, 2, max_states=32), 250
SAFE = 10


#: Boards of the agent that plans for many futures, which is slow.
FEW = 60


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    return {
        name: measure(
            SMALL,
            build_agent(name, SMALL, layouts=64),
            boards=FEW if name == "hindsight" else BOARDS,
            key=jr.key(0),
        )
        for name in SOLVERS
    }


@pytest.mark.parametrize("name", SOLVERS)
def test_luck_is_taken_out_and_nothing_else(measured, name):
    """The estimates have the mean of what happened: risks paid are risks taken."""
    games = measured[name].games
    for estimate, real in ((games.win_estimate, games.won), (games.return_estimate, games.safe)):
        gap, error = mean_and_error(np.asarray(estimate, float) - np.asarray(real, float))
        assert abs(gap) < 4 * error + 1e-6
    assert (games.won == (games.safe == SAFE)).all()
    assert (games.moves - games.won * SAFE >= 0).all() and measured[name].moves_per_second > 0


def test_who_knows_the_posterior_takes_no_needless_risk(measured):
    for name in ("tiebreak", "minprob"):
        assert not measured[name].games.needless.any()
        won = measured[name].games.win_estimate
        assert won.std() < 0.5 * measured[name].games.won.std()
    assert measured["random"].games.needless.sum() > BOARDS


def test_the_better_reasoning_wins_more(measured):
    """On the same boards, by paired differences."""
    order = ("random", "rules", "minprob")
    for worse, better in zip(order, order[1:], strict=False):
        gain = measured[better].games.win_estimate - measured[worse].games.win_estimate
        mean, error = mean_and_error(gain)
        assert mean > 3 * error


def test_many_layouts_are_worth_the_least_likely_mine(measured):
    """Knowing the mines of each, no layout has anything to learn by looking."""
    games = [measured[name].games.win_estimate[:FEW] for name in ("hindsight", "minprob")]
    mean, error = mean_and_error(games[0] - games[1])
    assert abs(mean) < 4 * error + 0.02


def test_a_board_and_its_luck_depend_on_its_number_alone(measured):
    few = measure(SMALL, build_agent("random", SMALL, layouts=1), boards=20, key=jr.key(0)).games
    many = measured["random"].games
    np.testing.assert_array_equal(few.safe, many.safe[:20])
    np.testing.assert_allclose(few.win_estimate, many.win_estimate[:20], rtol=1e-6)


@pytest.mark.parametrize("name", ["tiebreak", "rules", "hindsight"])
def test_no_agent_sees_the_mines(name):
    """Other mines that show the same board: the same move from the same keys."""
    agent = build_agent(name, SMALL, layouts=4)
    state = jax.vmap(lambda key: SMALL.init(key=key))(jr.split(jr.key(1), 6))
    open_one = lambda s: SMALL.step(s, jnp.int32(5), key=jr.key(0))[0]
    state = jax.vmap(open_one)(state)

    @jax.jit
    def act(state):
        obs = jax.vmap(SMALL.observe)(state)
        return agent.act(state, obs, agent.init(state), key=jr.split(jr.key(2), 6))[0]

    twin = jax.vmap(lambda s, k: SMALL.resample(s, key=k))(state, jr.split(jr.key(3), 6))
    going = ~np.asarray(state.over)
    assert going.any() and (np.asarray(twin.mines) != np.asarray(state.mines))[going].any()
    np.testing.assert_array_equal(np.asarray(act(state))[going], np.asarray(act(twin))[going])


def test_there_is_no_such_agent():
    with pytest.raises(UsageError, match="--agent cheat is unknown; choose one of tiebreak, min"):
        build_agent("cheat", SMALL, layouts=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "win", "returned"),
    [("tiebreak", 0.857, 78.0), ("minprob", 0.8127, 74.2), ("rules", 0.747, 71.7)],
)
def test_known_figures_of_the_real_board(name, win, returned):
    env = Minesweeper()
    games = measure(env, build_agent(name, env, layouts=1), boards=1000, key=jr.key(0)).games
    mean, error = mean_and_error(games.win_estimate)
    assert abs(mean - win) < 4 * error + 0.002
    mean, error = mean_and_error(games.return_estimate)
    assert abs(mean - returned) < 4 * error + 0.2
