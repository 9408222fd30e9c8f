"""The networks: their sizes, what they see, and that all of them learns."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Monsters
from zero_monsters._build import build_env
from zero_monsters._config import PRESETS
from zero_monsters._network import build_network

from .positions import played


CONFIGS = {
    "small": dataclasses.replace(PRESETS["default"], width=32),
    "original": PRESETS["original"],
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def judged(request):
    """A network, states that look different from each other, and what it says of them."""
    config = CONFIGS[request.param]
    env = build_env(config)
    net = eqx.filter_jit(build_network)(config, env, key=jr.key(0))
    states = played(Monsters(), games=16, steps=4)
    seen = np.concatenate([states.pieces, states.held[:, None]], axis=1)
    one_each = np.unique(seen, axis=0, return_index=True)[1]
    states = jax.tree.map(lambda x: x[one_each], states)

    def loss(net, states):
        logits, value = jax.vmap(net)(jax.vmap(env.observe)(states).features)
        target = jax.nn.one_hot(jnp.arange(len(one_each)) % 5, 5)
        policy = -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), axis=1))
        return policy - jnp.mean(jax.nn.log_softmax(value)[:, 3]), (logits, value)

    grads, said = jax.device_get(eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(net, states))
    return config, said, grads


def test_it_says_something_else_of_every_state(judged):
    """Nothing that can be seen is left out: pieces wherever they are, and what is held."""
    config, (logits, value), _ = judged
    assert logits.shape[1:] == (5,) and value.shape[1:] == (config.atoms,)
    said = np.concatenate([logits, value], axis=1)
    assert len(said) > 30
    apart = np.abs(said[:, None] - said).max(axis=-1) + np.eye(len(said))
    assert apart.min() > 1e-6


def test_all_of_it_learns(judged):
    for leaf in jax.tree.leaves(judged[2]):
        assert np.isfinite(leaf).all() and np.abs(leaf).max() > 0


def test_the_original_is_as_large_as_it_was():
    """About 0.27 million parameters, less the 257 of 265 words that no one says here."""
    config = CONFIGS["original"]
    net = eqx.filter_eval_shape(build_network, config, build_env(config), key=jr.key(0))
    shapes = (x for x in jax.tree.leaves(net) if isinstance(x, jax.ShapeDtypeStruct))
    count = sum(x.size for x in shapes)
    words = 2 * 8 * 10
    inputs = (60 + 1) * 64 + (64 + 1) * 64
    blocks = 4 * (9 * 64 * 64 + 64 + 2 * 64)
    heads = 2 * (128 + 1) * 128 + (128 + 1) * (21 + 5)
    assert count == words + inputs + blocks + (9 * 64 + 1) * 128 + heads == 266_682
    assert 0.265e6 < count + 2 * 257 * 10 < 0.275e6
