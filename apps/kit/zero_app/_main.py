"""A command line of several commands, with error messages of one line."""

import contextlib
import dataclasses
import functools
import importlib.metadata
import io
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_type_hints, NoReturn

import tyro
from annotated_types import Interval

from ._command._config import Seed
from ._command._errors import as_line, NonFiniteError, UsageError, warn
from ._command._lazy import has_jax, jax, zero_train
from ._command._parse import filled, parse
from ._command._streams import failing, give_up, open_closed
from ._run._app import AbstractCommand, App, CommandsByName, sharing, write_report
from ._run._background import busy
from ._run._flags import asked
from ._run._lines import RunError
from ._run._manifest import CheckpointError
from ._run._options import folder_of, following, Launch, of_seeds, Options
from ._run._provenance import check_logs, check_run, CONFIG
from ._run._report import Axis
from ._run._space import space_of, Sweep
from ._run._stored import stored_config


_SLOW_CONVOLUTIONS = "xla_cpu_experimental_ynn_fusion_type"
#: More devices of one process, which are virtual on a CPU: each costs threads and memory when JAX
#: starts, before it can say that there are not as many.
_MOST_DEVICES = 1024


def start_jax(launch: Launch | None = None) -> None:
    """Connects the processes of a run, if a `launch` says that there are any, makes virtual devices
    on a CPU, and keeps compiled programs on disk.

    Call it before any array is made. By default there is one device, and no other process is looked
    for. The user's environment variables take precedence. Where process 0 does not answer it raises
    a [`zero_app.UsageError`][].
    """
    asked = launch or Launch()
    flags = os.environ.get("XLA_FLAGS", "")
    # It may also be the name of a file of flags, which nothing can be added to.
    can_add = not flags.strip() or flags.lstrip().startswith("--")
    is_slow = importlib.metadata.version("jaxlib") == "0.10.2" and _SLOW_CONVOLUTIONS not in flags
    if can_add and is_slow:
        # This version halves the speed of convolutions on a CPU (benchmarks/nets_conv_layout.py);
        # 0.10.1 does not, and other versions may not know the flag, which ends the process.
        os.environ["XLA_FLAGS"] = f"{flags} --{_SLOW_CONVOLUTIONS}=".strip()
    devices = -(-(asked.devices or 1) // asked.processes)
    if devices > _MOST_DEVICES:
        raise UsageError(
            f"--devices {asked.devices} was given; give at most {_MOST_DEVICES} for each process."
        )
    if devices > 1:
        here = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
        if devices > here and "xla_force_host_platform_device_count" not in flags:
            try:
                jax.config.update("jax_num_cpu_devices", devices)
            except RuntimeError as e:
                raise UsageError(
                    f"--devices {asked.devices} was given, and JAX has started already; give it in "
                    "a new process, before anything is computed."
                ) from e
        # One thread more than devices: a call of LAPACK waits for the threads that it shares, so
        # calls of all devices at the same time would wait forever (jaxlib 0.10.2).
        os.environ.setdefault("NPROC", str(max(os.cpu_count() or 1, devices + 1)))
    caches = pathlib.Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    cache = str(caches / "zero" / "jax")
    if not has_jax():  # it reads this when it is imported, and not every command does
        os.environ["JAX_COMPILATION_CACHE_DIR"] = (
            os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache
        )
    elif not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", cache)
    if launch is not None:
        from ._run._processes import join

        join(launch)


def expects_accelerator() -> bool:
    """Whether JAX will probably use an accelerator. Asking JAX would start its backend."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms:
        return platforms.split(",")[0] != "cpu"
    return bool(importlib.metadata.entry_points(group="jax_plugins"))


@dataclasses.dataclass(frozen=True)
class Report(AbstractCommand):
    """Write the report of a run anew, with games of its players to step through."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The folder of a run."""
    axis: Axis = "steps"
    """The horizontal axis of the charts: steps of the loop, positions collected, or hours of
    training."""
    episodes: Annotated[int, Interval(ge=0, le=20)] = 3
    """How many games to play, with players from the first to the newest; 0 plays none and keeps
    those that were played before."""
    seed: Seed = 0
    """The seed of the episodes."""
    run_code: bool = False
    """Run code that the configuration of the run names, if you trust whoever made it."""

    def __call__(self, app: App[Any]) -> None:
        stored_config(app.config, self.run, app.command)
        plays = app.episode is not None and self.episodes > 0
        if not plays:  # else it is checked where they are loaded
            check_run(pathlib.Path(self.run), tell=warn)
        check_logs(pathlib.Path(self.run), tell=warn)
        if plays:
            from ._run._reporting import play_films

            try:
                play_films(app, self.run, self.episodes, self.seed, run_code=self.run_code)
            except (UsageError, CheckpointError) as e:
                warn(f"no episodes were played for the report: {e}")
        print(f"The report is {write_report(app, self.run, self.axis)}")


#: The commands of every app. One that has an `eval` or a `compare` of its own keeps it.
COMMANDS: Mapping[str, type[AbstractCommand]] = CommandsByName(
    eval="zero_app._run._eval:Eval",
    compare="zero_app._run._compare:Compare",
    report="zero_app._main:Report",
    export="zero_app._run._export:Export",
)
#: The commands of an app with a `board`.
GAME_COMMANDS = CommandsByName(
    play="zero_app._play._commands:Play",
    serve="zero_app._play._commands:Serve",
    gtp="zero_app._play._commands:Gtp",
    watch="zero_app._play._commands:Watch",
)


def main(app: App[Any], words: Sequence[str] | None = None) -> None:
    """Runs one command of an app, by default that of the command line; see
    [`zero_app.errors_of`][]."""
    with errors_of(app.name):
        run(app, sys.argv[1:] if words is None else words)


@contextlib.contextmanager
def errors_of(prog: str) -> Iterator[None]:
    """Bad input, too little memory and numbers that overflow end the process with one line, which
    begins with `prog`, and exit code 2; an interruption ends it with 130."""
    open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what the terminal cannot show is a question mark
    if getattr(sys.unraisablehook, "func", None) is not _unraisable:
        sys.unraisablehook = functools.partial(_unraisable, sys.unraisablehook)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (UsageError, RunError, CheckpointError, NonFiniteError) as e:
        _complain(prog, str(e))
    except BrokenPipeError:
        # The reader, such as `head`, has gone. Python would write the rest at its end.
        give_up(sys.stdout)
        _leave(1)
    except OSError as e:
        named = e.filename is not None and e.strerror is not None
        path = f"{e.filename} cannot be used ({e.strerror}); give another path."
        _complain(prog, path if named else failing(e) or _folder_is_gone() or str(e))
    except OverflowError as e:
        _complain(prog, f"a number is larger than 32 bits hold ({str(e)[:200]}); give less.")
    except KeyboardInterrupt:
        _leave(130)
    except Exception as e:
        said = str(e)
        of_xla = "RESOURCE_EXHAUSTED" in said and isinstance(e, jax.errors.JaxRuntimeError)
        if of_xla or isinstance(e, MemoryError):
            _complain(prog, f"there is not enough memory ({said[:200]}); ask for less at once.")
        if isinstance(e, ValueError) and not has_jax() and _is_of_jax(e):
            _complain(prog, f"JAX cannot be imported ({said}); look at its JAX_... variables.")
        if isinstance(e, RuntimeError | AssertionError) and (refused := _refused_by_jax()):
            _complain(prog, refused)
        if not busy() and not _is_distributed():
            raise
        traceback.print_exc()
        _leave(1)
    if busy():
        _leave(0)


def run(app: App[Any], words: Sequence[str], prog: str | None = None) -> None:
    """Runs one command of an app. `prog` is the command as the user writes it before its flags; by
    default the app's name and the command's. Bad input raises a [`zero_app.UsageError`][]."""
    app = dataclasses.replace(app, called_by=(prog or app.command).split()[0])
    # The app's own come first, and one of them may stand for one of every app.
    commands = list(dict.fromkeys((*app.commands, *COMMANDS)))
    name, *rest = [*words, ""]
    if name in ("", "-h", "--help"):
        print(_help(app, commands))
    elif name in ("train", "sweep"):
        do = _train if name == "train" else _sweep
        do(app, rest[:-1], prog or f"{app.name} {name}")
    elif name in commands:
        command = parse(_class_of(app, name), prog or f"{app.name} {name}", rest[:-1])
        start_jax()
        command(app)
    else:
        choices = ", ".join(["train", "sweep", *commands])
        raise UsageError(f"no command is called {name!r}; choose one of {choices}.")


def _class_of(app: App[Any], name: str) -> type[AbstractCommand]:
    """A command of an app, perhaps its own in place of one of every app."""
    return (app.commands if name in app.commands else COMMANDS)[name]


@contextlib.contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Ctrl-C ends the process inside of the `with` block, as there is nothing to save before a run
    hears signals itself. Python would raise an exception instead, which is lost where it meets a
    callback, such as that of JAX at a garbage collection."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # somebody else hears it, or nobody shall
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@_interrupted_at_once()
def _sweep(app: App[Any], words: Sequence[str], prog: str) -> None:
    """Parses the flags of a sweep and those of training that it leaves alone, and runs it."""
    began = time.monotonic()
    app, _, arguments = asked(app, words, prog, "sweeps", Sweep)
    space, preset = arguments.options, arguments.preset
    space_of(arguments.values, space.over, space.sampler)
    if space.launch.processes > 1:
        raise UsageError("a sweep was given several processes; start each worker by itself.")
    from ._run._sweep import sweep  # with JAX, which refused flags do without

    start_jax(space.launch)
    trains = prog.replace(" sweep", " train", 1)
    sweep(app, arguments.values, space, arguments.seeds, preset, began=began, trains=trains)


@_interrupted_at_once()
def _train(app: App[Any], words: Sequence[str], prog: str) -> None:
    """Parses the flags of training, and trains."""
    began = time.monotonic()
    app, first, arguments = asked(app, words, prog, "runs", Options)
    config, options, preset = arguments.values, arguments.options, arguments.preset
    # With JAX, which refused flags do without.
    from ._run._folder import RunFolder, StopSignal
    from ._run._processes import watched
    from ._run._train import train

    start_jax(options.launch)
    runs = of_seeds(config, options, arguments.seeds)
    if arguments.seeds:
        app = sharing(app)
    with watched(config, options):
        if first.shards is None:
            runs = [(following(one, own), own) for one, own in runs]
        # A run that cannot be trained is refused before one is built, which may take long.
        for one, own in runs if zero_train.is_writer() else ():
            if own.resume and os.path.lexists(own.out / CONFIG):
                stored_config(app.config, own.out, app.command)
            RunFolder.check(**folder_of(one, own))
        out, limit = None, options.max_minutes
        stop = StopSignal(None if limit is None else 60 * limit + began - time.monotonic())
        for one, own in runs:
            if stop.requested:
                break
            if len(runs) > 1:
                print(f"seed {one.seed}, in {own.out}:", flush=True)
            if train(app, one, own, preset, stop=stop) is not None:
                out = own.out
    if out is not None and zero_train.is_writer():
        if arguments.seeds:
            every = options.out
            print(f"The runs of the seeds are in {every}: {app.command} compare {every}")
        names = dict.fromkeys(("eval", *app.commands))
        then = "|".join(x for x in names if _operands(app, _class_of(app, x)) in _OF_A_RUN)
        print(f"The run is in {out}; with its player: {app.command} {then} {out}")
        if app.episode is not None:
            print(f"`{app.command} report {out}` adds games of its players to its report")


def _is_distributed() -> bool:
    """Whether other processes are connected."""
    return has_jax() and jax.distributed.is_initialized()


def _is_of_jax(error: Exception) -> bool:
    """Whether JAX's own code raised it."""
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    return last.f_globals.get("__name__", "").startswith("jax.")


def _refused_by_jax() -> str | None:
    """The reason why JAX finds no device, if it finds none."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as e:
        # An `AssertionError` without words is all that JAX says of a platform without a device.
        reason = str(e).partition(". ")[0].partition(" (set ")[0][:200].rstrip(".")
        asked = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        what = f"JAX_PLATFORMS={asked} was given, of which JAX" if asked else "JAX"
        return (
            f"{what} finds no device ({reason or 'none is here'}); unset JAX_PLATFORMS for what is "
            "here, or give cpu."
        )
    return None


def _unraisable(usual: Callable[[Any], Any], raised: Any) -> None:
    """Leaves out what Orbax's storage says of a loop that an error has closed: that error is
    raised."""
    if "Event loop is closed" not in str(raised.exc_value):
        usual(raised)


def _folder_is_gone() -> str | None:
    """The message where the working folder was removed, which Python says without its name."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the folder that you are in has been removed; change to another one."
    return None


def _complain(prog: str, what: str) -> NoReturn:
    try:
        print(f"{prog}: {as_line(what)}", file=sys.stderr, flush=True)
    except OSError:
        give_up(sys.stderr)
    _leave(2)


def _leave(code: int) -> NoReturn:
    """Ends the process. A thread cannot be stopped inside XLA, and would crash at Python's end,
    where JAX would wait for the other processes."""
    if busy() or _is_distributed():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _help(app: App[Any], commands: Sequence[str]) -> str:
    lines = {
        f"train {app.operands}".rstrip(): "train a player; --out is its run folder, by default in "
        "runs/",
        f"sweep {app.operands}".rstrip(): "search for the flags with which training ends best",
    }
    for name, kind in ((name, _class_of(app, name)) for name in commands):
        about = " ".join((kind.__doc__ or "").split()).partition(". ")[0].removesuffix(".")
        lines[" ".join([name, *_operands(app, kind)])] = about[:1].lower() + about[1:]
    width = max(12, *map(len, lines))
    gap = " " * (width + 3)
    said = [filled(about, gap, f"  {usage:{width}} ") for usage, about in lines.items()]
    head = [f"usage: {app.command} COMMAND [flags]", "", app.about, ""]
    return "\n".join([*head, *said, "", f"`{app.command} COMMAND --help` lists the flags."])


# The operands of commands that a run is enough for.
_OF_A_RUN = ["RUN"], ["[RUN]"]


def _operands(app: App[Any], kind: type[AbstractCommand]) -> list[str]:
    """The fields that are no flags. An app for any environment has no player to take by default."""
    hints = get_type_hints(kind, include_extras=True)
    marker = get_args(tyro.conf.Positional[str])[1]
    fields = [x for x in dataclasses.fields(kind) if marker in get_args(hints[x.name])]
    named = "run" if app.operands else ""
    optional = lambda x: x.default is not dataclasses.MISSING and x.name != named
    return [f"[{x.name.upper()}]" if optional(x) else x.name.upper() for x in fields]
