"""Heads: against NumPy, with the promised initial weights and first distributions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


SIZE = 6
BOUNDS = {"minimum": (-1.0, 0.0), "maximum": (1.0, 10.0)}
INFINITE = {"minimum": 0.0, "maximum": float("inf")}
POLICIES = {
    "categorical": (zero_nets.CategoricalHead, (SIZE, 4), {}),
    "multi-discrete": (zero_nets.MultiDiscreteHead, (SIZE, (3, 2)), {}),
    "tanh-gaussian": (zero_nets.TanhGaussianHead, (SIZE, 2), BOUNDS),
    "beta": (zero_nets.BetaHead, (SIZE, 2), BOUNDS),
    "gaussian": (zero_nets.GaussianHead, (SIZE, 2), {}),
}


def expected_parameters(name: str, y: np.ndarray) -> dict[str, np.ndarray]:
    """What a policy head makes of the result of its linear layer, a batch of them."""
    first, second = y[:, :2], y[:, 2:4]
    return {
        "categorical": lambda: {"logits": y},
        "multi-discrete": lambda: {"logits": y},
        "tanh-gaussian": lambda: {"loc": first, "scale": nets.softplus(second) + 1e-3},
        "beta": lambda: {"alpha": nets.softplus(first) + 1, "beta": nets.softplus(second) + 1},
        "gaussian": lambda: {
            "loc": first,
            "scale": 0.3 / nets.softplus(np.zeros(())) * nets.softplus(second) + 1e-3,
        },
    }[name]()


@pytest.mark.parametrize("name", POLICIES)
def test_policy_is_what_numpy_says(name):
    constructor, args, kwargs = POLICIES[name]
    head = nets.random(constructor, *args, **kwargs)
    x = nets.normal(3, SIZE)
    policy = nets.batch(head, jnp.asarray(x))
    for field, value in expected_parameters(name, nets.linear(head.linear, x)).items():
        assert getattr(policy, field).shape == value.shape
        np.testing.assert_allclose(getattr(policy, field), value, rtol=1e-4, atol=1e-5)
    if hasattr(policy, "minimum"):
        for field, bound in BOUNDS.items():
            np.testing.assert_array_equal(getattr(policy, field), np.tile(bound, (3, 1)))


@pytest.mark.parametrize("name", POLICIES)
def test_actions_of_a_batch_and_the_gradient_of_their_likelihood(name):
    constructor, args, kwargs = POLICIES[name]
    head = nets.random(constructor, *args, **kwargs)
    x = nets.normal(3, SIZE)

    def act(head):
        def likelihood(head):
            policy = jax.vmap(head)(x)
            action = jax.vmap(lambda policy: policy.sample(key=jr.key(0)))(policy)
            action = jax.lax.stop_gradient(action)
            log_prob = jax.vmap(lambda policy, action: policy.log_prob(action))(policy, action)
            return jnp.sum(log_prob), (action, log_prob)

        return jax.grad(likelihood, has_aux=True)(head)

    gradient, (action, log_prob) = jax.jit(act, compiler_options=nets.QUICK)(head)
    action = np.asarray(action)
    assert action.shape == ((3,) if name == "categorical" else (3, 2))
    assert log_prob.shape == (3,) and np.isfinite(log_prob).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    if kwargs:
        low, high = np.array(kwargs["minimum"]), np.array(kwargs["maximum"])
        assert np.all((low <= action) & (action <= high))


@pytest.mark.parametrize("name", POLICIES)
def test_policies_start_the_same_everywhere(name, getkey):
    constructor, args, kwargs = POLICIES[name]
    head = nets.build(constructor, *args, key=getkey(), **kwargs)
    nets.assert_orthogonal(head.linear.weight, 0.01)
    policy = nets.one(head, jnp.zeros(SIZE))
    first = {
        "tanh-gaussian": {"loc": 0, "scale": 0.694147},
        "beta": {"alpha": 1.693147, "beta": 1.693147},
        "gaussian": {"loc": 0, "scale": 0.301},
    }.get(name, {"logits": 0})
    for field, value in first.items():
        np.testing.assert_allclose(getattr(policy, field), value, atol=1e-6)


@pytest.mark.parametrize("shape", ((), (4,), (4, 3)))
def test_linear_head(shape, getkey):
    head = nets.random(zero_nets.LinearHead, SIZE, shape)
    x = nets.normal(5, SIZE)
    expected = nets.linear(head.linear, x).reshape(5, *shape)
    np.testing.assert_allclose(nets.batch(head, jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)
    nets.assert_orthogonal(
        nets.build(zero_nets.LinearHead, SIZE, shape, key=getkey()).linear.weight, 1.0
    )


@pytest.mark.parametrize("widths", ((), (7,)))
@pytest.mark.parametrize("shape", ((4,), (4, 3)))
def test_dueling_is_what_numpy_says(shape, widths):
    dueling = nets.random(zero_nets.Dueling, SIZE, shape, widths=widths)
    x = nets.normal(5, SIZE)
    streams = []
    for i, head in enumerate((dueling.value, dueling.advantage)):
        y = nets.relu(nets.linear(dueling.hidden[i].layers[0], x)) if widths else x
        streams.append(nets.linear(head.linear, y))
    value = streams[0].reshape(5, 1, *shape[1:])
    advantage = streams[1].reshape(5, *shape)
    expected = value + advantage - advantage.mean(1, keepdims=True)
    result = np.asarray(nets.batch(dueling, jnp.asarray(x)))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    # What makes the value identifiable.
    np.testing.assert_allclose(result.mean(1), value[:, 0], rtol=1e-4, atol=1e-4)


def test_dueling_noise_reaches_every_layer_and_nothing_else():
    dueling = nets.build(zero_nets.Dueling, SIZE, (4, 3), widths=(7,), noise=0.2)
    layers = [head.linear for head in (dueling.value, dueling.advantage)]
    layers += [mlp.layers[0] for mlp in dueling.hidden]
    for layer in layers:
        fan_in = layer.weight.shape[1]
        np.testing.assert_allclose(layer.weight_noise, 0.2 / fan_in**0.5, rtol=1e-6)
        np.testing.assert_allclose(layer.bias_noise, 0.2 / fan_in**0.5, rtol=1e-6)
        assert np.abs(np.asarray(layer.weight)).max() <= fan_in**-0.5
    x = jnp.asarray(nets.normal(SIZE))
    draw = jax.jit(jax.vmap(lambda key: dueling(x, key=key)), compiler_options=nets.QUICK)
    noisy = np.asarray(draw(jr.split(jr.key(1), 500)))
    silent = np.asarray(nets.one(dueling, x))
    assert np.std(noisy, axis=0).min() > 0.01
    assert np.abs(np.mean(noisy, axis=0) - silent).max() < 0.15


def test_a_scale_is_that_of_noisy_layers_too():
    build = lambda kind, **options: nets.build(kind, SIZE, (4,), noise=0.2, **options)
    half, whole = (build(zero_nets.LinearHead, scale=scale).linear for scale in (0.5, 1.0))
    np.testing.assert_allclose(half.weight, 0.5 * whole.weight, rtol=1e-5)
    np.testing.assert_allclose(half.bias, 0.5 * whole.bias, rtol=1e-5)
    np.testing.assert_array_equal(half.weight_noise, whole.weight_noise)
    dueling = build(zero_nets.Dueling, scale=0.0)
    np.testing.assert_array_equal(nets.one(dueling, jnp.ones(SIZE)), np.zeros(4))


def test_heads_do_not_compute_in_half_precision():
    for name in POLICIES:
        constructor, args, kwargs = POLICIES[name]
        head = nets.random(constructor, *args, **kwargs)
        policy = jax.eval_shape(head, jax.ShapeDtypeStruct((SIZE,), jnp.bfloat16))
        assert {leaf.dtype for leaf in jax.tree.leaves(policy)} == {jnp.dtype(jnp.float32)}


def test_refuses_what_does_not_fit():
    head = nets.random(zero_nets.CategoricalHead, SIZE, 4)
    with pytest.raises(ValueError, match=r"\(2, 6\).*expected \(6,\).*vmap"):
        head(jnp.zeros((2, SIZE)))
    for constructor, args, kwargs, message in (
        (zero_nets.CategoricalHead, (SIZE, 0), {}, "`num_actions` is 0"),
        (zero_nets.MultiDiscreteHead, (SIZE, ()), {}, r"`num_actions` is \(\)"),
        (zero_nets.MultiDiscreteHead, (SIZE, (3, 0)), {}, r"`num_actions` is \(3, 0\)"),
        (zero_nets.TanhGaussianHead, (SIZE, 0), {}, "`action_size` is 0"),
        (
            zero_nets.TanhGaussianHead,
            (SIZE, 3),
            BOUNDS,
            r"one for each dimension of .* shape \(3,\)",
        ),
        (zero_nets.BetaHead, (SIZE, 2), {"minimum": 1.0}, "`minimum` is 1.0 and `maximum` 1.0"),
        (zero_nets.TanhGaussianHead, (SIZE, 1), {"minimum": 0.999}, "more than 0.002 above"),
        (zero_nets.TanhGaussianHead, (SIZE, 1), {"min_scale": -1.0}, "`min_scale` is -1.0"),
        (zero_nets.BetaHead, (SIZE, 1), INFINITE, "`maximum` inf; both must be finite"),
        (zero_nets.GaussianHead, (SIZE, 2), {"init_scale": 0.0}, "`init_scale` is 0.0"),
        (zero_nets.LinearHead, (0,), {}, "`in_size` is 0"),
        (zero_nets.LinearHead, (SIZE, (4, 0)), {}, r"`shape` is \(4, 0\)"),
        (zero_nets.Dueling, (SIZE, ()), {}, r"`shape` is \(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            nets.random(constructor, *args, **kwargs)
