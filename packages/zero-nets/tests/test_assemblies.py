"""Networks of networks: who gets which inputs and keys, and what half precision may touch."""

import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


class Observation(typing.NamedTuple):
    camera: dict
    position: object


OBSERVATION = Observation(
    {"left": jnp.arange(6, dtype=jnp.int32).reshape(2, 3), "right": (True, False)},
    jnp.array([0.5, -1.0]),
)


def actor_critic(*, key):
    tkey, pkey, vkey = jr.split(key, 3)
    torso = zero_nets.MLP(4, (8,), key=tkey)
    policy = zero_nets.LinearHead(torso.out_size, (3,), scale=0.01, key=pkey)
    return zero_nets.ActorCritic(
        policy, zero_nets.LinearHead(torso.out_size, key=vkey), torso=torso
    )


def test_select_follows_attributes_keys_and_indices():
    left = zero_nets.Select("camera", "left", 1)(OBSERVATION)
    np.testing.assert_array_equal(left, [3, 4, 5])
    assert zero_nets.Select("camera", "right", 0)(OBSERVATION) is True
    assert zero_nets.Select()(OBSERVATION) is OBSERVATION
    # Static and compared by value, so that a network made anew is no new compilation.
    assert jax.tree.structure(zero_nets.Select("a", 0)) == jax.tree.structure(
        zero_nets.Select("a", 0)
    )
    for path in (("sound",), ("camera", "up"), ("position", "x"), ("camera", "right", 2)):
        with pytest.raises(ValueError, match=r"`Select\(.*finds no"):
            zero_nets.Select(*path)(OBSERVATION)


def test_concatenate_takes_every_array():
    vector = zero_nets.Concatenate()(OBSERVATION.position, OBSERVATION.camera["left"])
    np.testing.assert_array_equal(vector, [0.5, -1, 0, 1, 2, 3, 4, 5])
    assert vector.dtype == jnp.float32
    assert zero_nets.Concatenate()(jnp.array([True])).dtype == jnp.float32
    mixed = zero_nets.Concatenate()(jnp.ones(1, jnp.bfloat16), jnp.ones(1, jnp.float32))
    assert mixed.dtype == jnp.float32
    with pytest.raises(ValueError, match="no arrays"):
        zero_nets.Concatenate()()


def test_one_hot_of_each_component():
    x = jnp.array([7.0, 8.0])
    single = zero_nets.ConcatenateOneHot(3)
    np.testing.assert_array_equal(single(x, jnp.int32(1)), [7, 8, 0, 1, 0])
    several = zero_nets.ConcatenateOneHot((2, 3))
    action = jnp.array([1, 2], jnp.int32)
    np.testing.assert_array_equal(several(x, action), [7, 8, 0, 1, 0, 0, 1])
    batch = jax.vmap(several)(jnp.stack([x, x]), jnp.stack([action, action]))
    np.testing.assert_array_equal(batch, np.tile([7, 8, 0, 1, 0, 0, 1], (2, 1)))
    with pytest.raises(ValueError, match=r"shape \(2,\); `num_actions` of 3 needs \(\).*vmap"):
        single(x, action)
    with pytest.raises(ValueError, match="`num_actions` is .*0"):
        zero_nets.ConcatenateOneHot((2, 0))


def test_a_critic_of_actions_is_a_chain():
    torso = nets.random(zero_nets.MLP, 5, (4,))
    head = nets.random(zero_nets.LinearHead, 4)
    critic = zero_nets.Chain(zero_nets.Concatenate(), torso, head)
    x, action = nets.normal(3, 2), nets.normal(3, 3, seed=2)
    y = nets.relu(nets.linear(torso.layers[0], np.concatenate([x, action], axis=1)))
    expected = nets.linear(head.linear, y)[:, 0]
    value = jax.vmap(critic)(x, action)
    assert value.shape == (3,)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


class Draw(eqx.Module):
    """Adds a number drawn with its key to its input."""

    def __call__(self, x, *, key=None):
        return x if key is None else x + jr.normal(key)


def test_every_part_gets_a_key_of_its_own():
    chain = zero_nets.Chain(Draw(), Draw(), Draw())
    pair = zero_nets.ActorCritic(Draw(), Draw(), torso=Draw())
    ensemble = zero_nets.Ensemble(Draw(), Draw())

    @jax.jit
    @jax.vmap
    def draw(key):
        first, second, third = jr.split(key, 3)
        x = jnp.zeros(())
        return [chain(x, key=first), *pair(x, key=second), *jnp.unstack(ensemble(x, key=third))]

    chained, policy, value, one, other = draw(jr.split(jr.key(0), 4000))
    # Independent draws: variances add up, and nothing but the torso's draw is shared.
    np.testing.assert_allclose(np.var(chained), 3, rtol=0.1)
    np.testing.assert_allclose(np.cov(policy, value), [[2, 1], [1, 2]], atol=0.2)
    np.testing.assert_allclose(np.cov(one, other), np.eye(2), atol=0.1)
    assert chain(jnp.zeros(())) == 0


