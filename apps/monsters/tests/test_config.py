"""What a configuration refuses, and what the presets say."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import pytest

from zero_app import UsageError
from zero_monsters._build import build_loop
from zero_monsters._config import Config, PRESETS


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"planner": "mcts"}, "planner 'mcts' is unknown; choose frozen, chance, or hindsight-K"),
        (
            {"planner": "chance+playout"},
            "by playouts instead of the network, which learns to; give c",
        ),
        ({"planner": "hindsight-0"}, "planner 'hindsight-0' is unknown"),
        ({"planner": "hindsight-8"}, "32 simulations for the 8 trees of hindsight-8: give at leas"),
        ({"simulations": 4}, "4 simulations for the tree of chance: give at least 5"),
        ({"noise": 1.5}, "--noise 1.5 was given; give 0 to 1."),
        ({"gamma": -0.1}, "--gamma -0.1 was given; give 1e-06 to 1."),
        ({"value_mix": math.nan}, "--value-mix nan was given; give 0 to 1."),
        ({"temperature": 0.0}, "--temperature 0.0 was given; give at least 1e-06."),
        ({"learning_rate": 2.0}, "--learning-rate 2.0 was given; give 1e-12 to 1."),
        ({"envs": 0}, "--envs 0 was given; give at least 1."),
        ({"length": 1}, "--length 1 was given; give at least 2."),
        ({"rollouts": 1}, "--rollouts 1 was given; give 2 to 100000000."),
        ({"capacity": 16}, "--capacity 16 holds no window of --length 17; give at least 17."),
        ({"envs": 12}, "--envs 12 does not divide into --shards 8; give a multiple of 8"),
        ({"batch": 60}, "--batch 60 does not divide into --shards 8"),
        ({"temperature_end": 0.5}, "--temperature-end 0.5 is above --temperature 0.3"),
        ({"gamma": 1}, "--gamma 1 and --step-penalty 0.14, so returns have no bound"),
    ],
)
def test_bad_values_are_refused_in_one_line(changes, complaint):
    with pytest.raises(UsageError) as caught:
        Config(**changes)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_no_number_goes_unchecked():
    """Every field has its bounds, which no negative number and no NaN is within."""
    for field in dataclasses.fields(Config):
        if type(field.default) in (int, float):
            bad: Any = math.nan if type(field.default) is float else -1
            with pytest.raises(
                UsageError, match=f"--{field.name.replace('_', '-')} {bad} was given"
            ):
                Config(**{field.name: bad})


def test_the_original_preset_is_the_original():
    """Its figures as published: 160 000 steps of the world, and so on."""
    config = PRESETS["original"]
    assert config.steps * config.envs * config.unroll == 160_000
    assert (config.gamma, config.simulations, config.n_steps, config.atoms) == (0.99, 50, 5, 21)
    assert (config.exploration, config.first_play, config.entropy_bonus) == (1.0, 0.5, 0.01)
    assert (config.temperature, config.temperature_end) == (1.0, 0.1)
    assert (config.noise, config.alpha) == (0.25, 0.5)
    assert (config.target_period, config.target_rate) == (8, 0.5)
    assert (config.value_mix, config.weight_decay, config.clip, config.symmetries) == (
        0,
        0,
        0,
        False,
    )
    # 1024 rollouts of 32 moves; 32 of them a batch, and as many updates as new rollouts.
    assert config.updates * 32 == config.envs * config.unroll
    assert config.envs * config.capacity >= 1024 * 32
    assert config.batch * (config.length - 1) == 1024
    rate: Any = config.rates()
    updates = config.steps * config.updates
    for done, expected in ((0, 1e-3), (updates // 2, 1e-4), (updates, 1e-5)):
        assert float(rate(done)) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_temperature_falls_exponentially_over_the_updates(preset):
    config = PRESETS[preset]
    agent: Any = build_loop(config).agent
    total = config.steps * config.updates
    heat = lambda updates: float(agent.explorer(jnp.int32(updates)).planner.readout.temperature)
    first, middle, last = heat(0), heat(total // 2), heat(total)
    assert first == pytest.approx(config.temperature)
    assert last == pytest.approx(config.temperature_end)
    assert middle == pytest.approx(math.sqrt(first * last), rel=1e-2)


def test_players_do_not_explore():
    """They take the highest value, whatever the run explored with."""
    agent: Any = build_loop(PRESETS["default"]).agent
    player, explorer = agent.planner, agent.explorer(jnp.int32(0))
    assert player.planner.readout.temperature == 0
    assert player.planner.root.noise is None and explorer.planner.root.noise is not None
