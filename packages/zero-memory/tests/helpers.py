"""The specification of the buffer in plain Python: a flag on every slot, and lists of floats."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Row(eqx.Module):
    """An item as a collector writes it, where the accessors' defaults look."""

    name: Int[Array, "*axes"]
    grid: Float[Array, "*axes 2 3"]
    reward: Float[Array, "*axes"]
    discount: Float[Array, "*axes"]
    last: Bool[Array, "*axes"]


def rows(name, reward=None, discount=None, last=None) -> Row:
    """Items named by the integers in `name`; `grid` is a function of the name."""
    name = np.asarray(name, np.int32)
    grid = name[..., None, None] + np.arange(6).reshape(2, 3) / 8

    # In NumPy: JAX would compile a conversion for each shape.
    def leaf(x, default, dtype):
        x = np.broadcast_to(default if x is None else np.asarray(x), name.shape)
        return jnp.asarray(x.astype(dtype))

    return Row(
        name=jnp.asarray(name),
        grid=jnp.asarray(grid.astype(np.float32)),
        reward=leaf(reward, np.nan, np.float32),
        discount=leaf(discount, np.nan, np.float32),
        last=leaf(last, False, bool),
    )


# What runs once is not worth optimising: compiling it so takes a third of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def method(name):
    """A method of buffers, called with the buffer first, and compiled once for all equal ones."""

    def call(buffer, *args, **named):
        return getattr(buffer, name)(*args, **named)

    return jax.jit(call, compiler_options=QUICK)


init, add, sample = (method(name) for name in ("init", "add", "sample"))

COLLECTIVES = re.compile(r"all-reduce|all-gather|all-to-all|collective|reduce-scatter")


def assert_in_place(method, state, *given):
    """Checks that the compiled program holds no second copy of a donated state."""
    size = sum(x.nbytes for x in jax.tree.leaves(state))
    # Arguments that are not used are dropped, and then not aliased.
    jitted = jax.jit(method, donate_argnums=0, keep_unused=True)
    memory = jitted.lower(state, *given).compile().memory_analysis()
    assert memory is not None and memory.alias_size_in_bytes == size
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    assert memory.temp_size_in_bytes + new < size / 20


@dataclasses.dataclass
class Slot:
    name: int
    ply: int
    waiting: bool
    outcome: float | None = None


class Ring:
    """One environment's ring as the specification tells it, with the flags on every slot."""

    def __init__(self, capacity: int):
        self.slots: list[Slot | None] = [None] * capacity
        self.next, self.first, self.ply = 0, 0, 0

    def add(self, name: int):
        self.slots[self.next] = Slot(name, self.ply, waiting=True)
        self.next = (self.next + 1) % len(self.slots)
        self.ply += 1

    def assign(self, outcomes):
        """`outcomes`: of ply to what it is worth."""
        for slot in self.slots:
            if slot is not None and slot.waiting:
                slot.waiting, slot.outcome = False, outcomes(slot.ply)
        self.first, self.ply = self.next, 0

    def truncate(self):
        self.slots = [None if slot and slot.waiting else slot for slot in self.slots]
        self.next, self.ply = self.first, 0


def expected(rings: list[Ring]) -> dict[int, tuple[int, float | None]]:
    """Flat index -> name and outcome, of what may be sampled."""
    return {
        env * len(ring.slots) + at: (slot.name, slot.outcome)
        for env, ring in enumerate(rings)
        for at, slot in enumerate(ring.slots)
        if slot is not None and not slot.waiting
    }


def reader(buffer):
    """A function of a state: flat index -> name and outcome, of what may be sampled.

    It asks for as many samples as there are slots, so it gets every finished entry, from outside.
    """
    size = buffer.num_envs * buffer.capacity
    # Sampling does not ask how many players there are.
    every = dataclasses.replace(buffer, batch_size=size, num_players=1)

    def read(state) -> dict[int, tuple[int, float]]:
        batch = jax.device_get(sample(every, state, key=jax.random.key(0)))
        counted = batch.weights == 1
        assert np.all(counted | (batch.weights == 0))
        items = jax.tree.map(lambda x: x[counted], batch.items)
        indices, outcome = batch.indices[counted].tolist(), batch.outcome[counted].tolist()
        assert len(set(indices)) == len(indices)
        np.testing.assert_array_equal(items.grid, np.asarray(rows(items.name).grid))
        return dict(zip(indices, zip(items.name.tolist(), outcome, strict=True), strict=True))

    return read


def stream(first: int, size: int, num_envs: int) -> Row:
    """Rows `first` to `first + size` of every environment, named `1000 * env + row`.

    One row without leading axes, if `size` is 0.
    """
    if not size:
        return rows(0)
    return rows(1000 * np.arange(num_envs)[:, None] + first + np.arange(size))


def assert_windows(buffer, batch) -> tuple[np.ndarray, np.ndarray]:
    """Checks that windows are consecutive rows of one environment, and lie where they say.

    Returns the environment and the first row of each.
    """
    name = np.asarray(batch.items.name).reshape(-1, buffer.length)
    np.testing.assert_array_equal(np.diff(name, axis=1), 1)
    grid = np.asarray(batch.items.grid).reshape(*name.shape, 2, 3)
    np.testing.assert_array_equal(grid, np.asarray(rows(name).grid))
    env, row = np.divmod(name, 1000)
    slots = env * buffer.capacity + row % buffer.capacity
    np.testing.assert_array_equal(np.asarray(batch.indices).reshape(name.shape), slots)
    return env[:, 0], row[:, 0]
