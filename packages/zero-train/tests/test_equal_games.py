"""Games that are the same: which are found, which of them count, and what that does to a score."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import AbstractDiscreteEnvironment, Transition
from zero_envs.testing import Nim, NimState
from zero_train import challenge, FeatureEvaluator, match, PolicyActor, RandomActor, score_interval
from zero_train._match import _digest, _openings, _repeats

from .games import Counter, perfect_nim, Relay, take_one


PERFECT, ONE = PolicyActor(perfect_nim), PolicyActor(take_one)
NIM = Nim(23, 3)


class Keyed(eqx.Module):
    heap: NimState
    key: jax.Array


class KeyedNim(AbstractDiscreteEnvironment[Keyed]):
    """Nim with a key in its states, as some engines have one, from which nothing follows."""

    num_actions: int = 3
    hidden: bool = False

    def init(self, *, key):
        return Keyed(NIM.init(key=key), jr.key_data(key))

    def step(self, state, action, *, key):
        heap, transition = NIM.step(state.heap, action, key=key)
        return Keyed(heap, state.key), transition

    def observe(self, state):
        return NIM.observe(state.heap)


class Lightning(AbstractDiscreteEnvironment[NimState]):
    """Nim in which now and then the mover wins by chance, which no observation shows."""

    num_actions: int = 3
    hidden: bool = False

    def init(self, *, key):
        return NIM.init(key=key)

    def step(self, state, action, *, key):
        heap, transition = NIM.step(state, action, key=key)
        strikes = jr.bernoulli(key, 0.1) & (state.heap > 0)
        return heap, Transition(
            jnp.where(strikes, 1.0, transition.reward),
            jnp.where(strikes, 0.0, transition.discount),
            transition.last | strikes,
        )

    def observe(self, state):
        return NIM.observe(state)


class Dealt(AbstractDiscreteEnvironment[NimState]):
    """A secret card decides at the end who has won, and only the second move sees it."""

    num_actions: int = 2
    hidden: bool = True

    def init(self, *, key):
        # The card in the tens, the number of moves in the ones.
        return NimState(10 * jr.randint(key, (), 0, 3, jnp.int32))

    def step(self, state, action, *, key):
        del action, key
        moves, card = state.heap % 10, state.heap // 10
        last = moves >= 1
        reward = jnp.where(moves == 1, (1 - card).astype(jnp.float32), 0.0)
        discount = jnp.where(last, 0.0, -1.0)
        return NimState(jnp.where(last, state.heap, state.heap + 1)), Transition(
            reward, discount, last
        )

    def observe(self, state):
        seen = jnp.where(state.heap % 10 > 0, state.heap, 0)
        nim = Nim(40, 2).observe(NimState(seen))
        return eqx.tree_at(lambda obs: obs.legal, nim, jnp.ones(2, bool))


CASES: dict[str, tuple[Any, Any, Any, int]] = {
    "fixed": (NIM, PERFECT, ONE, 0),
    "opened": (NIM, PERFECT, ONE, 2),
    "keyed": (KeyedNim(), PERFECT, ONE, 2),
    "started": (Relay(), Counter(0), Counter(1), 0),
    "random": (NIM, PERFECT, RandomActor(), 0),
    "struck": (Lightning(), PERFECT, ONE, 0),
    "dealt": (Dealt(), ONE, ONE, 0),
}
GAMES = 200


@pytest.fixture(scope="module", params=CASES)
def played(request):
    """The name of a case, its match, and the number of openings."""
    env, first, second, plies = CASES[request.param]
    args: dict[str, Any] = dict(max_steps=30, opening_plies=plies, key=jr.key(0))
    result = match(env, first, second, num_games=GAMES, **args)
    rows = jnp.arange(GAMES // 2, dtype=jnp.int32)
    opened = _openings(env, rows, plies, key=jr.split(jr.key(0), 3)[0])
    features = np.asarray(jax.vmap(env.observe)(opened).features).reshape(len(rows), -1)
    return request.param, result, features


def test_what_follows_from_the_opening_counts_once_and_what_is_random_always(played):
    case, result, openings = played
    summary = result.summary()
    _, first = np.unique(openings, axis=0, return_index=True)
    random = case in ("random", "struck", "dealt")
    assert summary.played == GAMES and summary.games == (GAMES if random else 2 * len(first))
    assert summary.distinct == summary.games or (random and 2 * len(first) < summary.distinct)
    assert (summary.distinct < GAMES) or case == "random"
    assert summary.wins + summary.draws + summary.losses == summary.games
    assert summary.score == (summary.wins + summary.draws / 2) / summary.games
    kept = slice(None) if random else np.sort(first)
    points = (np.asarray(result.outcomes, float).reshape(2, -1).T[kept] + 1) / 2
    assert summary.score == pytest.approx(points.mean())
    assert (summary.score_low, summary.score_high) == pytest.approx(score_interval(points))
    lengths = np.asarray(result.lengths).reshape(2, -1)[:, kept]
    assert summary.mean_length == pytest.approx(lengths.mean())
    each = result.metrics()
    numbers = np.arange(GAMES // 2)[kept]
    np.testing.assert_array_equal(each["score"], points.T.reshape(-1))
    np.testing.assert_array_equal(each["length"], lengths.reshape(-1))
    np.testing.assert_array_equal(each["opening"], [*numbers, *numbers])
    np.testing.assert_array_equal(each["seat"], np.repeat([0, 1], len(numbers)))


def test_two_games_played_over_and_over_say_what_two_games_say():
    args: dict[str, Any] = dict(max_steps=30, opening_plies=0)
    often, once = (
        match(NIM, PERFECT, ONE, num_games=n, key=jr.key(n), **args).summary() for n in (GAMES, 2)
    )
    assert once.score == 1 and once.score_low < 0.4
    assert (often.played, often.games, often.distinct) == (GAMES, 2, 2)
    for name in ("score", "score_low", "score_high", "wins", "mean_length"):
        assert getattr(often, name) == getattr(once, name)


def test_openings_differ_unless_told_otherwise():
    """In every function that plays matches."""
    result = match(NIM, PERFECT, ONE, num_games=GAMES, max_steps=30, key=jr.key(1))
    _, again = challenge(NIM, ONE, ONE, num_games=GAMES, max_steps=30, key=jr.key(1))
    # Two moves take 2 to 6 objects.
    assert result.summary().games == again.summary().games == 2 * 5
    plies = [inspect.signature(f).parameters["opening_plies"].default for f in (match, challenge)]
    assert plies == [2, 2]


class Unequal(AbstractDiscreteEnvironment[NimState]):
    """Of three openings one is drawn in eight of ten games: then action 0 of the second move wins,
    else action 1."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        # The opening in the tens, the number of moves in the ones.
        return NimState(10 * jnp.maximum(jr.randint(key, (), 0, 10, jnp.int32) - 7, 0))

    def step(self, state, action, *, key):
        del key
        last = state.heap % 10 >= 1
        won = (action == 1) == (state.heap >= 10)
        reward = jnp.where(state.heap % 10 == 1, jnp.where(won, 1.0, -1.0), 0.0)
        heap = jnp.where(state.heap % 10 < 2, state.heap + 1, state.heap)
        return NimState(heap), Transition(reward, jnp.where(last, 0.0, -1.0), last)

    def observe(self, state):
        obs = Nim(30, 2).observe(state)
        return eqx.tree_at(lambda obs: obs.legal, obs, jnp.ones(2, bool))


