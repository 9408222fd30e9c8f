"""Beliefs about mines: the same law as any belief's, and what follows from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import list_mines, Minesweeper, MinesweeperState
from zero_minesweeper._agents import Indifferent
from zero_minesweeper._beliefs import MineBelief, MineBeliefs
from zero_minesweeper._build import build_model
from zero_search import Belief


ENV = Minesweeper(3, 3, 3, max_states=32)
MODEL = build_model(ENV, Indifferent())
H = -1
#: Nothing is safe on the first two. On the third the corner shows that its neighbours are mines.
START = np.array([[H, H, H], [H, H, H], [H, H, H]])
GUESS = np.array([[1, H, H], [H, H, H], [H, H, H]])
KNOWN = np.array([[3, H, H], [H, H, H], [H, H, H]])
BOARDS = np.stack([START, GUESS, KNOWN]).astype(np.int8)


@pytest.fixture(scope="module")
def belief() -> MineBelief:
    """The exact ones."""
    run = jax.jit(jax.vmap(lambda x: list_mines(x, 3, 100, max_states=32)))
    layouts, posterior = run(jnp.asarray(BOARDS))
    alive = jnp.arange(100, dtype=jnp.float32)[None] < posterior.count[:, None] - 0.5
    particles = MinesweeperState(
        board=jnp.broadcast_to(jnp.asarray(BOARDS)[:, None], layouts.shape),
        mines=layouts,
        over=jnp.zeros(layouts.shape[:2], jnp.bool_),
    )
    weights = jnp.where(alive, 1.0 / posterior.count[:, None], 0.0)
    return Belief(particles, weights, jnp.zeros(3, jnp.uint32))


def judged(belief: MineBelief, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    model = MineBeliefs(MODEL, jnp.asarray(start))
    logits, value = model.predict(belief, key=jr.split(jr.key(0), 3))
    return np.asarray(logits), np.asarray(value)


def test_risk_is_a_discount_and_chance_has_the_numbers(belief):
    """What follows is worth as much as to the belief itself, if a mine is worth nothing."""
    model = MineBeliefs(MODEL, jnp.asarray(BOARDS))
    rng = np.random.default_rng(0)

    @jax.jit
    def both(cell):
        action = jnp.full(3, cell, jnp.int32)
        return MODEL.afterstate(belief, action), model.afterstate(belief, action)

    mixed = 0
    for cell in (1, 4, 8):
        plain, after = both(cell)
        worth = rng.uniform(size=plain.logits.shape).astype(np.float32)
        probs, numbers = (np.asarray(jax.nn.softmax(x.logits)) for x in (plain, after))
        risk = probs[:, -1]
        expected = (probs * (plain.reward + plain.discount * worth)).sum(axis=1)
        found = (numbers * (after.reward + after.discount * worth)).sum(axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert (np.isneginf(after.logits[:, -1]) == (risk < 1)).all()
        mixed += ((risk > 0) & (risk < 1)).sum()
        assert risk[2] == (cell != 8)
    assert mixed > 3


def test_after_a_move_what_is_safe_is_opened_and_a_guess_is_not_overrated(belief):
    logits, value = judged(belief, BOARDS)
    assert (np.isfinite(logits) == (BOARDS < 0).reshape(3, -1)).all() and (value == 1).all()
    logits, value = judged(belief, np.zeros_like(BOARDS))
    legal = np.isfinite(logits)
    # Nothing is known of the first board, where 3 of 9 are mines; on the second one of the three
    # near the corner is, and two of the other five.
    assert (legal[:2] == (BOARDS < 0).reshape(3, -1)[:2]).all()
    np.testing.assert_allclose(value[:2], [2 / 3, 2 / 3], atol=1e-6)
    assert np.flatnonzero(legal[2]).tolist() == [2] and value[2] == 1


def test_a_belief_in_nothing_is_the_end(belief):
    nothing = eqx.tree_at(lambda b: b.weights, belief, jnp.zeros_like(belief.weights))
    logits, value = judged(nothing, np.zeros_like(BOARDS))
    assert np.isneginf(logits).all() and (value == 0).all()
    model = MineBeliefs(MODEL, jnp.asarray(BOARDS))
    after = model.afterstate(nothing, jnp.zeros(3, jnp.int32))
    assert not np.isnan(after.reward).any() and not np.isnan(after.discount).any()
