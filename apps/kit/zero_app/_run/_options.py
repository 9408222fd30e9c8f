"""How a run is run, apart from what is trained: devices, processes and the run folder."""

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import tyro

from .._command._config import check_fields, Count, inherited, NonNegative
from .._command._errors import flag, UsageError
from .._command._lazy import jax
from ._lines import read_json, RunError
from ._provenance import CONFIG


Config = TypeVar("Config")

#: What is said where the package is not installed that a flag needs; its extra has its name.
MISSING = (
    "{0} needs the package {1}; begin the command with `uv run --extra {1}` or install it with "
    "`pip install {1}`, or leave the flag out."
)
#: A resumed run may save more or less often; everything else must be as it was.
MAY_DIFFER = ("checkpoint_every",)
_MOST_SEEDS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """The devices of a run, and the processes that they belong to."""

    devices: Count | None = None
    """Devices to split games, trees and replay over, of all processes together; by default all
    accelerators, as far as they are a power of two, or one CPU device a process. On a CPU they are
    virtual."""
    fsdp: Count = 1
    """How many neighbouring devices hold parameters and optimiser state together, a part each
    (fully sharded data parallel), where one is too small for all of it. It divides --devices."""
    coordinator: str | None = None
    """HOST:PORT of process 0, where several processes train together. Under SLURM, Open MPI up to
    4, Kubernetes (with the package kubernetes) and on TPU slices no flag is needed."""
    process_id: int | None = None
    """The number of this process, from 0."""
    num_processes: Count | None = None
    """How many processes train together."""

    def __post_init__(self) -> None:
        check_fields(self)
        names = "coordinator", "process_id", "num_processes"
        lacking = [flag(name) for name in names if getattr(self, name) is None]
        if len(lacking) == len(names):
            return
        if lacking:
            raise UsageError(
                f"{' and '.join(lacking)} missing; give --coordinator, --process-id and "
                "--num-processes, or none of them under a launcher that JAX knows."
            )
        host, _, port = str(self.coordinator).rpartition(":")
        if not _is_name(host) or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise UsageError(
                f"--coordinator {self.coordinator} was given; give HOST:PORT of process 0, such as "
                "10.0.0.1:9876."
            )
        here, count = int(self.process_id or 0), int(self.num_processes or 1)
        if here >= count:
            raise UsageError(
                f"--process-id {here} of --num-processes {count} was given; give 0 to {count - 1}."
            )

    @property
    def processes(self) -> int:
        """How many processes there will be, as far as that is known before they have met."""
        if self.num_processes is not None:
            return self.num_processes
        # In a job of SLURM, what srun did not start is one process.
        by_srun = "SLURM_STEP_NODELIST" in os.environ
        return max(_number("OMPI_COMM_WORLD_SIZE"), _number("SLURM_NTASKS") if by_srun else 1)

    @property
    def num_devices(self) -> int:
        """The devices asked for, or what they are by default. Asking starts JAX."""
        if self.devices is not None:
            return self.devices
        if jax.devices()[0].platform == "cpu":
            return jax.process_count()
        return 1 << (jax.device_count().bit_length() - 1)


def _is_name(host: str) -> bool:
    """Whether a name of a host can be looked up."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def _number(variable: str) -> int:
    """The processes that a launcher says in a variable of the environment, 1 without it."""
    given = os.environ.get(variable, "1")
    if not given.isdecimal():
        raise UsageError(f"{variable}={given} is set; give a whole number, or unset it.")
    return int(given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is run. No option changes its numbers, but for the shards of more than 8 devices
    (see [`zero_app.AbstractConfig`][])."""

    out: pathlib.Path
    """The run folder, which all processes must see."""
    resume: bool = False
    """Go on with the run in the folder, exactly where it was saved."""
    max_minutes: NonNegative | None = None
    """Save, evaluate and stop so many minutes after the command began; --resume goes on. Compiling
    counts too."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the extra wandb)."""
    mlflow: bool = False
    """Also log to MLflow, at MLFLOW_TRACKING_URI, by default a file in the working folder (needs
    the extra mlflow)."""
    run_code: bool = False
    """Run code that the configuration of --init's run names."""
    launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch()
    """The devices, and the processes that they belong to."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("wandb", "mlflow"):
            if getattr(self, name) and importlib.util.find_spec(name) is None:
                raise UsageError(MISSING.format(flag(name), name))


def of_seeds(
    config: Config, options: Options, seeds: Sequence[int]
) -> list[tuple[Config, Options]]:
    """The runs of a command: itself, or one of each of its seeds."""
    if not seeds:
        return [(config, options)]
    known: Any = config
    given = " ".join(map(str, seeds))
    if len(seeds) == 1:
        if not 1 <= seeds[0] <= _MOST_SEEDS:
            raise UsageError(
                f"--seeds {given} was given; give how many, at most {_MOST_SEEDS}, or several."
            )
        seeds = range(known.seed, known.seed + seeds[0])
    elif len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {given} was given; give each seed once.")
    if options.launch.processes > 1:
        raise UsageError("--seeds was given to several processes; give each run its --seed.")
    if os.path.lexists(options.out / CONFIG):
        raise UsageError(
            f"{options.out} holds a run; give --seeds another --out, the folder of their runs."
        )
    runs = []
    for seed in seeds:
        out = options.out / f"seed-{seed}"
        resume = options.resume and os.path.lexists(out / CONFIG)
        one = dataclasses.replace(options, out=out, resume=resume)
        runs.append((dataclasses.replace(known, seed=seed), one))
    return runs


def folder_of(config: Any, options: Options) -> dict[str, Any]:
    """The arguments of `check` and `create` of [`zero_app.RunFolder`][]."""
    return {
        "path": options.out,
        "config": dataclasses.asdict(config),
        "resume": options.resume,
        "absent": inherited(type(config), "absent"),
        "may_differ": MAY_DIFFER,
    }


def following(config: Config, options: Options) -> Config:
    """The configuration with the shards that follow from the devices: one a learning device, where
    these are a power of two and more than its shards. A run to resume keeps those that it has."""
    known: Any = config
    number = options.launch.num_devices
    learners = number - known.actor_devices
    shards = max(known.shards, learners) if learners & (learners - 1) == 0 else known.shards
    if options.resume:
        with contextlib.suppress(RunError, KeyError, TypeError):
            stored = read_json(options.out / "config.json")["shards"]
            if type(stored) is int and stored > 0:  # else it is refused with the rest of the file
                shards = stored
    try:
        return dataclasses.replace(known, shards=shards)
    except UsageError as e:
        who = f"The run in {options.out} has" if options.resume else f"{number} devices ask for"
        raise UsageError(f"{who} {shards} shards: {e}") from e
