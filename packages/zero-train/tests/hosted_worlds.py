"""Small worlds, of which a test can tell by heart what happens."""

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from zero_envs import (
    AbstractDiscreteEnvironment,
    AbstractWorlds,
    gymnasium_environment,
    HostStep,
    Observation,
)
from zero_train import AbstractAgent, RandomActor


#: The numbers that `Written` shows, of which JAX copies less where they are few.
WIDTH = 1024


class Sums(gymnasium.Env):
    """Adds up actions. It terminates at a sum of 4 or more, and is truncated after 5 steps; a step
    pays the new sum. It shows the sum and the number of steps in a dictionary."""

    observation_space = spaces.Dict(
        {"sum": spaces.Box(0, 9, (2,)), "time": spaces.MultiDiscrete([9])}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.sum = 0
        return self._seen(), {}

    def step(self, action):
        self.time, self.sum = self.time + 1, self.sum + int(action)
        return self._seen(), float(self.sum), self.sum >= 4, self.time >= 5, {}

    def _seen(self):
        return {"sum": np.full(2, self.sum, np.float32), "time": np.array([self.time])}


gymnasium.register("Sums-v0", entry_point=lambda **_: Sums())


def sums():
    """Fresh `Sums`."""
    return gymnasium_environment("Sums-v0", disable_env_checker=True)


class Written(AbstractDiscreteEnvironment):
    """It shows the time and pays what it becomes, for five steps, in `WrittenWorlds`."""

    num_actions: int = 2
    num_players: int = 1
    hidden: bool = False
    name: str = "written"
    unused: float = 0.0

    def init(self, *, key):
        del key
        return jnp.zeros(WIDTH, jnp.float32)

    def step(self, state, action, *, key):
        raise ValueError

    def observe(self, state):
        return Observation(state, jnp.ones(2, jnp.bool_))

    def open(self, num_worlds, *, key):
        del key
        return WrittenWorlds(num_worlds)


class WrittenWorlds(AbstractWorlds):
    """They write again into the arrays that they returned, which lie as JAX would have them."""

    #: All that were ever opened.
    opened = []

    def __init__(self, num_worlds):
        self.time, self.closed, self.over = 0, 0, 5
        self.seen, self.paid = _aligned(num_worlds, WIDTH), _aligned(num_worlds)
        self.opened.append(self)

    def reset(self):
        self.time, self.seen[:] = 0, 0
        return self.seen

    def step(self, action):
        ended = self.time == self.over
        self.time = 0 if ended else self.time + 1
        self.seen[:] = self.paid[:] = self.time
        last = np.full(len(action), self.time == self.over)
        return HostStep(self.seen, self.paid, np.ones(len(action), np.float32), last)

    def close(self):
        self.closed += 1


def _aligned(*shape):
    """Zeros that begin at a multiple of 64 bytes, such as JAX reads without a copy on a CPU."""
    size = int(np.prod(shape))
    room = np.zeros(size + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + size].reshape(shape)


class Idle(AbstractAgent):
    """It moves at random and learns nothing but how many rows it has seen."""

    def init(self, *, key):
        del key
        return jnp.zeros((), jnp.float32)

    def actor(self, state, *, explore):
        del state, explore
        return RandomActor()

    def update(self, state, batch, *, key):
        del key
        return state + batch.items.reward.size, {"seen": state}
