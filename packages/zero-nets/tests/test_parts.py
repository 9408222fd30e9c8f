"""Networks of parts: the order and the number of the parts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_nets import MixedPrecision, PartsNet

from . import nets


def seen(parts: int) -> dict[str, np.ndarray]:
    return {"rest": nets.normal(4), "parts": nets.normal(parts, 3, seed=2)}


NET = nets.random(PartsNet, seen(5), 7, width=6, rounds=2, value_shape=(9,))


def test_the_order_of_the_parts_only_orders_their_logits():
    features, order = seen(5), np.array([3, 0, 4, 1, 2])
    logits, value = nets.one(NET, features)
    assert logits.shape == (7,) and value.shape == (9,)
    turned, same = nets.one(NET, features | {"parts": features["parts"][order]})
    np.testing.assert_allclose(turned[:2], logits[:2], rtol=1e-4)
    np.testing.assert_allclose(turned[2:], logits[2:][order], rtol=1e-4)
    np.testing.assert_allclose(same, value, rtol=1e-4)


def test_double_precision_stays_so():
    features = jax.tree.map(lambda x: x.astype(np.float64), seen(5))
    net = jax.tree.map(lambda x: np.asarray(x, np.float64) if eqx.is_array_like(x) else x, NET)
    with jax.enable_x64(True):
        assert {x.dtype for x in jax.eval_shape(net, features)} == {np.dtype(np.float64)}


def test_parts_see_each_other():
    """Another part changes the logit of a part, which depends on the rest too."""
    features = seen(5)
    logits, _ = nets.one(NET, features)
    other = features["parts"].copy()
    other[4] += 1
    for changed in ({"parts": other}, {"rest": features["rest"] + 1}):
        found, _ = nets.one(NET, features | changed)
        assert np.all(np.abs(np.asarray(found - logits)[:6]) > 1e-5)


def test_parameters_fit_any_number_of_parts():
    shapes = [
        [x.shape for x in jax.tree.leaves(nets.random(PartsNet, seen(parts), parts + 2))]
        for parts in (1, 5)
    ]
    assert shapes[0] == shapes[1]
    logits, value = nets.one(NET, seen(8))
    assert logits.shape == (10,) and value.shape == (9,)


def test_initial_logits_are_small():
    net = nets.build(PartsNet, seen(5), 7)
    logits, value = nets.one(net, seen(5))
    assert value.shape == () and float(jnp.max(jnp.abs(logits))) < 1


def test_it_computes_in_half_precision():
    half = MixedPrecision(NET, jnp.bfloat16)
    for found, wanted in zip(nets.one(half, seen(5)), nets.one(NET, seen(5)), strict=True):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=0.1)


@pytest.mark.parametrize(
    "shapes, actions", [([(4,)], 7), ([(5, 3), (4, 3)], 7), ([(5, 3)], 5), ([(0, 3)], 5)]
)
def test_what_has_no_parts_is_refused(shapes, actions):
    with pytest.raises(ValueError, match=r"\[parts, numbers\]"):
        PartsNet([np.zeros(shape) for shape in shapes], actions, key=jax.random.key(0))
