"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import pytest

from zero_minesweeper._build import build_loop


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def eight(on_eight_devices, small_config):
    return on_eight_devices(build_loop, small_config, small_config.steps)


def test_only_the_gradient_crosses_devices(eight, check_collectives):
    check_collectives(eight)


def test_devices_do_not_matter(eight, check_same_run, tiny_run):
    check_same_run(eight, tiny_run)
