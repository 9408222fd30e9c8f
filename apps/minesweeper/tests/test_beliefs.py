"""Beliefs about mines: the same law as any belief's, and what follows from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from zero_envs import list_mines, Minesweeper, MinesweeperState, Observation
from zero_minesweeper._beliefs import MineBelief, MineBeliefs
from zero_minesweeper._build import build_model
from zero_search import Belief, BeliefModel


class Says(eqx.Module):
    """The same of every board: of the first cell, of the others, and of the game."""

    first: float = 0.0
    others: float = 0.0
    value: float = 1.0

    def __call__(self, obs: Observation) -> tuple[Float[Array, " cells"], Float[Array, ""]]:
        assert obs.legal is not None
        logits = jnp.full(obs.legal.shape, self.others, jnp.float32).at[0].set(self.first)
        return logits, jnp.float32(self.value)


ENV = Minesweeper(3, 3, 3, max_states=32)
H = -1
BOARDS = np.array(
    [
        # Nothing is safe, nor after the first cell was opened.
        [[H, H, H], [H, H, H], [H, H, H]],
        [[1, H, H], [H, H, H], [H, H, H]],
        # All neighbours of the corner are mines.
        [[3, H, H], [H, H, H], [H, H, H]],
        # A single safe cell is left, the first or that below it.
        [[H, 1, 0], [H, 3, 1], [H, H, 1]],
    ],
    np.int8,
)
ROWS = len(BOARDS)
HIDDEN = (BOARDS < 0).reshape(ROWS, -1)


@pytest.fixture(scope="module")
def belief() -> MineBelief:
    """Of each board the exact one."""
    run = jax.jit(jax.vmap(lambda x: list_mines(x, 3, 100, max_states=32)))
    layouts, listed, posterior = run(jnp.asarray(BOARDS))
    assert posterior.count[3] == 2 and jnp.sum(listed[3]) == 2
    particles = MinesweeperState(
        board=jnp.broadcast_to(jnp.asarray(BOARDS)[:, None], layouts.shape),
        mines=layouts,
        over=jnp.zeros(layouts.shape[:2], jnp.bool_),
    )
    weights = jnp.where(listed, 1.0 / posterior.count[:, None], 0.0)
    risk = posterior.probability.reshape(ROWS, -1)
    return MineBelief(Belief(particles, weights, jnp.zeros(ROWS, jnp.uint32)), risk)


def judged(belief: MineBelief, judge: Says) -> tuple[np.ndarray, np.ndarray]:
    logits, value = _predict(belief, judge)
    return np.asarray(logits), np.asarray(value)


@eqx.filter_jit
def _predict(belief: MineBelief, judge: Says):
    model = MineBeliefs(BeliefModel(build_model(ENV, judge)))
    return model.predict(belief, key=jr.split(jr.key(0), ROWS))


def test_risk_is_a_discount_and_chance_has_the_numbers(belief):
    """What follows is worth as much as to the belief itself, if a mine is worth nothing."""
    plain_model = BeliefModel(build_model(ENV, Says()))
    rng = np.random.default_rng(0)

    @jax.jit
    def both(cell):
        action = jnp.full(ROWS, cell, jnp.int32)
        plain = plain_model.afterstate(belief.belief, action)
        return plain, MineBeliefs(plain_model).afterstate(belief, action)

    for cell in (0, 4, 8):
        plain, after = both(cell)
        worth = rng.uniform(size=plain.logits.shape).astype(np.float32)
        probs, numbers = (np.asarray(jax.nn.softmax(x.logits)) for x in (plain, after))
        risk = probs[:, -1]
        expected = (probs * (plain.reward + plain.discount * worth)).sum(axis=1)
        found = (numbers * (after.reward + after.discount * worth)).sum(axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert (np.isneginf(after.logits[:, -1]) == (risk < 1)).all()
        assert (after.reward[3] > 0).any() == (cell == 0)
        if cell == 4:
            np.testing.assert_allclose(risk, [1 / 3, 1 / 3, 1, 0], atol=1e-6)


def test_what_is_safe_is_opened_and_a_guess_is_not_overrated(belief):
    logits, value = judged(belief, Says())
    legal = np.isfinite(logits)
    others = [0, 1, 3]
    assert (legal[others] == HIDDEN[others]).all() and legal[2].nonzero()[0].tolist() == [2]
    np.testing.assert_allclose(value, [2 / 3, 2 / 3, 1, 1 / 2], atol=1e-6)
    # Who says less is believed.
    _, value = judged(belief, Says(value=0.2))
    np.testing.assert_allclose(value, 0.2)


def test_at_the_root_a_sample_proves_nothing(belief):
    """What is no mine in any particle may be one elsewhere; one step on the particles count."""
    one = jnp.zeros_like(belief.belief.weights).at[:, 0].set(1.0)
    root = eqx.tree_at(lambda b: b.belief.weights, belief, one)
    logits, value = judged(root, Says())
    legal = np.isfinite(logits)
    np.testing.assert_array_equal(legal[:2], HIDDEN[:2])
    np.testing.assert_allclose(value, [2 / 3, 2 / 3, 1, 1 / 2], atol=1e-6)
    model, last = MineBeliefs(BeliefModel(build_model(ENV, Says()))), jnp.full(ROWS, 8, jnp.int32)
    after = eqx.filter_jit(model.afterstate)(root, last)
    layout = np.ravel(root.belief.particles.mines[0, 0])
    assert not layout[8]
    shown = np.asarray(after.logits[0, :-1]) > -np.inf
    np.testing.assert_allclose(after.discount[0, :-1], shown * 2 / 3, atol=1e-6)
    number = jnp.argmax(after.logits, axis=1).astype(jnp.int32)
    below, *_ = eqx.filter_jit(model.resolve)(after, number)
    np.testing.assert_array_equal(np.asarray(below.risk[0]), layout)


@pytest.mark.parametrize(
    "judge",
    [Says(value=np.nan), Says(value=np.inf), Says(others=np.nan), Says(others=np.inf)],
    ids=["value", "infinite value", "logits", "infinite logits"],
)
def test_what_is_not_finite_stays_so(belief, judge):
    """The search counts it."""
    logits, value = judged(belief, judge)
    sound = np.isfinite(value) & (np.isfinite(logits) | np.isneginf(logits)).all(axis=1)
    assert not sound.any()


def test_a_belief_in_nothing_is_the_end(belief):
    nothing = eqx.tree_at(lambda b: b.belief.weights, belief, 0 * belief.belief.weights)
    logits, value = judged(nothing, Says())
    assert np.isneginf(logits).all() and (value == 0).all()
    model = MineBeliefs(BeliefModel(build_model(ENV, Says())))
    after = eqx.filter_jit(model.afterstate)(nothing, jnp.zeros(ROWS, jnp.int32))
    assert not np.isnan(after.reward).any() and not np.isnan(after.discount).any()
