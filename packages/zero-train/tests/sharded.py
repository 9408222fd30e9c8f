"""A state spread over several devices; run as a script, it moves a checkpoint to eight."""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def sharded_state(num_devices: int) -> dict[str, jax.Array]:
    """The same numbers, rows split over the first `num_devices` devices."""
    mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
    layout = {"rows": P("data"), "keys": P("data"), "key": P(), "whole": P()}

    def build() -> dict[str, jax.Array]:
        return {
            "rows": jnp.arange(48, dtype=jnp.float32).reshape(16, 3),
            "keys": jax.random.split(jax.random.key(1), 8),
            "key": jax.random.key(2),
            "whole": jnp.arange(5, dtype=jnp.int8),
        }

    shardings = {name: NamedSharding(mesh, spec) for name, spec in layout.items()}
    return jax.jit(build, out_shardings=shardings)()


def check_sharded(restored: dict[str, jax.Array], num_devices: int) -> None:
    """`restored` has the numbers, and lies where they would have been put."""
    for name, wanted in sharded_state(num_devices).items():
        found = restored[name]
        assert found.dtype == wanted.dtype
        assert found.sharding.is_equivalent_to(wanted.sharding, wanted.ndim), name
        if jnp.issubdtype(found.dtype, jax.dtypes.prng_key):
            found, wanted = jax.random.key_data(found), jax.random.key_data(wanted)
        assert found.sharding.is_equivalent_to(wanted.sharding, wanted.ndim), name
        assert np.array_equal(found, wanted)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    from zero_train import Checkpoints

    # It takes seconds to import; commands that need no checkpoint should not wait for it.
    assert "orbax.checkpoint" not in sys.modules
    checkpoints = Checkpoints(sys.argv[1])
    check_sharded(checkpoints.restore(sharded_state(8), step=1), 8)
    checkpoints.save(8, sharded_state(8))
