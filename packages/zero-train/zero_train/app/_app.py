"""What an app is, and the trained player of one of its runs."""

import abc
import dataclasses
import operator
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.random as jr
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray, PyTree

from .. import AbstractActor, Checkpoints, data_mesh, Loop
from .._learning import with_arrays
from ._config import AbstractConfig, Bounds, load_config
from ._errors import as_usage_error, UsageError, warn
from ._evaluation import Evaluate, network_alone, RunFiles
from ._film import Frame, player
from ._page import charts
from ._report import Axis, page_of, StoredRun, write_page


Config = TypeVar("Config", bound=AbstractConfig)


@dataclasses.dataclass(frozen=True)
class AbstractCommand(abc.ABC):
    """A command of an app: a frozen dataclass with a flag for each field, documented by the string
    below it. The first sentence of its docstring describes it.

    **Attributes:**

    - `bounds`: the least and the greatest value of its fields, as in
        [`zero_train.app.AbstractConfig`][].
    """

    bounds: ClassVar[Bounds] = {}

    @abc.abstractmethod
    def __call__(self, app: "App[Any]") -> None:
        """Runs the command of an app, after JAX has started."""


@dataclasses.dataclass(frozen=True)
class App(Generic[Config]):
    """A command line with `train`, `report` and commands of its own; see
    [`zero_train.app.main`][].

    **Attributes:**

    - `name`: the command.
    - `about`: a description of one line.
    - `presets`: configurations by name, all of one class.
    - `build`: the training loop of a configuration, for one device.
    - `evaluation`: called when a run starts or is resumed. What it returns is called with the
        player at full strength every `evaluate_every` steps and after the last one, in a thread, so
        that signals are heard. Its state must follow from its arguments, so that a resumed run
        writes the same lines as one that never stopped. The default fits agents that search a tree.
    - `page`: the report's own figures and sections.
    - `episode`: `(trained, key)`, the pictures of an episode of a player, for the report; `None`
        where there are none.
    - `commands`: others than `train` and `report`.
    - `preset`: the name of the default preset; by default the first.
    - `operands`: those of `train`, where the app's command line takes some before the flags.
    - `num_steps`: the steps of the loop in a whole run; by default the configuration's `steps`.
    """

    name: str
    about: str
    presets: Mapping[str, Config]
    build: Callable[[Config], Loop]
    evaluation: Callable[[Config, Loop, RunFiles], Evaluate] = network_alone
    page: Callable[[StoredRun], tuple[Mapping[str, str], list[str]]] = page_of
    episode: "Callable[[Trained[Config], PRNGKeyArray], Iterator[Frame]] | None" = None
    commands: Mapping[str, type[AbstractCommand]] = dataclasses.field(default_factory=dict)
    preset: str | None = None
    operands: str = ""
    num_steps: Callable[[Config], int] = operator.attrgetter("steps")

    @property
    def config(self) -> type[Config]:
        """The class of the configurations."""
        return type(next(iter(self.presets.values())))


@dataclasses.dataclass(frozen=True)
class Trained(Generic[Config]):
    """A trained player.

    **Attributes:**

    - `config`: the configuration of its run.
    - `loop`: what was built from it, for one device.
    - `player`: the player at full strength.
    - `step`: the number of training steps so far.
    """

    config: Config
    loop: Loop
    player: AbstractActor
    step: int


def load(app: App[Config], run: str | os.PathLike[str]) -> Trained[Config]:
    """The newest player of a run. Where its parameters are damaged a warning says so, and the ones
    before are loaded.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run of this app;
    [`zero_train.CheckpointError`][] where all parameters are damaged, there are none, or they do
    not fit config.json.
    """
    config = load_config(app.config, run, app.name)
    loop = built(app, config)
    saved = Checkpoints(pathlib.Path(run) / "parameters", keep=None)
    step, arrays = saved.restore_latest(player_shapes(loop), tell=warn)
    return Trained(config, loop, player_of(loop, arrays), step)


def write_report(
    app: App[Any],
    folder: str | os.PathLike[str],
    axis: Axis = "steps",
    *,
    films: Sequence[str] = (),
    refresh: int = 0,
) -> pathlib.Path:
    """Writes `report.html` into the folder of a run, and replaces an earlier one. The page loads no
    other files. Parts whose data is missing are left out.

    **Arguments:**

    - `axis`: what charts are drawn over.
    - `films`: what `films` returned.
    - `refresh`: the seconds after which a browser reads the page again; 0 for never.

    **Returns:** its path.
    """
    run = StoredRun.read(folder, axis)
    figures, sections = app.page(run)
    sections = [*sections, charts("Episodes", *films)]
    named = dict.fromkeys((app.name, run.config.get("agent"), run.config.get("env")))
    return write_page(run, " ".join(filter(None, named)), figures, sections, refresh=refresh)


