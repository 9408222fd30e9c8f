"""The loop over eight devices: nothing crosses them but the gradient, and nothing changes."""

import re
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest

from zero_monsters._build import build_loop
from zero_monsters._train import train
from zero_train import collect_and_store, data_mesh, draw, fill, init, read_lines, step
from zero_train.app import Options


COLLECTIVES = re.compile(
    r"\s(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|"
    r"collective-broadcast)(?:-start)?\("
)


@pytest.mark.slow
def test_only_the_gradient_crosses_devices(small_config):
    """Planning and replay have no collective; a whole step has all-reduces only."""
    loop = build_loop(small_config, data_mesh(8))
    state = fill(loop, init(loop, key=jr.key(0)))

    def compiled(function, *args):
        jitted: Any = eqx.filter_jit(function)
        text = jitted.lower(*args).lowered.compile().as_text()
        return {match.group(1) for match in COLLECTIVES.finditer(text)}

    assert compiled(lambda s: collect_and_store(loop, s), state) == set()
    assert compiled(lambda s: draw(loop, s.buffer, key=s.key), state) == set()
    # Also proves that the pattern finds what it looks for.
    assert compiled(lambda s: step(loop, s), state) == {"all-reduce"}


@pytest.mark.slow
def test_devices_do_not_matter(tiny_run, small_config, tmp_path):
    """The same losses and the same evaluations on one device and on eight."""
    train(small_config, Options(out=tmp_path / "eight", devices=8))
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        one, eight = (read_lines(folder / name) for folder in (tiny_run, tmp_path / "eight"))
        assert len(one) == len(eight) > 0
        for x, y in zip(one, eight, strict=True):
            assert x.keys() == y.keys()
            for key, value in x.items():
                if isinstance(value, str):
                    assert value == y[key]
                else:
                    np.testing.assert_allclose(y[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
