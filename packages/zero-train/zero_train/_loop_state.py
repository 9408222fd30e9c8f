"""What the loop is made of, what evolves in it, and where that lies."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment
from zero_memory import AbstractBuffer

from ._agent import AbstractAgent
from ._collect import Actors
from ._experience import Experience
from ._mesh import cut_mesh, data_mesh, places


class Released(eqx.Module):
    """The actor that collects next, as the learner let it go.

    **Attributes:**

    - `actor`: its arrays.
    - `updates`: how many gradient updates they have had.
    """

    actor: PyTree[Array]
    updates: Int[Array, ""]


class Harvest(eqx.Module):
    """What was collected last, on its way to the learner.

    **Attributes:**

    - `rows`: of `[envs, time]`.
    - `key`: for the updates that follow when they are stored.
    - `updates`: how many gradient updates the actor that collected them had had.
    """

    rows: Experience
    key: PRNGKeyArray
    updates: Int[Array, ""]


class Handover(eqx.Module):
    """What acting and learning devices have given each other, where they are not the same.

    **Attributes:**

    - `released`: on the acting devices.
    - `harvest`: on the learning devices, and not in the buffer yet.
    - `updates`: how many gradient updates there were, on the learning devices.
    """

    released: Released
    harvest: Harvest
    updates: Int[Array, ""]


class LoopState(eqx.Module):
    """Everything that evolves: saved whole, a run resumes exactly where it was.

    **Attributes:**

    - `agent`: parameters and optimiser state, the same on every learning device.
    - `actors`: the environments and what the actor keeps between moves, split over the acting
        devices.
    - `buffer`: replay, split over the learning devices.
    - `key`: never consumed, only folded with `step`.
    - `step`: how often was collected.
    - `handover`: `None` where every device both acts and learns.
    """

    agent: PyTree[Array]
    actors: Actors
    buffer: PyTree[Array]
    key: PRNGKeyArray
    step: Int[Array, ""]
    handover: Handover | None = None


class Loop(eqx.Module):
    """What is trained, on what, and how much of each. All arguments are keywords.

    **Attributes:**

    - `env`, `agent`, `buffer`: the parts. A buffer that has a `num_envs` has that of the loop.
    - `num_envs`: environments acted in at once, over all acting devices.
    - `unroll_length`: rows collected from each environment per step.
    - `num_updates`: batches sampled and learned from per step.
    - `augment`: `(row, *, key) -> row` for one sampled row of `Batch.items`, or `None`.
    - `mesh`: the devices; by default the first one. [`zero_train.data_mesh`][] makes one of all.
    - `actor_devices`: how many of the mesh's devices, the first ones, act and do nothing else,
        while the others learn from what they collected the step before. 0: all of them do both,
        in turns.
    """

    _: dataclasses.KW_ONLY
    env: AbstractEnvironment
    agent: AbstractAgent
    buffer: AbstractBuffer
    num_envs: int
    unroll_length: int
    num_updates: int = 1
    augment: Callable[..., PyTree[Array]] | None = None
    mesh: Mesh = eqx.field(default_factory=lambda: data_mesh(1))
    actor_devices: int = 0

    def __check_init__(self) -> None:
        for name in ("num_envs", "unroll_length", "num_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} was given; it must be at least 1.")
        num_devices = self.mesh.shape["data"]
        if not 0 <= self.actor_devices < num_devices:
            raise ValueError(
                f"actor_devices={self.actor_devices} of {num_devices} device(s) was given; one "
                "must be left to learn, so give fewer, or more devices; 0 lets each do both."
            )
        if self.actor_devices and jax.process_count() > 1:
            raise ValueError(
                f"actor_devices={self.actor_devices} was given with {jax.process_count()} "
                "processes; acting and learning part within one process only, so give 0."
            )
        shards = getattr(self.buffer, "num_shards", None)
        for mesh, verb in ((self.actor_mesh, "act"), (self.learner_mesh, "learn")):
            devices = mesh.shape["data"]
            who = f"{devices} devices" + (f" that {verb}" if self.actor_devices else "")
            if self.num_envs % devices:
                raise ValueError(
                    f"num_envs={self.num_envs} does not divide over {who}; "
                    f"use a multiple of {devices}."
                )
            if verb == "learn" and shards is not None and shards % devices:
                raise ValueError(
                    f"the buffer's num_shards={shards} does not divide over {who}; "
                    f"use a multiple of {devices}."
                )
        kept = getattr(self.buffer, "num_envs", self.num_envs)
        if kept != self.num_envs:
            raise ValueError(
                f"num_envs={self.num_envs} was given with a buffer of num_envs={kept}; give both "
                "the same number."
            )

    @property
    def actor_mesh(self) -> Mesh:
        """The devices that act."""
        return cut_mesh(self.mesh, self.actor_devices)[0] if self.actor_devices else self.mesh

    @property
    def learner_mesh(self) -> Mesh:
        """The devices that store and learn."""
        return cut_mesh(self.mesh, self.actor_devices)[1] if self.actor_devices else self.mesh


def shardings(loop: Loop, state: LoopState) -> LoopState:
    """Where every leaf of `state` lives: a pytree of `NamedSharding`s in its structure."""
    acting, learning = loop.actor_mesh, loop.learner_mesh
    parts: list[tuple[Callable[[Any], PyTree], Mesh, P]] = [
        (lambda s: s.actors, acting, P("data")),
        (lambda s: (s.key, s.step), acting, P()),
        (lambda s: s.buffer, learning, P("data")),
    ]
    if state.handover is not None:
        parts += [
            (lambda s: s.handover.released, acting, P()),
            (lambda s: s.handover.harvest.rows, learning, P("data")),
        ]
    result = places(learning, P(), state)
    for part, mesh, spec in parts:
        result = eqx.tree_at(part, result, places(mesh, spec, part(state)))
    return result
