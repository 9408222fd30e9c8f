"""Beliefs about mines: the same law as any belief's, and what follows from it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, Int
from scipy import special

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

    @jax.jit
    def exact(boards):
        run = jax.vmap(lambda x: list_mines(x, 3, 100, max_states=32))
        layouts, listed, posterior = run(boards)
        particles = MinesweeperState(
            board=jnp.broadcast_to(boards[:, None], layouts.shape),
            mines=layouts,
            over=jnp.zeros(layouts.shape[:2], jnp.bool_),
        )
        weights = jnp.where(listed, 1.0 / posterior.count[:, None], 0.0)
        risk = posterior.probability.reshape(ROWS, -1)
        belief = MineBelief(Belief(particles, weights, jnp.zeros(ROWS, jnp.uint32)), risk)
        return belief, listed, posterior.count

    belief, listed, count = jax.device_get(exact(BOARDS))
    assert count[3] == 2 and listed[3].sum() == 2
    return belief


def judged(belief: MineBelief, judge: Says) -> tuple[np.ndarray, np.ndarray]:
    # Arrays, so that all judges are one program.
    return jax.device_get(_predict(belief, jax.tree.map(jnp.float32, judge)))


@eqx.filter_jit
def _predict(belief: MineBelief, judge: Says):
    model = MineBeliefs(BeliefModel(build_model(ENV, judge)))
    return model.predict(belief, key=jr.split(jr.key(0), ROWS))


MODEL = MineBeliefs(BeliefModel(build_model(ENV, Says())))


@jax.jit
def _afterstates(belief: MineBelief, action: Int[Array, " rows"]) -> tuple[Any, Any]:
    return MODEL.beliefs.afterstate(belief.belief, action), MODEL.afterstate(belief, action)


def afterstates(belief: MineBelief, action: np.ndarray) -> tuple[Any, Any]:
    """Of a move, without and with what is known of the mines."""
    return jax.device_get(_afterstates(belief, action))


def test_risk_is_a_discount_and_chance_has_the_numbers(belief):
    """What follows is worth as much as to the belief itself, if a mine is worth nothing."""
    rng = np.random.default_rng(0)
    for cell in (0, 4, 8):
        action = np.full(ROWS, cell, np.int32)
        plain, after = afterstates(belief, action)
        worth = rng.uniform(size=plain.logits.shape).astype(np.float32)
        probs, numbers = (special.softmax(x.logits, axis=1) for x in (plain, after))
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
    assert (legal[:2] == HIDDEN[:2]).all() and legal[2].nonzero()[0].tolist() == [2]
    # The two cells below are mines in both layouts.
    assert HIDDEN[3].nonzero()[0].tolist() == [0, 3, 6, 7]
    assert legal[3].nonzero()[0].tolist() == [0, 3]
    np.testing.assert_allclose(value, [2 / 3, 2 / 3, 1, 1 / 2], atol=1e-6)
    # Who says less is believed.
    _, value = judged(belief, Says(value=0.2))
    np.testing.assert_allclose(value, 0.2)


def test_of_certain_mines_alone_one_has_to_be_opened(belief):
    doomed = eqx.tree_at(lambda b: b.risk, belief, np.where(HIDDEN, np.float32(1 - 1e-7), 0.0))
    legal = np.isfinite(judged(doomed, Says())[0])
    assert (legal == HIDDEN).all()


def test_at_the_root_a_sample_proves_nothing(belief):
    """What is no mine in any particle may be one elsewhere; one step on the particles count."""
    one = np.zeros_like(belief.belief.weights)
    one[:, 0] = 1.0
    root = eqx.tree_at(lambda b: b.belief.weights, belief, one)
    logits, value = judged(root, Says())
    legal = np.isfinite(logits)
    np.testing.assert_array_equal(legal[:2], HIDDEN[:2])
    np.testing.assert_allclose(value, [2 / 3, 2 / 3, 1, 1 / 2], atol=1e-6)
    _, after = afterstates(root, np.full(ROWS, 8, np.int32))
    layout = np.ravel(root.belief.particles.mines[0, 0])
    assert not layout[8]
    shown = after.logits[0, :-1] > -np.inf
    np.testing.assert_allclose(after.discount[0, :-1], shown * 2 / 3, atol=1e-6)
    number = np.argmax(after.logits, axis=1).astype(np.int32)
    below, *_ = eqx.filter_jit(MODEL.resolve)(after, number)
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
    none = np.zeros_like(belief.belief.weights)
    nothing = eqx.tree_at(lambda b: b.belief.weights, belief, none)
    logits, value = judged(nothing, Says())
    assert np.isneginf(logits).all() and (value == 0).all()
    _, after = afterstates(nothing, np.zeros(ROWS, np.int32))
    assert not np.isnan(after.reward).any() and not np.isnan(after.discount).any()
