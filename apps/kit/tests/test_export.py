"""A player without this package: its network, and its search with the game."""

import dataclasses
import inspect
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import (
    AbstractConfig,
    App,
    load,
    main,
    Options,
    run,
    train,
    UsageError,
    with_simulations,
)
from zero_app._run._export import export_decision
from zero_envs.testing import Nim, NimState
from zero_train import evaluate_batch

from .nim import shared_loop


pytestmark = pytest.mark.usefixtures("no_charts")

ENV = Nim(heap=7, most=3)


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    steps: int = 3
    evaluate_every: int = 3


@pytest.fixture(scope="module")
def app():
    return App("nim", "Nim.", {"tiny": Config()}, lambda config: shared_loop())


@pytest.fixture(scope="module")
def folder(app, tmp_path_factory) -> pathlib.Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(app, Config(), Options(out=folder))
    return folder


def positions(number: int) -> Any:
    """Every heap, so that some moves are illegal, and a position that is over."""
    heaps = jnp.arange(number, dtype=jnp.int32) % (ENV.heap + 1)
    return jax.vmap(lambda heap: ENV.observe(NimState(heap)))(heaps)


def test_the_exported_network_is_the_network(app, folder, tmp_path, monkeypatch, capsys):
    """For any number of positions, and for the platforms that were asked for."""
    monkeypatch.chdir(tmp_path)
    run(app, ["export", str(folder), "--out", "there"])
    assert "there; its README.md says how" in capsys.readouterr().out
    exported = jax.export.deserialize(
        bytearray((tmp_path / "there/network.stablehlo").read_bytes())
    )
    assert exported.platforms == ("cpu", "cuda", "tpu")
    player: Any = load(app, folder).player
    for number in (1, 9):
        obs = positions(number)
        out = exported.call(obs.features, obs.legal)
        logits, value = evaluate_batch(player.model.evaluate, obs)
        np.testing.assert_allclose(out["logits"], logits, rtol=1e-5)
        np.testing.assert_allclose(out["value"], value, rtol=1e-5)
        np.testing.assert_array_equal(np.isneginf(out["logits"]), ~np.asarray(obs.legal))
    assert load(app, "there/player.safetensors").step == 3
    with pytest.raises(UsageError, match="--out there is not empty; give another folder"):
        run(app, ["export", str(folder), "--out", "there"])


def snippets(readme: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


def test_the_readme_beside_it_can_be_followed(app, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(app, ["export", str(folder), "--out", "there", "--batch", "2", "--platforms", "cpu"])
    text = (tmp_path / "there" / "README.md").read_text()
    assert len(snippets(text)[0].splitlines()) <= 10
    for said in ("| `features` | `[2, 8]` |", "| `legal` | `[2, 3]` | bool |", "of the player to"):
        assert said in text
    assert inspect.getdoc(Nim) in text
    monkeypatch.chdir("there")
    capsys.readouterr()
    exec(compile(snippets(text)[0], "README.md", "exec"), {})
    assert capsys.readouterr().out == "{'logits': (2, 3), 'value': (2,)}\n"


@pytest.mark.slow
def test_an_environment_with_jax_alone_is_enough(app, folder, tmp_path):
    """JAX, and what its export asks for: neither of ours, nor Equinox."""
    main(app, ["export", str(folder), "--simulations=8", "--out", str(tmp_path / "there")])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    versions = [f"{x.__name__}=={x.__version__}" for x in (jax, np)]
    subprocess.run(
        ["uv", "pip", "install", "-q", "--python", python, *versions, "flatbuffers"], check=True
    )
    obs = positions(9)
    np.savez(tmp_path / "given.npz", features=obs.features, legal=obs.legal)
    code = "".join(snippets((tmp_path / "there" / "README.md").read_text())) + (
        f"given = np.load({str(tmp_path / 'given.npz')!r})\n"
        "out = network.call(given['features'], given['legal'])\n"
        f"np.savez({str(tmp_path / 'out.npz')!r}, **out)\n"
        "import importlib.util\n"
        "assert not [x for x in ('zero_train', 'equinox') if importlib.util.find_spec(x)]\n"
    )
    subprocess.run([python, "-I", "-c", code], check=True, cwd=tmp_path / "there")
    player: Any = load(app, folder).player
    logits, value = evaluate_batch(player.model.evaluate, obs)
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["logits"], logits, rtol=1e-5)
        np.testing.assert_allclose(out["value"], value, rtol=1e-5)


def test_the_exported_search_plays_the_game(app, folder, tmp_path, monkeypatch, capsys):
    """The same plans as those of the player, by its programs alone."""
    monkeypatch.chdir(tmp_path)
    run(app, ["export", str(folder), "--out=there", "--batch=2", "--simulations=4"])
    text = (tmp_path / "there" / "README.md").read_text()
    monkeypatch.chdir("there")
    capsys.readouterr()
    exec(compile(snippets(text)[1], "README.md", "exec"), names := {})
    assert capsys.readouterr().out.count("[False False]") == 3
    start, search, step = (names["programs"][name] for name in ("start", "search", "step"))
    key = lambda seed: np.asarray([0, seed], np.uint32)
    player: Any = with_simulations(load(app, folder).player, 4)
    planner = dataclasses.replace(player.planner, reuse=False)
    state = jax.vmap(lambda key: ENV.init(key=key))(jr.split(jr.key(0), 2))
    arrays = start(key(0))
    for move in range(2):
        obs, keys = jax.vmap(ENV.observe)(state), jr.split(jr.key(move), 2)
        memory = planner.init(player.model, state)
        plan, _ = planner.plan(player.model, state, memory, obs=obs, key=keys)
        out = search(key(move), *arrays)
        for name in ("action", "visits", "weights", "qvalues", "value"):
            np.testing.assert_allclose(out[name], getattr(plan, name), rtol=1e-5, atol=1e-6)
        arrays, after = step(key(9), out["action"], *arrays)
        state, transition = jax.vmap(lambda s, a, key: ENV.step(s, a, key=key))(
            state, plan.action, jr.split(jr.key(9), 2)
        )
        np.testing.assert_array_equal(after["reward"], transition.reward)
        for x, y in zip(arrays, jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(x, y)


def test_only_a_search_is_exported_with_its_simulations(app, folder, tmp_path):
    trained = load(app, folder)
    alone = dataclasses.replace(trained, player=with_simulations(trained.player, 0))
    with pytest.raises(UsageError, match="the network alone is not exported with simulations"):
        export_decision(alone, 4, 1, ("cpu",))
