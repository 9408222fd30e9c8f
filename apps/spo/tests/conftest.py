"""A very small training run that the app's tests share, and a player of discrete actions."""

import contextlib
import dataclasses
import io
import json
import pathlib

import pytest


def _small(env: str, agent: str = "spo"):
    """A run that compiles and steps as fast as any can."""
    from zero_spo._config import presets

    return dataclasses.replace(
        presets(env, agent)["reference"],
        steps=4 * 8 * 4 - 5,
        envs=8,
        unroll=4,
        updates=2,
        batch=8,
        length=4,
        replay=8 * 16,
        particles=4,
        depth=2,
        period=2,
        width=8,
        layers=1,
        evaluate_every=2,
        episodes=2,
        checkpoint_every=2,
    )


@pytest.fixture(scope="session")
def small_config():
    """Of pendulum: four blocks, and evaluations after the second and the last."""
    return _small("pendulum")


@pytest.fixture(scope="session")
def _finished(small_config, tmp_path_factory) -> tuple[pathlib.Path, str]:
    """A folder, and what was printed meanwhile."""
    from zero_app import Options, train
    from zero_spo._app import APP

    folder, said = tmp_path_factory.mktemp("runs") / "pendulum", io.StringIO()
    with contextlib.redirect_stdout(said):
        train(APP, small_config, Options(out=folder))
    return folder, said.getvalue()


@pytest.fixture(scope="session")
def tiny_run(_finished) -> pathlib.Path:
    """The folder of a finished, undisturbed run of `small_config`."""
    return _finished[0]


@pytest.fixture(scope="session")
def printed(_finished) -> str:
    """What `tiny_run` printed."""
    return _finished[1]


@pytest.fixture(scope="session")
def discrete_config():
    """The same of cartpole."""
    return _small("cartpole")


@pytest.fixture(scope="session")
def first_player(tmp_path_factory):
    """`first_player(env, agent)`: the folder of a run that has its first player and no block."""

    def make(env: str, agent: str = "spo") -> pathlib.Path:
        import equinox as eqx
        import jax.random as jr

        from zero_app import Checkpoints
        from zero_spo._build import build_agent, build_env

        config = _small(env, agent)
        folder = tmp_path_factory.mktemp("first")
        (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
        built = build_agent(config, build_env(config))
        player = built.actor(built.init(key=jr.key(0)), explore=False)
        Checkpoints(folder / "parameters", keep=None).save(0, eqx.filter(player, eqx.is_array))
        return folder

    return make


@pytest.fixture(scope="session")
def cartpole_run(first_player) -> pathlib.Path:
    """The folder of a run of cartpole that has not learned yet."""
    return first_player("cartpole")


@pytest.fixture
def spo(run_main):
    """Runs `spo WORDS` in this process; returns its exit code, stdout and stderr."""
    from zero_spo.__main__ import main

    return run_main(main, "spo")
