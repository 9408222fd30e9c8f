"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import pytest

from zero_minesweeper._build import build_loop


@pytest.mark.slow
def test_devices_do_not_matter(on_eight_devices, check_devices, small_config, tiny_run):
    check_devices(on_eight_devices(build_loop, small_config, small_config.steps), tiny_run)
