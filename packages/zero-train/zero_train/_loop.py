"""The training loop: collect rows, store them, learn from replay; on one set of devices or two."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int, Num, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment
from zero_memory import AbstractBuffer, Batch

from ._agent import AbstractActor, AbstractAgent, AbstractBlockAgent, Experience
from ._collect import collect, Episodes, start
from ._learning import with_arrays
from ._mesh import cut_mesh, data_mesh, global_rows, on_every_device, places, row_keys, send


#: `fill` gives up after so many collections: no game is that long.
_MAX_FILLS = 1_000
_Numbers = dict[str, Num[Array, ""]]


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

    - `agent`: parameters and optimiser state, the same on every learning device.
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
    - `num_updates`: the number of batches sampled and learned from in a step.
    - `augment`: `(row, *, key) -> row` for one sampled row of `Batch.items`, or `None`.
    - `mesh`: the devices; by default the first one. [`zero_train.data_mesh`][] makes one of all.
    - `actor_devices`: how many of the mesh's devices, the first ones, only act, while the others
        learn from what was collected the step before. 0: all devices do both in turns.
    """

    _: dataclasses.KW_ONLY
    env: AbstractEnvironment
    agent: AbstractAgent
    buffer: AbstractBuffer
    unroll_length: int
    num_updates: int = 1
    augment: Callable[..., PyTree[Array]] | None = None
    mesh: Mesh = eqx.field(default_factory=lambda: data_mesh(1))
    actor_devices: int = 0

    def __check_init__(self) -> None:
        for name in ("unroll_length", "num_updates"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value} was given; it must be an integer, at least 1.")
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
        acting, learning = self.actor_mesh.shape["data"], self.learner_mesh.shape["data"]
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


def init(loop: Loop, *, key: PRNGKeyArray) -> LoopState:
    """Fresh parameters and environments and an empty buffer, laid out over the mesh.

    With `loop.actor_devices`, the first rows are collected as well.
    """
    # One program has one set of devices: all is made where it is learned from, then sent.
    learner = dataclasses.replace(loop, mesh=loop.learner_mesh, actor_devices=0)
    build = ft.partial(_fresh, loop)
    state = jax.jit(build, out_shardings=shardings(learner, _shapes(loop)))(key)
    if not loop.actor_devices:
        return state
    return _act_ahead(loop, send(state, shardings(loop, state)))


def template(loop: Loop) -> LoopState:
    """The shapes, dtypes and places of a state, which a checkpoint is restored into."""
    shapes = _shapes(loop)
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(place, shapes, shardings(loop, shapes))


def shardings(loop: Loop, state: LoopState) -> LoopState:
    """Where every leaf of `state` lives: a pytree of `NamedSharding`s of the same structure."""
    acting, learning = loop.actor_mesh, loop.learner_mesh
    parts: list[tuple[Callable[[Any], PyTree], Mesh, P]] = [
        (lambda s: s.episodes, acting, P("data")),
        (lambda s: (s.key, s.step), acting, P()),
        (lambda s: s.buffer, learning, P("data")),
    ]
    if state.handover is not None:
        parts += [
            (lambda s: s.handover.actor, acting, P()),
            (lambda s: s.handover.rows, learning, P("data")),
        ]
    result = places(learning, P(), state)
    for part, mesh, spec in parts:
        result = eqx.tree_at(part, result, places(mesh, spec, part(state)))
    return result


def fill(loop: Loop, state: LoopState) -> LoopState:
    """Collects and stores, without learning, until the buffer is ready.

    **Raises:** `ValueError` where the buffer is not ready after every environment could have filled
    it many times over.
    """
    collect_only = ft.partial(_step_side_by_side, learns=False) if loop.actor_devices else _collect
    for _ in range(_MAX_FILLS):
        if bool(loop.buffer.ready(state.buffer)):
            return state
        state, _ = collect_only(loop, state)
    raise ValueError(
        f"the buffer {loop.buffer} is not ready after {_MAX_FILLS * loop.unroll_length} rows of "
        f"{loop.num_envs} environments; give it more room or a smaller batch."
    )


