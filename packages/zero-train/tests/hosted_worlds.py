"""Small worlds of Gymnasium, of which a test can tell by heart what happens."""

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from zero_envs import gymnasium_environment
from zero_train import AbstractAgent, RandomActor


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
