"""What imports pull in, and which commands do without JAX, whose import takes seconds."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from zero_cli._apps import APPS

from . import workspace


#: What takes long to import, of all that our packages use and what those use.
HEAVY = {
    *("jax", "jaxlib", "equinox", "optax", "orbax", "flashbax", "flax", "chex", "distreqx"),
    *("mctx", "pgx", "jumanji", "brax", "mujoco", "scipy", "matplotlib", "PIL", "resvg_py"),
    *("tensorboardX", "tyro", "rich", "numpy", "safetensors", "starlette", "uvicorn", "numba"),
}
_JAX = {"jax", "jaxlib", "numpy", "equinox"}
_FLASHBAX = {"flashbax", "flax", "chex", "rich"}
_FLAGS = {"numpy", "rich", "safetensors", "tyro"}
#: Of these what the import of each package pulls in.
PULLED_IN = {
    "zero_envs": set(),
    "zero_search": _JAX,
    "zero_memory": _JAX | _FLASHBAX,
    "zero_nets": _JAX | {"distreqx"},
    "zero_train": set(),
    "zero_app": set(),
    "zero_cli": set(),
    "zero_othello": _FLAGS,
    "zero_minesweeper": _FLAGS,
    "zero_monsters": _FLAGS,
    "zero_spo": _FLAGS,
}
# Says so, and ends the process at once, where JAX is imported.
_WITHOUT_JAX = """
import os, sys

class NoJax:
    def find_spec(self, name, path=None, target=None):
        if name == "jax":
            print("JAX was imported", file=sys.stderr, flush=True)
            os._exit(3)

sys.meta_path.insert(0, NoJax())
"""


def _python(code: str, *words: str, folder: str | pathlib.Path = ".") -> tuple[int, str, str]:
    """The exit code, the output and the errors of a program."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ})
    return done.returncode, done.stdout, done.stderr


def _without_jax(app: str, *words: str, folder: pathlib.Path) -> tuple[int, str, str]:
    module = "zero_cli" if app == "zero" else f"zero_{app}"
    code = f"{_WITHOUT_JAX}from {module}.__main__ import main; main()"
    return _python(code, *words, folder=folder)


@pytest.mark.parametrize("name", [workspace.import_name(member) for member in workspace.MEMBERS])
def test_what_an_import_pulls_in(name):
    code, out, err = _python(f"import {name}, sys; print(*sys.modules)")
    assert code == 0, err
    assert {*out.split()} & HEAVY == PULLED_IN[name]


def test_an_import_of_jax_is_seen(tmp_path):
    """Of a command that cannot do without."""
    code, _, err = _without_jax("zero", "list", "cartpole", folder=tmp_path)
    assert code == 3 and err == "JAX was imported\n"


_REFUSED = {
    "zero train cartpole --lerning-rate 1": "--lerning-rate is no flag of zero train cartpole; see",
    "zero train cartpole --agent nope": "--agent nope was given; give one of alphazero, expert,",
    "zero train cartpole --policy-rate 0": "--policy-rate 0.0 was given; give 1e-12 to 1.",
    "zero train pendulum --agent expert": "--agent expert cannot play pendulum; give one of spo,",
    "zero train pgx/hex --simulation 8": "did you mean --simulations?",
    "zero train pgx/hex --simulations few": "--simulations few was given; give a whole number.",
    "zero train pgx/hex --search best": "--search best was given; give one of gumbel, puct, muze",
    "zero train pgx/hexx": "no such environment. Did you mean pgx/hex?",
    "zero train cartpol": "no such environment. Did you mean cartpole or gymnasium/CartPole-v1 or ",
    "zero train gymnasium/CartPole-v1 --agent spo": "cannot be copied to plan in; give one of ppo,",
    "zero train minesweeper --mines 100": "--mines 100 was given for --rows 10",
    "zero list pgx/hexx": "no such environment. Did you mean pgx/hex?",
    "zero list hexx": "did you mean pgx/hex",
    "zero compare": "no run was given; give the folders of two or more.",
    "zero eval nowhere": "nowhere holds no run",
    "zero report": "needs a run first",
    "othello train --ladder-game 8": "did you mean --ladder-games?",
    "othello train --ladder-games 7": "--ladder-games 7 is odd",
    "minesweeper train --mine 8": "--mine is no flag of minesweeper train; did you mean --mines?",
    "monsters train --planner best": "planner 'best' is unknown",
    "spo train --env cartpole --particle 8": "did you mean --particles?",
}


@pytest.mark.parametrize("words", _REFUSED)
def test_what_is_refused_starts_no_jax(tmp_path, words):
    code, out, err = _without_jax(*words.split(), folder=tmp_path)
    assert code == 2 and out == "" and _REFUSED[words] in err and err.count("\n") == 1


def test_the_list_starts_no_jax(tmp_path):
    code, out, err = _without_jax("zero", "list", folder=tmp_path)
    assert (code, err) == (0, "") and "pgx/connect_four  " in out


@pytest.mark.parametrize("app", APPS)
def test_runs_are_compared_and_reported_without_jax(tmp_path, app):
    """Of stored runs only files are read."""
    for seed, name in enumerate("ab"):
        config = dataclasses.replace(APPS[app].presets["tiny"], evaluate_every=seed + 1)
        metrics = [{"step": n, "loss": 1 / n, "learning_rate": 0.1} for n in (1, 2)]
        measured = {"episodes": 4, "return_mean": 2.0 + seed, "return_se": 0.5}
        files = {"config.json": [dataclasses.asdict(config)], "metrics.jsonl": metrics}
        if app == "spo":
            files["evaluations.jsonl"] = [{"step": n} | measured for n in (1, 2)]
        (tmp_path / name).mkdir()
        for file, lines in files.items():
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (tmp_path / name / file).write_text(text)
    code, out, err = _without_jax("zero", "compare", "a", "b", folder=tmp_path)
    assert (code, err) == (0, "") and "The page is compare.html" in out
    assert ("Last evaluation" in out) == (app == "spo")
    for command in ("zero", app):
        words = command, "report", "a", "--episodes", "0"
        code, out, err = _without_jax(*words, folder=tmp_path)
        assert (code, err) == (0, "") and "<svg" in (tmp_path / "a" / "report.html").read_text()
