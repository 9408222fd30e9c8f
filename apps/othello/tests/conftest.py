"""One very small training run that the app's tests share."""

import dataclasses
import pathlib

import pytest


@pytest.fixture(scope="session")
def small_config():
    """A run that compiles and steps as fast as any can."""
    from zero_othello._config import PRESETS

    return dataclasses.replace(
        PRESETS["tiny"],
        steps=24,
        envs=8,
        unroll=4,
        updates=1,
        batch=8,
        capacity=256,
        simulations=4,
        nodes=10,
        blocks=1,
        evaluate_every=12,
        ladder_games=2,
        checkpoint_every=6,
    )


@pytest.fixture(scope="session")
def tiny_run(small_config, tmp_path_factory, without_charts) -> pathlib.Path:
    """The folder of a finished, undisturbed run of `small_config`."""
    from zero_app import Options, train
    from zero_othello._app import APP

    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    with without_charts():
        train(APP, small_config, Options(out=folder))
    return folder
