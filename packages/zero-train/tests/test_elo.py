"""Elo ratings against closed forms, scipy and simulated tournaments."""

import dataclasses
import itertools
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from zero_train import EloLadder, fit_elo


def tournament(ratings, count: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """A round robin of `count` games a pair between players of the given strengths."""
    ratings = np.asarray(ratings, float)
    scores, games = np.zeros((2, len(ratings), len(ratings)))
    for i, j in itertools.combinations(range(len(ratings)), 2):
        wins = rng.binomial(count, 1 / (1 + 10 ** ((ratings[j] - ratings[i]) / 400)))
        scores[i, j], scores[j, i] = wins, count - wins
        games[i, j] = games[j, i] = count
    return scores, games


def two(score: float, games: float) -> tuple[np.ndarray, np.ndarray]:
    """A table in which player 1 scored so much against player 0."""
    return np.array([[0, games - score], [score, 0]]), np.array([[0, games], [games, 0.0]])


def test_three_quarters_are_190_85_points():
    fit = fit_elo(*two(75, 100), prior=0)
    np.testing.assert_allclose(fit.ratings, [0, 400 * math.log10(3)], rtol=1e-9)
    # Fisher information of n games is n p (1 - p) in natural units.
    expected = 400 / math.log(10) / math.sqrt(100 * 0.75 * 0.25)
    np.testing.assert_allclose(fit.standard_errors, [0, expected], rtol=1e-9)


def test_the_prior_is_virtual_draws():
    with_prior = fit_elo(*two(75, 100), prior=2)
    without = fit_elo(*two(76, 102), prior=0)
    np.testing.assert_allclose(with_prior.ratings, without.ratings, rtol=1e-9)
    np.testing.assert_allclose(with_prior.covariance, without.covariance, rtol=1e-9)


def test_a_perfect_score_is_finite_and_grows_with_the_number_of_games():
    fits = [fit_elo(*two(games, games)) for games in (10, 100, 10000)]
    ratings = [fit.ratings[1] for fit in fits]
    assert np.isfinite(ratings).all() and ratings == sorted(ratings)
    assert ratings[1] == pytest.approx(400 * math.log10(100.25 / 0.25))
    assert all(200 < fit.standard_errors[1] < 1000 for fit in fits)


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_it_is_the_maximum_of_the_likelihood(prior):
    scores, games = tournament([0, 150, -80, 300, 420], 20, np.random.default_rng(0))
    games[0, 4] = games[4, 0] = scores[0, 4] = scores[4, 0] = 0  # not everybody meets everybody
    virtual = scores + prior / 2 * (games > 0)

    def loss(free):
        r = np.concatenate([[0.0], free])
        return np.sum(virtual * np.logaddexp(0, r[None, :] - r[:, None]))

    points = 400 / math.log(10)
    best = optimize.minimize(loss, np.zeros(4), method="BFGS", options=dict(gtol=1e-4))
    fit = fit_elo(scores, games, prior=prior)
    np.testing.assert_allclose(fit.ratings[1:], points * best.x, atol=0.05)
    # The errors come from the curvature, here by central differences of steps of 0.01.
    x, steps = fit.ratings[1:] / points, np.eye(4) / 100
    hessian = [
        [loss(x + a + b) - loss(x + a - b) - loss(x - a + b) + loss(x - a - b) for a in steps]
        for b in steps
    ]
    covariance = points**2 * np.linalg.inv(np.asarray(hessian) / 4e-4)
    np.testing.assert_allclose(fit.covariance[1:, 1:], covariance, rtol=1e-3)


def test_known_strengths_are_recovered_within_their_errors():
    strengths = np.array([0, 200, 350, 500, 700.0])
    rng = np.random.default_rng(1)
    fits = [fit_elo(*tournament(strengths, 100, rng)) for _ in range(300)]
    ratings = np.array([fit.ratings for fit in fits])
    claimed = np.mean([fit.standard_errors for fit in fits], axis=0)[1:]
    np.testing.assert_allclose(ratings.std(axis=0)[1:], claimed, rtol=0.15)
    # The bias of the estimate is far below its error.
    assert (np.abs(ratings.mean(axis=0) - strengths)[1:] < 0.25 * claimed).all()
    inside = np.abs(ratings[:, 1:] - strengths[1:]) < 1.96 * claimed
    assert 0.92 < inside.mean() < 0.98


def test_players_order_and_anchor_only_relabel():
    scores, games = tournament([0, 100, 250, 900], 30, np.random.default_rng(2))
    fit = fit_elo(scores, games)
    order = np.array([2, 0, 3, 1])
    mixed = fit_elo(scores[np.ix_(order, order)], games[np.ix_(order, order)], anchor=1)
    np.testing.assert_allclose(mixed.ratings, fit.ratings[order], atol=1e-6)
    np.testing.assert_allclose(mixed.standard_errors, fit.standard_errors[order], rtol=1e-6)
    other = fit_elo(scores, games, anchor=2)
    assert other.ratings[2] == other.standard_errors[2] == 0
    np.testing.assert_allclose(other.ratings, fit.ratings - fit.ratings[2], atol=1e-6)
    # The error of a difference does not depend on the anchor either.
    difference = fit.covariance[0, 0] + fit.covariance[2, 2] - 2 * fit.covariance[0, 2]
    assert other.covariance[0, 0] == pytest.approx(difference)


def test_a_chain_of_whitewashes_converges():
    # Every checkpoint beats the one before in all games: the hardest table for Newton's method.
    players = 12
    scores, games = np.zeros((2, players, players))
    for i in range(players - 1):
        scores[i + 1, i] = games[i, i + 1] = games[i + 1, i] = 400
    fit = fit_elo(scores, games)
    np.testing.assert_allclose(np.diff(fit.ratings), 400 * math.log10(400.25 / 0.25), rtol=1e-6)
    assert (np.diff(fit.standard_errors) > 0).all()


@pytest.mark.parametrize(
    "scores, games, changes, message",
    [
        (*two(75, 100), dict(anchor=2), "anchor=2"),
        (*two(75, 100), dict(prior=-1), "prior=-1"),
        (two(75, 100)[0], two(75, 90)[1], {}, "do not add up"),
        (*two(math.nan, 100), {}, "finite"),
        (*two(-1, 100), {}, "negative"),
        (np.eye(2), np.eye(2) * 2, {}, "themselves"),
        (*two(10, 10), dict(prior=0), r"actors \[1\] cannot be rated"),
        (np.zeros((3, 3)), np.zeros((3, 3)), {}, r"actors \[1, 2\] cannot be rated"),
    ],
)
def test_impossible_tables_are_named(scores, games, changes, message):
    with pytest.raises(ValueError, match=message):
        fit_elo(scores, games, **changes)


def test_a_ladder_adds_up_its_results():
    ladder = EloLadder("random").add_result("a", "random", 9.5, 10)
    ladder = ladder.add_result("random", "a", 2, 10).add_result("b", "a", 30, 40)
    assert ladder.names == ("random", "a", "b")
    scores, games = ladder.table()
    np.testing.assert_array_equal(scores, [[0, 2.5, 0], [17.5, 0, 10], [0, 30, 0]])
    np.testing.assert_array_equal(games, [[0, 20, 0], [20, 0, 40], [0, 40, 0]])
    ratings = ladder.ratings()
    fit = fit_elo(scores, games)
    assert list(ratings) == ["random", "a", "b"] and ratings["random"] == (0, 0)
    assert ratings["b"] == (fit.ratings[2], fit.standard_errors[2])
    stored = json.loads(json.dumps(dataclasses.asdict(ladder)))
    again = EloLadder(stored["anchor"], tuple(map(tuple, stored["results"])), stored["prior"])
    assert again == ladder


def test_a_ladder_of_the_anchor_alone():
    assert EloLadder("random").ratings() == {"random": (0.0, 0.0)}


@pytest.mark.parametrize("of", [np.array, np.float32, np.int64, jnp.asarray])
def test_numbers_of_arrays_will_do(of, unhooked):
    games = of(10) if of(10).dtype.kind == "i" else 10
    assert EloLadder("random").add_result("a", "random", of(3), games).ratings()["a"][0] < 0


@pytest.mark.parametrize(
    "args", [("a", "a", 1, 2), ("a", "b", 3, 2), ("a", "b", -1, 2), ("a", "b", 0, 0)]
)
def test_a_ladder_refuses_impossible_results(args):
    with pytest.raises(ValueError, match="add_result"):
        EloLadder("random").add_result(*args)


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_with_known_ratings_only_the_others_are_fitted(prior):
    scores, games = tournament([0, 150, -80, 300, 420], 20, np.random.default_rng(3))
    virtual = scores + prior / 2 * (games > 0)
    points = 400 / math.log(10)

    def loss(free):
        r = np.array([0.0, 200 / points, -100 / points, *free])
        return np.sum(virtual * np.logaddexp(0, r[None, :] - r[:, None]))

    best = optimize.minimize(loss, np.zeros(2), method="BFGS", options=dict(gtol=1e-6))
    fit = fit_elo(scores, games, prior=prior, known={1: 200.0, 2: -100.0})
    np.testing.assert_allclose(fit.ratings, [0, 200, -100, *points * best.x], atol=0.01)
    np.testing.assert_allclose(fit.standard_errors[:3], 0)
    # With the rating of everybody else known, the information is that of independent games.
    alone = fit_elo(scores, games, prior=prior, known=dict(enumerate(fit.ratings[:4])))
    expected = [1 / (1 + 10 ** ((r - alone.ratings[4]) / 400)) for r in fit.ratings[:4]]
    information = sum((20 + prior) * p * (1 - p) for p in expected)
    assert alone.standard_errors[4] == pytest.approx(points / math.sqrt(information))


def test_who_met_only_known_players_is_rated():
    """Though these have not met each other, and one has lost every game."""
    ladder = EloLadder("random", known={"uct": 300.0}, prior=0)
    ladder = ladder.add_result("new", "random", 10, 10).add_result("new", "uct", 5, 10)
    elo, _ = ladder.ratings()["new"]
    lost = lambda x: 1 / (1 + 10 ** (x / 400))
    assert 10 * lost(elo) == pytest.approx(5 - 10 * lost(elo - 300))
    assert ladder.ratings()["uct"] == (300, 0)


def test_who_met_a_player_far_from_the_anchor_is_rated():
    ladder = EloLadder("random", known={"uct": 9000.0}).add_result("new", "uct", 5, 10)
    assert ladder.ratings()["new"][0] == pytest.approx(9000)


@pytest.mark.parametrize("apart", [1600.0, 2000.0, 4000.0])
def test_known_players_may_be_far_apart(apart):
    """Between them the likelihood is nearly flat, and a whole Newton step leads far away."""
    scores = np.array([[0, 0, 2], [0, 0, 20], [398, 380, 0.0]])
    fit = fit_elo(scores, scores + scores.T, known={1: apart}, prior=0)
    lost = lambda x: 1 / (1 + 10 ** (x / 400))
    best = optimize.brentq(lambda x: lost(x) + lost(x - apart) - 22 / 400, 0, apart + 2000)
    assert fit.ratings[2] == pytest.approx(best)


@pytest.mark.parametrize(
    "known", [{2: 0.0}, {-1: 0.0}, {1: math.nan}, {"a": 1.0}, {1.0: 3.0}, {1: "3"}, {0: 100.0}]
)
def test_impossible_known_ratings_are_named(known, unhooked):
    """Another rating of the anchor than 0 would be relative to another one."""
    with pytest.raises(ValueError, match="known="):
        fit_elo(*two(75, 100), known=known)
