"""The world model: its scaling at the edges, and a step by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


def scaled(x: np.ndarray, minimum=-1.0, maximum=1.0) -> np.ndarray:
    least, greatest = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return minimum + (maximum - minimum) * (x - least) / (greatest - least)


def world_model(
    layers: int = 2, cell: Any = eqx.nn.GRUCell, encoded: int | None = None, **kwargs
) -> Any:
    rnn = nets.random(zero_nets.RNN, 3, 4, layers=layers, cell=cell)
    return zero_nets.WorldModel(
        nets.random(zero_nets.LinearHead, 6, (encoded or rnn.carry_size,)),
        nets.random(eqx.nn.Embedding, 5, 3),
        rnn,
        nets.random(zero_nets.LinearHead, rnn.carry_size),
        **kwargs,
    )


@pytest.mark.parametrize("bounds", ((-1.0, 1.0), (0.0, 1.0)))
def test_scaling_fills_the_range(bounds):
    x = 5 + 3 * nets.normal(7, 9)
    result = jax.vmap(lambda row: zero_nets.normalise_min_max(row, *bounds))(x)
    np.testing.assert_allclose(result, scaled(x, *bounds), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.min(1), bounds[0], atol=1e-6)
    np.testing.assert_allclose(result.max(1), bounds[1], atol=1e-6)


def test_scaling_a_constant_vector_is_finite():
    x = jnp.full((4,), 3.0)

    def weighted(x):
        return zero_nets.normalise_min_max(x) @ jnp.arange(4.0)

    value, gradient = jax.value_and_grad(weighted)(x)
    np.testing.assert_allclose(value, -6)
    assert np.isfinite(gradient).all()
    # Below `epsilon` differences are not blown up to the whole range.
    close = zero_nets.normalise_min_max(jnp.array([0.0, 0.5]), epsilon=2.0)
    np.testing.assert_allclose(close, [-1, -0.5])


def test_a_step_is_what_numpy_says():
    model = world_model(minimum=0.0, maximum=2.0)
    observations = nets.normal(3, 6)
    actions = np.array([4, 0, 2], np.int32)
    hidden = jax.vmap(model.represent)(observations)
    expected = scaled(nets.linear(model.encoder.linear, observations), 0, 2)
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-5)
    after, reward = jax.vmap(model.step)(hidden, actions)
    moved, x = [], np.asarray(model.embedding.weight)[actions]
    for cell, h in zip(model.rnn.cells, np.split(expected, 2, axis=1), strict=True):
        x = nets.gru(cell, x, h)
        moved.append(x)
    expected = scaled(expected + np.concatenate(moved, axis=1), 0, 2)
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    expected = nets.linear(model.reward.linear, expected)[:, 0]
    np.testing.assert_allclose(reward, expected, rtol=1e-4, atol=1e-4)


def test_an_unrolled_lstm_stays_in_range_and_learns_through_every_step():
    model = world_model(layers=2, cell=eqx.nn.LSTMCell)
    assert model.rnn.carry_size == 2 * 2 * 4
    observation = jnp.asarray(nets.normal(6))
    actions = jnp.array([1, 3, 0, 2], jnp.int32)

    def unroll(model, observation):
        hidden = model.represent(observation)
        _, (hiddens, rewards) = jax.lax.scan(
            lambda hidden, action: (lambda step: (step[0], step))(model.step(hidden, action)),
            hidden,
            actions,
        )
        return rewards[-1], hiddens

    gradient = jax.jit(
        jax.value_and_grad(unroll, (0, 1), has_aux=True), compiler_options=nets.QUICK
    )
    (_, hiddens), (for_model, for_observation) = gradient(model, observation)
    assert hiddens.shape == (4, 16)
    np.testing.assert_allclose(hiddens.min(1), -1, atol=1e-6)
    np.testing.assert_allclose(hiddens.max(1), 1, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(for_model))
    assert jnp.abs(for_observation).min() > 0
    # Every action that was played taught its own embedding, and no other.
    used = jnp.abs(for_model.embedding.weight).max(axis=1) > 0
    np.testing.assert_array_equal(used, [True, True, True, True, False])


def test_parts_may_compute_in_half_precision():
    model = world_model()
    rnn = nets.random(zero_nets.RNN, 3, 4, layers=2, cell=eqx.nn.GRUCell, dtype=jnp.bfloat16)
    half = zero_nets.WorldModel(
        zero_nets.MixedPrecision(model.encoder, jnp.bfloat16), model.embedding, rnn, model.reward
    )

    def run(model):
        return model.step(model.represent(jnp.ones(6)), jnp.int32(1), key=jr.key(0))

    shapes = jax.eval_shape(run, half)
    assert {leaf.dtype for leaf in shapes} == {jnp.dtype(jnp.float32)}
    assert jnp.abs(run(half)[0] - run(model)[0]).max() < 0.05


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"encoder's result has shape \(7,\); it must be \(8,\)"):
        world_model(encoded=7).represent(jnp.zeros(6))
    with pytest.raises(ValueError, match="`minimum` is 1.0 and `maximum` 1.0"):
        world_model(minimum=1.0)
    with pytest.raises(ValueError, match="`epsilon` is 0.0"):
        world_model(epsilon=0.0)
