"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import dataclasses

import jax.random as jr
import pytest

from zero_monsters._build import build_loop
from zero_train import data_mesh, fill, init, step


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def eight(on_eight_devices, small_config):
    return on_eight_devices(build_loop, small_config, small_config.steps)


def test_only_the_gradient_crosses_devices(eight, check_collectives):
    check_collectives(eight)


def test_devices_do_not_matter(eight, check_same_run, tiny_run):
    check_same_run(eight, tiny_run)


def test_some_devices_act_while_the_others_learn(small_config, eight):
    """The first step is that of all devices together; from then on rows are one step old."""
    config = dataclasses.replace(small_config, actor_devices=4)
    loop = dataclasses.replace(build_loop(config), mesh=data_mesh(8), actor_devices=4)
    state = fill(loop, init(loop, key=jr.fold_in(jr.key(config.seed), 0)))
    stale = []
    for number in range(3):
        state, metrics = step(loop, state)
        stale.append(float(metrics["staleness"]))
        if number == 0:
            for name, value in eight[2][0].items():
                assert float(metrics[name]) == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert stale == [0.0, config.updates, config.updates]
