"""A command line made of one dataclass: its presets, its complaints, its exit codes."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Annotated, Any

import jax
import pytest
import tyro
from annotated_types import Interval

from zero_app import (
    AbstractAdamWConfig,
    AbstractCommand,
    App,
    CheckpointError,
    Count,
    environment,
    errors_of,
    expects_accelerator,
    Launch,
    main,
    NonFiniteError,
    Options,
    parse,
    run as run_command,
    RunError,
    Seed,
    UsageError,
)
from zero_app._run._background import quiet_compiler
from zero_app._run._options import following
from zero_train import Loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractAdamWConfig):
    steps: int = 10
    learning_rate: float = 1e-3
    """Of Adam."""
    layers: int = 2
    """Without bounds."""
    first: float | None = None
    """Without bounds."""
    nesterov: bool = False
    """Of the optimiser."""


@pytest.mark.parametrize(
    "devices, acting, shards",
    [(1, 0, 8), (8, 0, 8), (64, 0, 64), (80, 16, 64), (256, 0, 256), (12, 0, 8)],
)
def test_shards_follow_the_devices(tmp_path, devices, acting, shards):
    """Those of a run to resume stay, whatever the devices are now."""
    config = Config(envs=1280, batch=1280, actor_devices=acting)
    options = Options(out=tmp_path, launch=Launch(devices=devices))
    assert following(config, options).shards == shards
    (tmp_path / "config.json").write_text('{"shards": 2}')
    assert following(config, dataclasses.replace(options, resume=True)).shards == 2
    # What is damaged is left to whoever reads the rest of the file.
    (tmp_path / "config.json").write_text('{"shards": "8"}')
    assert following(config, dataclasses.replace(options, resume=True)).shards == shards


def test_shards_that_are_given_follow_no_devices(tmp_path, monkeypatch):
    class Built(Exception):
        pass

    def build(config: Config) -> Loop:
        assert config.shards == 8
        raise Built

    app = App("some", "Some.", {"default": Config()}, build)
    asked = ["train", f"--out={tmp_path / 'run'}", "--devices=256"]
    monkeypatch.setattr("zero_app._main.start_jax", lambda launch: None)
    with pytest.raises(UsageError, match="256 devices ask for 256 shards: --envs 128 does not"):
        run_command(app, asked)
    with pytest.raises(Built):
        run_command(app, [*asked, "--shards=8"])


@dataclasses.dataclass(frozen=True)
class More:
    seed: Seed | None = None
    """Or none."""


@dataclasses.dataclass(frozen=True)
class Flags:
    games: Annotated[int, Interval(ge=1, le=100)] = 4
    """How many."""
    sizes: tuple[Count, ...] = (1,)
    """Several."""
    more: tyro.conf.OmitArgPrefixes[More] = More()


PRESETS = {"small": Config(), "large": Config(steps=900, learning_rate=0.5)}


APP = App("app", "Goes and comes.", PRESETS, lambda config: pytest.fail("nothing is built"))


@pytest.fixture
def train(monkeypatch):
    """`train(WORDS)`: the configuration and the options that `app train WORDS` trains with."""
    given: list[Any] = []
    for name, then in (
        ("_main.start_jax", lambda launch: None),
        ("_run._train.train", lambda *x, **_: given.append(x)),
    ):
        monkeypatch.setattr(f"zero_app.{name}", then)

    def train(*words: str) -> tuple[Config, Options]:
        run_command(APP, ["train", *words])
        return given[-1][1:3]

    return train


def test_a_preset_gives_the_defaults_of_all_other_flags(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train() == (Config(), Options(out=pathlib.Path("runs/small")))
    config, options = train("--learning-rate", "0.25", "--devices=2", "--preset", "large")
    assert config == Config(steps=900, learning_rate=0.25)
    assert options == Options(out=pathlib.Path("runs/large"), launch=Launch(devices=2))
    _, options = train("--out", "there", "--max-minutes", "2")
    assert options == Options(out=pathlib.Path("there"), max_minutes=2.0)


def test_a_run_ends_with_what_can_be_done_with_it(tmp_path, monkeypatch, capsys):
    """Of the commands those that take a run."""
    monkeypatch.setattr("zero_app._run._train.train", lambda *given, **_: True)

    class Show(AbstractCommand):
        """Show it."""

        run: tyro.conf.Positional[str]

        def __call__(self, app):
            raise AssertionError

    commands = {"show": dataclasses.dataclass(frozen=True)(Show), "come": AbstractCommand}
    app = dataclasses.replace(APP, commands=commands)
    run_command(app, ["train", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert out == f"The run is in {tmp_path}; with its player: app eval|show {tmp_path}\n"
    # Another command may run the app, and this is the one that its users know.
    run_command(app, ["train", "--out", str(tmp_path)], "zero train game")
    assert f"with its player: zero eval|show {tmp_path}" in capsys.readouterr().out
    with pytest.raises(UsageError, match="as `zero train --out` made it"):
        run_command(app, ["eval", str(tmp_path)], "zero eval")
    with pytest.raises(SystemExit):
        run_command(app, ["train", "--out", "elsewhere", "--help"], "zero train game")
    assert "(default: elsewhere)" in re.sub(r"[\s│]+", " ", capsys.readouterr().out)


def test_the_run_folder_is_looked_at_before_anything_is_built(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "small").mkdir(parents=True)
    assert train()[1].resume is False
    with pytest.raises(RunError, match=r"There is no run to resume in .*small"):
        train("--resume")
    folder = tmp_path / "runs" / "small"
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(Config(seed=1))))
    with pytest.raises(RunError, match="holds a run already; --resume goes on with it"):
        train()
    with pytest.raises(RunError, match=r"seed 0 \(stored: 1\)"):
        train("--resume")
    assert train("--resume", "--seed", "1") == (
        Config(seed=1),
        Options(out=pathlib.Path("runs/small"), resume=True),
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "small", "config.json"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--preset", "huge"], "--preset huge is unknown; choose one of small, large."),
        (["--step", "3"], "--step is no flag of app train; did you mean --steps?"),
        (["--max-minute=3"], "--max-minute is no flag of app train; did you mean --max-minutes?"),
        (["--zzz"], "--zzz is no flag of app train; see app train --help."),
        (["--steps", "0"], "--steps 0 was given; give at least 1."),
        (["--learning-rate", "2"], "--learning-rate 2.0 was given; give 1e-12 to 1."),
        (["--learning-rate", "0"], "--learning-rate 0.0 was given; give 1e-12 to 1."),
        (["--learning-rate", "nan"], "--learning-rate nan was given; give 1e-12 to 1."),
        (["--resume=yes"], "--resume=yes was given; --resume takes no value, give it or leave it"),
        (["--out", ""], "--out was given without a value; give it one."),
        (["--out="], "--out was given without a value; give it one."),
        (["--devices", "0"], "--devices 0 was given; give at least 1."),
        (["--fsdp", "0"], "--fsdp 0 was given; give at least 1."),
        (["--max-minutes", "-1"], "--max-minutes -1.0 was given; give at least 0."),
        (["--max-minutes", "nan"], "--max-minutes nan was given; give at least 0."),
        (["--steps", "few"], "--steps few was given; give a whole number."),
        (["--steps", "1.5"], "--steps 1.5 was given; give a whole number."),
        (["--steps", str(10**20)], f"--steps {10**20} was given; give 1 to 2147483647."),
        (["--steps", str(10**400)], "... was given; give 1 to 2147483647."),
        (["--devices", str(10**20)], f"--devices {10**20} was given; give 1 to 2147483647."),
        (["--seed", str(2**70)], "--seed 1180591620717411303424 was given; give 0 to 4294967295."),
        (["--seed", "-1"], "--seed -1 was given; give 0 to 4294967295."),
        (["--layers", "-1"], "--layers -1 was given; give at least 0."),
        (["--layers", str(10**20)], f"--layers {10**20} was given; give 0 to 2147483647."),
        (["--first", "nan"], "--first nan was given; it must be finite."),
        (["--first", "1e300"], "--first 1e+300 was given; it must be finite."),
        (["--max-minutes", "few"], "--max-minutes few was given; give a number."),
        (["--weight-decay", "inf"], "--weight-decay inf was given; it must be finite."),
        (["--weight-decay", "1e300"], "--weight-decay 1e+300 was given; give 0 to 3e+38."),
        (["--learning-rate", "few"], "--learning-rate few was given; give a number."),
        (["--devices", "it's"], "--devices it's was given; give a whole number."),
        (["--schedule", "linear"], "--schedule linear was given; give one of cosine, exponential."),
        (["--steps"], "--steps was given without a value; give it one."),
        (["--stops", "3"], "did you mean --steps?"),
        (["--schedule", "exponential", "--decay", "0"], "--decay 0 was given, which nothing reac"),
    ],
)
def test_a_complaint_is_one_line(train, words, message):
    with pytest.raises(UsageError) as raised:
        train(*words)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert str(raised.value).startswith("--")


def test_only_a_switch_takes_no_value(train):
    with pytest.raises(UsageError, match="^yes is no flag of app train; see app train --help.$"):
        train("--out=yes", "yes")


def test_a_command_without_presets():
    assert parse(Flags, "app eval", ["--games", "6"]) == Flags(6)
    with pytest.raises(UsageError, match="--game is no flag of app eval; did you mean --games"):
        parse(Flags, "app eval", ["--game", "6"])
    needs = "app report needs RUN first; see app report --help."
    with pytest.raises(UsageError, match=f"^{needs}$"):
        run_command(APP, ["report"])
    for name, *words in (
        ("RUN", "report", ""),
        ("RUNS", "compare", "", "runs"),
        ("RUNS", "compare", "runs", ""),
        ("--opponent", "eval", "run", "--opponent", ""),
        ("--opponent", "eval", "run", "--opponent="),
    ):
        with pytest.raises(UsageError, match=f"^{name} was given without a value; give it one.$"):
            run_command(APP, words)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--games", str(10**20)], f"--games {10**20} was given; give 1 to 100."),
        (["--sizes", "3", "0"], "--sizes 0 was given; give at least 1."),
        (["--seed", str(2**70)], f"--seed {2**70} was given; give 0 to 4294967295."),
    ],
)
def test_what_a_command_is_given_has_bounds_too(words, message):
    assert parse(Flags, "app eval", ["--seed", "7"]).more == More(7)
    with pytest.raises(UsageError) as raised:
        parse(Flags, "app eval", words)
    assert str(raised.value) == message


@pytest.mark.parametrize("columns", ["1", "300"])
def test_help_says_what_every_flag_is(train, capsys, monkeypatch, columns):
    """In a narrow terminal too, where tyro's help is never done."""
    monkeypatch.setenv("COLUMNS", columns)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it takes too long"))
    signal.alarm(20)
    with pytest.raises(SystemExit) as raised:
        train("--help", "--preset", "large")
    signal.alarm(0)
    said = " ".join(capsys.readouterr().out.split())
    assert not raised.value.code and "Stop it with Ctrl-C" in said
    for words in ("--learning-rate", "Of Adam.", "900", "--max-minutes", "{small,large}"):
        assert words in said, words
    assert "minutes after the command began; --resume goes on. Compiling counts too." in said


