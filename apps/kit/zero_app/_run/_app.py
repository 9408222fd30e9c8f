"""What an app is, and the report of one of its runs."""

import abc
import collections
import dataclasses
import functools
import importlib.metadata
import operator
import os
import pathlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TYPE_CHECKING, TypeVar

import zero_envs

from .._command._config import AbstractConfig
from .._command._errors import as_usage_error, UsageError
from .._command._lazy import jax, zero_train
from ._disk import write_whole
from ._film import Frame, kept_films
from ._page import charts, figures, page
from ._report import Axis, configuration, optimisation, page_of, progress, speed, StoredRun


if TYPE_CHECKING:
    from ._evaluation import Evaluate, RunFiles

Config = TypeVar("Config", bound=AbstractConfig)


def by_name(where: str) -> Callable[..., Any]:
    """A function that calls the one of a name such as `zero_othello._build:build_loop`, which is
    imported when it is called first. An [`zero_app.App`][] of such parts starts before JAX."""
    return lambda *args, **options: pkgutil.resolve_name(where)(*args, **options)


@dataclasses.dataclass(frozen=True)
class AbstractCommand(abc.ABC):
    """A command of an app: a frozen dataclass with a flag for each field, documented by the string
    below it. The first sentence of its docstring describes it.
    """

    @abc.abstractmethod
    def __call__(self, app: "App[Any]") -> None:
        """Runs the command of an app, after JAX has started."""


class CommandsByName(collections.UserDict[str, Any]):
    """Commands, each of which is imported when it is asked for. `data` has the place of the class
    of each by its name, such as `zero_cli._list:List`."""

    def __getitem__(self, name: str) -> type[AbstractCommand]:
        return pkgutil.resolve_name(self.data[name])


@dataclasses.dataclass(frozen=True)
class Trained(Generic[Config]):
    """A trained player.

    **Attributes:**

    - `config`: the configuration of its run.
    - `loop`: what was built from it, for one device.
    - `player`: the player at full strength.
    - `step`: the number of training steps so far.
    - `origin`: the command, the commit and the versions that made it, as far as that is known.
    - `strength`: what was measured of a player that comes with an app: each time the `command` and
        its `result`, and the `before` of the same parameters with all their digits.
    """

    config: Config
    loop: "zero_train.Loop"
    player: "zero_train.AbstractActor"
    step: int
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strength: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True)
class App(Generic[Config]):
    """A command line with `train`, `report` and commands of its own; see
    [`zero_app.main`][].

    **Attributes:**

    - `name`: of the app, and its command.
    - `about`: a description of one line.
    - `presets`: configurations by name, all of one class.
    - `build`: the training loop of a configuration, for one device.
    - `evaluation`: called when a run starts or is resumed. What it returns is called with the
        player at full strength every `evaluate_every` steps and after the last one, in a thread, so
        that signals are heard. Its state must follow from its arguments, so that a resumed run
        writes the same lines as one that never stopped. The default fits agents that search a tree.
    - `page`: the report's own figures and sections.
    - `board`: `(trained, picture)`, the [`zero_app.AbstractBoard`][] of the game of a player. With
        it the app may have the commands [`zero_app.GAME_COMMANDS`][]. What a terminal cannot show
        is drawn into the file `picture`, whose name may be a pattern for the number of the move.
    - `episode`: `(trained, key)`, the pictures of an episode of a player, for the report; `None`
        where there are none.
    - `commands`: others than `train` and those of every app, of which they may replace some.
    - `preset`: the name of the default preset; by default the first.
    - `players`: a folder of trained players that come with the app, files that `apps/players.py`
        makes. The one that is meant by `pretrained` has the name of the environment, where the
        configuration has a field `env`, and otherwise this one.
    - `operands`: those of `train`, where the app's command line takes some before the flags.
    - `num_steps`: the steps of the loop in a whole run; by default the configuration's `steps`.
    - `opponents`: by name the players without training that `eval` knows beside `random`, each made
        for an environment.
    - `opening_plies`: the random moves at the start of each game of two of `eval`, by default
        [`zero_train.OPENING_PLIES`][].
    - `presets_of`: `(prog, words)`, the presets for these words after `train`, where they depend on
        flags.
    - `called_by`: the command that its users type, where this is not `name`.
    - `suites`: a folder of [`zero_app.Suite`][]s for `eval`, a file `NAME.npz` each; where the
        configuration has a field `env`, they are in a folder of its name.
    - `ladders`: a folder of the ratings of fixed opponents for `eval --opponent ladder`, a file
        `NAME.json` each that `apps/ladders.py` makes; NAME is this one or, where the configuration
        has a field `env`, the environment.
    - `program`: the name and the version that it says over the Go Text Protocol.
    """

    name: str
    about: str
    presets: Mapping[str, Config]
    build: "Callable[[Config], zero_train.Loop]"
    evaluation: "Callable[[Config, zero_train.Loop, RunFiles], Evaluate]" = by_name(
        "zero_app._run._evaluation:network_alone"
    )
    page: Callable[[StoredRun], tuple[Mapping[str, str], list[str]]] = page_of
    board: Callable[[Trained[Config], pathlib.Path], Any] | None = None
    episode: "Callable[[Trained[Config], jax.Array], Iterator[Frame]] | None" = None
    commands: Mapping[str, type[AbstractCommand]] = dataclasses.field(default_factory=dict)
    preset: str | None = None
    players: pathlib.Path | None = None
    operands: str = ""
    num_steps: Callable[[Config], int] = operator.attrgetter("steps")
    opponents: "Mapping[str, Callable[[Any], zero_train.AbstractActor]]" = dataclasses.field(
        default_factory=dict
    )
    opening_plies: int | None = None
    presets_of: Callable[[str, Sequence[str]], Mapping[str, Config]] | None = None
    called_by: str = ""
    suites: pathlib.Path | None = None
    ladders: pathlib.Path | None = None
    program: tuple[str, str] = ("zero", importlib.metadata.version("zero-app"))

    @property
    def command(self) -> str:
        """The command that its users type, such as `zero` for an app that `zero` runs."""
        return self.called_by or self.name

    @property
    def config(self) -> type[Config]:
        """The class of the configurations."""
        return type(next(iter(self.presets.values())))

    @property
    def default_preset(self) -> str:
        """The name of the default preset."""
        return self.preset or next(iter(self.presets))