def step(loop: Loop, state: LoopState) -> tuple[LoopState, _Numbers]:
    """Collects, stores, then `num_updates` times samples, augments and updates.

    Two jitted calls: one collects and stores, which [`zero_train.fill`][] uses too, and one
    learns; `state` is donated. An [`zero_train.AbstractBlockAgent`][] is shown the new rows
    before the first update. Where the agent's update returns priorities, the buffer is given them
    before the next batch is drawn.

    With `loop.actor_devices` the two calls run at the same time, on devices of their own. The rows
    that are stored and learned from are those of the step before. After the updates the actor is
    copied to the acting devices, so that the next step collects with the newest. The host waits
    for neither call, and no result depends on how long anything takes.

    **Returns:** the state, and metrics: means over the updates, what the agent says of the new
    rows, `positions` (ordinary rows stored) and `games` (episodes finished in them) of this step,
    and `failures`, the episodes cut short so far because the simulation broke down, where it can.
    With `loop.actor_devices` also `staleness`: how many gradient updates the agent was ahead, when
    the first batch was drawn, of the actor that had collected the newest rows.
    """
    if loop.actor_devices:
        return _step_side_by_side(loop, state)
    state, collected = _collect(loop, state)
    state, learned = _update_program(loop, state)
    return state, learned | collected


def compiled_step(
    loop: Loop, state: LoopState
) -> Callable[[LoopState], tuple[LoopState, _Numbers]]:
    """[`zero_train.step`][] for states like this one, or a [`zero_train.template`][] of them, whose
    learning is compiled now. Its collecting is compiled by [`zero_train.fill`][], or at the first
    call, and with `loop.actor_devices` both are."""
    if loop.actor_devices:
        return ft.partial(step, loop)
    arrays, static = eqx.partition(loop, eqx.is_array)  # `eqx.filter_jit` takes no template
    build = lambda arrays, state: _learn(eqx.combine(arrays, static), state)
    program = jax.jit(build, donate_argnums=1).lower(arrays, state).compile()
    return ft.partial(_step_in_turns, loop, ft.partial(program, arrays))


# The two halves of a step. Each runs on the devices that it belongs to.


def act(
    loop: Loop, actor: AbstractActor, episodes: Episodes, *, key: PRNGKeyArray
) -> tuple[Episodes, Experience]:
    """Collects on every acting device by itself, the same rows however many there are.

    **Returns:** the running episodes, and rows of `[envs, time]`.
    """
    arrays, static = eqx.partition(actor, eqx.is_array)
    local = lambda arrays, episodes, key: collect(
        loop.env,
        eqx.combine(arrays, static),
        episodes,
        indices=global_rows(episodes.ended.shape[0]),
        key=key,
        num_steps=loop.unroll_length,
    )
    run = on_every_device(loop.actor_mesh, local, (P(), P("data"), P()))
    return run(arrays, episodes, key)


def learn(
    loop: Loop, agent: PyTree[Array], buffer: PyTree[Array], *, key: PRNGKeyArray
) -> tuple[PyTree[Array], PyTree[Array], _Numbers]:
    """`num_updates` times draws a batch and updates; the metrics are means over the updates."""

    def update(carry: tuple[PyTree, PyTree], index: Array) -> tuple[tuple, _Numbers]:
        agent, buffer = carry
        dkey, ukey = jr.split(jr.fold_in(key, index))
        batch = draw(loop, buffer, key=dkey)
        agent, metrics, *priorities = loop.agent.update(agent, batch, key=ukey)
        if priorities:
            buffer = _prioritise(loop, buffer, batch, priorities[0])
        return (agent, buffer), metrics

    indices = jnp.arange(loop.num_updates, dtype=jnp.int32)
    carry = agent, buffer
    # XLA's CPU backend only makes the gradient of a convolution fast outside of control flow:
    # in a loop it takes 30 times as long. Otherwise a loop keeps compilation short.
    on_cpu = loop.mesh.devices.flat[0].platform == "cpu"
    unroll = loop.num_updates if on_cpu and _convolves(update, carry, indices[0]) else 1
    (agent, buffer), means = jax.lax.scan(update, carry, indices, unroll=unroll)
    return agent, buffer, jax.tree.map(jnp.mean, means)


def _take_in(
    loop: Loop, agent: PyTree[Array], buffer: PyTree[Array], rows: Experience
) -> tuple[PyTree[Array], PyTree[Array], _Numbers]:
    """Stores rows of `[envs, time]`, and shows them to an agent that wants to see them."""
    buffer = store(loop, buffer, rows)
    metrics: dict[str, Any] = {}
    if isinstance(loop.agent, AbstractBlockAgent):
        agent, metrics = loop.agent.digest(agent, rows)
    return agent, buffer, metrics


