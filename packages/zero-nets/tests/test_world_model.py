"""The world model: its scaling at the edges, a step by hand, and boards."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import zero_nets

from . import nets


ACTIONS = 5


def scaled(x: np.ndarray) -> np.ndarray:
    least, greatest = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return (x - least) / (greatest - least)


def vector_model(**changes) -> Any:
    size = 4 + ACTIONS
    parts = dict(
        encoder=nets.random(zero_nets.LinearHead, 6, (4,)),
        dynamics=zero_nets.Chain(
            zero_nets.ConcatenateOneHot(ACTIONS), nets.random(zero_nets.LinearHead, size, (4,))
        ),
        reward=nets.random(zero_nets.LinearHead, 4),
        prediction=zero_nets.ActorCritic(
            nets.random(zero_nets.LinearHead, 4, (ACTIONS,)), nets.random(zero_nets.LinearHead, 4)
        ),
    )
    return zero_nets.WorldModel(**{**parts, **changes})


def test_scaling_fills_the_range():
    x: Any = 5 + 3 * nets.normal(7, 9)
    result = jax.vmap(zero_nets.normalise_min_max)(x)
    np.testing.assert_allclose(result, scaled(x), rtol=1e-5, atol=1e-6)


def test_scaling_a_constant_vector_is_finite():
    def weighted(x):
        return zero_nets.normalise_min_max(x) @ jnp.arange(4.0)

    value, gradient = jax.value_and_grad(weighted)(jnp.full((4,), 3.0))
    np.testing.assert_allclose(value, 0)
    assert np.isfinite(gradient).all()
    # Below `epsilon` differences are not blown up to the whole range.
    close = zero_nets.normalise_min_max(jnp.array([0.0, 0.5]), epsilon=2.0)
    np.testing.assert_allclose(close, [0, 0.25])


def test_a_step_is_what_numpy_says():
    model = vector_model()
    observations = nets.normal(3, 6)
    actions = np.array([4, 0, 2], np.int32)
    hidden = jax.vmap(model.represent)(observations)
    expected = scaled(nets.linear(model.encoder.linear, observations))
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-5)
    after, reward = jax.vmap(model.step)(hidden, actions)
    joined = np.concatenate([expected, np.eye(ACTIONS)[actions]], axis=1)
    expected = scaled(expected + nets.linear(model.dynamics.layers[1].linear, joined))
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    expected_reward = nets.linear(model.reward.linear, expected)[:, 0]
    np.testing.assert_allclose(reward, expected_reward, rtol=1e-4, atol=1e-4)
    logits, value = jax.vmap(model.predict)(after)
    wanted = nets.linear(model.prediction.policy.linear, expected)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    wanted = nets.linear(model.prediction.value.linear, expected)[:, 0]
    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("board", [False, True])
def test_an_unrolled_model_stays_in_range_and_learns_through_every_step(board):
    """Both ready-made models; every action that was played taught its own weights, no other."""
    shape = (3, 4, 2) if board else (6,)
    kinds = zero_nets.WorldModel
    build = lambda key: (
        kinds.convolutional(shape, ACTIONS, channels=4, value_shape=(7,), key=key)
        if board
        else kinds.perceptron(np.zeros(shape), ACTIONS, width=8, value_shape=(7,), key=key)
    )
    # The last layers of residual blocks are 0 at first, so that nothing would reach the first.
    model = jax.tree.map(
        lambda x: x + 0.1 * nets.normal(*x.shape) if eqx.is_array(x) else x, build(jr.key(0))
    )
    actions = jnp.array([1, 3, 0, 2], jnp.int32)

    def unroll(model, observation):
        hidden = model.represent(observation)
        _, (hiddens, rewards) = jax.lax.scan(
            lambda hidden, action: (lambda step: (step[0], step))(model.step(hidden, action)),
            hidden,
            actions,
        )
        logits, value = model.predict(hiddens[-1])
        assert logits.shape == (ACTIONS,) and value.shape == rewards.shape[1:] == (7,)
        return rewards[-1, 0] + logits[0] + value[0], hiddens

    @eqx.filter_jit
    def gradients(model, observation):
        arrays, rest = eqx.partition(model, eqx.is_array)
        loss = lambda arrays, x: unroll(eqx.combine(arrays, rest), x)
        return jax.value_and_grad(loss, (0, 1), has_aux=True)(arrays, observation)

    (_, hiddens), (for_model, for_observation) = gradients(model, jnp.asarray(nets.normal(*shape)))
    flat = np.asarray(hiddens).reshape(4, -1)
    np.testing.assert_allclose(flat.min(1), 0, atol=1e-6)
    np.testing.assert_allclose(flat.max(1), 1, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(for_model))
    assert jnp.abs(for_observation).max() > 0
    if board:
        used = jnp.abs(for_model.dynamics.planes).max(axis=(1, 2)) > 0
    else:
        first = for_model.dynamics.layers[1].layers[0].weight
        used = jnp.abs(first[:, 8:]).max(axis=0) > 0
    np.testing.assert_array_equal(used, [True, True, True, True, False])


def test_a_code_follows_an_action_as_numpy_says():
    """Afterstates and hidden states are scaled; a code is a vector, here no one-hot one."""
    codes = 3
    taking = lambda first, size: zero_nets.Chain(
        first, nets.random(zero_nets.LinearHead, size, (4,))
    )
    model: Any = zero_nets.StochasticWorldModel(
        vector_model(dynamics=taking(zero_nets.Concatenate(), 4 + codes)),
        taking(zero_nets.ConcatenateOneHot(ACTIONS), 4 + ACTIONS),
        zero_nets.ActorCritic(
            nets.random(zero_nets.LinearHead, 4, (codes,)), nets.random(zero_nets.LinearHead, 4)
        ),
        zero_nets.Chain(zero_nets.Concatenate(), nets.random(zero_nets.LinearHead, 12, (codes,))),
        codes,
    )
    hidden, code = scaled(nets.normal(5, 4)), np.abs(nets.normal(5, codes))
    actions, observations = np.array([4, 0, 2, 1, 3], np.int32), nets.normal(2, 5, 6)

    def run(hidden, action, code, first, second):
        after = model.afterstate(hidden, action)
        law, worth = model.predict_afterstate(after)
        return after, law, worth, *model.resolve(after, code), model.encode(first, second)

    found = jax.vmap(run)(hidden, actions, code, *observations)
    joined = np.concatenate([hidden, np.eye(ACTIONS)[actions]], axis=1)
    after = scaled(hidden + nets.linear(model.action.layers[1].linear, joined))
    joined = np.concatenate([after, code], axis=1)
    then = scaled(after + nets.linear(model.world.dynamics.layers[1].linear, joined))
    wanted = (
        after,
        nets.linear(model.chance.policy.linear, after),
        nets.linear(model.chance.value.linear, after)[:, 0],
        then,
        nets.linear(model.world.reward.linear, then)[:, 0],
        nets.linear(model.encoder.layers[1].linear, np.concatenate(observations, axis=1)),
    )
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("board", [False, True])
def test_stochastic_models_learn_the_codes_they_were_given(board):
    """Both ready-made models: codes as planes or numbers, the gradient reaches those taken alone,
    and through a code the encoder, which tells the two observations apart."""
    shape, codes = (3, 4, 2) if board else (6,), 5
    kinds = zero_nets.StochasticWorldModel
    parts: dict[str, Any] = dict(num_codes=codes, value_shape=(7,), key=jr.key(0))
    if board:
        model = kinds.convolutional(shape, ACTIONS, channels=4, blocks=1, **parts)
    else:
        model = kinds.perceptron(np.zeros(shape), ACTIONS, width=8, **parts)
    model = jax.tree.map(lambda x: x + 0.1 * nets.normal(*x.shape) if eqx.is_array(x) else x, model)

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def gradients(model, first, second):
        scores = model.encode(first, second)
        code = scores + jax.lax.stop_gradient(jax.nn.one_hot(2, codes) - scores)
        after = model.afterstate(model.represent(first), jnp.int32(3))
        hidden, reward = model.resolve(after, code)
        law, worth = model.predict_afterstate(after)
        logits, value = model.predict(hidden)
        assert law.shape == (codes,) and worth.shape == reward.shape == value.shape == (7,)
        return law[0] + worth[0] + reward[0] + logits[0] + value[0], scores

    first, second = jnp.asarray(nets.normal(2, *shape))
    gradient, scores = gradients(model, first, second)
    _, turned = gradients(model, second, first)
    assert jnp.abs(scores - turned).max() > 0.01
    if board:
        used = jnp.abs(gradient.world.dynamics.planes).max(axis=(1, 2)) > 0
        acted = jnp.abs(gradient.action.planes).max(axis=(1, 2)) > 0
    else:
        weight = lambda chain: jnp.abs(chain.layers[1].layers[0].weight[:, 8:]).max(axis=0) > 0
        used, acted = weight(gradient.world.dynamics), weight(gradient.action)
    np.testing.assert_array_equal(used, np.arange(codes) == 2)
    np.testing.assert_array_equal(acted, np.arange(ACTIONS) == 3)
    assert all(jnp.abs(x).max() > 0 for x in jax.tree.leaves(gradient.encoder))


def test_parts_may_compute_in_half_precision():
    model = vector_model()
    half = vector_model(encoder=zero_nets.MixedPrecision(model.encoder, jnp.bfloat16))

    def run(model):
        return model.step(model.represent(jnp.ones(6)), jnp.int32(1), key=jr.key(0))

    shapes = jax.eval_shape(run, half)
    assert {leaf.dtype for leaf in shapes} == {jnp.dtype(jnp.float32)}
    assert jnp.abs(run(half)[0] - run(model)[0]).max() < 0.05


def test_refuses_what_does_not_fit():
    model = vector_model(
        dynamics=zero_nets.Chain(
            zero_nets.ConcatenateOneHot(ACTIONS), nets.random(zero_nets.LinearHead, 9, (3,))
        )
    )
    with pytest.raises(ValueError, match=r"result has shape \(3,\); it must be \(4,\)"):
        model.step(jnp.zeros(4), jnp.int32(0))
    with pytest.raises(ValueError, match="`num_codes`"):
        zero_nets.StochasticWorldModel.perceptron(np.zeros(6), 9, num_codes=0, key=jr.key(0))
    with pytest.raises(ValueError, match="`blocks`"):
        zero_nets.WorldModel.convolutional((3, 3, 2), 9, blocks=0, key=jr.key(0))


@pytest.mark.parametrize("board", [False, True])
@pytest.mark.parametrize("kind", ["continuous", "factored"])
def test_actions_of_any_kind_move_the_hidden_state(kind, board):
    """The policy is a distribution over such actions, and every part of one counts."""
    kinds, seen = zero_nets.WorldModel, jnp.ones((3, 4, 2) if board else 3)
    build: Any = ft.partial(kinds.perceptron, seen)
    if board:
        build = ft.partial(kinds.convolutional, seen.shape, channels=4, blocks=1)
    build = ft.partial(build, width=8, key=jr.key(0))
    if kind == "continuous":
        model = build(action_size=2)
        first, others = [0.5, -0.5], ([0.6, -0.5], [0.5, -0.4])
        policy, dtype = zero_nets.TanhGaussian, jnp.float32
    else:
        model = build(num_actions=(4, 2))
        first, others = [3, 1], ([2, 1], [3, 0])
        policy, dtype = zero_nets.MultiDiscrete, jnp.int32
        with pytest.raises(ValueError, match=r"shape \(3,\)"):
            model.step(model.represent(seen), jnp.zeros(3, dtype))
    hidden = model.represent(seen)
    after = lambda action: model.step(hidden, jnp.asarray(action, dtype))[0]
    assert all(np.abs(after(x) - after(first)).max() > 1e-4 for x in others)
    found, value = model.predict(hidden)
    assert isinstance(found, policy) and value.shape == ()
    assert found.sample(key=jax.random.key(0)).shape == (2,)


@pytest.mark.parametrize("inputs", [12, 13, 4, 5])
def test_actions_begin_as_their_cells_or_columns(inputs):
    build = zero_nets.WorldModel.convolutional
    model: Any = build((3, 4, 2), inputs, channels=4, blocks=1, key=jr.key(0))
    planes = np.asarray(model.dynamics.planes)
    if inputs >= 12:  # the last one of 13 passes
        expected = np.eye(inputs, 12).reshape(inputs, 3, 4)
    elif inputs == 4:
        expected = np.stack([np.tile(row, (3, 1)) for row in np.eye(4)])
    else:
        assert planes.shape == (5, 3, 4) and len(np.unique(planes)) == 60
        return
    np.testing.assert_array_equal(planes, expected)


def test_the_components_of_an_action_have_planes_of_their_own():
    """Those of each follow those of the one before it, and an action is their sum."""
    model: Any = zero_nets.WorldModel.convolutional(
        (3, 4, 2), (4, 2), channels=4, blocks=1, key=jr.key(0)
    )
    planes = model.dynamics.planes
    hidden = jnp.asarray(nets.normal(3, 4, 4))
    summed = planes[2] + planes[4 + 1]
    expected = model.dynamics.tower(jnp.concatenate([hidden, summed[..., None]], axis=-1))
    np.testing.assert_allclose(
        model.dynamics(hidden, jnp.array([2, 1], jnp.int32)), expected, rtol=1e-5
    )
    hot = jnp.zeros(6).at[np.array([2, 5])].set(1.0)
    np.testing.assert_allclose(model.dynamics(hidden, hot), expected, rtol=1e-4, atol=1e-5)
    half: Any = zero_nets.MixedPrecision(model.dynamics, jnp.bfloat16)
    for action in (jnp.array([2, 1], jnp.int32), hot):
        np.testing.assert_allclose(half(hidden, action), expected, atol=0.2)
    with pytest.raises(ValueError, match=r"`action` has shape \(5,\)"):
        model.dynamics(hidden, jnp.zeros(5))


@pytest.mark.parametrize("given", [{}, {"num_actions": 3, "action_size": 1}])
@pytest.mark.parametrize("board", [False, True])
def test_actions_are_of_one_kind(board, given):
    kind = zero_nets.WorldModel
    build: Any = kind.convolutional if board else kind.perceptron
    with pytest.raises(ValueError, match="give one of the two, for discrete or for continuous"):
        build((3, 4, 2) if board else jnp.zeros(3), key=jr.key(0), **given)


@pytest.mark.parametrize("kind", [zero_nets.WorldModel, zero_nets.StochasticWorldModel])
@pytest.mark.parametrize("board", [False, True])
def test_a_model_may_have_vectors_for_a_loss_of_consistency(kind, board):
    shape, sizes = (3, 3, 2), {"projection_size": 7, "width": 8, "key": jr.key(0)}
    if board:
        model = kind.convolutional(shape, 4, channels=4, blocks=1, **sizes)
    else:
        model = kind.perceptron(jax.ShapeDtypeStruct(shape, jnp.float32), 4, **sizes)

    @eqx.filter_jit
    def vectors(model, observation):
        vector = model.project(model.represent(observation))
        return vector, model.predict_projection(vector)

    vector, predicted = vectors(model, nets.normal(*shape))
    assert vector.shape == predicted.shape == (7,)
    assert not np.allclose(vector, predicted)


def test_a_projector_has_a_predictor():
    with pytest.raises(ValueError, match="predictor"):
        vector_model(projector=lambda x: x)


@pytest.mark.parametrize("board", [False, True])
def test_a_prefix_remembers_the_steps_before(board):
    """Beside the plain model; both ready-made ones have their sizes from the same arguments."""
    shape, kind = (3, 4, 2) if board else (6,), zero_nets.PrefixWorldModel
    sizes: dict[str, Any] = dict(width=8, value_shape=(7,), projection_size=5, key=jr.key(0))
    if board:
        model = kind.convolutional(shape, ACTIONS, channels=4, blocks=1, prefix_steps=3, **sizes)
    else:
        model = kind.perceptron(np.zeros(shape), ACTIONS, layers=2, prefix_steps=3, **sizes)
    # The last layers of residual blocks are 0 at first, so that nothing would reach the first.
    model = jax.tree.map(lambda x: x + 0.1 * nets.normal(*x.shape) if eqx.is_array(x) else x, model)
    plain = eqx.tree_at(lambda world: world.reward, model.world, lambda hidden, key: hidden)

    def unroll(model, observation):
        hidden, carry = model.represent(observation), model.init()
        found = []
        for action in (4, 0, 2):
            before, action = hidden, jnp.int32(action)
            hidden, prefix, carry = model.step(hidden, action, carry)
            found.append((before, action, hidden, prefix))
        return found

    @eqx.filter_jit
    @ft.partial(eqx.filter_grad, has_aux=True)
    def gradients(observation, model):
        found = unroll(model, observation)
        return found[2][3][0], found

    gradient, found = gradients(jnp.asarray(nets.normal(*shape)), model)
    assert np.abs(gradient).max() > 0 and model.prefix_steps == 3
    carry, reward = model.init(), model.world.reward
    for before, action, hidden, prefix in found:
        np.testing.assert_allclose(plain.step(before, action)[0], hidden, rtol=1e-4, atol=1e-5)
        output, carry = reward.rnn(reward.torso(hidden), carry)
        np.testing.assert_allclose(reward.head(output), prefix, rtol=1e-3, atol=1e-4)
    before, action, hidden, prefix = found[-1]
    alone = model.step(before, action, model.init())[1]
    assert prefix.shape == (7,) and np.abs(alone - prefix).max() > 1e-3
    assert model.predict(hidden)[0].shape == (ACTIONS,)
    assert model.predict_projection(model.project(hidden)).shape == (5,)


def test_a_prefix_needs_a_memory():
    with pytest.raises(ValueError, match="`reward` of LinearHead; give it a Recurrent"):
        zero_nets.PrefixWorldModel(vector_model(), 5)
    with pytest.raises(ValueError, match="`prefix_steps` is 0"):
        zero_nets.PrefixWorldModel.perceptron(np.zeros(6), 9, prefix_steps=0, key=jr.key(0))


@pytest.mark.parametrize("board", [False, True])
def test_a_model_may_have_a_memory(board):
    """The hidden state is that of the pair of an observation and of what the memory says; on a
    board each number of that is a plane."""
    shape, sizes = (3, 4, 2), {"memory_size": 5, "width": 8, "key": jr.key(0)}
    seen, said = jnp.asarray(nets.normal(6, *shape)), jnp.asarray(nets.normal(5))
    model: Any
    if board:
        model = zero_nets.WorldModel.convolutional(shape, 4, channels=4, blocks=1, **sizes)
        planes = np.broadcast_to(said, (3, 4, 5))
        encoded = model.encoder.layers[1](jnp.concatenate([seen[0], planes], axis=-1))
    else:
        model = zero_nets.WorldModel.perceptron(seen[0], 4, **sizes)
        encoded = model.encoder.layers[1](jnp.append(seen[0], said))
    signs = seen[0] > 0  # of booleans as of numbers, whatever JAX's rules of promotion
    of = eqx.filter_jit(model.represent)
    np.testing.assert_array_equal(of((signs, said)), of((signs.astype(jnp.float32), said)))
    hidden = of((seen[0], said))
    np.testing.assert_allclose(hidden, zero_nets.normalise_min_max(encoded), rtol=1e-4, atol=1e-5)
    resets, memory = jnp.arange(6) == 3, model.memory.init()
    read, after = eqx.filter_jit(model.memory.scan)(seen, resets, memory)
    for x, reset, result in zip(seen, resets, read, strict=True):
        found, memory = model.memory(x, model.memory.init() if reset else memory)
        np.testing.assert_allclose(result, found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after[0], memory[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="`memory_size` is 0"):
        zero_nets.WorldModel.perceptron(np.zeros(6), 9, memory_size=0, key=jr.key(0))


@pytest.mark.usefixtures("unhooked")
def test_numbers_of_actions_may_be_numpys():
    """Whose scalars are no `int`, and which Equinox would take for arrays."""
    few: Any = np.int64(4)
    seen, sizes = jax.ShapeDtypeStruct((3, 3, 2), jnp.float32), {"width": 8, "key": jr.key(0)}
    for kind in (zero_nets.WorldModel, zero_nets.StochasticWorldModel):
        for build in (
            lambda n, kind=kind: kind.perceptron(seen, n, **sizes),
            lambda n, kind=kind: kind.convolutional((3, 3, 2), n, channels=4, **sizes),
        ):
            shapes = lambda n, build=build: eqx.filter_eval_shape(lambda: build(n))
            made, same = shapes(few), shapes(4)
            assert jax.tree.structure(made) == jax.tree.structure(same)
    eqx.filter_eval_shape(lambda: zero_nets.WorldModel.perceptron(seen, action_size=few, **sizes))