def loop_of(
    config: AbstractConfig,
    env: "zero_envs.AbstractEnvironment",
    agent: "zero_train.AbstractAgent",
    buffer: Callable[..., Any],
    augment: Any = None,
) -> "zero_train.Loop":
    """The training loop of a configuration that has a `capacity`. The `buffer` is the class of the
    replay, or a partial of it with what is not in a configuration."""
    known: Any = config
    return zero_train.Loop(
        env=env,
        agent=agent,
        buffer=buffer(
            capacity=known.capacity,
            num_envs=config.envs,
            batch_size=config.batch,
            num_shards=config.shards,
        ),
        augment=augment,
        unroll_length=config.unroll,
        opening_plies=getattr(config, "opening_plies", 0),
        num_updates=config.updates,
    )


def sharing(app: App[Config]) -> App[Config]:
    """An app whose runs that differ in the seed alone have one loop, of which JAX knows the
    compiled programs again."""
    build = functools.lru_cache(1)(app.build)
    return dataclasses.replace(app, build=lambda config: build(dataclasses.replace(config, seed=0)))


def write_report(
    app: App[Any], folder: str | os.PathLike[str], axis: Axis = "steps", *, refresh: int = 0
) -> pathlib.Path:
    """Writes `report.html` into the folder of a run, and replaces an earlier one. The page loads no
    other files. Parts whose data is missing are left out. The episodes that the command `report`
    played last are among them. Charts are drawn over `axis`. A browser reads the page again after
    `refresh` seconds, unless that is 0.

    **Returns:** its path.
    """
    run = StoredRun.read(folder, axis)
    named = dict.fromkeys(map(str, (app.name, *map(run.config.get, ("agent", "env")))))
    title = " ".join(name for name in named if name not in ("", "None"))
    shown, sections = app.page(run)
    parts = [
        figures(progress(run) | dict(shown)),
        *sections,
        charts("Episodes", *kept_films(run.folder)),
        optimisation(run),
        speed(run),
        configuration(run),
    ]
    path = run.folder.absolute() / "report.html"
    write_whole(path, page(f"{title}: {path.parent.name}", parts, refresh=refresh))
    return path


def built(
    app: App[Config], config: Config, devices: int | None = None, fsdp: int = 1
) -> "zero_train.Loop":
    """The loop of a configuration; without `devices` to play on one, which need not learn."""
    with as_usage_error("actor_devices", "fsdp", "opening_plies", "decisive_moves"):
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
        mesh = zero_train.data_mesh(devices, fsdp=fsdp)
        return dataclasses.replace(loop, mesh=mesh, actor_devices=acting)
