"""What an environment is, and which agents can play it."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr

from zero_envs import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractHiddenEnvironment,
    make,
    PgxEnvironment,
)
from zero_train import RandomActor, rollout
from zero_train.app import as_usage_error, UsageError


#: Games with an app of their own.
OWN_APPS = {"minesweeper": "minesweeper", "monsters": "monsters", "pgx/othello": "othello"}
#: Games whose board may be turned and mirrored. The first actions are its cells, row by row.
SYMMETRIC = {"pgx/tic_tac_toe": (3, 3), "pgx/go_9x9": (9, 9), "pgx/go_19x19": (19, 19)}


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and what follows from it.

    **Attributes:**

    - `name`: as on the command line.
    - `agents`: the agents that can play it, the best first.
    - `players`: 1 or 2.
    - `size`: the numbers in an observation.
    """

    name: str
    env: AbstractEnvironment
    agents: tuple[str, ...]
    players: int
    size: int

    def choose(self, agent: str | None) -> str:
        """The agent asked for, or the best one.

        **Raises:** [`zero_train.app.UsageError`][] where it cannot play this environment.
        """
        if not self.agents:
            raise UsageError(
                f"{self.name} hides a part of its state and has no `resample`, so no agent can "
                "plan in it; see `zero list` for what can be played."
            )
        if agent is None or agent in self.agents:
            return agent or self.agents[0]
        raise UsageError(
            f"--agent {agent} cannot play {self.name}; give one of {', '.join(self.agents)}."
        )


def build_world(name: str) -> World:
    """The environment of a name.

    **Raises:** [`zero_train.app.UsageError`][] for an unknown or refused name.
    """
    with as_usage_error():
        try:
            env = make(name)
        except ImportError as e:
            raise UsageError(str(e)) from e
    if not isinstance(env, AbstractEnvironment):
        raise UsageError(f"{name} is a {type(env).__name__} and no environment of zero-envs.")
    obs = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    size = sum(x.size for x in jax.tree.leaves(obs.features))
    players = _players(name, env)
    return World(name, env, _agents(env, players), players, size)


def _players(name: str, env: AbstractEnvironment) -> int:
    if isinstance(env, PgxEnvironment):
        return env.num_players
    if ":" not in name or not isinstance(env, AbstractDiscreteEnvironment):
        return 1
    # A class of one's own: the turn passes where a discount is negative.
    with as_usage_error():
        rows = rollout(env, RandomActor(), num_steps=16, num_envs=4, key=jr.key(0))
    return 2 if bool(jnp.any(rows.discount < 0)) else 1


def _agents(env: AbstractEnvironment, players: int) -> tuple[str, ...]:
    if env.hidden:
        guessed = isinstance(env, AbstractHiddenEnvironment)
        return (("alphazero",) if players == 2 else ("expert",)) if guessed else ()
    if isinstance(env, AbstractContinuousEnvironment):
        return "spo", "mpo"
    if not isinstance(env, AbstractDiscreteEnvironment):
        return ()
    if players == 2:
        return ("alphazero",)
    if isinstance(env, AbstractChanceEnvironment):
        return "expert", "spo", "mpo"
    return "spo", "mpo", "expert"
