"""A tiny app on Nim. As a script it is one process of a run, and can be told to do something at a
step: `AT_STEP="4 SIGTERM"` sends itself a signal there, `SLEEP=0.3` makes every step that long."""

import dataclasses
import os
import signal
import time

from zero_envs.testing import Nim
from zero_train import Loop
from zero_train.app import AbstractConfig, App, main, View

from .nim_agent import nim_agent, nim_loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    steps: int = 24
    evaluate_every: int = 10
    checkpoint_every: int = 5


def build(config: Config) -> Loop:
    env = Nim(heap=7, most=3)
    return nim_loop(1, env=env, agent=nim_agent(env, width=128))


def _disturbed() -> None:
    """Has this process do at a step what its environment says."""
    when, name = os.environ.get("AT_STEP", "-1 SIGTERM").split()
    pause, update = float(os.environ.get("SLEEP", 0)), View.update

    def patched(view, step, metrics, timings):
        update(view, step, metrics, timings)
        time.sleep(pause)
        if step == int(when):
            os.kill(os.getpid(), getattr(signal, name))

    setattr(View, "update", patched)  # noqa: B010


if __name__ == "__main__":
    _disturbed()
    main(App("nim", "Nim.", {"tiny": Config()}, build))
