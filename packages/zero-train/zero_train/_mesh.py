"""The one mesh axis everything is split over."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int


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


def on_every_device(mesh: Mesh, function: Callable, in_specs: tuple) -> Callable:
    """`function` on every device's own rows: loops inside may run a different number of times."""
    # Checking of varying axes is off: loop carries made inside (zeros, counters) would all need
    # casts, in planners and buffers that know of no mesh.
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=P("data"), check_vma=False
    )


def global_rows(num_rows: int) -> Int[Array, " rows"]:
    """Indices in the whole batch of the `num_rows` rows of the device this runs on."""
    first = jax.lax.axis_index("data").astype(jnp.int32) * num_rows
    return first + jnp.arange(num_rows, dtype=jnp.int32)
