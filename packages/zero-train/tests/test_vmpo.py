"""V-MPO against rlax, and which rows it keeps."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import rlax

from zero_train.losses import Dual, vmpo_loss


DRAWS = np.random.default_rng(4)
LOG_PROBS = jnp.asarray(-DRAWS.exponential(size=12), jnp.float32)
ADVANTAGES = jnp.asarray(DRAWS.normal(size=12), jnp.float32)
TEMPERATURE = Dual(-0.5)


def ours(log_probs, temperature, advantages, weights, top_fraction=0.5):
    return vmpo_loss(
        log_probs,
        advantages,
        weights,
        temperature=temperature,
        epsilon=0.1,
        top_fraction=top_fraction,
    )


gradient = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True), static_argnums=4)


@pytest.mark.parametrize("top_fraction", (0.5, 0.3, 1.0))
def test_rlax(top_fraction):
    """Loss and gradients, where every row counts."""

    def theirs(log_probs, temperature):
        loss, _ = rlax.vmpo_loss(
            log_probs,
            ADVANTAGES,
            rlax.LagrangePenalty(temperature.value, jnp.float32(0.1)),
            [(jnp.zeros(12), rlax.LagrangePenalty(jnp.float32(1.0), jnp.float32(0.0)))],
            lambda x: x,
            top_k_fraction=top_fraction,
        )
        return jnp.mean(loss)

    wanted = jax.jit(jax.value_and_grad(theirs, (0, 1)))(LOG_PROBS, TEMPERATURE)
    (loss, _), slopes = gradient(LOG_PROBS, TEMPERATURE, ADVANTAGES, jnp.ones(12), top_fraction)
    for x, y in zip(jax.tree.leaves((loss, slopes)), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_fraction_that_float32_rounds_down_keeps_as_many():
    """`0.13 * 900` is 116.99999 in float32."""
    advantages = jnp.arange(900.0) / 900
    fill, ones = jnp.zeros(900), jnp.ones(900)
    slopes = jax.jit(jax.grad(lambda x: ours(x, TEMPERATURE, advantages, ones, 0.13)[0]))(fill)
    assert jnp.sum(slopes != 0) == 117


def test_half_of_the_rows_that_count():
    """Rows of weight 0, whatever they hold, change nothing: six rows among twelve keep three.
    (Counted among those to halve, they would let all six be kept.)"""
    padded = [jnp.concatenate([x[:6], jnp.full(6, jnp.nan)]) for x in (LOG_PROBS, ADVANTAGES)]
    found = gradient(padded[0], TEMPERATURE, padded[1], jnp.repeat(jnp.array([1.0, 0.0]), 6))
    wanted = gradient(LOG_PROBS[:6], TEMPERATURE, ADVANTAGES[:6], jnp.ones(6))
    slope = found[1][0]
    assert np.count_nonzero(slope) == 3
    assert set(np.flatnonzero(slope)) == set(np.argsort(-ADVANTAGES[:6])[:3].tolist())
    found = (found[0], (slope[:6], found[1][1]))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(x, y, rtol=1e-5, atol=1e-7)


def test_ties_and_few_rows():
    """All that are as good as the last one kept are kept; of a single row, that row; of none,
    nothing, without a NaN."""
    tied = jnp.repeat(jnp.array([1.0, 0.0]), jnp.array([8, 4]), total_repeat_length=12)
    _, (slope, _) = gradient(LOG_PROBS, TEMPERATURE, tied, jnp.ones(12))
    assert np.allclose(slope, np.repeat([-1 / 8, 0], [8, 4]), atol=1e-6)
    _, (slope, _) = gradient(LOG_PROBS, TEMPERATURE, ADVANTAGES, jnp.zeros(12).at[7].set(1.0))
    assert np.allclose(slope, -np.eye(12)[7], atol=1e-6)
    nothing = jnp.full(12, jnp.nan)
    (loss, metrics), slopes = gradient(nothing, TEMPERATURE, nothing, jnp.zeros(12))
    assert float(loss) == metrics["policy_loss"] == metrics["temperature_loss"] == 0.0
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(slopes))


def test_weights_are_a_prior():
    """A row of weight 2 is two rows of weight 1."""
    once = (LOG_PROBS[:6], TEMPERATURE, ADVANTAGES[:6])
    twice = (jnp.tile(LOG_PROBS[:6], 2), TEMPERATURE, jnp.tile(ADVANTAGES[:6], 2))
    (loss, metrics), _ = gradient(*once, 2 * jnp.ones(6), 1.0)
    (wanted, _), _ = gradient(*twice, jnp.ones(12), 1.0)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)
    (skewed, _), _ = gradient(*once, jnp.ones(6).at[0].set(2.0), 1.0)
    (wanted, _), _ = gradient(*twice, jnp.ones(12).at[7:].set(0.0), 1.0)
    assert float(skewed) == pytest.approx(float(wanted), rel=1e-5) != float(loss)


def test_bad_arguments():
    for top_fraction in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"top_fraction={top_fraction}"):
            ours(LOG_PROBS, TEMPERATURE, ADVANTAGES, jnp.ones(12), top_fraction)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=r"advantages\[12\], weights\[12, 1\] but"):
            ours(LOG_PROBS, TEMPERATURE, ADVANTAGES, jnp.ones((12, 1)))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