def _counts(rows: Experience) -> _Numbers:
    games = jnp.sum(rows.last, dtype=jnp.int32)
    return {"positions": rows.last.size - games, "games": games}


def store(loop: Loop, buffer: PyTree[Array], rows: Experience) -> PyTree[Array]:
    """Adds rows of `[envs, time]`, on every learning device to its own part of the buffer."""
    return on_every_device(loop.learner_mesh, loop.buffer.add, (P("data"), P("data")))(buffer, rows)


def draw(loop: Loop, buffer: PyTree[Array], *, key: PRNGKeyArray) -> Batch:
    """Samples and augments one global batch, every device from its own part of the buffer."""

    def local(buffer: PyTree, key: PRNGKeyArray) -> Batch:
        skey, akey = jr.split(key)
        batch = loop.buffer.sample(buffer, key=skey)
        if loop.augment is None:
            return batch
        augment = loop.augment
        keys = row_keys(akey, global_rows(batch.weights.shape[0]))
        items = jax.vmap(lambda row, key: augment(row, key=key))(batch.items, keys)
        return dataclasses.replace(batch, items=items)

    return on_every_device(loop.learner_mesh, local, (P("data"), P()))(buffer, key)


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
    run = on_every_device(loop.learner_mesh, update, (P("data"), P("data"), P("data")))
    return run(buffer, batch.indices, priorities)


def _convolves(function: Callable[..., Any], *args: PyTree) -> bool:
    return "conv_general_dilated" in str(jax.make_jaxpr(function)(*args))


def _failures(episodes: Episodes) -> _Numbers:
    """How many episodes have broken down since the run began, where any can."""
    return {} if episodes.failures is None else {"failures": jnp.sum(episodes.failures)}


