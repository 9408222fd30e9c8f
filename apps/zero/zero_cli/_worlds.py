"""What an environment is, and which agents can play it."""

import dataclasses
import functools as ft
from typing import Any

import jax
import jax.random as jr

from zero_app import as_usage_error, environment, is_image, num_players, UsageError
from zero_envs import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    AbstractHiddenEnvironment,
    EnvironmentFacts,
)
from zero_nets import BoardSymmetries


#: Games with an app of their own, and the flags that it gets.
OWN_APPS = {
    "minesweeper": ("minesweeper",),
    "monsters": ("monsters",),
    "othello": ("othello",),
    "pgx/othello": ("othello", "--env-engine", "pgx"),
}
#: Environments and the agents of the app `spo` that were tuned for them.
TUNED = {
    "cartpole": ("spo", "mpo", "ppo", "vmpo"),
    "pendulum": ("spo", "mpo", "ppo", "vmpo"),
    "brax/inverted_pendulum": ("spo", "mpo"),
}
#: Agents that observe an environment and never step one to plan, so that nothing hidden reaches
#: them.
OBSERVERS = ("ppo", "vmpo", "mpo", "muzero", "stochastic", "sampled")
#: Environments of which a trained player comes with an app.
TRAINED = ("cartpole", "pendulum", "pgx/connect_four", *OWN_APPS)
#: The symmetries of boards, by game.
SYMMETRIES = {
    "pgx/tic_tac_toe": BoardSymmetries(3, 3, 9),
    "pgx/connect_four": BoardSymmetries(
        6, 7, 7, places=tuple((0, column) for column in range(7)), mirror_only=True
    ),
    "pgx/go_9x9": BoardSymmetries(9, 9, 82),
    "pgx/go_19x19": BoardSymmetries(19, 19, 362),
}


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and what follows from it.

    **Attributes:**

    - `name`: as on the command line.
    - `facts`: its class, players, and whether it is hidden.
    - `observation`: the shapes of an observation.
    """

    name: str
    env: AbstractEnvironment
    facts: EnvironmentFacts
    observation: Any

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that can play it, the best first."""
        return agents_of(self.facts)

    @property
    def players(self) -> int:
        """1 or 2."""
        return self.facts.num_players

    @property
    def num_actions(self) -> Any:
        """The actions, those of each component of a factored one, or the numbers of a continuous
        one."""
        known: Any = self.env
        if isinstance(known, AbstractFactoredEnvironment):
            return known.num_values
        return known.action_size if self.is_continuous else known.num_actions

    @property
    def action_shape(self) -> dict[str, Any]:
        """The actions, as networks are told of them."""
        if self.is_continuous:
            return {"action_size": self.num_actions}
        return {"num_actions": self.num_actions}

    @property
    def is_continuous(self) -> bool:
        """Whether an action is a vector of numbers from -1 to 1."""
        return isinstance(self.env, AbstractContinuousEnvironment)

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

    def choose(self, agent: str | None) -> str:
        """The agent asked for, or the best one, if it can play this environment."""
        if not self.agents and not (self.facts.hidden and self.players == 2):
            raise UsageError(
                f"{self.name} has no agent: its actions are neither discrete nor continuous, or "
                "two play with actions of several components; `zero list` names what can be played."
            )
        if not self.agents:
            raise UsageError(
                f"{self.name} hides a part of its state from its two players, and has no "
                "`resample` to guess it with, so no agent can plan in it; `zero list` names the "
                "agents of every game, such as alphazero for pgx/connect_four."
            )
        if agent is None or agent in self.agents:
            return agent or self.agents[0]
        raise UsageError(
            f"--agent {agent} cannot play {self.name}; give one of {', '.join(self.agents)}."
        )


@ft.cache
def build_world(name: str) -> World:
    """The environment of a name, built once."""
    env = environment(name)
    with as_usage_error():
        # Only of one's own environment it may be unknown how many play it.
        players = num_players(env) if ":" in name else getattr(env, "num_players", 1)
    facts = EnvironmentFacts(type(env), players, env.hidden)
    observation = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    return World(name, env, facts, observation)


def agents_of(facts: EnvironmentFacts) -> tuple[str, ...]:
    """The agents that can play an environment, the best first."""
    kind, two = facts.kind, facts.num_players == 2
    if not facts.hidden:
        return _agents_of_kind(kind, two=two)
    guessed = issubclass(kind, AbstractHiddenEnvironment)
    if two:
        return ("alphazero",) if guessed else ()
    able = _agents_of_kind(kind, two=False)
    return (*(("expert",) if guessed else ()), *(agent for agent in OBSERVERS if agent in able))


def _agents_of_kind(kind: type, *, two: bool) -> tuple[str, ...]:
    if issubclass(kind, AbstractContinuousEnvironment):
        return "spo", "mpo", "ppo", "vmpo", "sampled", "sampled-alphazero"
    if issubclass(kind, AbstractFactoredEnvironment) and not two:
        return "sampled-alphazero", "sampled"
    if not issubclass(kind, AbstractDiscreteEnvironment):
        return ()
    if two:
        return "alphazero", "muzero", "stochastic"
    if issubclass(kind, AbstractChanceEnvironment):
        return "expert", "spo", "mpo", "ppo", "vmpo", "muzero", "stochastic"
    return "spo", "mpo", "ppo", "vmpo", "expert", "muzero", "stochastic"
