"""The network: its parts against Equinox and NumPy, its gradient against differences."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


BOARD = (3, 5, 2)
ACTIONS = 16


SIZES = {"channels": 8, "blocks": 2, "value_width": 6, "norm": "none"}
# What runs once is not worth optimising: compiling it so takes a third of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@ft.cache
def _constructor(**settings):
    # One compilation for the whole network, not one for every array's shape.
    return jax.jit(
        ft.partial(zero_nets.AlphaZeroNet, BOARD, ACTIONS, **settings), compiler_options=QUICK
    )


def _net(*, key=None, **kwargs) -> zero_nets.AlphaZeroNet:
    return _constructor(**(SIZES | kwargs))(key=jr.key(0) if key is None else key)


def _random(constructor, *args, seed: int = 0, size: float = 0.3, **kwargs):
    """A module with NumPy's numbers for parameters, which compiles nothing; none is zero."""
    draws = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(constructor, *args, key=jr.key(0), **kwargs)
    number = lambda x: jnp.asarray((size * draws.normal(size=x.shape)).astype(x.dtype))
    return jax.tree.map(number, shapes)


def _random_net(**kwargs) -> zero_nets.AlphaZeroNet:
    return _random(zero_nets.AlphaZeroNet, BOARD, ACTIONS, **(SIZES | kwargs))


def _inputs(batch: int) -> np.ndarray:
    return np.random.default_rng(3).random((batch, *BOARD)) < 0.4


@pytest.mark.parametrize(("size", "board"), ((1, (3, 5)), (3, (3, 5)), (3, (8, 8))))
def test_conv_is_equinox_conv(size, board):
    ours = _random(zero_nets.Conv, 4, 6, size)
    theirs = _random(eqx.nn.Conv2d, 4, 6, size, padding="SAME")
    theirs = eqx.tree_at(
        lambda conv: (conv.weight, conv.bias),
        theirs,
        (
            jnp.asarray(np.asarray(ours.weight).transpose(3, 2, 0, 1)),
            jnp.asarray(np.asarray(ours.bias)[:, None, None]),
        ),
    )
    x = nets.normal(*board, 4)
    expected = np.asarray(nets.one(theirs, jnp.asarray(x.transpose(2, 0, 1)))).transpose(1, 2, 0)
    np.testing.assert_allclose(nets.one(ours, jnp.asarray(x)), expected, atol=1e-5)


def test_vmap_is_one_convolution_in_value_and_gradient():
    # A grouped convolution, or one a row, would be many times slower.
    conv = _random(zero_nets.Conv, 4, 4)

    def loss(conv, x):
        return jnp.sum(jax.vmap(conv)(x) ** 2)

    x = jnp.zeros((7, 3, 5, 4), jnp.float32)
    text = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(conv, x))
    assert text.count("conv_general_dilated[") == 3
    assert text.count("batch_group_count=1") == 3
    assert text.count("feature_group_count=1") == 3


def test_channel_norm_is_equinox_layer_norm():
    draws = np.random.default_rng(0)
    ours = jax.tree.map(lambda x: jnp.float32(draws.normal(size=x.shape)), zero_nets.ChannelNorm(6))
    theirs = eqx.tree_at(
        lambda norm: (norm.weight, norm.bias), eqx.nn.LayerNorm(6), (ours.scale, ours.offset)
    )
    x = jnp.asarray(5 + 3 * nets.normal(3, 5, 6))
    np.testing.assert_allclose(nets.one(ours, x), nets.batch(jax.vmap(theirs), x), atol=1e-5)


@pytest.mark.parametrize("norm", ("none", "layer"))
def test_a_block_starts_as_the_identity(norm, getkey):
    block = nets.build(zero_nets.ResidualBlock, 8, norm, key=getkey())
    x = jnp.asarray(nets.normal(3, 5, 8))
    np.testing.assert_array_equal(nets.one(block, x), x)


def test_parameters_are_the_arrays_and_their_number_is_known():
    # 3x32 on Othello, by hand: stem 608, blocks 3 * 2 * 9248, policy 66 + 8385,
    # value 33 + 4160 + 65; normalisation adds 2 * 32 before each of 6 convolutions and after.
    for norm, expected in (("none", 68_805), ("layer", 68_805 + 7 * 64)):
        net = eqx.filter_eval_shape(zero_nets.AlphaZeroNet, (8, 8, 2), 65, norm=norm, key=jr.key(0))
        leaves = jax.tree.leaves(net)
        assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
        assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.float32)}
        assert sum(leaf.size for leaf in leaves) == expected
    net = _random_net()
    params, static = eqx.partition(net, eqx.is_array)
    assert jax.tree.leaves(static) == []
    assert jax.tree.structure(params) == jax.tree.structure(net)


@pytest.mark.parametrize(
    ("norm", "dtype"), (("none", bool), ("none", np.int8), ("layer", np.float32))
)
def test_starts_near_uniform_and_near_zero(norm, dtype, getkey):
    x = jnp.asarray(_inputs(4).astype(dtype))
    logits, value = nets.batch(_net(norm=norm, key=getkey()), x)
    assert logits.shape == (4, ACTIONS) and logits.dtype == jnp.float32
    assert value.shape == (4,) and value.dtype == jnp.float32
    np.testing.assert_allclose(jax.nn.softmax(logits), 1 / ACTIONS, rtol=0.1)
    np.testing.assert_allclose(value, 0, atol=0.05)


