"""Othello on bits against pgx's, position by position, and against published counts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import Othello, OthelloState, PgxEnvironment
from zero_envs.testing import check_environment


ENV = Othello()
#: A power of two, so that its rewards are exact.
WEIGHED = Othello(disc_weight=0.5)
PGX = PgxEnvironment("othello")
LENGTH = 72  # longer than random games, so steps after their ends are compared too


def squares(text: str) -> list[int]:
    """The actions of moves such as `e6 f4`, columns from a and rows from 1."""
    return [8 * int(row) - 8 + "abcdefgh".index(column) for column, row in text.split()]


#: How some games begin: black takes all discs of white; a disc on an own disc, on the opponent's
#: and on an empty square that flips nothing; a pass instead of a move.
SCRIPTS = [
    squares("e6 f4 e3 f6 g5 d6 e7 f5 c5"),
    squares("d3 c3 d3"),
    squares("d3 d4"),
    squares("d3 c3 e3 d6"),
    squares("d3 a1"),
    [*squares("d3"), 64],
]


@jax.jit
def compare(key: Array, forced: Array) -> dict[str, Array]:
    """Plays games of random legal actions, except for those in `forced`, int32[step, game], that
    are not -1.

    **Returns:** the numbers of differences from pgx's games, and of what was met.
    """
    envs: tuple[Any, Any] = ENV, PGX
    keys = jr.split(jr.fold_in(key, LENGTH), forced.shape[1])
    starts = [jax.vmap(lambda k, env=env: env.init(key=k))(jr.clone(keys)) for env in envs]

    def turn(states: Any, given: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
        i, forced = given
        seen = [jax.vmap(env.observe)(state) for env, state in zip(envs, states, strict=True)]
        legal = seen[1].legal
        logits = jnp.where(legal, jnp.float32(0), jnp.float32(-jnp.inf))
        drawn = jr.categorical(jr.fold_in(key, i), logits).astype(jnp.int32)
        action = jnp.where(forced < 0, drawn, forced)
        (mine, ours), (their, pgxs) = (
            jax.vmap(lambda s, a, env=env: env.step(s, a, key=jr.key(0)))(state, action)
            for env, state in zip(envs, states, strict=True)
        )
        compared = jax.tree.map(lambda x, y: jnp.sum(x != y), (seen[0], ours), (seen[1], pgxs))
        same = jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), *seen)
        assert all(jax.tree.leaves(same))
        over = their.position.terminated
        discs = their.position._x.board
        allowed = jnp.take_along_axis(legal, action[:, None], axis=1)[:, 0]
        ended = over & ~states[1].position.terminated
        met = {
            "positions": ~states[1].position.terminated,
            "passes": (action == 64) & ~over,
            "steps after the end": over & ~ended,
            "illegal actions": ended & ~allowed,
            "full boards": ended & allowed & jnp.all(discs != 0, axis=1),
            "boards of one colour": ended & allowed & ~jnp.any(discs > 0, axis=1),
            "second passes": ended & allowed & (action == 64),
            "wins": ended & allowed & (pgxs.reward > 0),
            "losses": ended & allowed & (pgxs.reward < 0),
            "draws": ended & allowed & (pgxs.reward == 0),
        }
        lead = jnp.abs(jnp.sum(discs, axis=1)) + jnp.sum(discs == 0, axis=1)
        worth = jnp.where(allowed, 1 + lead.astype(jnp.float32) / 128, WEIGHED.max_return)
        by_discs = jnp.where(ended, pgxs.reward * worth, pgxs.reward)
        weighed = jax.vmap(lambda s, a: WEIGHED.step(s, a, key=jr.key(0)))(states[0], action)[1]
        differences = {
            "reward by discs": jnp.sum(weighed.reward != by_discs),
            "features": compared[0].features,
            "legal": compared[0].legal,
            "reward": compared[1].reward,
            "discount": compared[1].discount,
            "last": compared[1].last,
            "colour": jnp.sum(mine.white != (their.position._x.turn == 1)),
            "over": jnp.sum(mine.over != over),
        }
        return (mine, their), differences | {name: jnp.sum(x) for name, x in met.items()}

    states, counts = jax.lax.scan(turn, (starts[0], starts[1]), (jnp.arange(LENGTH), forced))
    return {name: jnp.sum(x) for name, x in counts.items()} | {"games": jnp.sum(states[0].over)}


DIFFERENCES = (
    "reward by discs",
    "features",
    "legal",
    "reward",
    "discount",
    "last",
    "colour",
    "over",
)


def random_games(seed: int, number: int) -> dict[str, int]:
    """`compare` of games of which the first begin as `SCRIPTS`. In every 200th turn of the others
    the action is any of the 65."""
    draws = np.random.default_rng(seed)
    wild = draws.random((LENGTH, number)) < 0.005
    forced = np.where(wild, draws.integers(0, 65, wild.shape), -1).astype(np.int32)
    for game, script in enumerate(SCRIPTS):
        forced[:, game] = -1
        forced[: len(script), game] = script
    counts = compare(jr.key(seed), jnp.asarray(forced))
    return {name: int(count) for name, count in counts.items()}


def test_equals_pgx_position_by_position():
    counts = random_games(0, 256)
    assert {name: counts.pop(name) for name in DIFFERENCES} == dict.fromkeys(DIFFERENCES, 0)
    assert counts["games"] == 256 and counts["positions"] > 256 * 40
    # Everything that can happen has happened.
    assert min(counts.values()) > 0, counts
    assert counts["illegal actions"] > 20


def test_a_win_by_all_squares_has_the_greatest_return():
    assert (ENV.max_return, WEIGHED.max_return) == (1, 1.5)
    with pytest.raises(ValueError, match=r"^Othello\(disc_weight=-1\): it must be a finite number"):
        Othello(disc_weight=-1)


@pytest.mark.parametrize("weight", [0.0, 0.18, 0.32, 0.5])
def test_what_a_win_by_all_squares_pays_is_rounded_alike(weight):
    env, none = Othello(disc_weight=weight), [0, 0]
    state = OthelloState(jnp.asarray([[1, 0], [2, 0], [4, 0], none], jnp.uint32))
    _, transition = jax.jit(lambda: env.step(state, jnp.int32(2), key=jr.key(0)))()
    assert transition.last and float(transition.reward) == env.max_return


@pytest.mark.slow
def test_equals_pgx_in_100_000_games():
    for seed in range(1, 51):
        counts = random_games(seed, 2000)
        assert counts["games"] == 2000
        assert {name: counts[name] for name in DIFFERENCES} == dict.fromkeys(DIFFERENCES, 0)


def test_perft():
    """The published number of sequences of 1 to 8 actions (Othello perft)."""
    width = 2048

    @eqx.filter_jit
    def expand(words: Array, action: Array) -> tuple[Array, Array]:
        def one(words: Array, action: Array) -> Any:
            state, _ = ENV.step(OthelloState(words), action, key=jr.key(0))
            return state.words, ENV.observe(state).legal

        return jax.vmap(one)(words, action)

    start = jax.jit(lambda: ENV.init(key=jr.key(0)))()
    words, legal = (
        np.asarray(start.words)[None],
        np.asarray(jax.jit(ENV.observe)(start).legal)[None],
    )
    counts = [int(legal.sum())]
    while len(counts) < 8:
        rows, actions = np.nonzero(legal)
        parts = []
        for i in range(0, len(rows), width):
            part = slice(i, i + width)
            pad = (0, width - len(rows[part]))
            given = np.pad(words[rows[part]], (pad, (0, 0), (0, 0))), np.pad(actions[part], pad)
            found = expand(jnp.asarray(given[0]), jnp.asarray(given[1], jnp.int32))
            parts.append([np.asarray(x)[: len(rows[part])] for x in found])
        words, legal = (np.concatenate(x) for x in zip(*parts, strict=True))
        counts.append(int(legal.sum()))
    assert counts == [4, 12, 56, 244, 1396, 8200, 55092, 390216]


def test_keeps_every_promise():
    report = check_environment(ENV, key=jr.key(0), num_steps=70)
    assert report.terminated == 8 and report.opponent > 300
    assert report.same_player == report.truncated == 0
    # One array, because a tree search moves every array of a state by itself.
    assert report.state_bytes == 32
    assert len(jax.tree.leaves(ENV.init(key=jr.key(0)))) == 1


def test_a_step_has_no_loops():
    state = ENV.init(key=jr.key(0))
    both = jax.jit(lambda s, a: ENV.observe(ENV.step(s, a, key=jr.key(0))[0]))
    text = both.lower(state, jnp.int32(19)).as_text()
    assert "while" not in text and "gather" not in text and "scatter" not in text


def test_raw_and_drawings_are_those_of_pgx():
    mine, theirs = (jax.jit(lambda env=env: env.init(key=jr.key(0)))() for env in (ENV, PGX))
    raws = jax.jit(ENV.raw), jax.jit(PGX.raw)
    step = [jax.jit(lambda s, a, env=env: env.step(s, a, key=jr.key(0))[0]) for env in (ENV, PGX)]
    for action in [*squares("c4 c3 e6 b4 a4 a5 c2 a3"), 64]:
        mine, theirs = step[0](mine, jnp.int32(action)), step[1](theirs, jnp.int32(action))
        raw, wanted = raws[0](mine), raws[1](theirs)
        # pgx draws which of its two players is black.
        raw = raw.replace(current_player=wanted.current_player, _step_count=wanted._step_count)
        assert jax.tree.structure(raw) == jax.tree.structure(wanted)
        for x, y in zip(jax.tree.leaves(raw), jax.tree.leaves(wanted), strict=True):
            assert x.dtype == y.dtype and np.array_equal(x, y)
        assert ENV.render(mine, scale=2.0) == PGX.render(theirs, scale=2.0)


def test_an_action_of_too_many_bits_is_named(unhooked):
    action: Any = 2**40
    with pytest.raises(ValueError, match="the action is 1099511627776; it must be one integer"):
        ENV.step(ENV.init(key=jr.key(0)), action, key=jr.key(0))


def test_actions_out_of_range():
    """An error where it can be seen, otherwise an illegal action."""
    state = ENV.init(key=jr.key(0))
    step = jax.jit(lambda action: ENV.step(state, action, key=jr.key(0)))
    for action in (-1, 65):
        message = rf"the action is {action}; it must be one integer from 0 to 64"
        with pytest.raises(ValueError, match=message) as raised:
            ENV.step(state, jnp.int32(action), key=jr.key(0))
        assert "\n" not in str(raised.value)
        after, transition = step(np.int32(action))
        assert (transition.reward, transition.discount, transition.last) == (-1, 0, True)
        assert after.over
