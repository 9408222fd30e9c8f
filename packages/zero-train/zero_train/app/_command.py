"""A command line of several commands, with error messages of one line."""

import contextlib
import dataclasses
import difflib
import importlib.metadata
import io
import itertools
import os
import pathlib
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NoReturn, TypeVar

import jax
import tyro

from .. import CheckpointError, NonFiniteError, RunError, RunFolder
from ._background import compiling
from ._config import check_bounds, flag, folder_of, Options
from ._errors import UsageError


_SLOW_CONVOLUTIONS = "xla_cpu_experimental_ynn_fusion_type"


def start_jax(devices: int = 1) -> None:
    """Makes virtual devices on a CPU, and keeps compiled programs on disk.

    Call it before any array is made. The user's environment variables take precedence.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if importlib.metadata.version("jaxlib") == "0.10.2" and _SLOW_CONVOLUTIONS not in flags:
        # This version halves the speed of convolutions on a CPU (benchmarks/nets_conv_layout.py);
        # 0.10.1 does not, and other versions may not know the flag, which ends the process.
        os.environ["XLA_FLAGS"] = f"{flags} --{_SLOW_CONVOLUTIONS}=".strip()
    here = max(1, jax.config.jax_num_cpu_devices)  # pyright: ignore[reportAttributeAccessIssue]
    if devices > here and "xla_force_host_platform_device_count" not in flags:
        jax.config.update("jax_num_cpu_devices", devices)
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(caches / "zero" / "jax"))


def expects_accelerator() -> bool:
    """Whether JAX will probably use an accelerator. Asking JAX would start its backend."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return platforms.split(",")[0] != "cpu"
    return bool(importlib.metadata.entry_points(group="jax_plugins"))


Arguments = TypeVar("Arguments")
Config = TypeVar("Config")
Preset = TypeVar("Preset")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of an app.

    **Attributes:**

    - `run`: runs the command with the words after its name.
    - `about`: a description of half a line.
    - `operands`: the arguments that are no flags, for `--help`.
    """

    run: Callable[[list[str]], None]
    about: str
    operands: str = ""


@dataclasses.dataclass(frozen=True)
class _PresetOnly:
    preset: str | None = None


@dataclasses.dataclass(frozen=True)
class _RunArguments(Generic[Config, Preset]):
    config: Annotated[Config, tyro.conf.arg(name="")]
    options: Annotated[Options, tyro.conf.arg(name="")]
    preset: Preset
    """Where the defaults of all other flags come from."""


def main(
    prog: str, about: str, commands: Mapping[str, Command], words: Sequence[str] | None = None
) -> None:
    """Runs one command of an app. Bad input, too little memory and numbers that overflow end the
    process with one line and exit code 2, an interruption ends it with 130.

    **Arguments:**

    - `prog`: the app's command.
    - `about`: a description of one line.
    - `words`: by default those of the command line.
    """
    try:
        _dispatch(prog, about, commands, list(sys.argv[1:] if words is None else words))
    except (UsageError, RunError, CheckpointError, NonFiniteError, OSError) as e:
        _complain(prog, str(e))
    except OverflowError as e:
        _complain(prog, f"a number is larger than 32 bits hold ({str(e)[:200]}); give less.")
    except (MemoryError, jax.errors.JaxRuntimeError) as e:
        if not isinstance(e, MemoryError) and "RESOURCE_EXHAUSTED" not in str(e):
            raise
        _complain(prog, f"there is not enough memory ({str(e)[:200]}); ask for less at once.")
    except KeyboardInterrupt:
        _leave(130)
    except Exception:
        if not compiling():
            raise
        traceback.print_exc()
        _leave(1)
    if compiling():
        _leave(0)


def parse(
    kind: type[Arguments],
    prog: str,
    words: Sequence[str],
    bounds: Mapping[str, tuple[float, float]] = types.MappingProxyType({}),
) -> Arguments:
    """Parses the words of a command line with tyro.

    **Arguments:**

    - `kind`: a dataclass with a flag for each field, documented by the string below it.
    - `prog`: the command as the user writes it, such as `othello eval`.
    - `bounds`: as for [`zero_train.app.check_bounds`][].

    **Raises:** [`zero_train.app.UsageError`][] for an unknown flag, with the nearest one, and for a
    value that is not allowed. `--help` raises `SystemExit`.
    """
    arguments = _parse(kind, prog, words, _names(kind))
    check_bounds(arguments, bounds)
    return arguments


def peek(kind: type[Arguments], prog: str, words: Sequence[str]) -> Arguments:
    """Parses the flags of `kind` and ignores all others, for what must be known before
    [`zero_train.app.parse`][] or [`zero_train.app.parse_run`][] is called."""
    return _known(kind, prog, words, add_help=False)[0]


def parse_run(
    prog: str, about: str, words: Sequence[str], presets: Mapping[str, Config], *, preset: str
) -> tuple[Config, Options]:
    """Parses the flags of a command that trains: one for each field of the configuration, those of
    [`zero_train.app.Options`][], and `--preset`, which sets the defaults of all others.

    **Arguments:**

    - `prog`, `words`: as for [`zero_train.app.parse`][].
    - `about`: the first lines of `--help`.
    - `presets`: configurations by name, all of one class.
    - `preset`: the name of the default.

    **Raises:** [`zero_train.app.UsageError`][] as [`zero_train.app.parse`][], and
    [`zero_train.RunError`][] where the run folder refuses.
    """
    # It must be known before all other flags.
    given = peek(_PresetOnly, prog, words).preset
    preset = preset if given is None else given
    if preset not in presets:
        raise UsageError(f"--preset {preset} is unknown; choose one of {', '.join(presets)}.")
    config = presets[preset]
    names: Any = Literal[tuple(presets)]
    kind: Any = _RunArguments[type(config), names]
    arguments = _parse(
        kind,
        prog,
        words,
        _names(config) + _names(Options) + ["preset"],
        default=_RunArguments(config, Options(out=pathlib.Path("runs") / preset), preset),
        description=about,
    )
    # What cannot be trained is refused before anything is built, which may take long.
    RunFolder.check(**folder_of(arguments.config, arguments.options))
    return arguments.config, arguments.options


def _complain(prog: str, what: str) -> NoReturn:
    print(f"{prog}: {' '.join(what.splitlines())}", file=sys.stderr)
    _leave(2)


def _leave(code: int) -> NoReturn:
    """Ends the process. A thread cannot be stopped inside XLA, and would crash at Python's end."""
    if compiling():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(prog: str, about: str, commands: Mapping[str, Command], words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_help(prog, about, commands))
    elif words[0] in commands:
        commands[words[0]].run(words[1:])
    else:
        raise UsageError(f"no command is called {words[0]!r}; choose one of {', '.join(commands)}.")


