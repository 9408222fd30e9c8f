"""A model on paper of a training step on many devices. It measures nothing.

It prints the tables of docs/cluster-model.md: the seconds of a step of Othello, part by part, on 8
and 256 H200s and on a TPU v5e of 16x16, with the games of the preset and with as many a device as
it has on one; what a doubled assumption would change; and what it would gain to act and to learn on
different hosts. What goes in is the work, which is read off the configuration without running it
(`work_of`), what was measured or compiled (`COMPILED`, `SHARDS`), and what is assumed of the
devices (`CLUSTERS`, `ASSUMED`).

    uv run python benchmarks/cluster_model.py
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices and their links. Seconds, bytes and operations a second.

    **Attributes:**

    - `devices`, `hosts`: how many there are.
    - `peak`: operations of one device, at the precision that JAX multiplies with by default.
    - `launch`: of a kernel, or the least a TPU's operation takes.
    - `turn`: beyond its kernels, of a turn of a loop whose length is not known.
    - `latency`, `bandwidth`: of a sum over all devices, which takes
        `latency + 2 * bytes / bandwidth`.
    - `near`: the latency of a gather from the other devices of a host.
    - `memory`: bytes a second that a device reads or writes.
    """

    name: str
    devices: int
    hosts: int
    peak: float
    launch: float
    turn: float
    latency: float
    bandwidth: float
    near: float
    memory: float


def nccl_latency(hosts: int, per_host: int = 8) -> float:
    """The seconds of a small sum as NCCL itself models them (src/graph/tuning.cc, a tree, LL128):
    4.4 us, and twice 1.2 us for each other GPU of a host and 8.5 us for each doubling of hosts."""
    return 1e-6 * (4.4 + 2 * (1.2 * (per_host - 1) + 8.5 * (hosts.bit_length() - 1)))


_H200: dict[str, float] = {
    **{"peak": 494e12, "launch": 3e-6, "turn": 8e-6},
    **{"near": nccl_latency(1), "memory": 4.8e12},
}
CLUSTERS = (
    Cluster("8 H200s", 8, 1, latency=nccl_latency(1), bandwidth=450e9, **_H200),
    Cluster("256 H200s", 256, 32, latency=nccl_latency(32), bandwidth=400e9, **_H200),
    # 1 us a hop, half a ring of 16 along both axes, there and back; four links of 45 GB/s.
    Cluster("v5e:16x16", 256, 32, 197e12, 1e-6, 1e-6, 32e-6, 180e9, near=4e-6, memory=819e9),
)


@dataclasses.dataclass(frozen=True)
class Assumed:
    """What is neither known of a device nor compiled.

    **Attributes:**

    - `utilisation`: of the peak by the network, whatever its batch.
    - `copy`: bytes a second that a host copies from its devices for a checkpoint.
    - `disk`: bytes a second that all processes together write.
    - `wire`: bytes a second that pass between acting and learning hosts.
    - `plies`: of a game of an evaluation.
    """

    utilisation: float = 0.3
    copy: float = 5e9
    disk: float = 1e9
    wire: float = 50e9
    plies: int = 60