def films(app: App[Config], run: str | os.PathLike[str], number: int, seed: int = 0) -> list[str]:
    """Episodes of so many players of a run, from the first to the newest, as parts of a page. All
    begin with the same randomness. There are none where the app has no pictures.

    **Raises:** as `load`.
    """
    if app.episode is None or not number:
        return []
    newest = load(app, run)
    saved = Checkpoints(pathlib.Path(run) / "parameters", keep=None)
    steps = [step for step in saved.steps() if step <= newest.step]
    # Evenly over the training, and the newest in any case.
    goals = [
        newest.step * (i + 1 - number) / max(number - 1, 1) + newest.step for i in range(number)
    ]
    chosen = sorted({min(steps, key=lambda step: abs(step - goal)) for goal in goals})
    shapes, played = player_shapes(newest.loop), []
    for step in chosen:
        one = newest
        if step != newest.step:
            actor = player_of(newest.loop, saved.restore(shapes, step=step))
            one = dataclasses.replace(newest, player=actor, step=step)
        frames = list(app.episode(one, jr.key(seed)))
        # A long episode is shown in fewer pictures, with its end.
        every = -(-len(frames) // _MOST_FRAMES)
        shown = frames[:-1:every] + frames[-1:]
        heading = f"The player of step {step:,}" if step else "Before training"
        played.append(player(heading, "", shown))
    return played


#: The pictures of an episode in a report.
_MOST_FRAMES = 200


def built(app: App[Config], config: Config, devices: int | None = None, fsdp: int = 1) -> Loop:
    """The loop of a configuration; without `devices` to play on one, which need not learn.

    **Raises:** [`zero_train.app.UsageError`][] where it cannot be built.
    """
    with as_usage_error():
        loop = app.build(config)
        if devices is None:
            return loop
        processes = jax.process_count()
        if devices % processes:
            raise UsageError(
                f"{devices} devices cannot be shared by {processes} processes; give --devices a "
                f"multiple of {processes}."
            )
        learners = devices - config.actor_devices
        if learners > 0 and config.shards % learners:
            who = f"{devices} devices"
            if config.actor_devices:
                who = f"the {learners} of {devices} devices that learn"
            *few, most = (n for n in range(1, config.shards + 1) if config.shards % n == 0)
            fit = f"{', '.join(map(str, few))} or {most}" if few else f"{most}"
            raise UsageError(
                f"--shards {config.shards} does not divide over {who}; give {fit} devices that "
                f"learn, or a new run --shards of a multiple of {learners} that divides --envs and "
                "--batch."
            )
        acting = config.actor_devices
        mesh = data_mesh(devices, fsdp=fsdp)
        return dataclasses.replace(loop, mesh=mesh, actor_devices=acting)


# A player is saved as the arrays of the agent's actor at full strength.


def player_arrays(loop: Loop, agent: PyTree[Array]) -> PyTree[Array]:
    """What is saved of a player, on one device: the state is on all devices of the mesh, and an
    evaluation would run on all of them. Of several processes each has all of it."""
    arrays = eqx.filter(loop.agent.actor(agent, explore=False), eqx.is_array)
    alone = jax.process_count() == 1
    where = jax.devices()[0] if alone else NamedSharding(loop.learner_mesh, PartitionSpec())
    return jax.device_put(arrays, where)


def player_shapes(loop: Loop) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of [`player_arrays`]."""
    shapes = eqx.filter_eval_shape(lambda: _fresh(loop))
    return eqx.filter(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))


def player_of(loop: Loop, arrays: PyTree[Array]) -> AbstractActor:
    """The player with these arrays, on a device of this process."""
    here = lambda x: x if getattr(x, "is_fully_addressable", True) else x.addressable_data(0)
    return with_arrays(lambda: _fresh(loop), jax.device_put(jax.tree.map(here, arrays)))


def _fresh(loop: Loop) -> AbstractActor:
    return loop.agent.actor(loop.agent.init(key=jr.key(0)), explore=False)
