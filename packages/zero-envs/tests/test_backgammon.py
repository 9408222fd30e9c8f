"""Backgammon with its dice in the open, against pgx's own game."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest

from zero_envs import Backgammon, environment_facts, known_environments, make, PgxState
from zero_envs.testing import check_environment


ENV = Backgammon()
NUM_GAMES, LENGTH = 16, 400
ROLLS = np.stack(np.triu_indices(6), axis=1)
ODDS = np.where(ROLLS[:, 0] == ROLLS[:, 1], 1, 2) / 36
# What runs once is not worth optimising.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Played(NamedTuple):
    """Moves of pgx's own random games, `[moves]`, and whether ours are the same."""

    over: Any
    rolled: Any
    rewards: Any
    ended: Any
    outcome: Any
    resolved: dict[str, Any]
    stepped: dict[str, Any]
    transition: Any
    odds: Any
    erased: Any


def sorted_dice(position: Any, rolled: Any) -> Any:
    """pgx's state, in which the dice come in order if they were just rolled."""
    playable = position._playable_dice
    both = playable.at[:2].set(jnp.sort(playable[:2]))
    return position.replace(
        _dice=jnp.where(rolled, jnp.sort(position._dice), position._dice),
        _playable_dice=jnp.where(rolled, both, playable),
    )


@pytest.fixture(scope="module")
def play():
    """A function of seeds; all of it is compiled once. Illegal actions are played too, and games
    are played on after their end."""
    game = pgx.make("backgammon")

    def equal(ours: PgxState, theirs: Any):
        fields = dict(vars(ours.position))
        assert fields.pop("observation") is fields.pop("rewards") is None
        return {name: jnp.array_equal(x, getattr(theirs, name)) for name, x in fields.items()}

    def body(carry, i):
        state, seed = carry
        akey, ikey, skey = jr.split(jr.fold_in(jr.key(seed), i), 3)
        legal = state.legal_action_mask
        # After an end no action is better than another; before, one in 2 000 is illegal.
        wrong = jr.bernoulli(ikey, 0.0005) & ~state.terminated
        action = jr.categorical(akey, jnp.where(legal ^ wrong, 0.0, -jnp.inf)).astype(jnp.int32)
        theirs = game.step(state, action, jr.key_data(skey))
        rolled = theirs.current_player != state.current_player
        wanted = sorted_dice(theirs, rolled)
        before = PgxState(state.replace(observation=None, rewards=None))
        after = ENV.afterstate(before, action)
        assert after.position.legal_action_mask is None
        dice = jnp.append(after.position._dice, after.position._playable_dice)
        outcome = jnp.argmax((jnp.asarray(ROLLS) == wanted._dice).all(axis=1)) * rolled
        resolved, transition = ENV.resolve(after, outcome.astype(jnp.int32))
        stepped, again = ENV.step(before, action, key=skey)
        same = equal(stepped, wanted)
        for name in ("reward", "discount", "last"):
            same[name] = getattr(again, name) == getattr(transition, name)
        rewards = theirs.rewards[state.current_player]
        found = (state.terminated, rolled, rewards, theirs.terminated, outcome)
        found = (*found, equal(resolved, wanted), same, transition)
        return (theirs, seed), Played(*found, ENV.outcome_logits(after), (dice == -1).all())

    def run(seed):
        start = game.init(jr.PRNGKey(seed))
        start = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), start)
        return jax.lax.scan(body, (start, seed), jnp.arange(LENGTH))[1]

    compiled = jax.jit(jax.vmap(run), compiler_options=QUICK)

    def played(first: int) -> Played:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            with jax.debug_key_reuse(False):
                found = compiled(jnp.arange(first, first + NUM_GAMES))
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), found)

    return played


@pytest.fixture(scope="module")
def played(play) -> Played:
    return play(0)