def run(error: BaseException | None, *words: str) -> None:
    @dataclasses.dataclass(frozen=True)
    class Go(AbstractCommand):
        """Go there. And stay."""

        place: tyro.conf.Positional[str] = "home"
        """Where to."""
        fast: bool = False
        """Run."""

        def __call__(self, app):
            assert self.fast
            if error is not None:
                raise error

    class Come(Go):
        """Come back."""

    main(dataclasses.replace(APP, commands={"go": Go, "come": Come}), words)


@pytest.mark.parametrize(
    "error", [UsageError, RunError, CheckpointError, NonFiniteError, FileNotFoundError]
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(error, capsys):
    with pytest.raises(SystemExit) as raised:
        run(error("it is\x1b[2J\n\x9bgone."), "go", "--fast")  # as a file of others may say
    assert raised.value.code == 2
    assert capsys.readouterr() == ("", "app: it is [2J gone.\n")


def test_a_working_folder_that_is_gone_is_said_to_be(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit, match="2"), errors_of("app"):
        pathlib.Path("runs").absolute()
    assert "app: the folder that you are in has been removed" in capsys.readouterr().err


def test_a_world_that_mixes_dtypes_in_double_precision_is_refused():
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    try:
        with pytest.raises(UsageError, match="turn JAX_ENABLE_X64"):
            environment("pgx/tic_tac_toe")
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize(
    "error, message",
    [
        (MemoryError("Unable to allocate 3.47 EiB"), "there is not enough memory (Unable to"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 5 bytes."),
            "there is not enough memory (RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.)",
        ),
        (OverflowError("Python int too large"), "a number is larger than 32 bits hold (Python"),
        (
            PermissionError(13, "Permission denied", "mine"),
            "mine cannot be used (Permission denied)",
        ),
    ],
)
def test_what_the_system_refuses_is_one_line(error, message, capsys):
    with pytest.raises(SystemExit) as raised:
        run(error, "go", "--fast")
    out, err = capsys.readouterr()
    assert (raised.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"app: {message}")


@pytest.mark.parametrize("heard, then", [(True, signal.SIG_DFL), (False, signal.SIG_IGN)])
def test_an_interruption_before_a_run_hears_of_it_ends_the_process(
    tmp_path, monkeypatch, heard, then
):
    """Unless whoever started the process had it ignored."""
    seen = []

    def build(config: Config) -> Loop:
        seen.append(signal.getsignal(signal.SIGINT))
        raise ValueError

    monkeypatch.setattr("zero_app._main.start_jax", lambda launch: None)
    before = signal.default_int_handler if heard else signal.SIG_IGN
    was = signal.signal(signal.SIGINT, before)
    try:
        with pytest.raises(UsageError):
            app = App("some", "Some.", {"default": Config()}, build)
            run_command(app, ["train", f"--out={tmp_path / 'run'}"])
        assert seen == [then] and signal.getsignal(signal.SIGINT) == before
    finally:
        signal.signal(signal.SIGINT, was)


def test_what_fails_inside_jax_keeps_its_traceback():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        run(jax.errors.JaxRuntimeError("INTERNAL: a defect"), "go", "--fast")


def test_other_ends(capsys):
    run(None, "come", "--fast")
    with pytest.raises(ZeroDivisionError):  # a defect of ours keeps its traceback
        run(ZeroDivisionError(), "go", "--fast")
    with pytest.raises(SystemExit) as raised:
        run(KeyboardInterrupt(), "go", "--fast")
    assert raised.value.code == 130
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        run(None, "og")
    said = capsys.readouterr().err
    commands = "train, sweep, go, come, eval, compare, report, export"
    assert said == f"app: no command is called 'og'; choose one of {commands}.\n"
    run(None)
    assert capsys.readouterr().out.splitlines()[4:10] == [
        "  train        train a player; --out is its run folder, by default in runs/",
        "  sweep        search for the flags with which training ends best",
        "  go [PLACE]   go there",
        "  come [PLACE] come back",
        "  eval [RUN]   measure a trained player: its score in games of two players, or",
        "               else its mean return",
    ]


def test_a_variable_that_jax_cannot_read_is_told_in_one_line():
    code = "from zero_app import errors_of\nwith errors_of('nim'): import jax"
    environment = {**os.environ, "JAX_ENABLE_X64": "maybe"}
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True)
    said = "nim: JAX cannot be imported (invalid truth value 'maybe' for environment 'JAX_ENABLE"
    assert ran.returncode == 2 and ran.stderr.startswith(said) and ran.stderr.count("\n") == 1