def test_actor_critic_is_a_network_for_alphazero(getkey):
    """`network(*, key) -> net`, its arrays apart from the rest, and `net(features) -> (logits,
    value)`."""
    net = jax.jit(actor_critic, compiler_options=nets.QUICK)(key=getkey())
    params = eqx.filter(net, eqx.is_array)
    skeleton = eqx.filter_eval_shape(actor_critic, key=jr.key(0))
    static = eqx.filter(skeleton, lambda x: isinstance(x, jax.ShapeDtypeStruct), inverse=True)
    x = nets.normal(5, 4)
    logits, value = jax.vmap(eqx.combine(params, static))(x)
    assert logits.shape == (5, 3) and value.shape == (5,)
    np.testing.assert_allclose(logits, 0, atol=0.1)
    y = nets.relu(nets.linear(net.torso.layers[0], x))
    np.testing.assert_allclose(value, nets.linear(net.value.linear, y)[:, 0], rtol=1e-4, atol=1e-5)
    # Both heads read the one torso.
    assert nets.count(actor_critic) == (4 * 8 + 8) + (8 * 3 + 3) + (8 + 1)
    for output in range(2):
        gradient = jax.grad(lambda net, i=output: jnp.sum(net(jnp.asarray(x[0]))[i]))(net)
        assert jnp.abs(gradient.torso.layers[0].weight).max() > 0


def test_without_a_torso_it_is_a_pair_of_heads():
    policy = nets.random(zero_nets.CategoricalHead, 4, 3)
    value = nets.random(zero_nets.LinearHead, 4)
    pair = zero_nets.ActorCritic(policy, value)
    x = jnp.asarray(nets.normal(4))
    distribution, number = pair(x)
    np.testing.assert_array_equal(distribution.logits, policy(x).logits)
    np.testing.assert_array_equal(number, value(x))


def test_ensemble_stacks_on_the_last_axis():
    critics = [nets.random(zero_nets.LinearHead, 4, (3,), seed=seed) for seed in range(2)]
    x = nets.normal(5, 4)
    twins = jax.vmap(zero_nets.Ensemble(*critics))(x)
    assert twins.shape == (5, 3, 2)
    for i, critic in enumerate(critics):
        np.testing.assert_allclose(
            twins[..., i], nets.linear(critic.linear, x), rtol=1e-4, atol=1e-5
        )


def test_half_precision_keeps_parameters_and_results_wide():
    wide = zero_nets.Chain(
        nets.random(zero_nets.MLP, 4, (64, 64), norm="layer"),
        nets.random(zero_nets.TanhGaussianHead, 64, 2),
    )
    half = zero_nets.MixedPrecision(wide, jnp.bfloat16)
    x = jnp.asarray(nets.normal(8, 4))
    for field in ("loc", "scale"):
        a, b = (getattr(jax.vmap(net)(x), field) for net in (half, wide))
        assert a.dtype == jnp.float32
        assert 1e-4 < jnp.linalg.norm(a - b) / jnp.linalg.norm(b) < 0.05
    text = str(jax.make_jaxpr(half)(x[0]))
    assert text.count(":bf16[64] = dot_general") == 2
    assert ":f32[64] = dot_general" not in text
    gradient = jax.eval_shape(jax.grad(lambda net: jnp.sum(net(x[0]).loc)), half)
    assert jax.tree.structure(gradient) == jax.tree.structure(half)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype(jnp.float32)}
    # (The head is wide of itself; a torso is only by being wrapped.)
    torso = zero_nets.MixedPrecision(wide.layers[0], jnp.bfloat16)
    assert jax.eval_shape(torso, x[0]).dtype == jnp.float32
    # Other inputs, keys among them, pass through as they are.
    echo = zero_nets.MixedPrecision(lambda x, key: (x, jr.key_data(key)), jnp.bfloat16)
    action, data = echo(jnp.array([300], jnp.int32), key=jr.key(5))
    assert action.dtype == jnp.int32 and action[0] == 300
    np.testing.assert_array_equal(data, jr.key_data(jr.key(5)))


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="no layers"):
        zero_nets.Chain()
    with pytest.raises(ValueError, match="no members"):
        zero_nets.Ensemble()
    with pytest.raises(ValueError, match="`dtype` is int32.*floating"):
        zero_nets.MixedPrecision(jnp.tanh, jnp.int32)
    with pytest.raises(ValueError, match="`dtype` is float64.*jax_enable_x64"):
        zero_nets.MixedPrecision(jnp.tanh, jnp.float64)