def check_equal(played: Played):
    for name, same in played.resolved.items():
        assert same.all(), name
    for name, same in played.stepped.items():
        assert same.all(), f"{name} of step"
    moved = played.transition
    np.testing.assert_array_equal(moved.reward, np.where(played.over, 0.0, played.rewards))
    np.testing.assert_array_equal(moved.last, played.ended)
    signs = np.where(played.rolled, -1.0, 1.0)
    np.testing.assert_array_equal(moved.discount, np.where(played.ended, 0.0, signs))


def test_equals_pgx_with_the_same_roll(played: Played):
    """Leaf by leaf, and with the same key the roll is the same."""
    check_equal(played)
    assert len(played.resolved) == 10 and (~played.over).sum() > 3000
    # Turns of one move and of several, and ends by a win and by an illegal move.
    assert 0.2 < played.rolled[~played.over].mean() < 0.8
    final = played.rewards[played.ended & ~played.over]
    assert {1.0, 2.0, 3.0} <= set(final.tolist()) and final.max() == ENV.max_return


@pytest.mark.slow
def test_equals_pgx_in_100_000_moves(play):
    moves, final = 0, []
    rolls = np.zeros(21)
    for first in range(NUM_GAMES, 10_000, NUM_GAMES):
        played = play(first)
        check_equal(played)
        moves += int((~played.over).sum())
        final += played.rewards[played.ended & ~played.over].tolist()
        rolls += np.bincount(played.outcome[played.rolled], minlength=21)
        if moves >= 100_000:
            break
    assert set(final) == {1.0, 2.0, 3.0, -3.0}
    assert_frequencies(rolls)


def assert_frequencies(rolls: np.ndarray):
    """Each within five standard errors."""
    total = rolls.sum()
    assert (np.abs(rolls / total - ODDS) < 5 * np.sqrt(ODDS * (1 - ODDS) / total)).all()


def test_odds_are_those_of_two_dice(played: Played):
    """Where the turn ends, and elsewhere one outcome is certain: a search has no chance node."""
    odds = np.exp(played.odds)
    assert played.rolled.any() and (~played.rolled).any()
    np.testing.assert_allclose(odds[played.rolled], np.tile(ODDS, (played.rolled.sum(), 1)), 1e-6)
    np.testing.assert_allclose(odds.sum(axis=1), 1.0, 1e-6)
    certain = (np.arange(21) == 0).astype(np.float32)
    assert (odds[~played.rolled] == certain).all()
    assert_frequencies(np.bincount(played.outcome[played.rolled], minlength=21))


def test_an_afterstate_holds_nothing_of_a_roll(played: Played):
    """The dice of a running turn stay."""
    np.testing.assert_array_equal(played.erased, played.rolled)


def test_init_is_that_of_pgx():
    """Two different dice, in pgx's order."""
    keys = jr.split(jr.key(0), 64)
    state = jax.jit(jax.vmap(lambda key: ENV.init(key=key)))(keys)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = jax.jit(jax.vmap(pgx.make("backgammon").init))(jax.vmap(jr.key_data)(keys))
    for name in ("_board", "_dice", "_playable_dice", "_turn", "current_player"):
        np.testing.assert_array_equal(getattr(state.position, name), getattr(theirs, name))
    dice = np.asarray(state.position._dice)
    assert (dice[:, 0] != dice[:, 1]).all() and (dice[:, 0] > dice[:, 1]).any()
    for call in (ENV.observe, lambda batch: ENV.step(batch, jnp.int32(0), key=jr.key(0))):
        with pytest.raises(ValueError, match=r"one state has 1 axes\. Use jax.vmap"):
            call(state)


def test_the_name_of_pgx_makes_it():
    env = make("pgx/backgammon")
    assert env == ENV and environment_facts(env) == known_environments()["pgx/backgammon"]
    assert known_environments()["pgx/backgammon"].chance
    assert not known_environments()["pgx/chess"].chance


def test_keeps_every_promise():
    report = check_environment(ENV, key=jr.key(0), num_steps=300)
    assert report.terminated > 0 and report.same_player > 0 and report.opponent > 0
    assert report.state_bytes == 310
