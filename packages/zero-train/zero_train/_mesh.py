"""The devices over which rows of a batch and parameters are split, and a key for each row."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax._src.mesh import use_abstract_mesh  # JAX 0.6 has no public name for it
from jax.core import Tracer
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree


Tree = TypeVar("Tree", bound=PyTree)


#: Leaves of fewer numbers are whole on every device: they take little memory, and a gather of each
#: would be one more to wait for.
_LEAST = 1024


def data_mesh(num_devices: int | None = None, *, fsdp: int = 1) -> Mesh:
    """A mesh with the axis `data`, over the first `num_devices` devices (all by default); of
    several processes, over as many of each, or over one of this process. With an `fsdp` of more
    than 1 it has a second axis of that name: every so many devices in a row hold the agent's state
    together, each a part of it (fully sharded data parallel)."""
    devices, processes = jax.devices(), jax.process_count()
    count = len(devices) if num_devices is None else num_devices
    for name, x in {"num_devices": count, "fsdp": fsdp}.items():
        if not isinstance(x, int | np.integer):
            raise ValueError(f"data_mesh({name}={x!r}): give an integer.")
    if not 1 <= count <= len(devices):
        raise ValueError(
            f"{count} devices were asked for and {len(devices)} {devices[0].platform} device(s) "
            f"are here; ask for 1 to {len(devices)}. On a CPU, "
            "XLA_FLAGS=--xla_force_host_platform_device_count=N makes N virtual ones."
        )
    if fsdp < 1 or count % fsdp:
        divisors = [str(n) for n in range(1, count + 1) if count % n == 0]
        raise ValueError(
            f"fsdp={fsdp} was given for {count} device(s), which it must divide; give one of "
            f"{', '.join(divisors)}."
        )
    if count == 1:
        return Mesh(np.asarray(jax.local_devices()[:1]), ("data",))
    share, rest = divmod(count, processes)
    owned = [[x for x in devices if x.process_index == i][:share] for i in range(processes)]
    if rest or min(map(len, owned)) < share:
        raise ValueError(
            f"{count} devices were asked for, of {processes} processes that have {len(devices)}; "
            f"ask for a multiple of {processes} that each can give the same part of."
        )
    if fsdp == 1:
        return Mesh(np.asarray(owned).reshape(-1), ("data",))
    return Mesh(np.asarray(owned).reshape(-1, fsdp), ("data", "fsdp"))


def cut_mesh(mesh: Mesh, num_devices: int) -> tuple[Mesh, Mesh]:
    """Two meshes: of the first `num_devices` devices, with one axis, and of the others."""
    first, others = np.split(mesh.devices.reshape(-1), [num_devices])
    others = others.reshape(-1, *mesh.devices.shape[1:])
    return Mesh(first, ("data",)), Mesh(others, mesh.axis_names)


def by_rows(mesh: Mesh) -> P:
    """How rows are split: over all devices."""
    return P(mesh.axis_names)


def split_places(mesh: Mesh | AbstractMesh, tree: PyTree) -> PyTree[NamedSharding]:
    """Where the leaves of an agent's state live: each is split over the axis `fsdp`, if there is
    one, along its longest axis that divides. Without such an axis, or small, it is whole."""
    number = mesh.shape.get("fsdp", 1)

    def place(x: Any) -> NamedSharding:
        axes = [i for i, length in enumerate(x.shape) if length % number == 0]
        if number == 1 or x.size < _LEAST or not axes:
            return NamedSharding(mesh, P())
        axis = max(axes, key=lambda i: x.shape[i])
        return NamedSharding(mesh, P(*[None] * axis, "fsdp"))

    return jax.tree.map(place, tree)


def updating(mesh: Mesh) -> contextlib.AbstractContextManager[None]:
    """In the `with` block, of an agent's update, [`whole`][] knows of a mesh that has `fsdp`."""
    if "fsdp" not in mesh.shape:
        return contextlib.nullcontext()
    return use_abstract_mesh(mesh.abstract_mesh)


