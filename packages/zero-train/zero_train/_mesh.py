"""The one mesh axis everything is split over."""

import jax
import numpy as np
from jax.sharding import Mesh


def data_mesh(num_devices: int | None = None) -> Mesh:
    """A mesh with the one axis `data`, over the first `num_devices` devices (all by default).

    **Raises:** `ValueError` where there are not as many.
    """
    devices = jax.devices()
    count = len(devices) if num_devices is None else num_devices
    if not 1 <= count <= len(devices):
        raise ValueError(
            f"{count} devices were asked for and {len(devices)} {devices[0].platform} device(s) "
            "are here; ask for fewer. On a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} makes virtual ones."
        )
    return Mesh(np.asarray(devices[:count]), ("data",))
