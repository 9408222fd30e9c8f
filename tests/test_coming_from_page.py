"""The page for users of other libraries: its programs run, flashbax's beside ours, and the commands
have the flags that it names."""

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zero_cli._config
import zero_spo._config
from zero_app import Launch, Options
from zero_envs import Observation

from . import workspace


TEXT = (workspace.ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
ALPHAZERO, TESTER, SPO, FLASHBAX, MEMORY, MUZERO = re.findall(
    r"```python\n(.*?)```", TEXT, flags=re.DOTALL
)


def run(*blocks: str) -> SimpleNamespace:
    """What the programs define."""
    scope: dict[str, Any] = {"__name__": "coming_from"}
    # (optax's and flashbax's functions need both.)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile("".join(blocks), "docs/coming-from.md", "exec"), scope)
    return SimpleNamespace(**scope)


def test_the_program_of_alphazero_learns():
    told = run(ALPHAZERO)
    assert told.state.agent.updates == 3 and told.metrics["games"] > 0
    assert np.isfinite(told.metrics["loss"]) and told.metrics["gradient_norm"] > 0


@pytest.mark.slow
def test_its_tester_plays_and_spo_learns():
    told = run(ALPHAZERO, TESTER)
    assert told.result.summary().score > 0.6
    told = run(SPO)
    assert np.isfinite(told.metrics["loss"])
    assert told.state.agent.updates == told.loop.num_updates * 2
    assert np.all(told.result.lengths == 200)
    assert np.all((told.result.returns < 0) & (told.result.returns > -200 * 16.3))


def test_both_libraries_draw_by_the_same_priorities():
    told = run(FLASHBAX, MEMORY)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        sample = jax.jit(told.theirs.sample)(told.their_state, jax.random.key(1))
    batch = jax.jit(told.ours.sample)(told.our_state, key=jax.random.key(1))
    theirs = told.sample.experience["reward"], sample.experience["reward"], sample.probabilities
    ours = told.batch.items["reward"], batch.items["reward"], batch.weights[:, 0]
    for first, windows, found in (theirs, ours):
        assert np.all(np.diff(windows) == 1) and np.all(windows[:, 0] % 20 <= 15)
        # 16 windows of each environment, of priority 1 but for those of the first draw.
        priorities = np.ones(80)
        assert len(set(first[:, 0].tolist())) == 8
        priorities[np.asarray(first[:, 0], int)] = told.errors
        powers = priorities**0.6
        probability = powers / powers[np.arange(80) % 20 <= 15].sum()
        drawn = probability[np.asarray(windows[:, 0], int)]
        expected = drawn if found is sample.probabilities else (drawn.min() / drawn) ** 0.4
        assert np.allclose(found, expected, rtol=1e-5)
    assert np.all(told.weights == 1) and np.all(told.batch.weights == 1)


def test_a_learned_model_is_searched_by_its_observation_alone():
    told = run(MUZERO)
    assert np.all(told.found.visits.sum(axis=1) == 25)
    features = jnp.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
    seen = Observation(features, told.obs.legal)
    first, second = (told.plan(seen, key=jax.random.key(2)) for _ in range(2))
    assert np.array_equal(first.qvalues, second.qvalues)
    assert not np.allclose(first.qvalues[0], first.qvalues[1])


def test_the_commands_have_the_flags_of_the_page():
    fields = {
        field.name
        for kind in (zero_cli._config.Config, zero_spo._config.Config, Options, Launch)
        for field in dataclasses.fields(kind)
    }
    fields |= {"preset", "opponent"}  # of every `train`, and of `eval`
    flags = set(re.findall(r"(?<![\w-])--([a-z][\w-]+)", TEXT))
    assert len(flags) > 30
    assert {flag.replace("-", "_") for flag in flags} <= fields


def test_the_values_of_its_commands_are_allowed():
    """A configuration refuses a value that is out of range or does not fit another."""
    commands = re.findall(r"^uv run (.* train .*)$", TEXT.replace("\\\n", " "), flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = command.split()
        flags = dict(zip(words, words[1:], strict=False))
        config: Any = zero_spo._config.presets("pendulum", "spo")["tuned"]
        if words[0] == "zero":
            config = zero_cli._config.presets(words[2], "alphazero", 27)["quick"]
        given = {word[2:].replace("-", "_"): flags[word] for word in words if word[:2] == "--"}
        given.pop("out", None)
        values = {name: type(getattr(config, name))(value) for name, value in given.items()}
        changed = dataclasses.replace(config, **values)
        assert {name: str(getattr(changed, name)) for name in given} == given
