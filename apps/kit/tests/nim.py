"""The loop that several files of these tests train: what one of them compiled, others need not."""

import functools as ft

from zero_envs.testing import Nim
from zero_train import Loop

from .nim_agent import nim_agent, nim_loop


@ft.cache
def shared_loop() -> Loop:
    """Nim, whose players have the moving average of the network that learns."""
    env = Nim(heap=7, most=3)
    return nim_loop(1, env=env, agent=nim_agent(env, average_decay=0.9))