def test_a_level_of_messages_that_is_no_number_does_no_harm(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "x")
    with quiet_compiler():
        pass


@pytest.mark.parametrize("platforms, expected", [("cpu", False), ("cuda,cpu", True)])
def test_the_environment_names_the_platform(platforms, expected, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert expects_accelerator() is expected


def test_jax_starts_with_virtual_devices_and_a_cache(tmp_path):
    """Importing the sub-package must not have started it before. The user's flags go before. There
    are more threads than devices."""
    # A process for each, forked from one that has imported everything.
    code = (
        "import jax, os, sys; from zero_app import Launch, start_jax\n"
        "for flags in sys.argv[1:]:\n"
        "    if os.fork():\n"
        "        assert os.wait()[1] == 0\n"
        "        continue\n"
        "    os.environ['XLA_FLAGS'] = flags\n"
        "    start_jax(Launch(devices=3))\n"
        "    print(jax.device_count(), jax.config.jax_compilation_cache_dir, flush=True)\n"
        "    assert int(os.environ['NPROC']) > 3\n"
        "    break"
    )
    kept = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "NPROC")}
    environment = {**kept, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)}
    words = [sys.executable, "-c", code, "", "--xla_force_host_platform_device_count=4"]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True)
    cache = str(tmp_path / "zero" / "jax")
    assert ran.returncode == 0 and ran.stdout.split() == ["3", cache, "4", cache], ran.stderr