class Always(eqx.Module):
    """A network that wants one action."""

    logits: jax.Array

    def __call__(self, features):
        return self.logits, jnp.zeros(())


def test_a_challenger_wins_by_the_games_that_count():
    zero, one = (PolicyActor(FeatureEvaluator(Always(jnp.eye(2)[i]))) for i in range(2))
    args: dict[str, Any] = dict(num_games=GAMES, max_steps=4, opening_plies=0, key=jr.key(2))
    chosen, result = challenge(Unequal(), one, zero, **args)
    # Of the three openings it wins two, which are a fifth of those that are drawn.
    assert result.summary().score == pytest.approx(2 / 3) and result.outcomes.mean() < 0
    assert eqx.tree_equal(chosen, one)


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "int64")
WIDE = ("int64", "float64", "uint64")


@pytest.fixture
def precision(dtype):
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", dtype in WIDE)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "uint64"])
def test_rows_that_differ_anywhere_have_other_digests(dtype):
    """Also where two numbers are exchanged, or a number moves from one array to the next."""
    zeros = jnp.zeros((7, 2), jnp.dtype(dtype))
    ones = jnp.ones_like(zeros)
    left = zeros.at[0, 0].set(ones[0, 0]).at[1, 1].set(ones[0, 0]).at[2].set(ones[0])
    right = jnp.roll(left, 3, axis=0)
    start = jnp.zeros((7, 2), jnp.uint32)
    digest = _digest(start, (left, right))
    assert digest.dtype == jnp.uint32 and len(np.unique(np.asarray(digest), axis=0)) == 7
    assert len(np.unique(np.asarray(_digest(digest, ones)), axis=0)) == 7
    assert len(np.unique(np.asarray(_digest(start, (ones, ones))), axis=0)) == 1


def test_many_digests_fall_together_as_seldom_as_random_numbers():
    """Of one-hot and of counted rows, whose bits differ in few places."""
    number = jnp.arange(40_000, dtype=jnp.int32)
    start = jnp.zeros((number.size, 2), jnp.uint32)
    board = (number[:, None] >> jnp.arange(16, dtype=jnp.int32)[None]) & 1
    for rows in (number, board.astype(bool), board.astype(jnp.float32)):
        digest = _digest(start, rows)
        assert not np.asarray(_repeats(digest)).any()
        # Each half by itself: 40000 ** 2 / 2 ** 33 is 0.19.
        for half in np.asarray(digest).T:
            assert len(np.unique(half)) > 40_000 - 6


def test_of_the_same_only_the_first_is_no_repeat():
    digests = np.array([[3, 1], [1, 3], [3, 1], [0, 0], [1, 3], [3, 1], [3, 0]], np.uint32)
    expected = [False, False, True, False, True, True, False]
    np.testing.assert_array_equal(_repeats(jnp.asarray(digests)), expected)
