"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import dataclasses

import jax
import jax.random as jr
import numpy as np
import pytest

from zero_spo._build import build_loop
from zero_train import data_mesh, fill, init, step


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def eight(on_eight_devices, small_config):
    return on_eight_devices(build_loop, small_config, small_config.blocks)


def test_only_the_gradient_crosses_devices(eight, check_collectives):
    check_collectives(eight)


def test_devices_do_not_matter(eight, check_same_run, tiny_run):
    check_same_run(eight, tiny_run)


def test_statistics_of_observations_are_those_of_all_devices(small_config, collectives):
    """They take all-reduces too, and no more; each device has what one alone would have."""
    config = dataclasses.replace(small_config, normalise_observations=True)
    found = []
    for devices in (8, 1):
        loop = dataclasses.replace(build_loop(config), mesh=data_mesh(devices))
        state = fill(loop, init(loop, key=jr.key(0)))
        if devices == 8:
            assert collectives(lambda s, loop=loop: step(loop, s), state) == {"all-reduce"}
        state, _ = step(loop, state)
        found.append(jax.device_get(state.agent.online.statistics))
    eight, one = map(jax.tree.leaves, found)
    assert len(one) > 2
    for x, y in zip(eight, one, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
