"""Half precision, integers and numbers far from 0: the results are those of double precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets
from zero_nets import Categorical, ClippedBeta, EpsilonGreedy, Gaussian, MultiDiscrete, TanhGaussian


SUPPORT = zero_nets.ValueSupport(601)
# [group, 6]: whole numbers that every dtype holds exactly.
SMALL = np.array([[3, 1, 2, 2, 1, 4], [1, 4, 1, 3, 2, 1]])
VALUES = np.array([-300, -299, -256, -1, 0, 2, 255, 299, 300])


def _policies(x, y):
    """Of both groups a distribution of every class, with an action of it."""
    half = x.dtype.type(0.5)
    discrete = jnp.array(3)
    return [
        (Categorical(x), Categorical(y), discrete),
        (MultiDiscrete(x, (2, 4)), MultiDiscrete(y, (2, 4)), jnp.array([1, 2])),
        (EpsilonGreedy(x, 0.5), EpsilonGreedy(y, 0.5), discrete),
        (Gaussian(x, y), Gaussian(y, x), x),
        (TanhGaussian(x, y, -1.0, 1.0), TanhGaussian(y, x, -1.0, 1.0), half * (x - x)),
        (ClippedBeta(x, y, -1.0, 1.0), ClippedBeta(y, x, -1.0, 1.0), half * (x - x)),
    ]


@jax.jit
def _numbers(small, values):
    """What the public functions of numbers compute of them."""
    x, y = small
    found = {}
    for one, other, action in _policies(x, y):
        kl, name = one.kl(other), type(one).__name__
        found[name] = one.log_prob(action), one.entropy(), kl, other.mode()
    many = jnp.repeat(x[:, None], 601, axis=1)
    found["encode"] = encoded = jax.vmap(SUPPORT.encode)(values)
    found["decode"] = jax.vmap(SUPPORT.decode)(encoded)
    # Their weighted sum is larger than float16 can hold.
    found["decode_logits"] = jax.vmap(SUPPORT.decode_logits)(many)
    found["cross_entropy"] = jax.vmap(SUPPORT.cross_entropy)(many, values[:6])
    scaled = zero_nets.ValueSupport(601, transform=True)
    found["transform"] = jax.vmap(lambda v: scaled.decode(scaled.encode(v)))(values)
    return found


@pytest.fixture(scope="module")
def expected():
    jax.config.update("jax_enable_x64", True)
    with jax.numpy_dtype_promotion("standard"):
        found = jax.device_get(_numbers(SMALL.astype(np.float64), VALUES.astype(np.float64)))
    jax.config.update("jax_enable_x64", False)
    return found


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32])
def test_distributions_and_supports(dtype, expected, unhooked):
    # 255, 299 and their like are no numbers of bfloat16.
    exact = VALUES == np.asarray(jnp.asarray(VALUES, dtype), np.float64)
    with jax.numpy_dtype_promotion("standard"):
        found = jax.device_get(_numbers(jnp.asarray(SMALL, dtype), jnp.asarray(VALUES, dtype)))
    for name, results in expected.items():
        for got, wanted in zip(*map(jax.tree.leaves, (found[name], results)), strict=True):
            rows = exact[: len(wanted)] if name[0].islower() else ...
            assert got.dtype in (np.float32, np.int32), name
            np.testing.assert_allclose(got[rows], wanted[rows], 2e-5, 2e-5, err_msg=name)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_every_value_of_a_support_is_encoded_between_its_atoms(dtype):
    values = jnp.arange(-310, 311).astype(dtype)
    probs = np.asarray(jax.vmap(SUPPORT.encode)(values), np.float64)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    inside = np.clip(np.asarray(values, np.float64), -300, 300)
    np.testing.assert_allclose(probs @ SUPPORT.atoms, inside, atol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, -1e6])
def test_numbers_far_from_0(offset):
    """A shift changes nothing, and float32 holds these sums exactly."""
    x = (SMALL + offset).astype(np.float32)
    statistics = zero_nets.RunningStatistics.init(jnp.zeros(2)).update(jnp.asarray(x.T))
    np.testing.assert_allclose(statistics.mean, SMALL.mean(axis=1) + offset, rtol=1e-6)
    np.testing.assert_allclose(statistics.std, SMALL.std(axis=1), rtol=1e-5)
    unit = zero_nets.normalise_min_max(jnp.asarray(x[0]))
    np.testing.assert_allclose(unit, (SMALL[0] - 1) / 3, rtol=1e-6)
    weights = np.exp(SMALL[0] - 4.0)
    np.testing.assert_allclose(Categorical(jnp.asarray(x[0])).probs, weights / weights.sum(), 1e-6)
    assert EpsilonGreedy(jnp.asarray(x[0]), 0.0).log_prob(jnp.array(5)) == 0


def test_a_range_that_float16_cannot_hold():
    unit = zero_nets.normalise_min_max(jnp.array([-6e4, 0.0, 6e4], jnp.float16))
    assert unit.dtype == jnp.float16
    np.testing.assert_array_equal(unit, [0, 0.5, 1])


def test_the_gradient_has_the_dtype_of_the_parameters():
    gradient = jax.grad(lambda x: Categorical(x).log_prob(jnp.array(0)))(jnp.zeros(3, jnp.bfloat16))
    assert gradient.dtype == jnp.bfloat16


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "policy",
    [lambda x: Categorical(x), lambda x: EpsilonGreedy(x, 0.5), lambda x: MultiDiscrete(x, (1, 2))],
)
def test_a_network_that_has_diverged_plays_no_action(policy, bad):
    """Not action 0, and its numbers are no numbers."""
    for logits in ([0.0, bad, -np.inf], [0.0, bad, bad]):
        found = policy(jnp.array(logits))
        sample, mode = found.sample(key=jr.key(0)), found.mode()
        assert np.ravel(sample)[-1] == -1 and np.ravel(mode)[-1] == -1
        numbers = found.log_prob(mode), found.entropy(), found.kl(found)
        assert all(np.isnan(np.ravel(x)[-1]) for x in numbers)


def test_weights_of_statistics_are_none_below_0():
    statistics = zero_nets.RunningStatistics.init(jnp.zeros(2))
    batch, weights = jnp.ones((3, 2)), jnp.array([1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match=r"`weights` is \[1.0, -1.0, 1.0\]; it must be a finite"):
        statistics.update(batch, weights)
    traced = eqx.filter_jit(statistics.update)(batch, weights)
    assert np.isnan(traced.mean).all() and np.isnan(traced.count)


@pytest.mark.parametrize("action", [99, 9, -1, jnp.int32(9), jnp.float32(1.5), jnp.zeros(2, int)])
def test_actions_that_a_board_does_not_have(action, unhooked):
    board = zero_nets.BoardSymmetries(3, 3, 9)
    with pytest.raises(ValueError, match="`action` is .* must be an integer from 0 to 8"):
        board.action(action, 1)
    if getattr(action, "dtype", None) == jnp.int32 and action.ndim == 0:
        assert jax.jit(board.action)(action, 1) == -1


@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.uint8, jnp.int32, jnp.bfloat16])
def test_layers_take_numbers_of_any_dtype(dtype):
    noisy = zero_nets.NoisyLinear(3, 2, key=jr.key(0))
    conv = zero_nets.Conv(1, 2, key=jr.key(1))
    for layer, x in ((lambda x: noisy(x, key=jr.key(2)), [1, 0, 1]), (conv, [[[1], [0], [1]]])):
        given = jnp.array(x, dtype)
        np.testing.assert_array_equal(layer(given), layer(given.astype(jnp.float32)))
    board = jnp.ones((3, 3, 1), dtype)
    assert zero_nets.MixedPrecision(conv, jnp.bfloat16)(board).dtype == jnp.float32
