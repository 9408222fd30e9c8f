"""Two-hot values: exact on the support, unbiased between atoms, and MuZero's scaling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zero_nets


def _hyperbolic(x, epsilon=1e-3):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def _two_hot(x, atoms):
    """A plain loop over scalars, in float64."""
    rows = np.zeros((len(x), len(atoms)))
    for row, value in zip(rows, np.clip(x, atoms[0], atoms[-1]), strict=True):
        upper = min(np.searchsorted(atoms, value, side="right"), len(atoms) - 1)
        share = (value - atoms[upper - 1]) / (atoms[upper] - atoms[upper - 1])
        row[upper - 1], row[upper] = 1 - share, share
    return rows


SUPPORTS = {
    "muzero": zero_nets.ValueSupport(),
    "c51": zero_nets.ValueSupport(51, maximum=10.0),
    "asymmetric": zero_nets.ValueSupport(7, minimum=-0.3, maximum=2.9),
    "two atoms": zero_nets.ValueSupport(2, maximum=1.0),
}
VALUES = np.concatenate([np.linspace(-400, 400, 257), np.linspace(-3, 3, 257)]).astype(np.float32)


@pytest.mark.parametrize("name", SUPPORTS)
def test_against_a_loop(name):
    support = SUPPORTS[name]
    encode = jax.jit(jax.vmap(support.encode))
    probs = encode(VALUES)
    np.testing.assert_allclose(probs, _two_hot(VALUES, support.atoms), atol=2e-5)
    np.testing.assert_allclose(np.sum(probs, axis=1), 1, atol=1e-6)
    inside = np.clip(VALUES, support.minimum, support.maximum)
    decoded = jax.vmap(support.decode)(probs)
    np.testing.assert_allclose(decoded, inside, rtol=1e-6, atol=1e-6 * support.maximum)
    # Bitwise on the support: its atoms are whole, and so are they decoded.
    atoms = support.atoms.astype(np.float32)
    one_hot = encode(atoms)
    np.testing.assert_array_equal(one_hot, np.eye(support.num_atoms))
    np.testing.assert_array_equal(jax.vmap(support.decode)(one_hot), atoms)


def test_the_default_is_muzeros():
    np.testing.assert_array_equal(zero_nets.ValueSupport().atoms, np.arange(-300, 301))


def test_transformed():
    support = zero_nets.ValueSupport(transform=True)
    ends = np.float64(300.0)
    values = np.concatenate([-np.geomspace(1e5, 1e-6, 200), [0.0], np.geomspace(1e-6, 1e5, 200)])
    encode = jax.jit(jax.vmap(support.encode))
    probs = encode(values.astype(np.float32))
    expected = np.clip(_hyperbolic(values), -ends, ends)
    np.testing.assert_allclose(np.asarray(probs, np.float64) @ support.atoms, expected, rtol=2e-6)
    # Beyond h^-1(300), 58 706 or so, values are clipped to it.
    decoded = np.asarray(jax.vmap(support.decode)(probs), np.float64)
    inside = np.abs(_hyperbolic(values)) < ends
    assert 300 < np.sum(inside) < len(values)
    np.testing.assert_allclose(decoded[inside], values[inside], rtol=5e-6)
    np.testing.assert_allclose(_hyperbolic(np.abs(decoded[~inside])), 300, rtol=1e-5)


def test_hyperbolic_pair():
    """The textbook formulas in float32 fail this: they lose the digits of small values (rounding
    sqrt(1e-6 + 1) - 1 costs 10 % of it) and their slope at 0 is epsilon."""
    x = np.concatenate([-np.geomspace(1e6, 1e-4, 100), [0.0], np.geomspace(1e-4, 1e6, 100)])
    for epsilon in (0.0, 1e-3, 1e-2):
        squashed = zero_nets.signed_hyperbolic(jnp.asarray(x, jnp.float32), epsilon)
        np.testing.assert_allclose(squashed, _hyperbolic(x, epsilon), rtol=1e-6)
        back = zero_nets.signed_parabolic(squashed, epsilon)
        np.testing.assert_allclose(back, x, rtol=1e-6)
    for function, slope in (
        (zero_nets.signed_hyperbolic, 0.501),
        (zero_nets.signed_parabolic, 1 / 0.501),
    ):
        assert jax.grad(function)(jnp.zeros(())) == pytest.approx(slope, rel=1e-6)


def test_cross_entropy():
    support = zero_nets.ValueSupport(5, maximum=2.0)
    logits = jnp.array([0.1, -1.0, 2.0, 0.5, -0.3])
    target = jnp.array(1.25)
    log_probs = np.asarray(logits) - np.log(np.sum(np.exp(np.asarray(logits))))
    loss, gradient = jax.value_and_grad(support.cross_entropy, argnums=(0, 1))(logits, target)
    assert loss == pytest.approx(-(0.75 * log_probs[3] + 0.25 * log_probs[4]), rel=1e-6)
    expected = np.exp(log_probs) - np.array([0, 0, 0, 0.75, 0.25])
    np.testing.assert_allclose(gradient[0], expected, atol=1e-6)
    assert gradient[1] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_atoms": 1, "maximum": 1.0}, "`num_atoms` is 1; it must be an integer of at least 2"),
        ({"minimum": 1e6, "maximum": 1e6 + 6}, "some atoms would be equal"),
        ({"minimum": 2.0, "maximum": 1.0}, "`minimum` is 2.0 and `maximum` 1.0"),
        ({"maximum": 0.0}, "`minimum` is -0.0 and `maximum` 0.0"),
        ({"maximum": float("inf")}, "`maximum` is .* must be a finite number"),
        ({"maximum": float("nan")}, "`maximum` is .* must be a finite number"),
    ],
)
def test_bad_supports(options, message):
    with pytest.raises(ValueError, match=message):
        zero_nets.ValueSupport(**options)


def test_bad_shapes():
    support = zero_nets.ValueSupport(5)
    with pytest.raises(ValueError, match=r"`probs` has shape \(4,\), expected \(5,\)"):
        support.decode(jnp.ones(4) / 4)
    with pytest.raises(ValueError, match=r"`logits` has shape \(6,\), expected \(5,\)"):
        support.cross_entropy(jnp.ones(6), jnp.zeros(()))


@pytest.mark.parametrize("transform", [False, True])
def test_limits_are_the_ends_of_what_is_not_clipped(transform):
    support = zero_nets.ValueSupport(21, maximum=12.0, minimum=-3.0, transform=transform)
    roundtrip = jax.jit(lambda x: support.decode(support.encode(x)))
    least, most = jax.jit(lambda: support.limits)()
    for end, outwards in ((least, -1), (most, 1)):
        assert float(roundtrip(jnp.float32(end))) == pytest.approx(float(end), rel=1e-4)
        for beyond in (jnp.float32(end) * 1.1, jnp.float32(outwards * np.inf)):
            assert float(roundtrip(beyond)) == pytest.approx(float(end), rel=1e-4)
            assert outwards * (float(beyond) - float(end)) > 0
