"""One very small training run that the app's tests share, and each world solved once for all."""

import dataclasses
import functools as ft
import pathlib

import pytest


@pytest.fixture(scope="session")
def oracle_of():
    """`oracle_of(env)`: exact values, which take seconds to find."""
    from zero_monsters.oracle import MonstersOracle

    return ft.cache(MonstersOracle)


@pytest.fixture(scope="session", autouse=True)
def solved_once(oracle_of):
    with pytest.MonkeyPatch.context() as patch:
        for module in ("eval", "watch"):
            patch.setattr(f"zero_monsters._{module}.MonstersOracle", oracle_of)
        yield


@pytest.fixture(scope="session")
def small_config():
    """A run that compiles and steps as fast as any can."""
    from zero_monsters._config import PRESETS

    return dataclasses.replace(
        PRESETS["tiny"],
        steps=4,
        envs=8,
        unroll=2,
        batch=8,
        updates=2,
        length=4,
        n_steps=2,
        capacity=16,
        shards=8,
        simulations=5,
        player_simulations=5,
        width=8,
        layers=1,
        atoms=5,
        evaluate_every=2,
        rollouts=4,
        checkpoint_every=2,
    )


@pytest.fixture(scope="session")
def tiny_run(small_config, tmp_path_factory, without_charts) -> pathlib.Path:
    """The folder of a finished, undisturbed run of `small_config`."""
    from zero_app import Options, train
    from zero_monsters._app import APP

    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    with without_charts(), pytest.MonkeyPatch.context() as patch:
        # So that all its evaluations are of one size, and compile once.
        patch.setattr("zero_monsters._measure._ROLLOUTS_AT_ONCE", small_config.rollouts)
        train(APP, small_config, Options(out=folder))
    return folder


@pytest.fixture
def monsters(run_main):
    """Runs `monsters WORDS` in this process; returns its exit code, stdout and stderr."""
    from zero_monsters.__main__ import main

    return run_main(main, "monsters")
