"""Torsos of images: against Equinox's channels-first convolutions, NumPy's pooling and by hand."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


KINDS = ("max_pool", "average_pool", "conv")


def equinox_conv(conv: zero_nets.Conv, x: np.ndarray) -> np.ndarray:
    """What `equinox.nn.Conv2d` with the same numbers makes of a batch, channels last."""
    size, _, depth, width = conv.weight.shape
    theirs = nets.random(
        eqx.nn.Conv2d, depth, width, size, stride=conv.stride, padding=conv.padding
    )
    theirs = eqx.tree_at(
        lambda conv: (conv.weight, conv.bias),
        theirs,
        (
            jnp.asarray(np.asarray(conv.weight).transpose(3, 2, 0, 1)),
            jnp.asarray(np.asarray(conv.bias)[:, None, None]),
        ),
    )
    return np.moveaxis(np.asarray(nets.batch(theirs, jnp.asarray(np.moveaxis(x, -1, 1)))), 1, -1)


@pytest.mark.parametrize(("size", "stride", "padding"), ((3, 2, "SAME"), (4, 3, "VALID")))
def test_strided_conv_is_equinox_conv(size, stride, padding):
    conv = nets.random(zero_nets.Conv, 2, 3, size, stride=stride, padding=padding)
    x = nets.normal(2, 7, 8, 2)
    result = nets.batch(conv, jnp.asarray(x))
    rows, columns = (
        -(-n // stride) if padding == "SAME" else (n - size) // stride + 1 for n in (7, 8)
    )
    assert result.shape == (2, rows, columns, 3)
    np.testing.assert_allclose(result, equinox_conv(conv, x), rtol=1e-4, atol=1e-4)


SMALL = {"channels": (3, 4), "sizes": (3, 2), "strides": (2, 1), "widths": (5,)}


def test_cnn_is_its_parts_in_order():
    cnn = nets.random(zero_nets.CNN, (9, 7, 2), norm="layer", activation=jnp.tanh, **SMALL)
    x = nets.normal(3, 9, 7, 2)
    expected = x
    for i, conv in enumerate(cnn.convs):
        expected = np.tanh(nets.norm(cnn.norms[i], equinox_conv(conv, expected)))
    flat = expected.reshape(3, -1)
    expected = np.tanh(nets.norm(cnn.mlp.norms[0], nets.linear(cnn.mlp.layers[0], flat)))
    np.testing.assert_allclose(nets.batch(cnn, jnp.asarray(x)), expected, rtol=1e-4, atol=1e-4)
    assert cnn.out_size == 5
    bare = eqx.filter_eval_shape(zero_nets.CNN, (9, 7, 2), **SMALL | {"widths": ()}, key=jr.key(0))
    assert bare.out_size == flat.shape[1]


@pytest.mark.usefixtures("unhooked")
def test_widths_may_be_an_array():
    widths: Any = np.array([5, 4])
    build = lambda: zero_nets.CNN((9, 7, 2), **SMALL | {"widths": widths}, key=jr.key(0))
    assert eqx.filter_eval_shape(build).out_size == 4
    eqx.filter_eval_shape(lambda: zero_nets.Dueling(3, (4,), widths=widths, key=jr.key(0)))


def test_parameters_are_the_arrays_and_their_number_is_known():
    # DQN on Atari: 8224 + 32832 + 36928 in the convolutions, 1606144 behind them.
    assert nets.count(zero_nets.CNN, (84, 84, 4)) == 1_684_128
    # IMPALA's large network on Atari: 11 rows and columns are left of 84.
    widths = (4, 16, 32, 32)
    groups = sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in itertools.pairwise(widths))
    linear = 11 * 11 * 32 * 256 + 256
    assert nets.count(zero_nets.VisualResNet, (84, 84, 4)) == groups + linear
    # Two cells of normalisation a block, one over everything at the end.
    norms = 2 * 2 * 2 * sum(widths[1:]) + 2 * 11 * 11 * 32
    assert nets.count(zero_nets.VisualResNet, (84, 84, 4), norm="layer") == groups + linear + norms


def windows(x: np.ndarray):
    """The 3x3 windows of stride 2 that "SAME" padding means, without the padding."""
    for size in x.shape[:2]:
        half = -(-size // 2)
        before = max(2 * (half - 1) + 3 - size, 0) // 2
        yield [slice(max(2 * j - before, 0), min(2 * j - before + 3, size)) for j in range(half)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ((5, 4, 3), (6, 1, 3)))
def test_downsampling(kind, shape):
    settings = {"channels": (2,), "blocks": (0,), "width": 1, "downsampling": kind}
    ((down, _),) = nets.random(zero_nets.VisualResNet, shape, **settings).groups
    x = nets.normal(*shape)
    if kind in ("max_pool", "average_pool"):
        y = equinox_conv(down.conv, x[None])[0]
        reduce = np.max if kind == "max_pool" else np.mean
        rows, columns = windows(y)
        expected = np.array([[reduce(y[r, c], axis=(0, 1)) for c in columns] for r in rows])
    else:
        expected = equinox_conv(down.conv, x[None])[0]
    assert expected.shape == (-(-shape[0] // 2), -(-shape[1] // 2), 2)
    np.testing.assert_allclose(nets.one(down, jnp.asarray(x)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 5, 2), (1, 2, 2)])
def test_gradient_of_max_pooling_goes_to_the_greatest(shape):
    """In distinct places; XLA's own pooling, which is slower, is the oracle."""
    settings = {"channels": shape[2:], "blocks": (0,), "width": 1}
    ((down, _),) = nets.random(zero_nets.VisualResNet, (*shape[:2], 1), **settings).groups
    x = jnp.asarray(nets.normal(*shape[:2], 1))
    weights = jnp.asarray(nets.normal(-(-shape[0] // 2), -(-shape[1] // 2), shape[2], seed=2))

    def pooled(x):
        y = down.conv(x)
        return lax.reduce_window(y, -np.inf, lax.max, (3, 3, 1), (2, 2, 1), "SAME")

    ours, theirs = (
        jax.jit(jax.grad(lambda x, f=f: jnp.sum(weights * f(x)))) for f in (down, pooled)
    )
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    assert np.any(np.abs(ours(x)) > 0.1)


@pytest.mark.parametrize("norm", ("none", "layer"))
def test_visual_resnet_activates_what_leaves_the_last_block(norm):
    resnet = nets.random(
        zero_nets.VisualResNet, (5, 6, 2), channels=(2, 3), blocks=(0, 1), width=4, norm=norm
    )
    x = jnp.asarray(nets.normal(5, 6, 2))
    (first, none), (second, (block,)) = resnet.groups
    assert none == ()
    last = np.asarray(nets.one(lambda x: block(second(first(x))), x))[None]
    assert last.shape == (1, 2, 2, 3) and last.min() < 0
    last = nets.norm(resnet.final_norm, last) if norm == "layer" else last
    expected = nets.relu(nets.linear(resnet.linear, nets.relu(last).reshape(1, -1)))[0]
    np.testing.assert_allclose(nets.one(resnet, x), expected, rtol=1e-4, atol=1e-4)


def test_initial_weights(getkey):
    cnn = nets.build(zero_nets.CNN, (5, 5, 2), channels=(3,), sizes=(3,), strides=(1,), widths=(4,))
    nets.assert_orthogonal(np.asarray(cnn.convs[0].weight).reshape(-1, 3), 2**0.5)
    nets.assert_orthogonal(cnn.mlp.layers[0].weight, 2**0.5)
    resnet = nets.build(
        zero_nets.VisualResNet, (4, 4, 2), channels=(3,), blocks=(1,), width=4, key=getkey()
    )
    nets.assert_orthogonal(resnet.linear.weight, 2**0.5)
    x = jnp.asarray(nets.normal(2, 2, 3))
    np.testing.assert_array_equal(nets.one(resnet.groups[0][1][0], x), x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_one_convolution_a_layer_in_the_gradient_too(kind):
    resnet = nets.random(
        zero_nets.VisualResNet,
        (4, 4, 2),
        channels=(2, 3),
        blocks=(1, 0),
        width=4,
        downsampling=kind,
    )
    x = jnp.asarray(nets.normal(3, 4, 4, 2))
    gradient = jax.grad(lambda net, x: jnp.sum(jax.vmap(net)(x) ** 2))
    text = str(jax.make_jaxpr(gradient)(resnet, x))
    # Four layers forward, four weight gradients, three input gradients: the image has none.
    assert text.count("conv_general_dilated[") == 11
    assert text.count("feature_group_count=1") == text.count("batch_group_count=1") == 11
    for leaf in jax.tree.leaves(jax.jit(gradient, compiler_options=nets.QUICK)(resnet, x)):
        assert np.isfinite(leaf).all()


def test_refuses_what_does_not_fit():
    cnn = nets.random(zero_nets.CNN, (9, 7, 2), **SMALL)
    with pytest.raises(ValueError, match=r"\(3, 9, 7, 2\).*expected \(9, 7, 2\).*vmap"):
        cnn(jnp.zeros((3, 9, 7, 2)))
    for constructor, args, kwargs, message in (
        (zero_nets.CNN, ((9, 7),), {}, r"`shape` is \(9, 7\).*rows, columns and channels"),
        (zero_nets.CNN, ((9, 7, 2),), {}, "too small for convolution 0, of size 8.*SAME"),
        (zero_nets.CNN, ((9, 7, 2),), {"strides": (1,)}, r"\(1,\); each must have one entry"),
        (zero_nets.CNN, ((9, 7, 2),), SMALL | {"padding": "FULL"}, "`padding` is 'FULL'"),
        (zero_nets.CNN, ((9, 7, 2),), SMALL | {"norm": "batch"}, "`norm` is 'batch'"),
        (zero_nets.VisualResNet, ((9, 7, 0),), {}, r"`shape` is \(9, 7, 0\)"),
        (zero_nets.VisualResNet, ((9, 7, 2),), {"blocks": (1,)}, r"\(1,\) for 3 groups"),
        (zero_nets.VisualResNet, ((9, 7, 2),), {"downsampling": "min"}, "is 'min'"),
        (zero_nets.Conv, (2, 3), {"stride": 0}, "`stride` is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            nets.random(constructor, *args, **kwargs)
