"""Half precision, integers and numbers far from 0: losses and returns are those of double
precision."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from zero_train import losses, returns, update_target
from zero_train._arrays import taken

from .policies import Gaussian


@pytest.fixture(autouse=True, scope="module")
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Whole numbers, which every dtype holds exactly.
ROWS = np.stack([1 + np.arange(600) % 3, 1 + np.arange(600) % 2, np.arange(600) % 5])
OPTIONS = {
    "epsilon": 0.2,
    "epsilon_policy": 0.1,
    "epsilon_mean": 0.1,
    "epsilon_stddev": 0.1,
    "lambda_": 0.9,
    "beta": 0.5,
    "n": 300,
}
DUALS = ("temperature", "alpha", "alpha_mean", "alpha_stddev", "dual")
#: Arrays of a meaning of their own; all others are any numbers.
SPECIAL = {
    "discount": lambda x: x[1] - x[1] + 1,
    "log_ratio": lambda x: x[0] - x[0],
    "policy": lambda x: jnp.stack([x[1], x[1]], axis=1) / 2,
    "probs": lambda x: x[1] / 1024,
    "fractions": lambda x: (x[2] + 1) / 8,
    "atoms": lambda x: jnp.arange(-300.0, 300.0),
    "truncated": lambda x: x[0] < 0,
    "last": lambda x: x[0] < 0,
}
FUNCTIONS = {
    name: function
    for module in (losses, returns)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and not name.startswith("_")
}


def _argument(function, name, annotation, x):
    """An argument of the shape of the annotation, made of the rows."""
    if name in DUALS and "Dual" in str(annotation):
        return losses.Dual.from_value(1.0)
    if name in OPTIONS:
        return OPTIONS[name]
    if function in (losses.mpo_loss, losses.mpo_decoupled_loss):
        x = taken("x", x)  # as the policies of zero-nets are
        policies = {"policy": (x[0, :2], x[1, :2]), "target": (x[1, :2], x[0, :2])}
        if name in policies:
            return Gaussian(*policies[name])
        if name == "actions":
            return jnp.stack([x[0], x[1]], axis=1)
    axes = next((y.dim_str.split() for y in [annotation] if hasattr(y, "dim_str")), None)
    axes = ["rows"] if axes is None else axes
    if name == "action":
        return jnp.zeros([600] * len(axes), jnp.int32)
    found = SPECIAL[name](x) if name in SPECIAL else x[sum(map(ord, name)) % 3]
    if axes and axes[0] == "actions" and len(axes) == 2:
        return jnp.stack([found[:6], found[6:12]])
    if len(axes) == 2 and found.ndim == 1:
        return jnp.stack([found, found[::-1]], axis=1)
    return found if axes else found[1]


@jax.jit
def _numbers(x):
    found = {}
    for name, function in FUNCTIONS.items():
        parameters = inspect.signature(function).parameters
        arguments: dict[str, Any] = {
            key: _argument(function, key, parameter.annotation, x)
            for key, parameter in parameters.items()
            if parameter.default is parameter.empty
        }
        if "quantiles" in arguments and arguments["quantiles"].ndim == 2:
            arguments["fractions"] = arguments["fractions"][:6]
        if "atoms" in arguments and "logits" in arguments and arguments["logits"].ndim == 2:
            arguments["atoms"] = arguments["atoms"][300:306]
        if "selector" in arguments and name != "double_q_learning_loss":
            arguments["selector"] = arguments["selector"][:2]
        found[name] = function(**arguments)
    return found


@pytest.fixture(scope="module")
def expected():
    jax.config.update("jax_enable_x64", True)
    with jax.numpy_dtype_promotion("standard"):
        found = jax.device_get(_numbers(jnp.asarray(ROWS, jnp.float64)))
    jax.config.update("jax_enable_x64", False)
    return found


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32])
def test_every_loss_and_every_return(dtype, expected):
    """bfloat16 has 8 bits: it adds 1 to 256 in vain, so a sum of 600 rewards stops there."""
    assert len(expected) > 25
    with jax.numpy_dtype_promotion("standard"):
        found = jax.device_get(_numbers(jnp.asarray(ROWS, dtype)))
    for name, wanted in expected.items():
        for got, x in zip(*map(jax.tree.leaves, (found[name], wanted)), strict=True):
            assert got.dtype == np.float32 and np.isfinite(x).all(), name
            scale = 1e-5 * np.abs(x).max()
            np.testing.assert_allclose(got, x, 2e-5, scale + 2e-5, err_msg=f"{name} of {dtype}")


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.int32])
def test_means_of_more_rows_than_half_precision_counts(dtype):
    ones = jnp.ones(100_000, dtype)
    assert losses.masked_mean(ones, ones) == 1


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, -1e6, 1e7])
def test_advantages_far_from_0(offset):
    """A shift changes nothing, and equal numbers become 0."""
    weights = jnp.ones(600)
    equal = jnp.full(600, 0.1 + offset, jnp.float32)
    np.testing.assert_array_equal(losses.standardise(equal, weights), 0)
    standard = losses.standardise(jnp.asarray(ROWS[2] + offset, jnp.float32), weights)
    np.testing.assert_allclose(standard, (ROWS[2] - 2) / np.sqrt(2), rtol=1e-5, atol=1e-6)
    # Values are only compared with each other.
    dual = losses.Dual.from_value(1.0)
    values = jnp.asarray(ROWS[2, :5] + offset, jnp.float32)
    improved = losses.nonparametric_policy(values, dual)
    log_z = np.log(np.exp(ROWS[2, :5]).sum())
    np.testing.assert_allclose(improved, ROWS[2, :5] - log_z, rtol=1e-5)


ACTIONS = [name for name, f in FUNCTIONS.items() if "action" in inspect.signature(f).parameters]


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("action", [-1, 3, 7])
def test_an_action_that_does_not_exist_is_nan(name, action):
    """JAX takes the nearest one, or counts from the end."""
    function, x = FUNCTIONS[name], jnp.arange(1.0, 4.0)
    shapes = {"qvalues": 1, "target_qvalues": 1, "next_qvalues": 1, "selector": 1}
    wide = {"logits": 2, "next_logits": 2, "quantiles": 2, "next_quantiles": 2, "policy": 2}
    given = {}
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            continue
        rows = name.endswith("returns")
        ndim = 2 if key in wide or (key == "qvalues" and rows) else shapes.get(key, int(rows))
        if key in ("atoms", "fractions"):
            ndim = 1
        given[key] = jnp.broadcast_to(x / 4, [3] * ndim) if ndim else jnp.float32(0.5)
    given["action"] = jnp.full(given["reward"].shape, action, jnp.int32)
    if "last" in given:
        given["last"] = jnp.zeros(3, bool)
    options = {"lambda_": 0.5} if "lambda_" in inspect.signature(function).parameters else {}
    assert np.isnan(function(**given | options)).any()
    # A row that does not count may have any action.
    learned = next(key for key in ("qvalues", "logits", "quantiles") if key in given)
    if not options:
        loss = lambda y: losses.masked_mean(function(**given | {learned: y}), jnp.float32(0))
        assert np.isfinite(jax.grad(loss)(given[learned])).all()


@pytest.mark.parametrize("rate", [0.5, np.float64(0.5), np.float32(0.5), jnp.float32(0.5)])
def test_a_target_keeps_its_dtypes(rate):
    few, many = jnp.zeros(2, jnp.bfloat16), jnp.zeros(2)
    moved = update_target((few, many), (few + 1, many + 1), rate)
    assert [x.dtype for x in moved] == [jnp.bfloat16, jnp.float32]
    assert all((x == 0.5).all() for x in moved)


def test_numbers_of_numpy_do_not_widen_results():
    half = np.float64(0.5)
    jax.config.update("jax_enable_x64", True)
    try:
        rows = jnp.ones(4, jnp.float32)
        found = jax.eval_shape(
            lambda x: (
                returns.lambda_returns(x, x, x, x < 0, lambda_=half),
                returns.truncated_gae(x, x, x, x < 0, lambda_=half)[0],
                losses.ppo_clip_loss(x[0], x[0], x[0], epsilon=half),
            ),
            rows,
        )
    finally:
        jax.config.update("jax_enable_x64", False)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(found))
