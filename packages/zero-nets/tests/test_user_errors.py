"""What a user gets to see, who has no type checker: every mistake is named, none goes through."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets
from zero_nets import Categorical, EpsilonGreedy


VECTOR = r"shape \(2, 3\); it must be a vector of at least one number. Use `jax.vmap`"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # Would be one distribution over all six, or two actions, or actions of no legal kind.
        (lambda: Categorical(jnp.zeros((2, 3))), f"`logits` has {VECTOR}"),
        (lambda: EpsilonGreedy(jnp.zeros((2, 3)), 0.1), f"`qvalues` has {VECTOR}"),
        (lambda: Categorical(jnp.zeros(0)), r"`logits` has shape \(0,\)"),
        (
            lambda: Categorical(jnp.zeros(3)).log_prob(jnp.zeros(2, jnp.int32)),
            r"`action` has shape \(2,\), expected \(\). Use `jax.vmap`",
        ),
        (
            lambda: zero_nets.ValueSupport(11).encode(jnp.zeros(3)),
            r"`value` has shape \(3,\), expected \(\). Use `jax.vmap`",
        ),
        (
            lambda: zero_nets.TanhGaussian(jnp.zeros(3), jnp.ones(3), np.zeros(2), 1.0),
            r"`minimum` has shape \(2,\); .* an action of shape \(3,\)",
        ),
    ],
)
def test_a_batch_is_refused_where_it_would_mean_something_else(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()


KEYS, BOARD = iter([jr.key(i) for i in range(5)]), np.ones((3, 3, 2))
#: Each with what it takes.
CALLED = {
    "Conv": (zero_nets.Conv(2, 2, key=next(KEYS)), BOARD),
    "ChannelNorm": (zero_nets.ChannelNorm(2), BOARD),
    "ResidualBlock": (zero_nets.ResidualBlock(2, "layer", key=next(KEYS)), BOARD),
    "NoisyLinear": (zero_nets.NoisyLinear(3, 2, key=next(KEYS)), np.ones(3)),
    "MLP": (zero_nets.MLP(3, (2,), key=next(KEYS)), np.ones(3)),
    "Categorical": (Categorical, np.ones(3)),
    "Gaussian": (lambda x: zero_nets.Gaussian(x, x), np.ones(3)),
    "normalise_min_max": (zero_nets.normalise_min_max, np.ones(3)),
    "signed_hyperbolic": (zero_nets.signed_hyperbolic, np.ones(3)),
    "signed_parabolic": (zero_nets.signed_parabolic, np.ones(3)),
}


@pytest.mark.parametrize("name", CALLED)
def test_what_is_no_array_of_real_numbers_is_refused(unhooked, name):
    call, right = CALLED[name]
    with jax.numpy_dtype_promotion("standard"):
        for taken in (right, right.astype(int), jnp.asarray(right, jnp.float32)):
            jax.eval_shape(lambda: call(taken))  # noqa: B023
        for wrong in (None, "abc", {"a": 1}, [[1.0], [1.0, 2.0]], right * 1j, right.astype(object)):
            with pytest.raises(
                ValueError, match="must be an array|must be a vector|all of them real"
            ):
                call(wrong)
        with pytest.raises(ValueError, match="all of them real"):
            call(jr.split(jr.key(0), right.shape))
        if name[0].isupper() and name not in ("Categorical", "Gaussian"):
            for shape in ((), (7,), (5, *right.shape), (0,) * right.ndim):
                with pytest.raises(ValueError, match="`jax.vmap`"):
                    call(jnp.ones(shape))


def test_float64_numpy_and_python_numbers_need_no_care(unhooked):
    """What gyms give. JAX warns, which is an error here, of every float64 that it is asked for."""
    observation = {"position": np.arange(3.0), "speed": np.float64(2.0)}
    statistics = zero_nets.RunningStatistics.init(observation)
    batch = {"position": np.arange(6.0).reshape(2, 3), "speed": np.array([1.0, 3.0])}
    statistics = statistics.update(batch)
    np.testing.assert_allclose(statistics.mean["position"], [1.5, 2.5, 3.5])
    normalised = statistics.normalise(observation)
    np.testing.assert_allclose(normalised["speed"], 0.0, atol=1e-6)
    assert normalised["position"].dtype == jnp.float32
    head = zero_nets.TanhGaussianHead(2, 1, minimum=np.float64(-2), maximum=[3], key=jr.key(0))
    assert (head.minimum, head.maximum) == ((-2.0,), (3.0,))
    values: Any = np.arange(3.0)
    assert EpsilonGreedy(values, 0.1).mode() == 2
    assert zero_nets.normalise_min_max(values)[2] == 1


def test_every_leaf_of_a_distribution_is_an_array_of_one_type():
    """So that it can be a carry, and compiles once whether it was made under jit or not."""
    traces = []

    @jax.jit
    def mode(policy):
        traces.append(policy)
        return policy.mode()

    qvalues = jnp.array([0.0, 2.0, 1.0])
    eager = EpsilonGreedy(qvalues, 0.1)
    for policy in (eager, jax.jit(EpsilonGreedy)(qvalues, 0.1), EpsilonGreedy(qvalues, 1)):
        assert mode(policy) == 1
        assert [leaf.dtype for leaf in jax.tree.leaves(policy)] == [jnp.float32] * 2
    assert len(traces) == 1


def test_parameters_stay_float32_in_double_precision(float64):
    shapes = jax.eval_shape(
        lambda: zero_nets.AlphaZeroNet((4, 4, 2), 17, channels=4, blocks=1, key=jr.key(0))
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}
