"""Items of every kind of leaf, and states that are saved and loaded."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import EpisodeBuffer, Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer

from .helpers import QUICK


SIZES = {"capacity": 8, "num_envs": 2, "batch_size": 2}
BUFFERS = [
    EpisodeBuffer(
        **SIZES,
        last=lambda item: item["last"],
        reward=lambda item: item["half"],
        discount=lambda item: item["byte"],
    ),
    TrajectoryBuffer(**SIZES, length=4),
    PrioritisedTrajectoryBuffer(**SIZES, length=4),
    Latest(**SIZES, length=4, period=4),
]


def _items(name):
    """Items that follow from their names; with no discount, each is an episode."""
    name = jnp.asarray(name, jnp.int32)
    flat = jax.vmap(jr.key)(name.reshape(-1))
    return {
        "name": name,
        "half": (name / 8).astype(jnp.float16),
        "byte": jnp.zeros(name.shape, jnp.int8),
        "last": jnp.zeros(name.shape, bool),
        "odd": name % 2 == 1,
        "key": flat.reshape(name.shape),
        "nothing": jnp.zeros((*name.shape, 0, 2)),
        "none": None,
    }


def _plain(items):
    """Keys as their numbers, for NumPy."""
    return jax.device_get(items | {"key": jr.key_data(items["key"])})


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_every_kind_of_leaf_comes_back_as_it_was(buffer):
    add = jax.jit(buffer.add, donate_argnums=0, compiler_options=QUICK)
    state = buffer.init(_items(0))
    for first in (0, 5):  # past the end of the ring
        # JAX takes the slices that a scan cuts from an array of keys for one key.
        with jax.debug_key_reuse(False):
            state = add(state, _items(100 * np.arange(2)[:, None] + first + np.arange(5)))
    batch = buffer.sample(state, key=jr.key(0))
    assert (batch.weights > 0).all()
    drawn, expected = _plain(batch.items), _plain(_items(batch.items["name"]))
    assert jax.tree.structure(drawn) == jax.tree.structure(expected)
    for name, x in expected.items():
        assert name == "none" or drawn[name].dtype == x.dtype
        np.testing.assert_array_equal(drawn[name], x)


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_a_state_is_saved_and_loaded_whole(buffer):
    """Of flashbax's part as well: a dataclass of another library."""
    numbers = lambda name: {k: x for k, x in _items(name).items() if k != "key"}
    empty = buffer.init(numbers(0))
    state = buffer.add(empty, numbers(np.arange(10).reshape(2, 5)))
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, state)
    file.seek(0)
    loaded = eqx.tree_deserialise_leaves(file, empty)
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, loaded, state)