@pytest.mark.parametrize("norm", ("none", "layer"))
def test_a_row_does_not_depend_on_its_neighbours(norm):
    net = _random_net(norm=norm)
    x = _inputs(4)
    logits, value = map(np.asarray, nets.batch(net, jnp.asarray(x)))
    others = np.concatenate([x[:1], ~x[1:]])
    other_logits, other_value = map(np.asarray, nets.batch(net, jnp.asarray(others)))
    np.testing.assert_allclose(other_logits[0], logits[0], atol=1e-4)
    np.testing.assert_allclose(other_value[0], value[0], atol=1e-4)
    # ... and vmap is a loop over single calls.
    for i in range(4):
        one_logits, one_value = nets.one(net, jnp.asarray(x[i]))
        np.testing.assert_allclose(one_logits, logits[i], atol=1e-4)
        np.testing.assert_allclose(one_value, value[i], atol=1e-4)
    assert np.ptp(logits, axis=0).max() > 1e-2


def test_half_precision_keeps_parameters_and_results_wide():
    wide = _random_net(norm="layer")
    half = zero_nets.MixedPrecision(wide, jnp.bfloat16)
    x = jnp.asarray(_inputs(64))
    expected, result = nets.batch(wide, x), nets.batch(half, x)
    for a, b in zip(result, expected, strict=True):
        assert a.dtype == jnp.float32
        # Values near zero are differences of larger numbers, so single ones may be far off.
        a, b = np.asarray(a), np.asarray(b)
        assert np.linalg.norm(a - b) < 0.15 * np.linalg.norm(b)
    assert "bf16" in str(jax.make_jaxpr(half)(x[0]))
    gradient = jax.eval_shape(jax.grad(lambda net: jnp.sum(net(x[0])[0])), half)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype(jnp.float32)}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm", ("none", "layer"))
def test_gradient_is_the_difference_quotient(norm):
    small = {"norm": norm, "channels": 4, "blocks": 1}
    net, along = (
        jax.tree.map(lambda x: jnp.asarray(np.float64(x)), _random_net(seed=seed, **small))
        for seed in (1, 4)
    )
    draws = np.random.default_rng(2)
    weights = jnp.asarray(draws.normal(size=ACTIONS))
    x = jnp.asarray(draws.normal(size=BOARD))

    def loss(net):
        logits, value = net(x)
        return logits @ weights + 3 * value

    @jax.jit
    def moved(size):
        return loss(jax.tree.map(lambda a, b: a + size * b, net, along))

    quotient = (moved(1e-6) - moved(-1e-6)) / 2e-6
    gradient = jax.jit(jax.grad(loss))(net)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True)
    exact = sum(np.vdot(a, b) for a, b in pairs)
    np.testing.assert_allclose(exact, quotient, rtol=1e-6)


def test_the_tower_learns_from_the_first_step(getkey):
    x = jnp.asarray(_inputs(8))

    def loss(net):
        logits, value = jax.vmap(net)(x)
        return -jnp.mean(jax.nn.log_softmax(logits)[:, 0]) + jnp.mean((value - 1) ** 2)

    gradient = jax.jit(jax.grad(loss), compiler_options=QUICK)(_net(key=getkey()))
    for leaf in (
        gradient.stem.weight,
        gradient.blocks[0].convs[1].weight,
        gradient.policy_out.weight,
        gradient.value_out.weight,
    ):
        assert np.abs(np.asarray(leaf)).max() > 0


def test_values_reach_the_largest_and_no_further():
    """Policy and value are those of the usual network, the value times `max_value`."""
    x = jnp.asarray(_inputs(8))
    (policy, value), (same, larger) = (
        map(np.asarray, nets.batch(_random_net(size=1.5, **options), x))
        for options in ({}, {"max_value": 3.0})
    )
    np.testing.assert_array_equal(policy, same)
    np.testing.assert_allclose(larger, 3 * value, rtol=1e-6)
    assert 2.9 < np.abs(larger).max() <= 3


def test_refuses_what_does_not_fit(getkey):
    net = _random_net()
    with pytest.raises(ValueError, match=r"\(4, 3, 5, 2\).*expected \(3, 5, 2\).*vmap"):
        net(jnp.zeros((4, *BOARD)))
    with pytest.raises(ValueError, match=r"\(5, 3, 2\).*expected \(3, 5, 2\)"):
        net(jnp.zeros((5, 3, 2)))
    with pytest.raises(ValueError, match=r"`board_shape` is \(8, 8\).*rows, columns and channels"):
        zero_nets.AlphaZeroNet((8, 8), 65, key=getkey())
    with pytest.raises(ValueError, match="`norm` is 'batch'"):
        _net(norm="batch")
    with pytest.raises(ValueError, match="`norm` is 'batch'"):
        zero_nets.ResidualBlock(8, "batch", key=getkey())
    with pytest.raises(ValueError, match="`channels` is 0"):
        _net(channels=0)
    with pytest.raises(ValueError, match="`blocks` is -1"):
        _net(blocks=-1)
    for value in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"`max_value` is {value}; it must be a finite"):
            _net(max_value=value)
