"""Matches and evaluation against exact win probabilities, reference games and interval laws."""

import functools as ft
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from zero_envs.testing import Corridor, Nim
from zero_search import TreeSearch
from zero_train import (
    challenge,
    data_mesh,
    EnvironmentModel,
    evaluate,
    FeatureEvaluator,
    match,
    PlanningActor,
    PolicyActor,
    RandomActor,
    score_interval,
)
from zero_train._match import _openings

from .games import close_to, Counter, perfect_nim, perfect_wins, play_relay, Relay, Scalar, take_one


HALF = 200
PERFECT = PolicyActor(perfect_nim)


# ---- match


def test_the_perfect_nim_player_wins_exactly_as_often_as_it_should():
    args: dict[str, Any] = dict(num_games=2 * HALF, max_steps=10, opening_plies=0)
    result = match(Nim(7, 3), PERFECT, RandomActor(), key=jr.key(1), **args)
    outcomes = np.asarray(result.outcomes)
    # 7 is a win for the mover, which the perfect player is in the first half.
    assert perfect_wins(7, True) == 1 and (outcomes[:HALF] == 1).all()
    assert close_to(int((outcomes[HALF:] == 1).sum()), HALF, perfect_wins(7, False))
    summary = result.summary()
    assert summary.games == 2 * HALF == summary.wins + summary.losses
    assert summary.draws == summary.unfinished == 0
    assert summary.score_low < summary.score == summary.wins / summary.games < summary.score_high
    # From the other side everything is mirrored: seats are not mixed up.
    result = match(Nim(8, 3), RandomActor(), PERFECT, key=jr.key(2), **args)
    outcomes = np.asarray(result.outcomes)
    assert perfect_wins(8, False) == 1 and (outcomes[:HALF] == -1).all()
    assert close_to(int((outcomes[HALF:] == -1).sum()), HALF, perfect_wins(8, True))


def test_equal_deterministic_players_share_every_pair_of_games():
    result = match(
        Nim(23, 3), PERFECT, PERFECT, num_games=64, max_steps=30, key=jr.key(0), opening_plies=3
    )
    outcomes, lengths = np.asarray(result.outcomes), np.asarray(result.lengths)
    np.testing.assert_array_equal(outcomes[:32], -outcomes[32:])
    np.testing.assert_array_equal(lengths[:32], lengths[32:])
    assert len(set(outcomes[:32])) == 2  # the openings do differ
    summary = result.summary()
    assert summary.score == 0.5 and summary.score_low < 0.5 < summary.score_high


