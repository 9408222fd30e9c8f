"""Configurations: what fields may be, how they are read from a run, and the rates they give."""

import dataclasses
import json
import math
import re
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import pytest
from annotated_types import Ge, Gt, Interval, Le, MultipleOf

from zero_app import (
    AbstractAdamWConfig,
    Count,
    load_config,
    Options,
    RunError,
    RunFolder,
    UsageError,
)
from zero_app._command._config import check_fields
from zero_app._run._options import folder_of
from zero_train import gradient_step

from .test_command import Config, PRESETS


@dataclasses.dataclass
class Above:
    plain: Annotated[int, Interval(ge=2, le=9)] = 5
    none: Count | None = 5
    several: tuple[Annotated[int, Ge(5)], ...] = (5,)
    wider: Count = 5
    own: int = 5

    def __post_init__(self):
        check_fields(self)


@dataclasses.dataclass
class Beside(Above):
    none: int | None = 5


@dataclasses.dataclass
class Below(Beside):
    """Plain annotations keep what a class above allows, others replace it."""

    plain: int = 5
    none: int | None = 5
    several: tuple[int, ...] = (5,)
    wider: Annotated[int, Interval(ge=0, le=10**12)] = 5
    own: Annotated[int, Le(7)] = 5


@pytest.mark.parametrize("kind", [Above, Below])
@pytest.mark.parametrize(
    "field, value, said",
    [
        ("plain", 1, "--plain 1 was given; give 2 to 9."),
        ("plain", 10, "--plain 10 was given; give 2 to 9."),
        ("none", 0, "--none 0 was given; give at least 1."),
        ("several", (5, 4), "--several 4 was given; give at least 5."),
    ],
)
def test_a_field_keeps_what_a_class_above_allows(kind, field, value, said):
    assert kind(none=None).none is None
    with pytest.raises(UsageError, match=re.escape(said)):
        kind(**{field: value})


def test_a_class_below_may_allow_other_numbers():
    assert Below(wider=0).wider == 0 and Below(wider=10**12).wider == 10**12
    with pytest.raises(UsageError, match="give at least 1"):
        Above(wider=0)
    with pytest.raises(UsageError, match="--own 8 was given; give 0 to 7."):
        Below(own=8)
    assert Above(own=8).own == 8


@pytest.mark.parametrize("mark", [Gt(0), Interval(gt=0, le=3), MultipleOf(2)])
def test_what_is_not_known_of_a_number_is_refused(mark):
    @dataclasses.dataclass
    class Other:
        size: Annotated[int, mark] = 2

    with pytest.raises(TypeError, match=r"Other\.size is annotated with .*; give Ge, Le or Int"):
        check_fields(Other())


@pytest.mark.parametrize("warmup, schedule", [(0, "cosine"), (4, "cosine"), (4, "exponential")])
def test_the_learning_rate_that_was_used_is_logged(warmup, schedule):
    """By the formulas: evenly up to the peak, then down to `decay` of it after the last update."""
    kind: Any = schedule
    config = AbstractAdamWConfig(
        steps=6, updates=2, learning_rate=0.1, warmup=warmup, decay=0.25, schedule=kind
    )
    optimiser, params = config.optimiser(), {"x": jnp.ones(2)}
    loss = lambda params: (jnp.sum(params["x"] ** 2), {})
    with jax.numpy_dtype_promotion("standard"):
        state = optimiser.init(params)
    update = jax.jit(lambda params, state: gradient_step(loss, optimiser, params, state))
    for count in range(13):
        params, state, metrics = update(params, state)
        done = min((count - warmup) / (12 - warmup), 1)
        wanted = (
            0.25**done
            if schedule == "exponential"
            else 0.25 + 0.375 * (1 + math.cos(math.pi * done))
        )
        if count < warmup:
            wanted = 0.25 + 0.75 * count / warmup  # from a fraction 1 / warmup of the peak
        assert float(metrics["learning_rate"]) == pytest.approx(0.1 * wanted, rel=1e-5)


def test_a_configuration_comes_back_from_its_folder(tmp_path):
    with pytest.raises(UsageError, match=r"holds no run .* as `app train --out` made it"):
        load_config(Config, tmp_path, "app")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dataclasses.asdict(PRESETS["large"])))
    assert load_config(Config, tmp_path, "app") == PRESETS["large"]
    whole = dataclasses.asdict(PRESETS["large"])
    wrong = (
        {"colour": 1},
        {"steps": 0},
        {"schedule": "linear"},
        {"schedule": []},
        {"steps": 4.0},
        {"steps": True},
        {"steps": 10**20},
        {"steps": "4"},
        {"steps": None},
        {"steps": {"a\nb": 1}},
        {"learning_rate": "fast"},
        {"learning_rate": math.nan},
        {"first": 10**400},
        {"first": math.inf},
        {"layers": 2.5},
        {"nesterov": 1},
        {"seed": 2**70},
    )
    texts = ("{}", "{", "[]", "3", "[" * 200_000, *(json.dumps(whole | x) for x in wrong))
    for text in texts:
        path.write_text(text)
        with pytest.raises(UsageError, match="is not the configuration of a run") as caught:
            load_config(Config, tmp_path, "app")
        assert ".;" not in str(caught.value) and "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
    path.write_bytes(b'{"seed": "\xff"}')
    with pytest.raises(UsageError, match="is not the configuration of a run"):
        load_config(Config, tmp_path, "app")
    path.write_text(json.dumps(whole | {"learning_rate": 1, "first": 0.5}))
    assert load_config(Config, tmp_path, "app").learning_rate == 1


def test_a_run_of_another_app_is_said_to_be_one(tmp_path):
    stored = {"env": "cartpole", "agent": "mpo", "seed": 3}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    ours = dict.fromkeys(("zero_train", "zero_app"), "0.1.0")
    start = {"step": 0, "versions": {"jax": "0.10.2", **ours, "zero_other": "1"}}
    (tmp_path / "starts.jsonl").write_text(json.dumps(start) + "\n")
    with pytest.raises(UsageError) as raised:
        load_config(Config, tmp_path, "app")
    here = Config.__module__.partition(".")[0]
    said = f"{tmp_path} is a run of zero_other (cartpole, mpo), and a run of {here} is needed here;"
    assert str(raised.value).startswith(said)


def test_a_field_that_older_runs_lack(tmp_path):
    """They can be loaded, and resumed with what it was before."""

    @dataclasses.dataclass(frozen=True)
    class Newer(Config):
        engine: str = "new"

        absent: ClassVar[dict[str, Any]] = {"engine": "old"}

    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(Config())))
    assert load_config(Newer, tmp_path, "app") == Newer(engine="old")
    options = Options(out=tmp_path, resume=True)
    with pytest.raises(RunError, match=r'engine "new" \(stored: "old"\)'):
        RunFolder.check(**folder_of(Newer(), options))
    RunFolder.check(**folder_of(Newer(engine="old"), options))
    # What the run has counts.
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(Newer())))
    assert load_config(Newer, tmp_path, "app") == Newer()
