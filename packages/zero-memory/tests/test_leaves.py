"""Items of every kind of leaf, and states that are saved and loaded."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import EpisodeBuffer, Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer

from .helpers import add, init, sample


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
    name = np.asarray(name, np.int32)
    arrays = {
        "name": name,
        "half": (name / 8).astype(np.float16),
        "byte": np.zeros(name.shape, np.int8),
        "last": np.zeros(name.shape, bool),
        "odd": name % 2 == 1,
        "nothing": np.zeros((*name.shape, 0, 2), np.float32),
    }
    keys = jr.wrap_key_data(jnp.asarray(np.stack([0 * name, name], axis=-1).astype(np.uint32)))
    return jax.tree.map(jnp.asarray, arrays) | {"key": keys, "none": None}


def _plain(items):
    """Keys as their numbers, for NumPy."""
    return jax.device_get(items | {"key": jr.key_data(items["key"])})


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_every_kind_of_leaf_comes_back_as_it_was(buffer):
    state = init(buffer, _items(0))
    for first in (0, 5):  # past the end of the ring
        # JAX takes the slices that a scan cuts from an array of keys for one key.
        with jax.debug_key_reuse(False):
            state = add(buffer, state, _items(100 * np.arange(2)[:, None] + first + np.arange(5)))
    batch = sample(buffer, state, key=jr.key(0))
    assert (np.asarray(batch.weights) > 0).all()
    drawn, expected = _plain(batch.items), _plain(_items(batch.items["name"]))
    assert jax.tree.structure(drawn) == jax.tree.structure(expected)
    for name, x in expected.items():
        assert name == "none" or drawn[name].dtype == x.dtype
        np.testing.assert_array_equal(drawn[name], x)


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_a_state_is_saved_and_loaded_whole(buffer):
    """Of flashbax's part as well: a dataclass of another library."""
    numbers = lambda name: {k: x for k, x in _items(name).items() if k != "key"}
    empty = init(buffer, numbers(0))
    state = add(buffer, empty, numbers(np.arange(10).reshape(2, 5)))
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, state)
    file.seek(0)
    loaded = eqx.tree_deserialise_leaves(file, empty)
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, loaded, state)
