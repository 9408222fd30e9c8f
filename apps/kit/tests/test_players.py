"""Trained players in files: written, read, shipped, exported, and learned on from."""

import contextlib
import dataclasses
import functools as ft
import gc
import inspect
import json
import os
import pathlib
import pickle
import random
import re
import shutil
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import load_file

from zero_app import (
    AbstractConfig,
    App,
    CheckpointError,
    Checkpoints,
    load,
    load_config,
    Options,
    player_file,
    read_lines,
    run,
    save_player,
    train,
    UsageError,
    write_report,
)
from zero_app._run._manifest import read_manifest, write_manifest
from zero_app._run._players import _origin, has_player
from zero_envs.testing import Nim
from zero_train import AbstractAgent, template

from .damages import flip
from .nim import shared_loop
from .nim_agent import nim_agent, nim_loop


pytestmark = pytest.mark.usefixtures("no_charts")


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    seed: int = 5
    steps: int = 3
    checkpoint_every: int = 2
    evaluate_every: int = 3
    width: int = 16
    env: str = "nim"

    code: ClassVar[tuple[str, ...]] = ("env",)


ENV = Nim(heap=7, most=3)


@ft.cache
def loop_of(width):
    """Runs that differ in nothing else share what is compiled."""
    if width == Config.width:
        return shared_loop()
    return nim_loop(1, env=ENV, agent=nim_agent(ENV, width, average_decay=0.9))