def _keys(key: PRNGKeyArray, step: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of a collection and of the updates that follow when its rows are stored."""
    return jr.fold_in(key, 2 * step), jr.fold_in(key, 2 * step + 1)


# The halves in turns. They are two programs because the search is most of what is compiled, and
# `fill` needs it as well.


def _step_in_turns(
    loop: Loop, learns: Callable[[LoopState], tuple[LoopState, _Numbers]], state: LoopState
) -> tuple[LoopState, _Numbers]:
    state, collected = _collect(loop, state)
    state, learned = learns(state)
    return state, learned | collected


@eqx.filter_jit(donate="all-except-first")
def _collect(loop: Loop, state: LoopState) -> tuple[LoopState, _Numbers]:
    if state.handover is not None:
        raise ValueError(
            "the state is one of a loop with actor_devices; make one with `zero_train.init` of "
            "this loop."
        )
    akey, _ = _keys(state.key, state.step)
    actor = loop.agent.actor(state.agent, explore=True)
    episodes, rows = act(loop, actor, state.episodes, key=akey)
    agent, buffer, metrics = _take_in(loop, state.agent, state.buffer, rows)
    state = LoopState(agent, episodes, buffer, jr.clone(state.key), state.step + 1)
    state = jax.lax.with_sharding_constraint(state, shardings(loop, state))
    return state, metrics | _counts(rows) | _failures(episodes)


def _learn(loop: Loop, state: LoopState) -> tuple[LoopState, _Numbers]:
    """After `_collect`, which has counted the step."""
    _, lkey = _keys(state.key, state.step - 1)
    agent, buffer, metrics = learn(loop, state.agent, state.buffer, key=lkey)
    state = LoopState(agent, state.episodes, buffer, jr.clone(state.key), state.step)
    return jax.lax.with_sharding_constraint(state, shardings(loop, state)), metrics


_update_program = eqx.filter_jit(_learn, donate="all-except-first")


# The halves side by side: the host starts both, and sends on what each made for the other.


def _step_side_by_side(
    loop: Loop, state: LoopState, *, learns: bool = True
) -> tuple[LoopState, _Numbers]:
    before, after = _handover(state), _act_ahead(loop, state)
    given = before.rows, before.key, before.staleness
    learned = _learner_program((loop, learns), given, state.agent, state.buffer)
    agent, buffer, actor, staleness, metrics = learned
    actor = send(actor, places(loop.actor_mesh, P(), actor))
    handover = dataclasses.replace(_handover(after), actor=actor, staleness=staleness)
    after = dataclasses.replace(after, agent=agent, buffer=buffer, handover=handover)
    return after, metrics | _failures(after.episodes)


def _act_ahead(loop: Loop, state: LoopState) -> LoopState:
    """Collects rows and sends them to the learning devices, in place of those before them."""
    before, mesh = _handover(state), loop.learner_mesh
    acted = _actor_program(loop, before.actor, state.episodes, state.key, state.step)
    episodes, key, step, rows, lkey = acted
    rows, lkey = send(rows, places(mesh, P("data"), rows)), send(lkey, places(mesh, P(), lkey))
    handover = dataclasses.replace(before, rows=rows, key=lkey)
    return LoopState(state.agent, episodes, state.buffer, key, step, handover)


def _dispatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jits `function(fixed, given, *donated)`. `eqx.filter_jit` would wait until it has ended."""

    @ft.partial(jax.jit, static_argnums=0, donate_argnums=3)
    def program(static: Any, arrays: PyTree[Array], given: PyTree[Array], donated: tuple) -> Any:
        leaves, structure = static
        fixed = eqx.combine(arrays, jax.tree.unflatten(structure, leaves))
        return function(fixed, given, *donated)

    @ft.wraps(function)
    def dispatch(fixed: Any, given: PyTree[Array], *donated: PyTree[Array]) -> Any:
        arrays, static = eqx.partition(fixed, eqx.is_array)
        leaves, structure = jax.tree.flatten(static)
        return program((tuple(leaves), structure), arrays, given, donated)

    return dispatch


@_dispatched
def _actor_program(
    loop: Loop, arrays: PyTree[Array], episodes: Episodes, key: PRNGKeyArray, step: Int[Array, ""]
) -> tuple[Episodes, PRNGKeyArray, Int[Array, ""], Experience, PRNGKeyArray]:
    build = lambda: loop.agent.actor(loop.agent.init(key=jr.key(0)), explore=True)
    akey, lkey = _keys(key, step)
    episodes, rows = act(loop, with_arrays(build, arrays), episodes, key=akey)
    return episodes, jr.clone(key), step + 1, rows, lkey


@_dispatched
def _learner_program(
    fixed: tuple[Loop, bool],
    given: tuple[Experience, PRNGKeyArray, Int[Array, ""]],
    agent: PyTree[Array],
    buffer: PyTree[Array],
) -> tuple[PyTree[Array], PyTree[Array], PyTree[Array], Int[Array, ""], _Numbers]:
    (loop, learns), (rows, key, staleness) = fixed, given
    agent, buffer, metrics = _take_in(loop, agent, buffer, rows)
    metrics["staleness"] = staleness.astype(jnp.float32)
    if learns:
        agent, buffer, learned = learn(loop, agent, buffer, key=key)
        metrics = learned | metrics | _counts(rows)
    # Of an agent's state the acting devices need the actor, and not the optimiser.
    staleness = jnp.asarray(loop.num_updates if learns else 0, jnp.int32)
    small = agent, _actor_arrays(loop, agent), staleness
    small = jax.lax.with_sharding_constraint(small, places(loop.learner_mesh, P(), small))
    agent, actor, staleness = small
    return agent, buffer, actor, staleness, metrics


def _actor_arrays(loop: Loop, agent: PyTree[Array]) -> PyTree[Array]:
    return eqx.filter(loop.agent.actor(agent, explore=True), eqx.is_array)


def _handover(state: LoopState) -> Handover:
    if state.handover is None:
        raise ValueError(
            "the state is one of a loop without actor_devices; make one with "
            "`zero_train.init` of this loop."
        )
    return state.handover


# A state before anything has been collected.


def _fresh(loop: Loop, key: PRNGKeyArray) -> LoopState:
    akey, ekey, lkey = jr.split(key, 3)
    agent = loop.agent.init(key=akey)
    indices = jnp.arange(loop.num_envs, dtype=jnp.int32)
    actor = loop.agent.actor(agent, explore=True)
    keys = row_keys(ekey, indices)
    episodes = start(loop.env, actor, keys=keys, num_steps=loop.unroll_length)
    unroll = lambda: collect(
        loop.env, actor, episodes, indices=indices, key=lkey, num_steps=loop.unroll_length
    )
    _, rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(unroll))
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), rows)
    zero = jnp.zeros((), jnp.int32)
    state = LoopState(agent, episodes, loop.buffer.init(example), lkey, zero)
    if not loop.actor_devices:
        return state
    handover = Handover(_actor_arrays(loop, agent), rows, lkey, zero)
    return dataclasses.replace(state, handover=handover)


def _shapes(loop: Loop) -> LoopState:
    return jax.eval_shape(ft.partial(_fresh, loop), jr.key(0))
