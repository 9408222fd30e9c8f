"""How `Monsters.step` draws the monsters' moves: by the odds that `outcome_logits` tells."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Monsters, MonstersState
from zero_envs._monsters import drawn, motion


SHARES = 2**14


def odds(aggression: float) -> np.ndarray:
    """Of a monster in every cell of 4 x 4 with its prey in every other, and of one who is gone."""
    cell, prey = (x.astype(np.int16) for x in np.divmod(np.arange(17 * 16), 16))
    cell[cell == 16] = -1
    rows = jax.vmap(lambda c, p: motion(c, p, 4, 5.0, aggression))
    return np.unique(np.asarray(rows(jnp.asarray(cell), jnp.asarray(prey))), axis=0)


def awkward(number: int) -> np.ndarray:
    """Odds of all sizes, some of them 0, that add up to about 1 either way."""
    rng = np.random.default_rng(0)
    rows = 10.0 ** rng.uniform(-9, 0, (number, 5)) * (rng.random((number, 5)) < 0.6)
    rows = rows[rows.any(axis=1)]
    return (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("aggression", [0.0, 0.6, 1.0, None])
def test_every_move_is_drawn_by_its_odds(aggression: float | None):
    """Of evenly spaced numbers each move gets its part; the least and the largest there are too."""
    rows = awkward(200) if aggression is None else odds(aggression)
    even = (np.arange(SHARES) + 0.5) / SHARES
    shares = np.concatenate([even, [0.0, 1.0 - 2.0**-24]]).astype(np.float32)
    draw = jax.jit(jax.vmap(jax.vmap(drawn, in_axes=(None, 0)), in_axes=(0, None)))
    moves = np.asarray(draw(jnp.asarray(rows), jnp.asarray(shares)))
    assert moves.min() >= 0 and moves.max() < 5
    # None that cannot be, whatever the rounding.
    assert (np.take_along_axis(rows, moves, axis=1) > 0).all()
    counts = (moves[:, :SHARES, None] == np.arange(5)).sum(axis=1)
    np.testing.assert_allclose(counts / SHARES, rows, atol=1.01 / SHARES)


def test_steps_are_drawn_from_the_joint_odds():
    """Both monsters in corners, then one dead: 40 000 steps a state against the 25 odds."""
    env, number = Monsters(), 40_000
    pieces = jnp.asarray([[5, 0, 15, 9, 2], [5, 3, 6, -1, 2], [5, 6, 12, -1, 2]], jnp.int16)
    held = jnp.asarray([0, 0, 1], jnp.int8)
    state = MonstersState(pieces, held, jnp.zeros(3, jnp.int32), jnp.zeros(3, jnp.bool_))
    action = jnp.asarray([0, 1, 4], jnp.int32)
    each = jnp.arange(25, dtype=jnp.int32)

    def places(after: MonstersState) -> jax.Array:
        _, target, distractor, *_ = jnp.unstack(after.pieces.astype(jnp.int32), axis=-1)
        return 17 * target + distractor

    @jax.jit
    @jax.vmap
    def run(state, action, key):
        after = env.afterstate(state, action)
        landed = jax.vmap(lambda i: places(env.resolve(after, i)[0]))(each)
        keys = jr.split(key, number)
        stepped = jax.vmap(lambda k: places(env.step(state, action, key=k)[0]))(keys)
        return jnp.exp(env.outcome_logits(after)), landed, stepped

    found = run(state, action, jr.split(jr.key(0), 3))
    for probs, landed, stepped in zip(*map(np.asarray, found), strict=True):
        possible = probs > 0
        expected = probs[possible] * number
        counts = (stepped[:, None] == landed[possible]).sum(axis=0)
        assert counts.sum() == number and expected.min() > 100
        statistic = np.sum((counts - expected) ** 2 / expected)
        # Exceeded with probability exp(-20): Laurent and Massart 2000, lemma 1.
        degrees = len(expected) - 1
        assert statistic <= degrees + 2 * np.sqrt(degrees * 20) + 40