def _help(prog: str, about: str, commands: Mapping[str, Command]) -> str:
    usages = [f"{name} {command.operands}".rstrip() for name, command in commands.items()]
    width = max(12, *map(len, usages))
    lines = [
        f"  {usage:{width}} {command.about}"
        for usage, command in zip(usages, commands.values(), strict=True)
    ]
    return "\n".join(
        [
            f"usage: {prog} COMMAND [flags]",
            "",
            about,
            "",
            *lines,
            "",
            f"`{prog} COMMAND --help` lists the flags.",
        ]
    )


def _parse(kind: Any, prog: str, words: Sequence[str], names: list[str], **options: Any) -> Any:
    arguments, unknown = _known(kind, prog, words, **options)
    if unknown:
        given = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(given, [flag(name) for name in names], n=1)
        hint = f"did you mean {near[0]}?" if near else f"see {prog} --help."
        raise UsageError(f"{given} is no flag of {prog}; {hint}")
    return arguments


def _known(kind: Any, prog: str, words: Sequence[str], **options: Any) -> tuple[Any, list[str]]:
    """The parsed flags, and the words that tyro does not know."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, prog=prog, args=words, return_unknown_args=True, **options)
    except SystemExit as e:
        if not e.code:
            raise  # --help
        raise UsageError(_one_line(complaint.getvalue())) from e


def _names(kind: Any) -> list[str]:
    """The names of all fields, with those of dataclasses inside."""
    names = []
    for field in dataclasses.fields(kind):
        inside = dataclasses.is_dataclass(field.default)
        names += _names(field.default) if inside else [field.name]
    return names


def _one_line(text: str) -> str:
    """tyro draws a box of many lines; its title and first paragraph say what is wrong."""
    lines = [line.strip(" \u2500\u2502\u256d\u256e\u2570\u256f-+|") for line in text.splitlines()]
    said = itertools.takewhile(
        lambda line: not line.startswith(("Argument helptext", "For full helptext")),
        filter(None, lines),
    )
    title, *rest = said
    # Of several types that a value might have, the complaints of each are left out.
    text = f"{' '.join(rest).partition(' Got errors:')[0].rstrip('.')}."
    if text.startswith("Error parsing "):
        return text.removeprefix("Error parsing ")
    # Some say their title again.
    return text if text.lower().startswith(title.lower()) else f"{title}: {text}"
