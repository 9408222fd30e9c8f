"""Schedules, moving averages and gradient scaling: optax's do what the docs say of them here."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zero_train import gradient_step, per_update


def test_linear_decay_per_update():
    """What the optimiser does with it: four updates of six gradient steps, the last of them at a
    quarter of the rate, and none left after that."""
    optimiser = optax.sgd(per_update(optax.linear_schedule(0.8, 0.0, 4), 6))

    def step(state, _):
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimiser.update(-jnp.ones(()), state)
        return state, jnp.asarray(change)

    _, rates = jax.lax.scan(step, optimiser.init(jnp.zeros(())), length=30)
    wanted = [0.8 * (1 - min(count // 6, 4) / 4) for count in range(30)]
    assert np.allclose(rates, wanted, atol=1e-7)
    assert np.all(rates[:24] > 0.19) and np.all(rates[24:] == 0)


def test_warm_up_composes():
    schedule = per_update(optax.warmup_constant_schedule(0.0, 1.0, 2), 3)
    rates = jax.vmap(schedule)(jnp.arange(8, dtype=jnp.int32))
    assert np.asarray(rates).tolist() == [0, 0, 0, 0.5, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("num_steps", (0, -3))
def test_bad_num_steps(num_steps):
    with pytest.raises(ValueError, match=rf"per_update\(num_steps={num_steps}\)"):
        per_update(optax.constant_schedule(1.0), num_steps)


def test_incremental_update_keeps_types():
    """As target networks need it, under strict promotion: `tau * online + (1 - tau) * target`
    in the parameters' own precision, and where there is nothing to average, nothing."""
    online = {"w": jnp.array([1.0, 2.0]), "half": jnp.ones(2, jnp.bfloat16), "none": None}
    target = {"w": jnp.array([3.0, 2.0]), "half": jnp.zeros(2, jnp.bfloat16), "none": None}
    new: Any = optax.incremental_update(online, target, 0.25)
    assert new["w"].tolist() == [2.5, 2.0] and new["half"].tolist() == [0.25, 0.25]
    types = [leaf.dtype for leaf in jax.tree.leaves(new)]
    assert types == [leaf.dtype for leaf in jax.tree.leaves(online)]
    assert new["none"] is None and not any(leaf.weak_type for leaf in jax.tree.leaves(new))


def test_scale_gradient():
    """The value as it is, the slope scaled; of a pytree, and of 0 and 1 too."""

    def loss(x, scale):
        y: Any = optax.scale_gradient(x, scale)
        return y["a"] ** 2 + jnp.sum(3.0 * y["b"])

    x = {"a": jnp.array(2.0), "b": jnp.ones(3)}
    for scale in (0.0, 0.5, 1.0):
        value, slope = jax.value_and_grad(loss)(x, scale)
        assert float(value) == 13.0
        assert float(slope["a"]) == 4.0 * scale and slope["b"].tolist() == [3.0 * scale] * 3


def test_every_part_of_an_optimiser_has_its_learning_rate():
    rated = optax.inject_hyperparams(optax.sgd)
    optimiser = optax.multi_transform(
        {"policy": rated(0.5), "critic": rated(0.25), "rest": optax.sgd(0.125)},
        {"a": "policy", "b": "critic", "c": "rest"},
    )
    params = {name: jnp.ones(()) for name in "abc"}
    with jax.numpy_dtype_promotion("standard"):
        state = optimiser.init(params)
    after, _, metrics = gradient_step(
        lambda p: (p["a"] + p["b"] + p["c"], {}), optimiser, params, state
    )
    assert {name: float(x) for name, x in metrics.items() if "rate" in name} == {
        "learning_rate_policy": 0.5,
        "learning_rate_critic": 0.25,
    }
    assert [float(after[name]) for name in "abc"] == [0.5, 0.75, 0.875]
