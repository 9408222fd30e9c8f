"""Torsos of vectors: against NumPy, with the initial weights and the noise that are promised."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


@pytest.mark.parametrize("norm", ("none", "layer"))
@pytest.mark.parametrize("activate_final", (True, False))
def test_mlp_is_what_numpy_says(norm, activate_final):
    # Equal widths: which layers are activated must not depend on them.
    mlp = nets.random(
        zero_nets.MLP, 4, (6, 6, 6), activation=jnp.tanh, activate_final=activate_final, norm=norm
    )
    x = nets.normal(5, 4)
    expected = x
    for i, layer in enumerate(mlp.layers):
        activated = i < 2 or activate_final
        # Without one, normalisation would not tell x from 2 * x.
        assert layer.bias is not None
        expected = nets.linear(layer, expected)
        if activated:
            expected = nets.norm(mlp.norms[i], expected) if norm == "layer" else expected
            expected = np.tanh(expected)
    np.testing.assert_allclose(jax.vmap(mlp)(x), expected, rtol=1e-4, atol=1e-5)
    assert mlp.out_size == 6


def test_parameters_are_the_arrays_and_their_number_is_known():
    weights = 5 * 6 + 6 * 7
    assert nets.count(zero_nets.MLP, 5, (6, 7)) == weights + 6 + 7
    assert nets.count(zero_nets.MLP, 5, (6, 7), norm="layer") == weights + 3 * (6 + 7)
    linear_end = {"norm": "layer", "activate_final": False}
    assert nets.count(zero_nets.MLP, 5, (6, 7), **linear_end) == weights + 3 * 6 + 7
    assert nets.count(zero_nets.MLP, 5, (6, 7), noise=0.5) == 2 * (weights + 6 + 7)
    stem, layer = 5 * 6 + 6, 6 * 6 + 6
    assert nets.count(zero_nets.VectorResNet, 5, 6, blocks=2) == stem + 4 * layer
    norms = 5 * 2 * 6
    assert (
        nets.count(zero_nets.VectorResNet, 5, 6, blocks=2, norm="layer") == stem + 4 * layer + norms
    )


def test_torsos_start_orthogonal(getkey):
    key = getkey()
    mlp = nets.build(zero_nets.MLP, 4, (6, 3), key=key)
    for layer in mlp.layers:
        nets.assert_orthogonal(layer.weight, 2**0.5)
        np.testing.assert_array_equal(layer.bias, 0)
    resnet = nets.build(zero_nets.VectorResNet, 4, 6, blocks=1, key=key)
    first, last = resnet.blocks[0]
    nets.assert_orthogonal(resnet.stem.weight, 2**0.5)
    nets.assert_orthogonal(first.weight, 2**0.5)
    np.testing.assert_array_equal(last.weight, 0)


def test_orthogonal_is_over_the_outputs_of_any_layer():
    key = jr.key(0)
    bare = nets.random(eqx.nn.Linear, 3, 5, use_bias=False)
    linear = zero_nets.orthogonal(bare, 0.7, key=jr.fold_in(key, 0))
    nets.assert_orthogonal(linear.weight, 0.7)
    assert linear.bias is None
    ours = zero_nets.orthogonal(nets.random(zero_nets.Conv, 2, 5), 1.5, key=jr.fold_in(key, 1))
    nets.assert_orthogonal(ours.weight.reshape(-1, 5), 1.5)
    np.testing.assert_array_equal(ours.bias, 0)
    conv = nets.random(eqx.nn.Conv2d, 2, 5, 3)
    theirs = zero_nets.orthogonal(conv, 1.5, key=jr.fold_in(key, 2))
    nets.assert_orthogonal(theirs.weight.reshape(5, -1), 1.5)


@pytest.mark.parametrize("norm", ("none", "layer"))
def test_vector_resnet_is_what_numpy_says(norm):
    resnet = nets.random(
        zero_nets.VectorResNet, 4, 6, blocks=2, activation=jax.nn.softplus, norm=norm
    )
    layer = norm == "layer"
    x = nets.normal(5, 4)
    expected = nets.linear(resnet.stem, x)
    for i, block in enumerate(resnet.blocks):
        y = expected
        for j, dense in enumerate(block):
            y = nets.norm(resnet.norms[i][j], y) if layer else y
            y = nets.linear(dense, nets.softplus(y))
        expected = expected + y
    expected = nets.softplus(nets.norm(resnet.final_norm, expected) if layer else expected)
    np.testing.assert_allclose(jax.vmap(resnet)(x), expected, rtol=1e-4, atol=1e-4)


def test_noise_is_factorised():
    layer = nets.random(zero_nets.NoisyLinear, 3, 4)

    @jax.jit
    @jax.vmap
    def parameters(key):
        """The weights and biases that one key amounts to: the layer of unit vectors and of 0."""
        rows = jax.vmap(lambda x: layer(x, key=key))(jnp.eye(4, 3))
        return rows[:3].T - rows[3][:, None], rows[3]

    weights, biases = (np.asarray(x) for x in parameters(jr.split(jr.key(0), 10_000)))
    out = (biases - np.asarray(layer.bias)) / np.asarray(layer.bias_noise)
    noise = (weights - np.asarray(layer.weight)) / np.asarray(layer.weight_noise)
    # An outer product of the factor that the biases got with another one.
    inner = noise[:, :1] / out[:, :1, None]
    scale = np.abs(noise).max((1, 2), keepdims=True) + np.abs(out).max(1)[:, None, None]
    sure = np.abs(out[:, 0]) > 0.1
    error = np.abs(noise - out[:, :, None] * inner) / scale
    assert error[sure].max() < 1e-3
    # f(e)^2 is |e| of a normal e: moments sqrt(2/pi) and 1, where e^2 would have 1 and 3.
    for factor in (out, inner[sure][:, 0]):
        assert abs(np.mean(factor)) < 0.03
        np.testing.assert_allclose(np.mean(factor**2, 0), (2 / np.pi) ** 0.5, rtol=0.05)
        np.testing.assert_allclose(np.mean(factor**4, 0), 1, rtol=0.1)
    # Entries are independent.
    correlation = np.corrcoef(np.concatenate([out, inner[:, 0]], axis=1)[sure].T)
    assert np.abs(correlation - np.eye(7)).max() < 0.05


def test_noise_starts_as_the_paper_says_and_needs_a_key(getkey):
    layer = nets.build(zero_nets.NoisyLinear, 16, 4, noise=0.3, key=getkey())
    np.testing.assert_allclose(layer.weight_noise, 0.3 / 4, rtol=1e-6)
    np.testing.assert_allclose(layer.bias_noise, 0.3 / 4, rtol=1e-6)
    for x in (layer.weight, layer.bias):
        assert np.abs(x).max() <= 1 / 4
    assert np.std(layer.weight) == pytest.approx(1 / 4 / 3**0.5, rel=0.25)
    x = nets.normal(16)
    expected = nets.linear(layer, x[None])[0]
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


def test_every_layer_and_every_key_draws_its_own_noise():
    mlp = nets.random(zero_nets.MLP, 2, (2, 2), activation=lambda x: x, noise=0.5)
    zeros = jax.tree.map(jnp.zeros_like, mlp)
    # The sum of both layers' bias noise.
    mlp = eqx.tree_at(
        lambda mlp: (mlp.layers[1].weight, *(layer.bias_noise for layer in mlp.layers)),
        zeros,
        (jnp.eye(2), jnp.ones(2), jnp.ones(2)),
    )
    noisy = jax.jit(jax.vmap(lambda key: mlp(jnp.zeros(2), key=key)), compiler_options=nets.QUICK)
    noise = noisy(jr.split(jr.key(3), 4000))
    # Equal noise in both layers would make it twice as much.
    np.testing.assert_allclose(np.mean(noise**2, axis=0), 2 * (2 / np.pi) ** 0.5, rtol=0.1)
    np.testing.assert_array_equal(mlp(jnp.zeros(2), key=jr.split(jr.key(3), 4000)[7]), noise[7])
    np.testing.assert_array_equal(mlp(jnp.zeros(2)), 0)


@pytest.mark.parametrize("dtype", (bool, jnp.uint8, jnp.float32))
def test_features_of_any_type(dtype):
    mlp = nets.random(zero_nets.MLP, 4, (6,))
    x = np.array([1, 0, 1, 1])
    result = mlp(jnp.asarray(x, dtype))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, mlp(jnp.asarray(x, jnp.float32)))


def test_refuses_what_does_not_fit():
    mlp = nets.random(zero_nets.MLP, 4, (6,))
    with pytest.raises(ValueError, match=r"\(3, 4\).*expected \(4,\).*vmap"):
        mlp(jnp.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"\(5,\).*expected \(4,\)"):
        nets.random(zero_nets.VectorResNet, 4, 6)(jnp.zeros(5))
    for constructor, args, kwargs, message in (
        (zero_nets.MLP, (0, (6,)), {}, "`in_size` is 0"),
        (zero_nets.MLP, (4, ()), {}, r"`widths` is \(\)"),
        (zero_nets.MLP, (4, (6, 0)), {}, r"`widths` is \(6, 0\)"),
        (zero_nets.MLP, (4, (6,)), {"norm": "batch"}, "`norm` is 'batch'.*'none' or 'layer'"),
        (zero_nets.MLP, (4, (6,)), {"noise": -1.0}, "`noise` is -1.0"),
        (zero_nets.VectorResNet, (4, 0), {}, "`width` is 0"),
        (zero_nets.VectorResNet, (4, 6), {"blocks": -1}, "`blocks` is -1"),
        (zero_nets.NoisyLinear, (4, 0), {}, "`out_size` is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            nets.random(constructor, *args, **kwargs)