def test_a_player_who_moves_twice_is_followed_by_the_sign_of_the_discount():
    num = 48
    args: dict[str, Any] = dict(max_steps=20, opening_plies=0, key=jr.key(7))
    result = match(Relay(), Counter(0), Counter(1), num_games=num, **args)
    heaps = np.asarray(
        _openings(Relay(), jnp.arange(num // 2), 0, key=jr.split(jr.key(7), 3)[0]).heap
    )
    assert set(heaps) == set(range(4, 10))
    expected = [play_relay(int(heap), (0, 1), seat) for seat in (0, 1) for heap in heaps]
    np.testing.assert_array_equal(result.outcomes, [outcome for outcome, _ in expected])
    np.testing.assert_array_equal(result.lengths, [length for _, length in expected])
    # The reference must need both outcomes from both seats, or it proves little.
    assert {(i < num // 2, outcome) for i, (outcome, _) in enumerate(expected)} == {
        (seat, outcome) for seat in (True, False) for outcome in (1, -1)
    }


def test_games_that_are_broken_off_are_draws_and_reported():
    args: dict[str, Any] = dict(max_steps=2, opening_plies=0, key=jr.key(0))
    result = match(Nim(7, 3), PERFECT, PERFECT, num_games=2, **args)
    np.testing.assert_array_equal(result.lengths, [2, 2])
    summary = result.summary()
    assert (summary.draws, summary.unfinished, summary.score) == (2, 2, 0.5)


def test_openings_are_uniform_over_those_that_do_not_end_the_game():
    # One random move from 3 leaves 2, 1 or 0; the last would be over. `take_one` then needs as
    # many moves as objects are left.
    one = PolicyActor(take_one)
    args: dict[str, Any] = dict(num_games=2 * HALF, max_steps=9, opening_plies=1)
    lengths = np.asarray(match(Nim(3, 3), one, one, key=jr.key(3), **args).lengths)
    np.testing.assert_array_equal(lengths[:HALF], lengths[HALF:])
    assert set(lengths) == {1, 2}
    assert close_to(int((lengths[:HALF] == 1).sum()), HALF, 0.5)


def test_an_opening_that_cannot_but_end_the_game_is_cut_short():
    # Nim(3) is over after 3 moves at the most. Random play passes its last position before the end
    # with 3 objects in 1 of 3 cases (take all), with 2 in 1 of 6, with 1 in 1 of 2.
    one = PolicyActor(take_one)
    args: dict[str, Any] = dict(num_games=2 * HALF, max_steps=9, opening_plies=8)
    lengths = np.asarray(match(Nim(3, 3), one, one, key=jr.key(4), **args).lengths)
    counts = np.bincount(lengths[:HALF], minlength=4)[1:]
    assert stats.chisquare(counts, HALF * np.array([3, 1, 2]) / 6).pvalue > 1e-3


@pytest.fixture(scope="module")
def random_match():
    """Of so many games, on a mesh."""

    @ft.cache
    def play(num_games: int = 40, mesh=None):
        args: dict[str, Any] = dict(max_steps=4, key=jr.key(5), opening_plies=2, mesh=mesh)
        return match(Nim(11, 3), RandomActor(), RandomActor(), num_games=num_games, **args)

    return play


def test_a_game_does_not_depend_on_its_neighbours(random_match):
    small, large = random_match(16), random_match()
    assert len(set(np.asarray(small.outcomes[:8]))) > 1
    # Actors' keys go by the game, so only the halves that start at game 0 can be compared.
    np.testing.assert_array_equal(small.outcomes[:8], large.outcomes[:8])
    np.testing.assert_array_equal(small.lengths[:8], large.lengths[:8])


def test_devices_do_not_matter(random_match):
    """20 pairs on 8 devices: four of the 24 that are played do not count."""
    apart, together = random_match(mesh=data_mesh(8)), random_match()
    assert set(np.asarray(together.terminated)) == {True, False}
    jax.tree.map(np.testing.assert_array_equal, apart, together)


TRACES = []


class Table(eqx.Module):
    """A network that is a table, and counts how often it is traced."""

    logits: jax.Array

    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        TRACES.append(1)
        return features @ self.logits, jnp.zeros(())


def table(*, perfect: bool) -> Table:
    """Takes what leaves a multiple of 4, or always 1."""
    heap = jnp.arange(12)
    best = jnp.maximum(heap % 4 - 1, 0) if perfect else jnp.zeros_like(heap)
    return Table(jax.nn.one_hot(best, 3))


def test_a_search_that_keeps_its_tree_plays_nim_and_new_parameters_do_not_retrace():
    env = Nim(11, 3)
    planner = TreeSearch(num_simulations=24, max_nodes=40, reuse=True)

    def play(network: Table):
        model = EnvironmentModel(env, FeatureEvaluator(network))
        actor = PlanningActor(planner, model)
        args: dict[str, Any] = dict(max_steps=12, opening_plies=0, key=jr.key(6))
        return match(env, actor, PERFECT, num_games=4, **args)

    result = play(table(perfect=True))
    np.testing.assert_array_equal(result.outcomes, [1, 1, -1, -1])
    traces = len(TRACES)
    play(table(perfect=False))
    assert len(TRACES) == traces


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(num_games=3), "num_games=3.*must be even; try 4"),
        (dict(num_games=0), "num_games=0"),
        (dict(max_steps=0), "max_steps=0"),
        (dict(opening_plies=-1), "opening_plies=-1"),
    ],
)
def test_match_names_what_is_wrong_with_its_arguments(changes, message):
    args = dict(num_games=2, max_steps=9, key=jr.key(0)) | changes
    with pytest.raises(ValueError, match=message):
        match(Nim(3, 3), RandomActor(), RandomActor(), **args)


def test_a_carry_without_a_batch_axis_is_refused():
    with pytest.raises(ValueError, match="Scalar has a leaf of shape"):
        match(Nim(3, 3), Scalar(), RandomActor(), num_games=2, max_steps=9, key=jr.key(0))


# ---- challenge


