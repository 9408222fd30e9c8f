"""The dual variable's two parametrisations, its constraint, and that it holds it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from zero_train.losses import Dual, kl_penalty

from .policies import descend, Gaussian


@pytest.mark.parametrize("rho", (-18.0, -0.4328, 0.0, 3.0, 10.0, 500.0))
def test_from_rho(rho):
    dual = Dual(rho)
    assert float(dual.rho) == np.float32(rho)
    assert float(dual.value) == pytest.approx(np.logaddexp(0.0, rho) + 1e-8, rel=1e-6)


@pytest.mark.parametrize("value", (2.6e-8, 1e-4, 0.5, 1.0, 10.0, 500.0, 1e30))
def test_from_value_is_the_value(value):
    """The inverse of the softplus, where `log(exp(x) - 1)` would be lost to rounding or infinite
    as well. (rho is rounded to float32, which for a small value is a relative error of 18 eps.)"""
    assert float(Dual.from_value(value).value) == pytest.approx(value, rel=3e-6)


def test_reference_values():
    """What the published initial values are in the other parametrisation."""
    assert float(Dual(3.0).value) == pytest.approx(3.0486, abs=1e-4)
    assert float(Dual(10.0).value) == pytest.approx(10.00005, abs=1e-5)
    assert float(Dual.from_value(0.5).rho) == pytest.approx(-0.4328, abs=1e-4)


def test_rho_is_an_array_of_the_given_shape():
    dual = Dual.from_value(0.5, (4,))
    assert dual.rho.shape == dual.value.shape == (4,)
    assert [leaf.weak_type for leaf in jax.tree.leaves((Dual(3.0), dual))] == [False, False]


def test_clipped():
    dual = jax.tree.map(lambda x: jnp.array([-40.0, -18.0, -17.0, 5.0]), Dual(0.0))
    assert dual.clipped().rho.tolist() == [-18.0, -18.0, -17.0, 5.0]
    assert float(jax.grad(lambda x: x.value)(Dual(-18.0)).rho) > 1e-8


@pytest.mark.parametrize("rho", (-18.1, float("nan"), float("inf")))
def test_bad_rho(rho):
    with pytest.raises(ValueError, match=rf"Dual\(rho={rho}\)"):
        Dual(rho)


@pytest.mark.parametrize("value", (-1.0, 0.0, 1e-8, float("nan"), float("inf")))
def test_bad_value(value):
    with pytest.raises(ValueError, match=rf"from_value\({value}\).*at least 2\.52e-08"):
        Dual.from_value(value)


@pytest.mark.parametrize("epsilon", (0.0, -0.1, float("nan")))
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match=rf"epsilon={epsilon}"):
        kl_penalty(jnp.ones(3), Dual(1.0), epsilon)


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize(("dims", "shape"), (((3,), (2,)), ((3,), (1,)), ((), (1,))))
def test_bad_shape(dims, shape):
    with pytest.raises(ValueError, match=r"kl\[.*\], dual\[.*\]: the dual must be"):
        kl_penalty(jnp.ones(dims), Dual(1.0, shape), 0.1)


@pytest.mark.parametrize("per_dimension", (False, True))
def test_penalty_is_rlax(per_dimension):
    """Values, and where the gradient goes: of the penalty to the KL alone, of the dual loss to the
    multiplier alone."""
    kl = jnp.array([0.02, 0.3, 0.0])
    dual = Dual(0.7, (3,)) if per_dimension else Dual(0.7)

    def ours(kl, dual):
        return kl_penalty(kl, dual, 0.1)

    def theirs(kl, dual):
        constraint = rlax.LagrangePenalty(dual.value, jnp.float32(0.1), per_dimension)
        kl = kl if per_dimension else jnp.sum(kl)
        return rlax.compute_parametric_kl_penalty_and_dual_loss([(kl, constraint)], lambda x: x)

    assert np.allclose(ours(kl, dual), theirs(kl, dual), rtol=1e-6)
    for x, y in zip(
        jax.tree.leaves(jax.jacrev(ours, (0, 1))(kl, dual)),
        jax.tree.leaves(jax.jacrev(theirs, (0, 1))(kl, dual)),
        strict=True,
    ):
        assert np.allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("per_dimension", (False, True))
def test_dual_holds_the_constraint(per_dimension):
    """A Gaussian mean is drawn away by slopes of 1 and 3. Within `KL = |mean|^2 / 2 <= epsilon`
    it can go `sqrt(2 epsilon)` along the slope; with a dual per dimension, as far in each. From
    either side: one multiplier starts far too small, the other far too large."""
    slopes, epsilon = jnp.array([1.0, 3.0]), 0.02
    old = Gaussian(jnp.zeros(2), jnp.ones(2))
    dual = Dual(-1.0, (2,)) if per_dimension else Dual(20.0)

    def loss(variables):
        mean, dual = variables
        penalty, dual_loss = kl_penalty(old.kl(Gaussian(mean, old.scale)), dual, epsilon)
        return -jnp.sum(slopes * mean) + penalty + dual_loss

    mean, dual = descend(loss, (jnp.zeros(2), dual), lambda x: (x[0], x[1].clipped()))
    if per_dimension:
        assert np.allclose(mean**2 / 2, epsilon, rtol=0.01)
        assert np.allclose(dual.value, slopes / np.sqrt(2 * epsilon), rtol=0.01)
    else:
        assert float(jnp.sum(mean**2) / 2) == pytest.approx(epsilon, rel=0.01)
        assert np.allclose(mean / jnp.linalg.norm(mean), slopes / np.sqrt(10), rtol=0.01)