def build(config):
    return loop_of(config.width)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Nim, with a run and a player of it that it comes with."""
    app = App("nim", "Nim.", {"tiny": Config()}, build)
    folder = tmp_path_factory.mktemp("players")
    train(app, Config(), Options(out=folder / "run"))
    (folder / "players").mkdir()
    save_player(folder / "players" / "nim.safetensors", app, load(app, folder / "run"), half=True)
    return dataclasses.replace(app, players=folder / "players")


@pytest.fixture(scope="module")
def folder(app) -> pathlib.Path:
    return app.players.parent / "run"


def arrays(player: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(player, eqx.is_array))]


def test_a_file_holds_the_player_bit_by_bit(app, folder, tmp_path):
    trained = load(app, folder)
    save_player(tmp_path / "a.safetensors", app, trained, strength=[{"command": "c"}])
    again = load(app, tmp_path / "a.safetensors")
    assert (again.config, again.step) == (trained.config, trained.step) == (Config(), 3)
    assert again.strength == [{"command": "c"}] and not trained.strength
    assert again.origin == trained.origin
    assert set(again.origin) == {"command", "commit", "versions", "run"}
    pairs = zip(arrays(again.player), arrays(trained.player), strict=True)
    assert all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)


def test_numbers_are_rounded_to_16_bits_where_these_hold_them(app, folder, tmp_path):
    """Of matrices; biases are kept as they are, and what 16 bits do not reach."""
    trained = load(app, folder)
    huge: Any = eqx.tree_at(
        lambda p: p.model.evaluate.network.policy.weight,
        trained.player,
        replace_fn=lambda x: 1e6 * x,
    )
    path = tmp_path / "a.safetensors"
    save_player(path, app, dataclasses.replace(trained, player=huge), half=True)
    kinds = {name.rpartition("network.")[2]: x.dtype for name, x in load_file(path).items()}
    assert kinds["hidden.weight"] == kinds["value.weight"] == np.float16
    assert kinds["hidden.bias"] == kinds["policy.weight"] == np.float32
    network: Any = load(app, path).player
    before, after = (x.model.evaluate.network.hidden.weight for x in (huge, network))
    assert after.dtype == jnp.float32
    np.testing.assert_array_equal(after, np.asarray(before).astype(np.float16).astype(np.float32))


def test_safetensors_gives_the_same_bytes_by_the_paths_of_the_tree(app, folder, tmp_path):
    """Read by the library alone, as other programs do."""
    trained, path = load(app, folder), tmp_path / "a.safetensors"
    save_player(path, app, trained)
    network: Any = trained.player
    for name, stored in load_file(path).items():
        found = network
        for part in name.split("."):
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        assert stored.tobytes() == np.asarray(found).tobytes() and stored.shape == found.shape
    assert len(load_file(path)) == len(arrays(network)) == 6


def test_a_player_that_an_app_comes_with_goes_by_its_name(app, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert player_file(app) == player_file(app, "nim") == app.players / "nim.safetensors"
    assert load(app).step == load(app, "nim").step == 3
    assert has_player(app, "pretrained") and has_player(app, str(folder))
    assert not has_player(app, "go")
    with pytest.raises(UsageError, match="comes with players of nim, and none of go; give"):
        player_file(app, "go")
    other = Config(env="chess")
    with pytest.raises(UsageError, match="comes with players of nim, and none of chess"):
        player_file(app, "pretrained", other)
    with pytest.raises(UsageError, match="`bare` comes with no trained player"):
        load(dataclasses.replace(app, name="bare", players=None))
    with pytest.raises(UsageError, match="go holds no run"):
        load(app, "go")
    # What is there is meant before a name.
    (tmp_path / "nim").write_bytes(player_file(app).read_bytes()[:-1])
    with pytest.raises(UsageError, match="nim is no file of a player"):
        load(app, "nim")


def test_files_that_are_no_player_get_one_line(app, folder, tmp_path):
    path, good = tmp_path / "a.safetensors", player_file(app).read_bytes()
    length = int.from_bytes(good[:8], "little")
    said = lambda old, new: good.replace(old, new.ljust(len(old)), 1)
    shape = b'"shape":[16,8]'
    assert shape in good
    wrong = [
        b"",
        good[: length // 2],
        good[:-1],
        b"\xff" * 64,
        pickle.dumps({"a": 1}),
        said(b'\\"seed\\": 5', b'\\"sead\\": 5'),
        said(b'\\"seed\\": 5', b'\\"seed\\": x'),
        said(b'"app":"\\"nim', b'"app":"\\"nom'),
        said(shape, b'"shape":[8,16]'),
        said(b"hidden.bias", b"hidden.base"),
    ]
    for text in wrong:
        assert text != good
        path.write_bytes(text)
        with pytest.raises((UsageError, CheckpointError)) as caught:
            load(app, path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_every_bit_of_a_file_is_checked(app, tmp_path):
    """As far as it says anything: some names are not of use, and JSON has spaces."""
    path, randomly, refused = tmp_path / "a.safetensors", random.Random(0), 0
    wanted = arrays(load(app, player_file(app)).player)
    for _ in range(200):
        path.write_bytes(player_file(app).read_bytes())
        flip(path, randomly)
        try:
            found = arrays(load(app, path).player)
        except (UsageError, CheckpointError) as e:
            assert "\n" not in str(e) and str(path) in str(e)
            refused += 1
        else:
            assert all(x.tobytes() == y.tobytes() for x, y in zip(found, wanted, strict=True))
    assert refused > 190


def test_training_begins_with_a_players_parameters(app, folder, tmp_path):
    """What is played at first is that player, and a run that was killed begins with it again."""
    config = Config(init=str(folder), seed=9)
    train(app, config, Options(out=tmp_path / "a"))
    state = Checkpoints(tmp_path / "a" / "parameters", keep=None)
    assert state.steps()[0] == 0
    shapes = eqx.filter(load(app, folder).player, eqx.is_array)
    first, wanted = state.restore(shapes, step=0), load(app, folder).player
    pairs = zip(arrays(first), arrays(wanted), strict=True)
    assert all(x.tobytes() == y.tobytes() for x, y in pairs)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_bytes((tmp_path / "a" / "config.json").read_bytes())
    train(app, config, Options(out=tmp_path / "b", resume=True))
    lines = lambda name: (tmp_path / name / "metrics.jsonl").read_bytes()
    assert lines("a") == lines("b")
    plain = dataclasses.replace(config, init="")
    train(app, plain, Options(out=tmp_path / "c"))
    assert lines("a") != lines("c")


def test_the_optimiser_is_fresh(app, folder):
    player: Any = load(app, folder).player
    agent: Any = build(Config()).agent
    state, plain = agent.init(key=jr.key(1), actor=player), agent.init(key=jr.key(1))
    assert jax.tree.structure(state) == jax.tree.structure(plain)
    for x, y in zip(*(jax.tree.leaves(s.optimiser) for s in (state, plain)), strict=True):
        assert (x == y).all()
    assert state.updates == 0
    for part in (state.params, state.target):
        assert all((x == y).all() for x, y in zip(arrays(part), arrays(player), strict=True))


@pytest.mark.parametrize(
    "config, message",
    [
        (Config(init="nowhere"), "nowhere holds no run"),
        (Config(init="pretrained", width=8), r"hidden.weight float32\[16, 8\] where"),
        (Config(init="pretrained", env="go"), "comes with players of nim, and none of go"),
    ],
)
def test_a_player_that_does_not_fit_is_refused_in_one_line(app, tmp_path, config, message):
    with pytest.raises(UsageError, match=message) as caught:
        train(app, config, Options(out=tmp_path / "run"))
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_an_agent_that_takes_no_player_is_refused(app, tmp_path):
    class Without(AbstractAgent):
        agent: AbstractAgent

        def init(self, *, key):
            return self.agent.init(key=key)

        def actor(self, state, *, explore):
            return self.agent.actor(state, explore=explore)

        def update(self, state, batch, *, key):
            return self.agent.update(state, batch, key=key)

    def own(config):
        loop = build(config)
        return dataclasses.replace(loop, agent=Without(loop.agent)) if config.init else loop

    other = dataclasses.replace(app, build=own)
    with pytest.raises(UsageError, match="Without cannot start from a trained player: its `init`"):
        train(other, Config(init="pretrained"), Options(out=tmp_path / "run"))


# What a stranger's files may do.


class Burglar:
    """Unpickling one leaves a file."""

    def __init__(self, loot: pathlib.Path):
        self._loot = loot

    def __reduce__(self):
        return os.mkdir, (str(self._loot),)


def close_reads() -> None:
    """Closes what Orbax was reading when another read failed. It leaves that open, and each would
    raise an error wherever the collector comes upon it, in this test or in a later one."""
    for found in gc.get_objects():
        if inspect.iscoroutine(found) and "orbax" in found.cr_code.co_filename:
            with contextlib.suppress(Exception):
                found.close()


# TensorStore tells of what it has read after Orbax has closed the loop that waited for it.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning"
)
def test_no_file_of_a_run_is_unpickled(app, folder, tmp_path):
    """A pickle in one file after the other, with a manifest that vouches for it."""
    loot, payload = tmp_path / "loot", pickle.dumps(Burglar(tmp_path / "loot"))
    pickle.loads(payload)
    loot.rmdir()  # so it would work
    mine = tmp_path / "run"
    checkpoints, whole = Checkpoints(mine / "checkpoints"), template(build(Config()))
    uses = {
        "parameters": lambda: load(app, mine),
        "checkpoints": lambda: checkpoints.restore(whole),
        "": lambda: (load(app, mine), write_report(app, mine)),
    }
    shutil.copytree(folder, mine, dirs_exist_ok=True)
    tried = 0
    for name in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
        store, *rest = name.parts if len(name.parts) > 1 else ("", name.name)
        if store and rest[0] != "00000003":
            continue
        mended = {mine / name}
        (mine / name).write_bytes(payload)
        if store and rest[1:] != ["manifest.json"]:
            saved = mine / store / rest[0]
            mended.add(saved / "manifest.json")
            leaves = read_manifest(saved, 3)["leaves"]
            (saved / "manifest.json").unlink()
            write_manifest(saved, 3, leaves)
        try:
            uses[store]()
        except ValueError as e:  # every error for users is one
            assert "\n" not in str(e)
            close_reads()
        assert not loot.exists(), name
        for path in mended:
            path.write_bytes((folder / path.relative_to(mine)).read_bytes())
        tried += 1
    assert tried > 20


@pytest.mark.parametrize("kind", ["module:Class", "file.py:Class"])
def test_code_that_a_configuration_names_is_not_run_unasked(
    app, folder, tmp_path, monkeypatch, kind
):
    """Neither of a run nor of a file; the report of such a run is written without it."""
    (tmp_path / "burglar.py").write_text("import os\nos.mkdir('loot')\nClass = 1\n")
    monkeypatch.chdir(tmp_path)
    named = kind.replace("module", "burglar").replace("file", "burglar")
    shutil.copytree(folder, tmp_path / "run", dirs_exist_ok=True)
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"nim"', f'"{named}"'))
    trained = dataclasses.replace(load(app, folder), config=Config(env=named))
    save_player(tmp_path / "a.safetensors", app, trained)
    from zero_envs import load_class

    opened = lambda config: build(config) if config.env == "nim" or load_class(named) else None
    other = dataclasses.replace(app, build=opened)
    for name in ("run", "a.safetensors"):
        uses = (
            lambda name=name: run(other, ["export", name]),
            lambda name=name: train(app, Config(init=name), Options(out=pathlib.Path("new"))),
        )
        for use in uses:
            with pytest.raises(UsageError, match=f"names code, {named}, which may do anything"):
                use()
    write_report(other, "run")
    assert not (tmp_path / "loot").exists() and not (tmp_path / "new").exists()
    assert load(other, "run", run_code=True).step == 3
    assert (tmp_path / "loot").exists()


def test_the_report_shows_names_and_never_runs_them(app, folder, tmp_path):
    evil = "<img src=x onerror=alert(1)>$\\frac{"
    shutil.copytree(folder, tmp_path / evil.replace("/", ""), dirs_exist_ok=True)
    mine = tmp_path / evil
    config = json.loads((mine / "config.json").read_text())
    config |= {"env": evil, "<script>alert(1)</script>": evil}
    (mine / "config.json").write_text(json.dumps(config))
    (mine / "evaluations.jsonl").write_text(
        json.dumps({"step": 3, "score": 0.5, "opponent": evil, evil: 1}) + "\n"
    )
    text = write_report(app, mine).read_text()
    assert "&lt;img src=x" in text and "&lt;script&gt;" in text
    assert "<img" not in text and "<script" not in text


def test_a_player_is_of_the_start_before_it(tmp_path):
    """What goes on after it has not trained it."""
    rows = [{"step": 0, "command": "a"}, {"step": 2, "command": "b"}]
    (tmp_path / "starts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [_origin(tmp_path, step)["command"] for step in (0, 2, 3)] == ["a", "a", "b"]


# Configurations of other versions.


def test_a_run_of_a_newer_version_is_refused_by_name(app, folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"wings": 2}))
    start = read_lines(tmp_path / "starts.jsonl")[0]
    # The tests are of no distribution, so that of another one stands for theirs.
    kind: Any = type("Config", (Config,), {"__module__": "zero_train.of_tests"})
    kind = dataclasses.dataclass(frozen=True)(kind)
    start["versions"]["zero_train"] = "99.0"
    (tmp_path / "starts.jsonl").write_text(json.dumps(start) + "\n")
    with pytest.raises(UsageError, match="it has wings, which this version does not know") as e:
        load_config(kind, tmp_path, "nim")
    here = re.escape(__import__("zero_train").__version__)
    assert re.search(f"; zero_train 99.0 wrote it, and this is {here}\\.$", str(e.value))