def test_the_best_is_replaced_by_a_better_one_only():
    good, bad = (PolicyActor(FeatureEvaluator(table(perfect=p))) for p in (True, False))
    env, args = Nim(11, 3), dict(num_games=32, max_steps=12, opening_plies=2)
    for challenger, best, expected in [(good, bad, good), (bad, good, good), (bad, bad, bad)]:
        chosen, result = challenge(env, challenger, best, key=jr.key(8), **args)
        assert eqx.tree_equal(chosen, expected)
        assert (result.outcomes.mean() > 0) == (challenger is not best and expected is challenger)


def test_a_challenger_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="differ in more than the values"):
        challenge(
            Nim(3, 3), PERFECT, PolicyActor(take_one), num_games=2, max_steps=9, key=jr.key(0)
        )


# ---- intervals


def pairs(points) -> np.ndarray:
    return np.asarray(points, np.float64).reshape(-1, 2)


@pytest.mark.parametrize("wins", [0, 7, 20, 40])
def test_independent_games_have_wilsons_interval(wins):
    # Wins and losses spread over the pairs as evenly as they go: a design effect of 1 or less.
    points = np.zeros((2, 20))
    points[0, : min(wins, 20)] = 1
    points[1, : max(wins - 20, 0)] = 1
    exact = stats.binomtest(wins, 40).proportion_ci(method="wilson")
    np.testing.assert_allclose(score_interval(points.T), exact, atol=1e-6)
    assert score_interval(points.T)[0] < score_interval(points.T)[1]


def test_games_that_only_repeat_each_other_count_once():
    points = pairs([1, 1] * 30 + [0, 0] * 20)
    exact = stats.binomtest(30, 50).proportion_ci(method="wilson")
    np.testing.assert_allclose(score_interval(points), exact, atol=2e-3)


def test_the_interval_holds_the_score_where_all_games_end_alike():
    for n in range(1, 200):
        assert score_interval(np.ones((n, 2)))[1] == 1
        assert score_interval(np.zeros((n, 2)))[0] == 0


@pytest.mark.parametrize("probability", [0.5, 0.9])
@pytest.mark.parametrize("tied", [0.0, 0.6], ids=["independent", "correlated"])
def test_the_interval_covers_the_true_score(probability, tied):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        points = (rng.random((100, 2)) < probability).astype(float)
        points[:, 1] = np.where(rng.random(100) < tied, points[:, 0], points[:, 1])
        low, high = score_interval(points)
        covered += low <= probability <= high
    assert covered >= 930


# ---- evaluate


@pytest.fixture(scope="module")
def walks():
    return evaluate(Corridor(3), RandomActor(), num_episodes=1000, max_steps=200, key=jr.key(9))


def test_evaluation_has_no_bias_to_short_episodes(walks):
    # From the first of three cells a random walk takes 6 steps on average: E0 = 2 + E1 and
    # E1 = 1 + E0 / 2. Counting whatever finishes first would make it fewer.
    summary = walks.summary()
    spread = np.asarray(walks.lengths, float).std() / math.sqrt(1000)
    assert abs(summary.mean_length - 6) < 4 * spread
    assert (summary.episodes, summary.mean, summary.standard_error) == (1000, 1.0, 0.0)
    assert summary.truncated == 0


def test_episodes_are_cut_off_at_max_steps(walks):
    cut = evaluate(Corridor(3), RandomActor(), num_episodes=1000, max_steps=4, key=jr.key(9))
    # The same walks, cut: nothing else may change.
    np.testing.assert_array_equal(cut.lengths, np.minimum(walks.lengths, 4))
    np.testing.assert_array_equal(cut.terminated, np.asarray(walks.lengths) <= 4)
    summary = cut.summary()
    assert summary.truncated == int((np.asarray(walks.lengths) > 4).sum()) > 0
    p = 1 - summary.truncated / 1000
    assert summary.mean == pytest.approx(p)
    assert summary.standard_error == pytest.approx(math.sqrt(p * (1 - p) / 999))


@pytest.mark.parametrize("heap, outcome", [(7, 1), (8, -1)])
def test_the_return_is_the_first_movers(heap, outcome):
    result = evaluate(Nim(heap, 3), PERFECT, num_episodes=1, max_steps=9, key=jr.key(0))
    assert result.returns[0] == outcome
    assert math.isnan(result.summary().standard_error)


def test_evaluate_names_what_is_wrong_with_its_arguments():
    with pytest.raises(ValueError, match="num_episodes=0"):
        evaluate(Corridor(3), RandomActor(), num_episodes=0, max_steps=9, key=jr.key(0))
