"""The flags of `train` and `sweep`."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, get_type_hints, Literal, TypeVar

import tyro

from .._command._errors import UsageError
from .._command._parse import parse_words, peek
from ._app import App
from ._disk import read_whole, reason
from ._lines import parsed
from ._options import Options
from ._space import Sweep, swept_field
from ._stored import complete, config_of


Config = TypeVar("Config")
Preset = TypeVar("Preset")
Run = TypeVar("Run")


@dataclasses.dataclass(frozen=True)
class First:
    """The flags that are read before the others; `None` where one was not given."""

    preset: str | None = None
    config: pathlib.Path | None = None
    shards: str | None = None
    out: pathlib.Path | None = None
    run_code: bool = False


@dataclasses.dataclass(frozen=True)
class Arguments(Generic[Config, Preset, Run]):
    """The arguments of `train` and `sweep`."""

    values: Annotated[Config, tyro.conf.arg(name="")]
    options: Annotated[Run, tyro.conf.arg(name="")]
    preset: Preset
    """Which defaults all other flags have."""
    config: pathlib.Path | None = None
    """A file with what other flags have by default, in the place of a preset: the config.json of a
    run, for which its folder may be given too, or the best.json of a sweep."""
    seeds: tuple[int, ...] = ()
    """Train a run of each of these seeds, one after the other, in OUT/seed-0 and so on; a single
    number is how many, from --seed on. --resume trains what is missing."""


def check_flags(app: App[Any], prog: str, words: Sequence[str], command: str = "train") -> None:
    """Checks that `train` or `sweep` has all flags of these words, and that the value of each is of
    its kind. That takes no presets, which may be known only when an environment has been made."""
    if {"-h", "--help"} & {*words}:
        return
    usual, hints = app.presets[app.default_preset], get_type_hints(app.config, include_extras=True)
    fields = [(x.name, hints[x.name], getattr(usual, x.name)) for x in dataclasses.fields(usual)]
    # The same fields without checks of one value beside another.
    alone = dataclasses.make_dataclass(app.config.__name__, fields)
    kind = Options if command == "train" else Sweep
    default = Arguments(alone(), kind(out=pathlib.Path()), app.default_preset)
    _arguments(default, str, prog, words)


def _arguments(default: Arguments, names: Any, prog: str, words: Sequence[str]) -> Any:
    """The arguments of `train` or `sweep`, where `names` is the type of those of the presets."""
    options = type(default.options)
    kind: Any = Arguments[type(default.values), names, options]
    return parse_words(kind, prog, words, default=default, description=_ABOUT[options])


#: What the commands do, by the kind of their options.
_ABOUT: Mapping[type, str] = {
    Options: "Train a player. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
    Sweep: "Search for the flags with which training ends best, by Optuna.",
}


def asked(
    app: App[Any], words: Sequence[str], prog: str, folder: str, kind: Any
) -> tuple[App[Any], First, Arguments[Any, Any, Any]]:
    """Parses a flag for each field of the configuration, those of a `kind` of options, and
    `--preset` or `--config`, which set the defaults of the configuration's. Returns the app with
    the presets that belong to the words, and what they say."""
    first = peek(First, prog, words)
    for name in ("--over", "--seeds"):
        if sum(word.partition("=")[0] == name for word in words) > 1:
            raise UsageError(f"{name} was given twice; give all values after one {name}.")
    if app.presets_of is not None:
        app = dataclasses.replace(app, presets=app.presets_of(prog, words))
    preset = first.preset or app.default_preset
    if preset not in app.presets:
        raise UsageError(f"--preset {preset} is unknown; choose one of {', '.join(app.presets)}.")
    config = app.presets[preset]
    if first.config is not None:
        if first.preset is not None:
            raise UsageError("--preset and --config were given; give one of them.")
        config = _of_file(app, first.config, run_code=first.run_code)
    names: Any = Literal[tuple(app.presets)]
    options = kind(out=first.out or pathlib.Path(folder) / preset)
    found = _arguments(Arguments(config, options, preset), names, prog, words)
    # A flag may have an effect in some of the trials of a sweep.
    swept = {swept_field(said) for said in getattr(found.options, "over", ())}
    usual = {field.name: field.default for field in dataclasses.fields(app.config)}
    for name, why in found.values.unused().items():
        harmless = getattr(found.values, name) in (getattr(config, name), usual[name])
        if not harmless and not swept & {*why}:
            raise found.values.unused_error(name)
    return app, first, found


def read_config(path: pathlib.Path) -> Any:
    """What is in the file of --config, or in the config.json of a run's folder."""
    file = path / "config.json" if path.is_dir() else path
    try:
        return parsed(read_whole(file))
    except (OSError, ValueError) as e:
        gone = "is missing" if file is path else "has no config.json"
        why = gone if isinstance(e, FileNotFoundError) else f"cannot be read: {reason(e)}"
        raise UsageError(f"--config {path} {why}; give the config.json of a run.") from e


def _of_file(app: App[Any], path: pathlib.Path, *, run_code: bool) -> Any:
    """The configuration in a file."""
    stored = read_config(path)
    try:
        stored = complete(app.config, stored)
    except ValueError as e:
        raise UsageError(f"--config {path} is none of `{app.command} train`: {e}") from e
    return config_of(app.config, stored, path, app.command, run_code=run_code)