def whole(params: Tree) -> Tree:
    """Parameters as a network needs them: those split over `fsdp` are gathered, and their gradient
    is split again. Outside of [`updating`][] they are as they are."""
    mesh = jax.sharding.get_abstract_mesh()
    if "fsdp" not in mesh.shape or AxisType.Manual in mesh.axis_types:
        return params

    @jax.custom_vjp
    def gather(x: Array) -> Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))

    # The rule that JAX has would make the gradient whole on every device.
    split = lambda _, x: (jax.lax.with_sharding_constraint(x, split_places(mesh, x)),)
    gather.defvjp(lambda x: (gather(x), None), split)
    return jax.tree.map(lambda x: gather(x) if eqx.is_inexact_array(x) else x, params)


def on_every_device(mesh: Mesh, function: Callable, in_specs: tuple) -> Callable:
    """`function` on every device's own rows: loops inside may run a different number of times."""
    # Checking of varying axes is off: loop carries made inside (zeros, counters) would all need
    # casts, in buffers and environments that know of no mesh.
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=by_rows(mesh), check_vma=False
    )


def global_rows(mesh: Mesh, num_rows: int) -> Int[Array, " rows"]:
    """Indices in the whole batch of the `num_rows` rows of the device this runs on."""
    first = jax.lax.axis_index(mesh.axis_names).astype(jnp.int32) * num_rows
    return first + jnp.arange(num_rows, dtype=jnp.int32)


def places(mesh: Mesh, spec: P, tree: PyTree) -> PyTree[NamedSharding]:
    """The same sharding for every leaf of the tree."""
    return jax.tree.map(lambda _: NamedSharding(mesh, spec), tree)


def replicated(mesh: Mesh | None, tree: Tree) -> Tree:
    """Copies arrays that are the same in every process to every device of the mesh, if there is
    one; under `jax.jit` they are where they are."""
    if mesh is None:
        return tree

    def copy(x: Any) -> Any:
        if not eqx.is_array(x) or isinstance(x, Tracer):
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jr.wrap_key_data(copy(jr.key_data(x)), impl=jr.key_impl(x))
        host = np.asarray(x)
        # `jax.device_put` would have the processes compare their copies.
        return jax.make_array_from_callback(x.shape, NamedSharding(mesh, P()), host.__getitem__)

    return jax.tree.map(copy, tree)


def send(tree: PyTree[Array], shardings: PyTree[NamedSharding]) -> PyTree[Array]:
    """Moves `tree` to these shardings, on other devices of this process.

    The host does not wait for `tree` to be computed, as it would where `jax.device_put` moves
    rows from some number of devices to another: by way of the host.
    """
    return jax.tree.map(_send, tree, shardings)


def _send(x: Array, sharding: NamedSharding) -> Array:
    if x.sharding.is_fully_replicated or x.sharding.device_set == sharding.device_set:
        return jax.device_put(x, sharding)
    rows = lambda index: index[0].indices(x.shape[0])[:2]
    shards = [(*rows(shard.index), shard.data) for shard in x.addressable_shards]

    def part(device: Any, start: int, stop: int) -> Array:
        pieces = [
            data[max(start - first, 0) : stop - first]
            for first, last, data in shards
            if first < stop and start < last
        ]
        pieces = jax.device_put(pieces, device)
        return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)

    parts = sharding.addressable_devices_indices_map(x.shape).items()
    arrays = [part(device, *rows(index)) for device, index in parts]
    return jax.make_array_from_single_device_arrays(x.shape, sharding, arrays)


def row_keys(key: PRNGKeyArray, rows: Int[Array, " rows"]) -> Key[Array, " rows"]:
    """One key a row, folded from the row's global index: splitting rows over devices changes
    nothing. The key may be one of `jax.random.PRNGKey`."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jr.wrap_key_data(key)
    return jax.vmap(jr.fold_in, in_axes=(None, 0))(key, rows)


def split_rows(keys: Key[Array, " rows"], num: int) -> tuple[Key[Array, " rows"], ...]:
    """Splits every row's key into `num` consumers' keys."""
    split = jax.vmap(lambda key: jr.split(key, num))(keys)
    return tuple(split[:, i] for i in range(num))


def select_rows(mask: Bool[Array, "*rows"], on_true: Tree, on_false: Tree) -> Tree:
    """`on_true` in the rows where `mask` holds, `on_false` in the others, leaf by leaf."""

    def select(x: Array, y: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y)

    return jax.tree.map(select, on_true, on_false)
