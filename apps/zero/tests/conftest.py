"""One very small training run that the app's tests share."""

import dataclasses
import pathlib

import pytest

from zero_cli.__main__ import main


@pytest.fixture
def zero(run_main):
    """Runs `zero WORDS` in this process; returns its exit code, stdout and stderr."""
    return run_main(main, "zero")


@pytest.fixture(scope="session")
def small_config():
    """A run that compiles and steps as fast as any can."""
    from zero_cli._config import presets

    tiny = presets("pgx/tic_tac_toe", "alphazero", 18)["tiny"]
    return dataclasses.replace(
        tiny, envs=8, batch=8, updates=1, capacity=32, games=4, simulations=2
    )


@pytest.fixture(scope="session")
def tiny_run(small_config, tmp_path_factory) -> pathlib.Path:
    """The folder of a finished run of `small_config`."""
    from zero_app import Options, train
    from zero_cli._apps import APP

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(APP, small_config, Options(out=folder))
    return folder
