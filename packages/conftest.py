"""What searches are traced for."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest


def _searches() -> tuple[Any, Any]:
    """Where a search is put together and where it is told of devices, if any test has a search."""
    return sys.modules.get("zero_search._engine"), sys.modules.get("zero_search._forest")


@pytest.fixture(scope="session", autouse=True)
def _searches_are_of_a_cpu() -> Iterator[None]:
    """Outside of tests a search is traced for a CPU and once more for other devices, of which there
    are none here: a third of what it costs. (test_shard_map.py of zero-search traces every kind of
    search for all.)"""
    engine, forest = _searches()
    with pytest.MonkeyPatch.context() as patch:
        if engine is not None:
            assert engine.on_device is forest.on_device
            patch.setattr(engine, "on_device", lambda search, kernels: search(kernels == "pallas"))
        yield


@pytest.fixture
def every_device(monkeypatch) -> None:
    """Searches are traced for every device, as users' are."""
    engine, forest = _searches()
    monkeypatch.setattr(engine, "on_device", forest.on_device)