ASSUMED = Assumed()


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Kernels on an H200: of a step once, of a move, of a simulation, of a turn of each of its
    loops down, up and over the scores, and of an update."""

    once: int
    move: int
    simulation: int
    loops: tuple[int, ...]
    update: int


#: Othello, standard: the column `launches` of `accelerators --targets h200x1 --cases othello`,
#: compiled before Gumbel search launched 4 kernels fewer a simulation.
COMPILED = Compiled(once=181, move=95, simulation=53, loops=(7, 7, 10), update=392)


@dataclasses.dataclass(frozen=True)
class Shards:
    """What `train_shards.py` found: turns of the loops of a simulation, and the most turns of so
    many shards over the mean ones."""

    turns: tuple[float, ...]
    straggler: Mapping[int, float]


#: By the games of a shard, of the preset quick: `train_shards.py --train 45 --steps 15 --every 1
#: --repeats 4 --games 4 16 128`. Of 128 games there was one shard; 16 say how uneven.
_UNEVEN = {8: 1.068, 64: 1.122, 256: 1.151}
SHARDS = {
    4: Shards((1.05, 1.05, 0.64), {8: 1.063, 64: 1.139, 256: 1.189}),
    16: Shards((1.13, 1.13, 1.19), _UNEVEN),
    128: Shards((1.29, 1.29, 1.35), _UNEVEN),
}

#: All-gathers of an update of Othello, standard, in the program for a v5e:2x2.
ARRAYS = 15

#: Search time over update time: what `train_apart.py` found, and 21.7 of the preset large.
RATIOS = 0.1, 0.5, 1.0, 4.8, 21.7
#: What weaker devices search for their price, over a strong one.
PRICES = 0.5, 0.73, 1.19, 1.5, 2.0


@dataclasses.dataclass(frozen=True)
class Work:
    """What all devices do in a step, and beside it.

    **Attributes:**

    - `evaluation_flops`: of the network for one position; `row_flops`: of an update for one row.
    - `gradient`, `state`: bytes; `rows`: those collected in a step.
    - `evaluated`: simulations of a ply of an evaluation, one after another.
    """

    games: int
    moves: int
    simulations: int
    updates: int
    batch: int
    evaluation_flops: float
    row_flops: float
    gradient: float
    rows: float
    state: float
    evaluated: int
    evaluate_every: int


def all_reduce(cluster: Cluster, size: float) -> float:
    """The seconds of a sum of so many bytes over all devices."""
    return cluster.latency + 2 * size / cluster.bandwidth


def simulation(
    cluster: Cluster, compiled: Compiled, turns: tuple[float, ...], flops: float, assumed: Assumed
) -> dict[str, float]:
    """The seconds of a simulation of one device's games, the evaluation of which takes so many
    operations."""
    per_turn = [number * cluster.launch + cluster.turn for number in compiled.loops]
    return {
        "launches": compiled.simulation * cluster.launch,
        "turns": sum(t * each for t, each in zip(turns, per_turn, strict=True)),
        "search FLOPs": flops / (cluster.peak * assumed.utilisation),
    }


def step(
    cluster: Cluster,
    work: Work,
    shards: Shards,
    compiled: Compiled = COMPILED,
    assumed: Assumed = ASSUMED,
) -> dict[str, float]:
    """The seconds of a step, part by part; those of evaluations and checkpoints are spread over the
    steps between them."""
    flops = work.evaluation_flops * work.games / cluster.devices
    each = simulation(cluster, compiled, shards.turns, flops, assumed)
    number = work.moves * work.simulations
    parts = {name: number * value for name, value in each.items()}
    parts["launches"] += (compiled.once + work.moves * compiled.move) * cluster.launch
    parts["stragglers"] = (shards.straggler[cluster.devices] - 1) * parts["turns"]
    parts["update launches"] = work.updates * compiled.update * cluster.launch
    learned = work.updates * work.batch * work.row_flops / cluster.devices
    parts["update FLOPs"] = learned / (cluster.peak * assumed.utilisation)
    parts["sums"] = work.updates * (all_reduce(cluster, 0) + all_reduce(cluster, work.gradient))
    # Matches have too few games to fill the devices: their plies take launches and turns.
    played = assumed.plies * work.evaluated * (each["launches"] + each["turns"])
    parts["evaluation"] = played / work.evaluate_every
    copying, writing = work.state / cluster.hosts / assumed.copy, work.state / assumed.disk
    parts["checkpoints"] = sum(parts.values()) * stopped(copying, writing)
    return parts


def stopped(copying: float, writing: float) -> float:
    """The seconds that checkpoints by the clock stop training, for each second that it goes on.

    Training waits for the copy. It goes on for 60 s, or for 20 times what the checkpoint takes
    until it is on disk, if that is longer.
    """
    return copying / max(60, 20 * (copying + writing))


# Acting and learning apart. `search` and `update` are the seconds of a step that its devices share,
# as one device needs them; `floor` is what of each gets no shorter with more devices, as launches.


def in_turns(
    search: float, update: float, devices: int, floor: tuple[float, float] = (0.0, 0.0)
) -> float:
    """The seconds of a step if all devices do both, one after the other."""
    return sum(floor) + (search + update) / devices


def apart(
    search: float, update: float, devices: int, floor: tuple[float, float] = (0.0, 0.0)
) -> float:
    """The seconds if some only act, the best number of them, and the others only learn."""
    slower = lambda k: max(floor[0] + search / k, floor[1] + update / (devices - k))
    return min(slower(k) for k in range(1, devices))


def saved_on_weaker(ratio: float, price: float) -> float:
    """What a step costs on strong devices alone, over what it costs if these only learn and weaker
    ones act.

    **Arguments:**

    - `ratio`: search time over update time on a strong device.
    - `price`: how much a weaker device searches for its price, over a strong one.
    """
    return (ratio + 1) / (ratio / price + 1)


# Parameters in parts, which the devices of a host hold together.


def kept_whole(cluster: Cluster, size: float) -> float:
    """The seconds of an update beside the network's own, of a gradient of so many bytes: its two
    sums, and AdamW on every device, which reads parameters, gradient and two moments, and writes
    all but the gradient."""
    return all_reduce(cluster, 0) + all_reduce(cluster, size) + 7 * size / cluster.memory


def kept_in_parts(
    cluster: Cluster, size: float, *, arrays: int, updates: int, targets: bool = False
) -> float:
    """The same where the devices of a host hold all together.

    **Arguments:**

    - `arrays`: that the parameters have. Each is gathered for itself: in an update, and once in a
        step for the search.
    - `updates`: of a step.
    - `targets`: whether a target network evaluates the batch, which is gathered as well.
    """
    together = cluster.devices // cluster.hosts
    gathers = 1 + targets + 1 / updates
    gathered = gathers * (arrays * cluster.near + size / cluster.bandwidth)
    scattered = cluster.near + size / cluster.bandwidth
    among_hosts = all_reduce(cluster, size / together) if cluster.hosts > 1 else 0.0
    own = 7 * size / together / cluster.memory
    return all_reduce(cluster, 0) + gathered + scattered + among_hosts + own


def work_of(preset: str) -> Work:
    """The work of Othello, read off its configuration."""
    import jax
    import jax.random as jr
    from train_devices import configured

    from zero_train import draw, matrix_flops, template

    app, config = configured(f"othello/{preset}", None)
    loop: Any = app.build(config)
    state = template(loop)
    size = lambda tree: float(sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)))
    obs = jax.eval_shape(lambda: loop.env.observe(loop.env.init(key=jr.key(0))))
    evaluate = lambda params, obs: loop.agent.evaluator(params)(obs)
    drawn = lambda agent, buffer: draw(loop, agent, buffer, key=jr.key(0))
    batch = jax.eval_shape(drawn, state.agent, state.buffer)
    update = lambda agent, batch: loop.agent.update(agent, batch, key=jr.key(0))
    stored = size(state.buffer) / (config.envs * config.capacity)
    # A ply of four matches: one side searches against two fixed players, both against two earlier
    # selves.
    evaluated = 6 * (config.ladder_simulations + 1)
    return Work(
        games=config.envs,
        moves=config.unroll,
        simulations=config.simulations + 1,  # the root is evaluated as well
        updates=config.updates,
        batch=config.batch,
        evaluation_flops=matrix_flops(evaluate, state.agent.params, obs),
        row_flops=matrix_flops(update, state.agent, batch) / config.batch,
        gradient=size(state.agent.params),
        rows=stored * config.envs * config.unroll,
        state=size(state),
        evaluated=evaluated,
        evaluate_every=config.evaluate_every,
    )


# The tables.


def larger(work: Work, times: int) -> Work:
    """So many times the games and rows of a batch. Of the state, replay and games grow."""
    kept = 4 * work.gradient  # parameters, their average, and two moments of them
    return dataclasses.replace(
        work,
        games=times * work.games,
        batch=times * work.batch,
        rows=times * work.rows,
        state=kept + times * (work.state - kept),
    )


Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _shards(games: float) -> Shards:
    """What was measured of the largest shards that have no more games."""
    return SHARDS[max(size for size in SHARDS if size <= games)]


def _settings(work: Work) -> Iterator[tuple[str, Cluster, Work]]:
    """Each cluster with the preset's games, and with as many a device as the preset has on one."""
    for cluster in CLUSTERS:
        yield f"{cluster.name}, as is", cluster, work
        yield f"{cluster.name}, x {cluster.devices}", cluster, larger(work, cluster.devices)


