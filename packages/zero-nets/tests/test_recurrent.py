"""Recurrent networks: steps against NumPy, sequences against single steps, and resets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


TIME, IN, HIDDEN = 5, 3, 4
CELLS = (eqx.nn.LSTMCell, eqx.nn.GRUCell)
names = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)


def lstm(cell, x: np.ndarray, carry):
    h, c = carry
    total = nets.linear_of(cell.weight_ih, x) + nets.linear_of(cell.weight_hh, h)
    i, f, g, o = np.split(total + np.asarray(cell.bias), 4)
    c = nets.sigmoid(f) * c + nets.sigmoid(i) * np.tanh(g)
    h = nets.sigmoid(o) * np.tanh(c)
    return h, (h, c)


def test_layers_read_the_one_below():
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, layers=2)
    carry = [(np.zeros(HIDDEN), np.zeros(HIDDEN)) for _ in range(2)]
    state = rnn.init()
    for step in range(3):
        x = y = nets.normal(IN, seed=step)
        for i, cell in enumerate(rnn.cells):
            y, carry[i] = lstm(cell, y, carry[i])
        result, state = rnn(jnp.asarray(x), state)
        np.testing.assert_allclose(result, y, rtol=1e-4, atol=1e-5)
    for found, expected in zip(jax.tree.leaves(state), jax.tree.leaves(tuple(carry)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@names
def test_a_sequence_is_its_steps_and_a_reset_forgets(cell):
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, layers=2, cell=cell)
    pair = 2 if cell is eqx.nn.LSTMCell else 1
    assert rnn.carry_size == 2 * HIDDEN * pair
    xs = jnp.asarray(nets.normal(6, IN))
    resets = jnp.array([False, False, False, True, False, False])
    old = jax.tree.map(lambda leaf: leaf + 0.7, rnn.init())
    scan = jax.jit(lambda *args: rnn.scan(*args), compiler_options=nets.QUICK)
    ys, carry = scan(xs, resets, old)
    # As single steps ...
    step = jax.jit(lambda *args: rnn(*args), compiler_options=nets.QUICK)
    state, singles = old, []
    for t in range(6):
        y, state = step(xs[t], state, resets[t])
        singles.append(y)
    np.testing.assert_allclose(ys, jnp.stack(singles), atol=1e-6)
    # ... and as two sequences, the second from zeros: its first step knows nothing of the first.
    free = jnp.zeros(3, bool)
    before, between = scan(xs[:3], free, old)
    after, last = scan(xs[3:], free, rnn.init())
    np.testing.assert_allclose(ys, jnp.concatenate([before, after]), atol=1e-6)
    for found, expected in zip(jax.tree.leaves(carry), jax.tree.leaves(last), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # Without the reset it would know.
    kept, _ = scan(xs[3:], free, between)
    assert jnp.abs(kept - after).max() > 1e-3


def test_no_gradient_crosses_a_reset():
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, cell=eqx.nn.GRUCell)
    xs = jnp.asarray(nets.normal(TIME, IN))
    resets = jnp.array([False, False, True, False, False])

    def late(xs, carry):
        ys, _ = rnn.scan(xs, resets, carry)
        return jnp.sum(ys[2:] ** 2)

    for_xs, for_carry = jax.jit(jax.grad(late, (0, 1)))(xs, rnn.init())
    np.testing.assert_array_equal(for_xs[:2], 0)
    np.testing.assert_array_equal(for_carry[0], 0)
    assert jnp.abs(for_xs[2:]).min() > 0


@pytest.fixture(scope="module")
def actor_critic():
    """A torso, an RNN, another torso, and two heads."""
    torso = nets.random(zero_nets.MLP, 6, (IN,))
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, cell=eqx.nn.GRUCell)
    heads = zero_nets.ActorCritic(
        nets.random(zero_nets.CategoricalHead, 5, 3), nets.random(zero_nets.LinearHead, 5)
    )
    post = nets.random(zero_nets.MLP, HIDDEN, (5,))
    return zero_nets.Recurrent(torso, rnn, zero_nets.Chain(post, heads))


def test_a_batch_of_sequences_is_a_loop_of_steps(actor_critic):
    net = actor_critic
    observations = nets.normal(2, TIME, 6)
    resets = np.array([[False, True, False, False, True], [True, False, False, True, False]])
    carry = jax.tree.map(lambda leaf: jnp.tile(leaf + 0.3, (2, 1)), net.init())
    (policy, value), after = jax.vmap(net.scan)(observations, resets, carry)
    assert policy.logits.shape == (2, TIME, 3) and value.shape == (2, TIME)
    for row in range(2):
        h = np.asarray(carry[0][row])
        for t in range(TIME):
            h = np.zeros(HIDDEN) if resets[row, t] else h
            x = nets.relu(nets.linear(net.torso.layers[0], observations[row, t]))
            y = h = nets.gru(net.rnn.cells[0], x, h)
            post, heads = net.head.layers
            y = nets.relu(nets.linear(post.layers[0], y))
            for found, expected in (
                (policy.logits[row, t], nets.linear(heads.policy.linear, y)),
                (value[row, t], nets.linear(heads.value.linear, y)[0]),
            ):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(after[0][row], h, rtol=1e-4, atol=1e-5)
    # Acting is one such step.
    (first, _), stepped = net(jnp.asarray(observations[0, 0]), net.init(), jnp.array(True))
    (again, _), _ = net(jnp.asarray(observations[0, 0]), net.init())
    np.testing.assert_allclose(first.logits, again.logits)
    assert jnp.abs(first.logits - policy.logits[0, 0]).max() > 1e-3
    assert jax.tree.structure(stepped) == jax.tree.structure(net.init())


def test_one_noise_for_a_whole_sequence():
    torso = nets.random(zero_nets.MLP, 6, (IN,), noise=0.5)
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, cell=eqx.nn.GRUCell)
    net = zero_nets.Recurrent(torso, rnn, eqx.nn.Identity())
    same = jnp.tile(jnp.asarray(nets.normal(6)), (TIME, 1))
    always = jnp.ones(TIME, bool)
    silent, _ = net.scan(same, always, net.init())
    noisy, _ = net.scan(same, always, net.init(), key=jr.key(0))
    np.testing.assert_allclose(noisy, jnp.tile(noisy[0], (TIME, 1)), atol=1e-6)
    assert jnp.abs(noisy - silent).max() > 1e-3


@names
def test_half_precision_is_inside_only(cell):
    wide = nets.random(zero_nets.RNN, IN, HIDDEN, cell=cell)
    half = nets.random(zero_nets.RNN, IN, HIDDEN, cell=cell, dtype=jnp.bfloat16)
    xs, resets = jnp.asarray(nets.normal(TIME, IN)), jnp.zeros(TIME, bool)

    def results(rnn):
        return rnn.scan(xs, resets, rnn.init())

    def loss(rnn):
        return jnp.sum(results(rnn)[0])

    shapes = jax.eval_shape(results, half), jax.eval_shape(jax.grad(loss), half)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}
    assert "bf16" in str(jax.make_jaxpr(results)(half))
    error = jnp.abs(results(half)[0] - results(wide)[0]).max()
    assert 1e-5 < error < 0.05


def test_refuses_what_does_not_fit():
    rnn = nets.random(zero_nets.RNN, IN, HIDDEN, cell=eqx.nn.GRUCell)
    with pytest.raises(ValueError, match=r"\(2, 3\).*expected \(3,\).*vmap"):
        rnn(jnp.zeros((2, IN)), rnn.init())
    for args, kwargs, message in (
        ((0, 4), {}, "`in_size` is 0"),
        ((3, 0), {}, "`hidden_size` is 0"),
        ((3, 4), {"layers": 0}, "`layers` is 0"),
        ((3, 4), {"dtype": jnp.int32}, "`dtype` is int32"),
    ):
        with pytest.raises(ValueError, match=message):
            nets.random(zero_nets.RNN, *args, **kwargs)
