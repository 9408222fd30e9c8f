"""The app that the tests of sweeps train: it learns nothing, and a player is as good as its
configuration says."""

import dataclasses
import sys
from typing import ClassVar, Literal

from zero_app import AbstractConfig, App, EvaluationResult, main, UnusedWhere

from .nim import shared_loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    seed: int = 0
    steps: int = 2
    evaluate_every: int = 1
    checkpoint_every: int = 1
    rate: float = 0.1
    layers: int = 1
    kind: Literal["a", "b"] = "a"
    depth: int = 1

    unused_where: ClassVar[UnusedWhere] = ((("depth",), ("kind",), lambda c: c.kind == "a"),)


def worth(config: Config) -> float:
    return config.rate + config.layers + 10 * (config.kind == "b") + config.seed / 1000


def evaluation(config, loop, files):
    return lambda step, player: EvaluationResult([{"return_mean": worth(config) + step}], {})


APP = App(
    "nim",
    "Nim.",
    {"tiny": Config()},
    lambda config: shared_loop(),
    evaluation,
    lambda run: ({}, []),
)

if __name__ == "__main__":  # a worker of its own
    main(APP, sys.argv[1:])
