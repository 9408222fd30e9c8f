"""Bad input to the command line: one clear line, exit code 2, nothing written."""

import dataclasses
import json
import os
import subprocess
import sys

import jax.random as jr
import pytest

from zero_app import COMMANDS, load, player_file, player_names, PRETRAINED, UsageError
from zero_cli.__main__ import HELP
from zero_cli._agents import OWN_APPS
from zero_cli._apps import APP, app_of, APPS, pretrained
from zero_cli._build import build_network
from zero_cli._config import presets
from zero_cli._main import _run
from zero_cli._worlds import build_world


@pytest.mark.parametrize(
    "name, commands",
    [
        ("pgx/tic_tac_toe", "play serve watch list"),
        ("pgx/go_9x9", "play serve gtp watch list"),
        ("2048", "watch list"),
    ],
)
def test_a_run_ends_with_the_commands_that_its_game_has(monkeypatch, name, commands):
    given = []
    monkeypatch.setattr("zero_cli._main.start_jax", lambda launch: None)
    monkeypatch.setattr("zero_cli._main.run", lambda app, words, prog: given.append(app))
    _run(["train", name])
    assert list(given[0].commands) == commands.split()


@pytest.mark.parametrize(
    "words, message",
    [
        (["trian"], "no command is called 'trian'; choose one of train, sweep, play, serve,"),
        (["train"], "needs the name of an environment first, such as pgx/connect_four;"),
        (["train", "--envs", "8"], "needs the name of an environment"),
        (["train", "connect_four"], "no such environment. Did you mean pgx/connect_four? Allowed:"),
        (["train", "pgx/conect_four"], "Did you mean pgx/connect_four?"),
        (["train", "jumanj/Snake-v1"], "Did you mean jumanji/Snake-v1?"),
        (["train", "mygame:Game"], "there is no module mygame; give module:Class"),
        (
            ["train", "pgx/kuhn_poker"],
            "hides a part of its state from its two players, and has no `resample` to guess it",
        ),
        (["train", "pgx/tic_tac_toe", "--agent", "spo"], "give one of alphazero, muzero, stoch"),
        (
            ["train", "pendulum", "--agent", "expert"],
            "give one of spo, mpo, ppo, vmpo, sampled, sampled-alphazero.",
        ),
        (["train", "pgx/tic_tac_toe", "--preset", "slow"], "choose one of tiny, quick, standard."),
        (["train", "pgx/tic_tac_toe", "--simulation", "8"], "did you mean --simulations"),
        (["train", "pgx/tic_tac_toe", "--env", "2048"], "--env was given for pgx/tic_tac_toe"),
        (["train", "pgx/tic_tac_toe", "--batch", "100"], "does not divide into --shards 8"),
        (["train", "pgx/hex", "--blocks", "10000"], "--blocks 10000 was given; give 1 to 256."),
        (["train", "pgx/hex", "--channels=10000"], "--channels 10000 was given; give 1 to 8192."),
        (["train", "pgx/tic_tac_toe", "--games", "7"], "--games 7 is odd"),
        (["train", "2048", "--window", "8"], "--window 8 has no return of --n-steps 8; give at"),
        (["train", "pgx/tic_tac_toe", "--devices", "3"], "--shards 8 does not divide over 3 dev"),
        (["train", "pgx/tic_tac_toe", "--network", "mine:Net"], "--network mine:Net: there is no"),
        (
            ["train", "cartpole", "--particle", "8"],
            "no flag of zero train cartpole; did you mean --particles",
        ),
        (
            ["train", "cartpole", "--nope"],
            "is no flag of zero train cartpole; see zero train cartp",
        ),
        (
            ["train", "cartpole", "--simulations", "8"],
            "train cartpole; see zero train cartpole --h",
        ),
        (["train", "minesweeper", "--agent", "spo"], "see zero train minesweeper --help."),
        (["eval", "cartpole", "--bogus"], "is no flag of zero eval cartpole; see zero eval cartp"),
        (["train", "cartpole", "--agent", "a"], "a was given; give one of alphazero, expert, mpo,"),
        (["eval"], "`zero eval RUN [flags]` needs a player first; give the folder of a run, a"),
        (["train", "cartpole", "--env", "pendulum"], "--env was given for cartpole; name one"),
        (
            ["train", "cartpole", "--agent", "expert", "--particles", "8"],
            "no flag of zero train cartpole; ",
        ),
        (["train", "zero_envs:TimeLimit"], "missing"),
        (["eval", "pgx/conect_four"], "did you mean pgx/connect_four"),
        (["eval", "pgx/tic_tac_toe"], "no trained player of pgx/tic_tac_toe comes with `zero`"),
        (["watch", "pgx/tic_tac_toe"], "trained players are of cartpole, minesweeper, monsters, "),
        (["eval", "nowhere"], "nowhere holds no run (no config.json)"),
        (["eval", "--json", "nowhere"], "needs a player first"),
        (["play", "nowhere"], "nowhere holds no run"),
        (["serve", "nowhere"], "nowhere holds no run"),
        (
            ["report", "cartpole"],
            "cartpole holds no run (no config.json); give the folder of a run",
        ),
        (["report"], "`zero report RUN [flags]` needs a run first; give its folder."),
        (["eval", "pgx/connect_four@best"], "pgx/connect_four is an environment, and only a run"),
        (["eval", "/dev/zero"], "/dev/zero is neither a folder nor a regular file; give the fol"),
        (["report", "/dev/zero"], "/dev/zero is neither a folder nor a regular file; give the f"),
        (["compare", "/dev/zero", "a"], "/dev/zero is neither a folder nor a regular file; give"),
        (["train", "builtins:print"], "it is a function, and does not say that it returns an"),
        (["train", "minesweeper", "--mines", "100"], "--mines 100 was given for --rows 10 and"),
        (["train", "cartpole", "--policy-rate", "0"], "--policy-rate 0.0 was given; give 1e-12 t"),
        (["train", "cartpole", "--init", "no"], "--init no: no holds no run (no config.json)"),
        (["watch", "cartpole", "--save", "no/x.gif"], "there is no folder no; make it, or give"),
        (
            ["serve", "othello", "--host", "192.0.2.1"],
            "--host 192.0.2.1 --port 8000 (Cannot assign requested address); give another",
        ),
        (["compare", "one", "two"], "one holds no run"),
        (["list", "one", "two"], "two is no flag of zero list"),
        (["list", "conect"], "did you mean pgx/connect_four"),
        (["list", "SNEK"], "did you mean jumanji/Snake-v1"),
        (["list", "pgx/conect_four"], "Did you mean pgx/connect_four"),
        (["train", "jumanji/FlatPack-v0", "--agent", "spo"], "give one of sampled-alphazero, s"),
        (
            ["train", "pgx/tic_tac_toe", "--agent", "muzero", "--gamma", "0.5"],
            "--gamma has no effect with --env pgx/tic_tac_toe; leave it out.",
        ),
        (
            ["train", "pgx/backgammon", "--agent", "muzero"],
            "in which a turn has several moves, since models are learned of players in turns;",
        ),
        (["train", "2048", "--memory"], "--memory has no effect with --agent expert; lea"),
        (
            ["train", "2048", "--player-exploration", "1"],
            "--player-exploration has no effect with --agent expert; leave it out.",
        ),
        (
            ["train", "2048", "--value-scale", "1", "--search", "puct"],
            "--value-scale has no effect with --search puct; leave it out.",
        ),
        (
            ["train", "cartpole", "--agent", "expert", "--network", "lines"],
            "--network lines is for --agent alphazero and observations of [rows, columns, planes]",
        ),
        (
            ["train", "pgx/go_9x9", "--network", "lines"],
            "--network lines of pgx/go_9x9: `board_shape` is (9, 9, 17) and `width` 32, so the",
        ),
        (
            ["train", "cartpole", "--agent", "expert", "--network", "parts"],
            "--network parts of cartpole: `features` has arrays of shapes [(4,)] for 2 actions",
        ),
        (
            ["train", "cartpole", "--agent", "muzero", "--memory", "--capacity", "20"],
            "--model-steps 5, --memory-steps 16 and --n-steps 10; give at least 32.",
        ),
        (
            ["train", "pgx/tic_tac_toe", "--agent", "muzero", "--memory"],
            "--memory was given, and pgx/tic_tac_toe is a game of two",
        ),
    ],
)
def test_bad_input_gets_one_line(zero, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = zero(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


_OWN = """
import jax.numpy as jnp
from zero_envs import Observation
from zero_envs.testing import Nim

class WrongLegal(Nim):
    def observe(self, state):
        return Observation(jnp.zeros(4), jnp.ones(4, bool))

class Raises(Nim):
    def init(self, *, key):
        return undefined

class NoKey:
    pass

class NoCall:
    def __init__(self, features, num_actions, *, key):
        self.num_actions = num_actions

class OneArray(NoCall):
    def __call__(self, features):
        return jnp.zeros(self.num_actions)

class Logits(NoCall):
    def __call__(self, features):
        return jnp.zeros(4), jnp.zeros(())

class Mistake(NoCall):
    def __call__(self, features):
        return features @ jnp.zeros((5, self.num_actions)), 0.0
"""


@pytest.mark.parametrize("command", ["train", "list"])
@pytest.mark.parametrize(
    "name, message",
    [
        ("WrongLegal", "WrongLegal: the legal mask is bool[4]; it must be bool[3]."),
        ("Raises", "mine.py, line 12: NameError: name 'undefined' is not defined"),
        ("NoKey", 'make("mine.py:NoKey"): it is a NoKey and no environment; give'),
    ],
)
def test_a_mistake_in_ones_own_environment_is_one_line(
    zero, tmp_path, monkeypatch, command, name, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(_OWN)
    code, out, err = zero(command, f"mine.py:{name}")
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"zero: {message}")


@pytest.mark.parametrize(
    "name, message",
    [
        ("NoKey", ": NoKey: TypeError: NoKey() takes no arguments; it is called with the features"),
        ("NoCall", ": NoCall: TypeError: 'NoCall' object is not callable; it is called with"),
        ("OneArray", " returns float32[3] for one observation; it must return two arrays of float"),
        ("Logits", " returns float32[4], float32[] for one observation; it must return two arrays"),
        ("Mistake", ": mine.py, line 31: TypeError: dot_general requires"),
    ],
)
def test_a_mistake_in_ones_own_network_is_one_line(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(_OWN)
    config = presets("zero_envs.testing:Nim", "alphazero", 8)["tiny"]
    config = dataclasses.replace(config, network=f"mine.py:{name}")
    with pytest.raises(UsageError) as raised:
        build_network(config, build_world(config.env), key=jr.key(0))
    assert str(raised.value).startswith(f"--network mine.py:{name}{message}")
    assert "\n" not in str(raised.value)


def test_every_field_is_bounded(check_every_field):
    every = [presets("any", "alphazero", 84), presets("any", "expert", 496)]
    every += [presets("any", agent, 400, 1, board=True) for agent in ("expert", "sampled")]
    for config in (config for found in every for config in found.values()):
        check_every_field(config)


@pytest.mark.parametrize("command", ["eval", "play"])
def test_every_number_is_bounded(zero, tiny_run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for field in ("games", "simulations", "seed"):
        if field in {x.name for x in dataclasses.fields({**APP.commands, **COMMANDS}[command])}:
            for value in (10**20, -1):
                code, out, err = zero(command, tiny_run, f"--{field}={value}")
                assert (code, out, err.count("\n")) == (2, "", 1) and f"--{field}" in err


@pytest.mark.parametrize("command", ["", "train", "train 2048", *APP.commands, *COMMANDS])
def test_every_command_has_help(zero, command, monkeypatch):
    """No line of it is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = zero(*command.split(), "--help")
    assert (code, err) == (0, "") and f"zero {command}".strip() in out
    usage, *lines = out.splitlines()
    assert "[STR" not in usage and max(map(len, lines)) <= 80


_WELL = json.dumps(dataclasses.asdict(APPS["othello"].presets["tiny"]))
_WRONG = {
    "truncated": (_WELL[:40], "cannot be read: "),
    "empty": ("", "cannot be read: Expecting value"),
    "bad bytes": (b'{"seed": "\xff"}', "cannot be read: 'utf-8' codec"),
    "deep": ("[" * 200_000, "cannot be read: it is nested too deeply"),
    "list": ("[1, 2]", "it is no JSON object"),
    "other": ('{"colour": 1}', "it lacks "),
    "newer": (_WELL[:-1] + ', "wings": 2}', "it has wings, which this version does not know"),
    "pipe": (os.mkfifo, "cannot be read: it is no regular file"),
    "folder": (os.mkdir, "cannot be read: Is a directory"),
}


@pytest.mark.parametrize("command", ["eval", "report", "export", "watch", "play"])
@pytest.mark.parametrize("damage", _WRONG)
def test_what_is_wrong_with_a_configuration_is_said(zero, tmp_path, command, damage):
    """As the command of the app that made the run says it."""
    content, reason = _WRONG[damage]
    path = tmp_path / "config.json"
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = {"step": 0, "versions": {"jax": "0.10.2", "zero_train": "0.1.0", "zero_othello": "1"}}
    (tmp_path / "starts.jsonl").write_text(json.dumps(start) + "\n")
    code, out, err = zero(command, tmp_path)
    assert code == 2 and out == "" and err.count("\n") == 1
    with pytest.raises(UsageError) as own:
        load(APPS["othello"], tmp_path)
    assert err == f"zero: {own.value}\n" and f"{path} is not the configuration" in err
    assert reason in err


@pytest.mark.parametrize("field", ["env", "num_envs"])
def test_a_configuration_that_no_app_has_is_compared_with_the_nearest(zero, tmp_path, field):
    (tmp_path / "config.json").write_text(json.dumps({field: "othello"}))
    code, _, err = zero("eval", tmp_path)
    assert code == 2 and "it lacks" in err and err.count("\n") == 1
    stored = dataclasses.asdict(APPS["monsters"].presets["tiny"])
    (tmp_path / "config.json").write_text(json.dumps(stored | {"wings": 2}))
    assert "of `monsters train`: it has wings, which" in zero("eval", tmp_path)[2]


@pytest.mark.parametrize("command", ["eval", "export", "watch", "play"])
def test_what_is_wrong_with_a_file_of_a_player_is_said(zero, tmp_path, command):
    path, good = tmp_path / "a.safetensors", player_file(APPS["spo"], "pendulum").read_bytes()

    def named(app: str | None) -> bytes:
        """A file without arrays, of which only this is said."""
        header = json.dumps({"__metadata__": {} if app is None else {"app": app}}).encode()
        return len(header).to_bytes(8, "little") + header

    for content, reason in (
        (good[:100], "rror while deserializing header"),
        (good[:-1], "rror while deserializing header"),
        (b"", "rror while deserializing header"),
        (b"thesis " * 9, "rror while deserializing header"),
        (named(None), "it has no 'app'"),
        (named('["spo"]'), 'it is of ["spo"], which is no app that is known'),
        (named('"nim"'), 'it is of "nim", which is no app'),
        (named("nim"), "Expecting value"),
        (named("[" * 100_000), "recursion"),
        (named('"spo"'), "it has no 'config'"),
    ):
        path.write_bytes(content)
        code, out, err = zero(command, path)
        assert code == 2 and out == "" and err.count("\n") == 1
        if command == "play" and content == named('"spo"'):
            continue  # there is no such command for it
        assert f"{path} is no file of a player: " in err and reason in err, err


def test_a_configuration_that_is_none_is_not_compared(zero, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}" if name == "a" else "[1, 2]")
    code, _, err = zero("compare", tmp_path / "a", tmp_path / "b")
    assert code == 2 and "b/config.json is not a JSON object" in err and err.count("\n") == 1


def test_help_names_every_command(zero):
    _, out, _ = zero("--help")
    assert all(name in out for name in ("train", "eval", "play", "compare", "report", "list"))
    assert "train ENV" in out


def test_help_without_jax_is_that_of_the_commands(capsys):
    _run(["--help"])
    assert capsys.readouterr().out == f"{HELP}\n"
    with pytest.raises(UsageError, match="no command is called 'trian'; choose one of") as raised:
        _run(["trian"])
    code = (
        "import sys; sys.argv = ['zero', 'trian']\nfrom zero_cli.__main__ import main\n"
        "try: main()\nfinally: print('jax' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "False\n")
    assert ran.stderr == f"zero: {raised.value}\n"


def test_the_list_says_who_can_play(zero):
    _, out, _ = zero("list")
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    assert lines["pgx/tic_tac_toe"] == "2 alphazero, muzero, stochastic; symmetries"
    continuous = "spo, mpo, ppo, vmpo, sampled, sampled-alphazero"
    assert lines["brax/ant"] == lines["gymnax/Pendulum-v1"] == f"1 {continuous}"
    assert lines["gymnax/Catch-bsuite"] == "1 spo, mpo, ppo, vmpo, expert, muzero, stochastic"
    assert lines["gymnax/MemoryChain-bsuite"] == "1 ppo, vmpo, mpo, muzero, stochastic"
    assert lines["2048"] == "1 expert, spo, mpo, ppo, vmpo, muzero, stochastic"
    assert lines["pgx/kuhn_poker"] == "2 none: a part of its state is hidden"
    assert lines["minesweeper"] == "1 the app minesweeper; presets of its own; trained player"
    assert lines["pendulum"] == f"1 {continuous}; tuned presets; trained player"
    with_player = {name for name, line in lines.items() if line.endswith("; trained player")}
    comes = {name for app in APPS.values() for name in player_names(app)} - {PRETRAINED}
    assert with_player == comes | set(OWN_APPS)
    assert all(lines[name].startswith("2 the app othello") for name in ("othello", "pgx/othello"))
    _, out, _ = zero("list", "pgx/go")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["pgx/go_19x19", "pgx/go_9x9"]


def test_a_library_that_is_not_installed_is_named_with_its_extra(zero, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)
    code, out, err = zero("train", "playground/WalkerStand")
    assert (code, out) == (2, "") and err == (
        "zero: PlaygroundEnvironment needs mujoco_playground, which is not installed: install "
        "zero-envs with its extra `playground`.\n"
    )


@pytest.mark.parametrize(
    "part, name, values",
    [
        (
            "tic_tac",
            "pgx/tic_tac_toe",
            [
                "2",
                "18 numbers: [3, 3, 2]",
                "9",
                "alphazero, muzero, stochastic; symm",
                "train, eval, play, serve, watch, compare,",
            ],
        ),
        (
            "2048",
            "2048",
            [
                "1",
                "496 numbers: [4, 4, 31]",
                "4",
                "expert, spo, mpo, ppo, vmpo, muzero, stochastic",
                "train, eval, watch, compare,",
            ],
        ),
        (
            "pendulum",
            "pendulum",
            [
                "1",
                "3 numbers: [3]",
                "1 continuous",
                "spo, mpo, ppo, vmpo, sampled, sampled-alphazero",
                "train, eval, watch, compare",
            ],
        ),
        (
            "FlatPack",
            "jumanji/FlatPack-v0",
            ["1", "", "25 x 4 x 9 x 9", "sampled-alphazero, sampled", "train, eval, watch"],
        ),
        (
            "zero_envs.testing:Nim",
            "zero_envs.testing:Nim",
            ["2", "8 numbers", "3", "alphazero", "train, eval, play, watch, compare"],
        ),
    ],
)
def test_one_environment_is_looked_at_closely(zero, part, name, values):
    """That of exactly this name, or the only one with this part in it."""
    _, out, _ = zero("list", part)
    found = [line[13:] for line in out.splitlines()]
    assert found[0] == name
    assert all(line.startswith(value) for line, value in zip(found[1:], values, strict=True))


@pytest.mark.parametrize("name, engine", [("othello", "zero"), ("pgx/othello", "pgx")])
def test_the_name_says_whose_othello_is_played(zero, tmp_path, monkeypatch, name, engine):
    trained = []
    keep = lambda app, config, options, preset, **_: trained.append((config.env_engine, preset))
    monkeypatch.setattr("zero_app._run._train.train", keep)
    code, _, _ = zero("train", name, "--preset", "tiny", "--out", tmp_path)
    assert code == 0 and trained == [(engine, "tiny")]


def test_runs_are_known_by_their_configuration(tiny_run, tmp_path):
    from zero_othello._config import Config as Othello
    from zero_spo._config import Config as SPO

    assert app_of(str(tiny_run)) == (APP, str(tiny_run))
    for app, config in (("othello", Othello()), ("spo", SPO())):
        (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
        assert app_of(str(tmp_path)) == (APPS[app], str(tmp_path))


def test_players_are_known_by_their_games(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert app_of("pgx/connect_four") == (APP, "pgx/connect_four")
    assert app_of("cartpole") == (APPS["spo"], "cartpole")
    for name in ("othello", "minesweeper", "monsters"):
        assert app_of(name) == (APPS[name], "pretrained")
    file = str(player_file(APPS["spo"], "pendulum"))
    assert app_of(file) == (APPS["spo"], file)


def test_players_of_all_apps_are_loaded_by_their_games():
    for name in ("cartpole", "pendulum"):
        assert pretrained(name).config.env == name
    assert type(pretrained("pgx/othello").config) is APPS["othello"].config
    with pytest.raises(UsageError, match="comes with players of pgx/connect_four, and none of x"):
        pretrained("x")


def test_the_name_of_a_game_is_enough_to_play(zero):
    code, out, _ = zero("eval", "pgx/connect_four", "--games", 2, "--simulations", 0)
    assert code == 0 and out.startswith("pgx/connect_four (pgx/connect_four, step ")
    assert "of an environment that has" in zero("play", "--seed", 1)[2]


def test_a_command_that_an_app_lacks_is_named(zero, tmp_path):
    from zero_spo._config import Config as SPO

    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(SPO())))
    code, _, err = zero("play", tmp_path)
    assert (
        code == 2
        and "is a player of `spo`, which has eval, watch, compare, report, export, and no play."
        in err
    )


@pytest.mark.parametrize("field", ["network", "env"])
@pytest.mark.parametrize("command", ["eval", "play", "serve", "watch", "export"])
def test_code_in_a_strangers_run_is_not_imported(zero, tmp_path, monkeypatch, command, field):
    """Of `zero` itself and of SPO, whose environments may be one's own too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("import os\nos.mkdir('loot')\n")
    stored = dataclasses.asdict(APP.presets["tiny"]) | {field: "evil.py:Net"}
    if field == "env" and command in APPS["spo"].commands:
        stored = dataclasses.asdict(APPS["spo"].presets["tiny"]) | {"env": "evil.py:Net"}
    for run in ("run", "other"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "config.json").write_text(json.dumps(stored))
    names = "names code, evil.py:Net, which may do anything"
    code, out, err = zero(command, "run")
    assert code == 2 and out == "" and err.count("\n") == 1
    assert names in err and "--run-code" in err
    code, _, err = zero("report", "run")
    assert code == 0 and "no episodes were played for the report" in err and names in err
    assert zero("compare", "run", "other")[0] == 0
    assert (tmp_path / "run" / "report.html").exists() and not (tmp_path / "loot").exists()
