"""What an environment is."""

import dataclasses
import functools as ft
from typing import Any

import jax
import jax.random as jr

from zero_app import as_usage_error, environment, is_image, num_players
from zero_envs import AbstractEnvironment, environment_facts, EnvironmentFacts


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and what follows from it.

    **Attributes:**

    - `name`: as on the command line.
    - `facts`: its actions, its players, and whether it is hidden.
    - `observation`: the shapes of an observation.
    """

    name: str
    env: AbstractEnvironment
    facts: EnvironmentFacts
    observation: Any

    @property
    def players(self) -> int:
        """1 or 2."""
        return self.facts.num_players

    @property
    def num_actions(self) -> Any:
        """The actions, those of each component of a factored one, or the numbers of a continuous
        one."""
        known: Any = self.env
        if self.facts.actions == "factored":
            return known.num_values
        return known.action_size if self.is_continuous else known.num_actions

    @property
    def is_continuous(self) -> bool:
        """Whether an action is a vector of numbers from -1 to 1."""
        return self.facts.actions == "continuous"

    @property
    def size(self) -> int:
        """The numbers in an observation."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.observation.features))

    @property
    def is_board(self) -> bool:
        """Whether an observation is `[rows, columns, channels]`."""
        return is_image(self.observation.features)

    @property
    def max_return(self) -> float:
        """The largest return of a game of two players."""
        return getattr(self.env, "max_return", 1.0)


@ft.cache
def build_world(name: str) -> World:
    """The environment of a name, built once."""
    env = environment(name)
    facts = environment_facts(env)
    if ":" in name:  # of one's own environment it may be unknown how many play it
        with as_usage_error():
            facts = facts._replace(num_players=num_players(env))
    observation = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    return World(name, env, facts, observation)
