"""A very small training run that the app's tests share, and the command line in this process."""

import dataclasses
import pathlib

import pytest


@pytest.fixture(scope="session")
def small_config():
    """A run that compiles and steps as fast as any can."""
    from zero_minesweeper._config import PRESETS

    return dataclasses.replace(
        PRESETS["tiny"],
        rows=3,
        columns=4,
        mines=2,
        # A short list of states compiles in a third of the time.
        max_states=32,
        steps=4,
        envs=8,
        unroll=4,
        batch=8,
        updates=1,
        length=5,
        n_steps=4,
        capacity=32,
        simulations=8,
        player_simulations=8,
        layouts=16,
        channels=4,
        blocks=1,
        evaluate_every=2,
        boards=8,
        checkpoint_every=2,
    )


@pytest.fixture(scope="session")
def tiny_run(small_config, tmp_path_factory, without_charts) -> pathlib.Path:
    """The folder of a finished, undisturbed run of `small_config`."""
    from zero_app import Options, train
    from zero_minesweeper._app import APP

    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    with without_charts(), pytest.MonkeyPatch.context() as patch:
        # Each agent more is a program more, and this one the smallest.
        patch.setattr("zero_minesweeper._eval.COMPARED", ("random",))
        train(APP, small_config, Options(out=folder))
    return folder


@pytest.fixture(scope="session")
def judge():
    """A network that has not learned yet."""
    import equinox as eqx
    import jax.random as jr

    from zero_minesweeper._network import MineNet
    from zero_train import FeatureEvaluator

    return FeatureEvaluator(eqx.filter_jit(MineNet)(4, 1, key=jr.key(0)))


@pytest.fixture
def minesweeper(run_main):
    """Runs `minesweeper WORDS` in this process; returns its exit code, stdout and stderr."""
    from zero_minesweeper.__main__ import main

    return run_main(main, "minesweeper")