def _doubts() -> dict[str, Callable[[Cluster, Assumed], tuple[Cluster, Assumed]]]:
    change = dataclasses.replace
    return {
        "as assumed": lambda c, a: (c, a),
        "a launch takes twice as long": lambda c, a: (change(c, launch=2 * c.launch), a),
        "a turn takes twice as long": lambda c, a: (change(c, turn=2 * c.turn), a),
        "half the utilisation": lambda c, a: (c, change(a, utilisation=a.utilisation / 2)),
        "ten times the latency": lambda c, a: (change(c, latency=10 * c.latency), a),
        "a tenth of the links": lambda c, a: (change(c, bandwidth=c.bandwidth / 10), a),
        "ten times the disk": lambda c, a: (c, change(a, disk=10 * a.disk)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--preset", default="standard", help="of Othello")
    work = work_of(parser.parse_args().preset)
    print(work)
    tables = _parts(work), _changes(work), _apart(work), _weaker(), _together(work.updates)
    for rows in tables:
        print("\n" + table(*rows))


def _parts(work: Work) -> Table:
    settings = {name: (cluster, large) for name, cluster, large in _settings(work)}
    steps = [_step(*setting) for setting in settings.values()]
    rows = [(name, *(_ms(parts[name]) for parts in steps)) for name in steps[0]]
    rows.append(("a step", *(_ms(sum(parts.values())) for parts in steps)))
    moved = [large.games * large.moves for _, large in settings.values()]
    rates = (_number(n / sum(parts.values())) for n, parts in zip(moved, steps, strict=True))
    return ("milliseconds", *settings), [*rows, ("positions a second", *rates)]


def _changes(work: Work) -> Table:
    settings = list(_settings(work))
    rows = []
    for name, change in _doubts().items():
        steps = []
        for _, cluster, large in settings:
            changed, assumed = change(cluster, ASSUMED)
            steps.append(_ms(sum(_step(changed, large, assumed).values())))
        rows.append((name, *steps))
    return ("a step, ms", *(name for name, _, _ in settings)), rows


def _apart(work: Work) -> Table:
    rows = []
    for name, cluster, large in _settings(work):
        parts, devices = _step(cluster, large), cluster.devices
        fixed = parts["launches"] + parts["turns"] + parts["stragglers"]
        floor = fixed, parts["update launches"] + parts["sums"]
        shared = devices * parts["search FLOPs"], devices * parts["update FLOPs"]
        both, split = in_turns(*shared, devices, floor), apart(*shared, devices, floor)
        sent = (large.rows + work.gradient) / ASSUMED.wire
        rows.append((name, _ms(both), _ms(split), f"{both / split:.2f}", _ms(sent)))
    return ("", "in turns, ms", "apart, ms", "times as fast", "rows and actor sent, ms"), rows


def _weaker() -> Table:
    rows = []
    for ratio in RATIOS:
        most = (ratio + 1) / max(ratio, 1)
        saved = (f"{saved_on_weaker(ratio, price):.2f}" for price in PRICES)
        rows.append((ratio, f"{most:.2f}", *saved))
    return ("search over update", "at most", *(f"price {price}" for price in PRICES)), rows


def _together(updates: int) -> Table:
    """An update whole and in parts, in milliseconds. Below them, the gradient in MB from which on
    parts are faster: both times are a constant and something for each byte."""
    rows = []
    for size in (7.1e6, 1e8, 1e9, 1e10):
        row = []
        for cluster in CLUSTERS:
            row.append(_ms(kept_whole(cluster, size)))
            for targets in (False, True):
                row.append(_ms(_kept(cluster, size, updates, targets)))
        rows.append((_number(size / 1e6), *row))
    least = ["faster from"]
    for cluster in CLUSTERS:
        least.append("")
        for targets in (False, True):
            loses = [
                _kept(cluster, size, updates, targets) - kept_whole(cluster, size)
                for size in (0.0, 1e9)
            ]
            slope = (loses[0] - loses[1]) / 1e9
            least.append(_number(loses[0] / slope / 1e6) if slope > 0 else "never")
    head = (
        f"{cluster.name}, {how}" for cluster in CLUSTERS for how in ("whole", "parts", "targets")
    )
    return ("gradient, MB", *head), [*rows, tuple(least)]


def _kept(cluster: Cluster, size: float, updates: int, targets: bool) -> float:
    return kept_in_parts(cluster, size, arrays=ARRAYS, updates=updates, targets=targets)


def _step(cluster: Cluster, work: Work, assumed: Assumed = ASSUMED) -> dict[str, float]:
    return step(cluster, work, _shards(work.games / cluster.devices), COMPILED, assumed)


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return _number(value) if value >= 100 else f"{value:.2g}"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


if __name__ == "__main__":
    main()
