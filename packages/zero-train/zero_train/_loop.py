"""What a training loop consists of: its parts, its state, and the two halves of a step."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int, Num, PRNGKeyArray, PyTree

from zero_envs import AbstractDiscreteEnvironment, AbstractEnvironment, Hosted
from zero_memory import AbstractBuffer, Batch

from ._agent import (
    AbstractActor,
    AbstractAgent,
    AbstractBlockAgent,
    AbstractReanalysingAgent,
    Experience,
)
from ._checks import check_count, check_kind, check_range
from ._collect import collect, Episodes
from ._mesh import (
    by_rows,
    cut_mesh,
    data_mesh,
    global_rows,
    on_every_device,
    places,
    row_keys,
    split_places,
    updating,
)


Numbers = dict[str, Num[Array, ""]]


class Handover(eqx.Module):
    """What the acting and the learning devices pass to each other, with `actor_devices`.

    **Attributes:**

    - `actor`: the arrays of the actor that collects next, on the acting devices.
    - `rows`: the `[envs, time]` that were collected last, on the learning devices. They are not in
        the buffer yet.
    - `key`: the key of the updates that follow when `rows` are stored.
    - `staleness`: the gradient updates that the agent has had since the actor that collected `rows`
        was made.
    """

    actor: PyTree[Array]
    rows: Experience
    key: PRNGKeyArray
    staleness: Int[Array, ""]


class LoopState(eqx.Module):
    """Everything that changes while a loop runs. A run that is restored from it continues exactly.

    **Attributes:**

    - `agent`: parameters and optimiser state: whole on every learning device, or split over the
        mesh's axis `fsdp`.
    - `episodes`: the running episodes, split over the acting devices.
    - `buffer`: the replay, split over the learning devices.
    - `key`: folded with `step` to make the keys of each step, and never consumed.
    - `step`: the number of collections so far.
    - `handover`: `None` where every device both acts and learns.
    """

    agent: PyTree[Array]
    episodes: Episodes
    buffer: PyTree[Array]
    key: PRNGKeyArray
    step: Int[Array, ""]
    handover: Handover | None = None


class Loop(eqx.Module):
    """What is trained, on what, and how much of each. All arguments are keywords.

    **Attributes:**

    - `env`, `agent`, `buffer`: the parts. The buffer's `num_envs` is the number of environments
        acted in at once, over all acting devices.
    - `unroll_length`: the number of rows collected from each environment in a step.
    - `opening_plies`: at most so many random actions begin every episode, as
        [`zero_train.collect`][] says. They are not learned from. A player whose games all begin
        alike learns little of other positions.
    - `num_updates`: the number of batches sampled and learned from in a step.
    - `augment`: `(row, *, key) -> row` for one sampled row of `Batch.items`, or `None`.
    - `reanalyse`: the share of every batch, at least a row of every shard, that is planned anew
        before it is augmented and learned from (MuZero Reanalyse, Schrittwieser et al. 2021,
        https://arxiv.org/abs/2104.06294). More than 0 needs an
        [`zero_train.AbstractReanalysingAgent`][]. The replay keeps the old plans.
    - `mesh`: the devices; by default the first one. [`zero_train.data_mesh`][] makes one of all.
        Rows are split over all its devices, and what the agent has learned over its axis `fsdp`,
        if it has one.
    - `actor_devices`: how many of the mesh's devices, the first ones, only act, while the others
        learn from what was collected the step before. 0: all devices do both in turns.
    """

    _: dataclasses.KW_ONLY
    env: AbstractEnvironment
    agent: AbstractAgent
    buffer: AbstractBuffer
    unroll_length: int
    opening_plies: int = 0
    num_updates: int = 1
    augment: Callable[..., PyTree[Array]] | None = None
    reanalyse: float = 0.0
    mesh: Mesh = eqx.field(default_factory=lambda: data_mesh(1))
    actor_devices: int = 0

    def __check_init__(self) -> None:
        check_kind("Loop", AbstractEnvironment, "an environment of zero_envs", env=self.env)
        check_kind("Loop", AbstractAgent, "an agent, such as an ExpertIteration", agent=self.agent)
        check_kind("Loop", AbstractBuffer, "a buffer of zero_memory", buffer=self.buffer)
        check_kind("Loop", Mesh, "a mesh, such as `data_mesh()`", mesh=self.mesh)
        whole = int | np.integer
        check_kind("Loop", whole, "an integer", actor_devices=self.actor_devices)
        called = "a function `(row, *, key) -> row`"
        check_kind("Loop", Callable | None, called, augment=self.augment)
        check_count("Loop", unroll_length=self.unroll_length, num_updates=self.num_updates)
        check_count("Loop", 0, opening_plies=self.opening_plies)
        check_range("Loop", 0, 1, reanalyse=self.reanalyse)
        discrete = isinstance(self.env, AbstractDiscreteEnvironment)
        if self.opening_plies and (isinstance(self.env, Hosted) or not discrete):
            raise ValueError(
                f"opening_plies={self.opening_plies} was given for {type(self.env).__name__}; "
                "random openings need discrete actions and an environment in JAX, so give 0."
            )
        if self.reanalyse and not isinstance(self.agent, AbstractReanalysingAgent):
            raise ValueError(
                f"Loop(reanalyse={self.reanalyse}): {type(self.agent).__name__} cannot plan stored "
                "positions anew; give 0, or an agent that can, such as MuZero."
            )
        # A buffer of windows takes no more rows at a time than it keeps.
        capacity = getattr(self.buffer, "capacity", math.inf)
        if hasattr(self.buffer, "length") and self.unroll_length > capacity:
            raise ValueError(
                f"unroll_length={self.unroll_length} was given with a buffer of "
                f"capacity={capacity}, which cannot take so many rows of an environment at a time; "
                "give more capacity or a shorter unroll."
            )
        self._check_devices()

    def _check_devices(self) -> None:
        num_devices = self.mesh.size
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
        if isinstance(self.env, Hosted) and (self.actor_devices or jax.process_count() > 1):
            raise ValueError(
                f"actor_devices={self.actor_devices} was given with {jax.process_count()} "
                f"process(es) for {self.env.name}, whose simulators run on the host of one process "
                "and in turns with what learns; give 0, and one process."
            )
        learners, fsdp = num_devices - self.actor_devices, self.mesh.shape.get("fsdp", 1)
        if learners % fsdp:
            raise ValueError(
                f"actor_devices={self.actor_devices} of {num_devices} devices was given with "
                f"fsdp={fsdp}, which does not divide the {learners} that learn; leave a multiple "
                f"of {fsdp} to learn."
            )
        shards = getattr(self.buffer, "num_shards", None)
        acting, learning = self.actor_mesh.size, self.learner_mesh.size
        for name, value, devices, verb in (
            ("num_envs", self.num_envs, acting, "act"),
            ("num_envs", self.num_envs, learning, "learn"),
            ("num_shards", learning if shards is None else shards, learning, "learn"),
        ):
            if value % devices:
                who = f"{devices} devices" + (f" that {verb}" if self.actor_devices else "")
                raise ValueError(
                    f"the buffer's {name}={value} does not divide over {who}; "
                    f"use a multiple of {devices}."
                )

    @property
    def num_envs(self) -> int:
        """The number of environments acted in at once, which is the buffer's."""
        return self.buffer.num_envs

    @property
    def actor_mesh(self) -> Mesh:
        """The devices that act."""
        return cut_mesh(self.mesh, self.actor_devices)[0] if self.actor_devices else self.mesh

    @property
    def learner_mesh(self) -> Mesh:
        """The devices that store and learn."""
        return cut_mesh(self.mesh, self.actor_devices)[1] if self.actor_devices else self.mesh


def shardings(loop: Loop, state: LoopState) -> LoopState:
    """Where every leaf of `state` lives: a pytree of `NamedSharding`s of the same structure."""
    acting, learning = loop.actor_mesh, loop.learner_mesh
    parts: list[tuple[Callable[[Any], PyTree], Mesh, P]] = [
        (lambda s: s.episodes, acting, by_rows(acting)),
        (lambda s: (s.key, s.step), acting, P()),
        (lambda s: s.buffer, learning, by_rows(learning)),
    ]
    if state.handover is not None:
        parts += [
            (lambda s: s.handover.actor, acting, P()),
            (lambda s: s.handover.rows, learning, by_rows(learning)),
        ]
    result = places(learning, P(), state)
    result = eqx.tree_at(lambda s: s.agent, result, split_places(learning, state.agent))
    for part, mesh, spec in parts:
        result = eqx.tree_at(part, result, places(mesh, spec, part(state)))
    return result


# The two halves of a step. Each runs on the devices that it belongs to.


def act(
    loop: Loop, actor: AbstractActor, episodes: Episodes, *, key: PRNGKeyArray
) -> tuple[Episodes, Experience]:
    """Collects on every acting device by itself, the same rows however many there are."""
    own = {"num_steps": loop.unroll_length, "opening_plies": loop.opening_plies}
    local = lambda actor, episodes, key, indices: collect(
        loop.env, actor, episodes, indices=indices, key=key, **own
    )
    return acting(loop, local, actor, episodes, key)


def acting(
    loop: Loop,
    function: Callable[..., Any],
    actor: AbstractActor,
    rows: PyTree[Array],
    whole: PyTree[Array],
) -> Any:
    """`function(actor, rows, whole, indices)` on every acting device for its own `rows`, with their
    indices in the whole batch."""
    mesh = loop.actor_mesh
    arrays, static = eqx.partition(actor, eqx.is_array)
    local = lambda arrays, indices, rows, whole: function(
        eqx.combine(arrays, static), rows, whole, indices
    )
    indices = jnp.arange(loop.num_envs, dtype=jnp.int32)
    run = on_every_device(mesh, local, (P(), by_rows(mesh), by_rows(mesh), P()))
    return run(arrays, indices, rows, whole)


def updates_apart(loop: Loop, agent: PyTree) -> bool:
    """Whether no loop of XLA may hold the updates: its CPU backend only makes the gradient of a
    convolution fast outside of control flow, and in a loop, also in one of a single turn, it takes
    30 times as long. An array of three axes or more may be a kernel."""
    on_cpu = loop.learner_mesh.devices.flat[0].platform == "cpu"
    return on_cpu and any(len(x.shape) > 2 for x in jax.tree.leaves(agent))


def learn(
    loop: Loop,
    agent: PyTree[Array],
    buffer: PyTree[Array],
    indices: Int[Array, " updates"],
    *,
    key: PRNGKeyArray,
) -> tuple[PyTree[Array], PyTree[Array], Numbers]:
    """For each index draws a batch and updates; the metrics are means over them. The updates of a
    step have the indices from 0 to `num_updates - 1`.

    A buffer that has a `minibatch`, as `zero_memory.Latest` has, deals out all that it holds: with
    `num_updates = epochs * num_minibatches` each window is learned from once an epoch.
    """

    @jax.jit  # so that it is traced once, also outside of a loop
    def update(carry: tuple[PyTree, PyTree], index: Array) -> tuple[tuple, Numbers]:
        agent, buffer = carry
        dkey, ukey = jr.split(jr.fold_in(key, index))
        batch = draw(loop, agent, buffer, key=dkey, dealt=(index, deal))
        with updating(mesh):
            agent, metrics, *priorities = loop.agent.update(agent, batch, key=ukey)
        agent = jax.lax.with_sharding_constraint(agent, split_places(mesh, agent))
        if priorities:
            buffer = _prioritise(loop, buffer, batch, priorities[0])
        return (agent, buffer), metrics

    mesh, carry = loop.learner_mesh, (agent, buffer)
    deal = jr.fold_in(key, loop.num_updates)  # which is the index of no update
    if updates_apart(loop, agent):
        each = []
        for index in indices:
            carry, metrics = update(carry, index)
            each.append(metrics)
        metrics = jax.tree.map(lambda *x: jnp.stack(x), *each)
    else:
        carry, metrics = jax.lax.scan(update, carry, indices)
    return *carry, jax.tree.map(jnp.mean, metrics)


def take_in(
    loop: Loop, agent: PyTree[Array], buffer: PyTree[Array], rows: Experience
) -> tuple[PyTree[Array], PyTree[Array], Numbers]:
    """Stores rows, and shows them to an agent that wants to see them."""
    buffer = store(loop, buffer, rows)
    metrics: dict[str, Any] = {}
    if isinstance(loop.agent, AbstractBlockAgent):
        agent, metrics = loop.agent.digest(agent, rows)
    return agent, buffer, metrics


def counts(rows: Experience) -> Numbers:
    games = jnp.sum(rows.last, dtype=jnp.int32)
    return {"positions": rows.last.size - games, "games": games}


def store(loop: Loop, buffer: PyTree[Array], rows: Experience) -> PyTree[Array]:
    """Adds rows of `[envs, time]`, on every learning device to its own part of the buffer."""
    mesh = loop.learner_mesh
    return on_every_device(mesh, loop.buffer.add, (by_rows(mesh), by_rows(mesh)))(buffer, rows)


def draw(
    loop: Loop,
    agent: PyTree[Array],
    buffer: PyTree[Array],
    *,
    key: PRNGKeyArray,
    dealt: tuple[Int[Array, ""], PRNGKeyArray] | None = None,
) -> Batch:
    """Samples one global batch, plans a share of it anew and augments it, every device from its own
    part of the buffer.

    A buffer that has a `minibatch` needs what is `dealt`: the number of the minibatch and the key
    of all of them.
    """
    mesh, deal = loop.learner_mesh, getattr(loop.buffer, "minibatch", None)
    augment, reanalyser = loop.augment, None
    if loop.reanalyse and isinstance(loop.agent, AbstractReanalysingAgent):
        reanalyser = loop.agent.reanalyser(agent)
    arrays, static = eqx.partition(reanalyser, eqx.is_array)

    def local(buffer: PyTree, arrays: PyTree, key: PRNGKeyArray, dealt: Any) -> Batch:
        anew: Any = eqx.combine(arrays, static)
        skey, akey, *rkey = jr.split(key, 2 if anew is None else 3)
        if deal is None or dealt is None:
            batch = loop.buffer.sample(buffer, key=skey)
        else:
            batch = deal(buffer, dealt[0], key=dealt[1])
        rows = global_rows(mesh, batch.weights.shape[0])
        items = batch.items
        if anew is not None:
            items = _planned_anew(loop, anew, items, rows, key=rkey[0])
        if augment is not None:
            augmented = lambda row, key, augment=augment: augment(row, key=key)
            items = jax.vmap(augmented)(items, row_keys(akey, rows))
        return dataclasses.replace(batch, items=items)

    run = on_every_device(mesh, local, (by_rows(mesh), P(), P(), P()))
    return run(buffer, arrays, key, dealt)


def _planned_anew(
    loop: Loop, reanalyser: Any, items: Experience, rows: Int[Array, " rows"], *, key: PRNGKeyArray
) -> Experience:
    """Plans a share of the rows of each shard anew.

    They lie at equal distances, from a random one on, because neighbours in a stratified sample are
    of the same environment.
    """
    num_devices = loop.learner_mesh.size
    size = rows.size * num_devices // getattr(loop.buffer, "num_shards", num_devices)
    number = max(1, round(loop.reanalyse * size))
    steps = (np.arange(number, dtype=np.int64) * size // number).astype(np.int32)
    starts = np.arange(0, rows.size, size, dtype=np.int32)
    okey, rkey = jr.split(key)
    chosen = (jr.randint(okey, (), 0, size, jnp.int32) + steps) % size
    chosen = jnp.ravel(starts[:, None] + chosen[None])
    anew = reanalyser(jax.tree.map(lambda x: x[chosen], items), key=row_keys(rkey, rows[chosen]))
    return jax.tree.map(lambda x, y: x.at[chosen].set(y), items, anew)


def _prioritise(
    loop: Loop, buffer: PyTree[Array], batch: Batch, priorities: Array
) -> PyTree[Array]:
    update = getattr(loop.buffer, "update_priorities", None)
    if update is None:
        raise ValueError(
            f"{type(loop.agent).__name__}.update gives priorities, and "
            f"{type(loop.buffer).__name__} keeps none: use a buffer with `update_priorities`, such "
            "as zero_memory.PrioritisedTrajectoryBuffer, or leave them out."
        )
    mesh = loop.learner_mesh
    run = on_every_device(mesh, update, (by_rows(mesh),) * 3)
    return run(buffer, batch.indices, priorities)


def failures(episodes: Episodes) -> Numbers:
    """How many episodes have broken down since the run began, where any can."""
    found = episodes.failures
    return {} if found is None else {"failures": jnp.sum(found, dtype=jnp.int32)}


def step_keys(key: PRNGKeyArray, step: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of a collection and of the updates that follow when its rows are stored."""
    return jr.fold_in(key, 2 * step), jr.fold_in(key, 2 * step + 1)


def actor_arrays(loop: Loop, agent: PyTree[Array]) -> PyTree[Array]:
    return eqx.filter(loop.agent.actor(agent, explore=True), eqx.is_array)


def handover_of(loop: Loop, state: LoopState) -> Any:
    if (state.handover is None) == bool(loop.actor_devices):
        other = "without" if loop.actor_devices else "with"
        raise ValueError(
            f"the state is one of a loop {other} actor_devices; make one with `zero_train.init`."
        )
    return state.handover
