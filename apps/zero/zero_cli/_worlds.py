"""What an environment is, and which agents can play it."""

import dataclasses
import functools as ft

import jax
import jax.random as jr

from zero_envs import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractHiddenEnvironment,
    make,
)
from zero_nets import BoardSymmetries
from zero_train.app import as_usage_error, num_players, UsageError


#: Games with an app of their own, and the flags that it gets.
OWN_APPS = {
    "minesweeper": ("minesweeper",),
    "monsters": ("monsters",),
    "othello": ("othello",),
    "pgx/othello": ("othello", "--env-engine", "pgx"),
}
#: Games for which SPO's own default was tuned.
TUNED = ("cartpole", "pendulum", "brax/inverted_pendulum")
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


@ft.cache
def build_world(name: str) -> World:
    """The environment of a name, built once.

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
    players = 1
    # All others have one.
    if ":" in name or hasattr(env, "num_players"):
        with as_usage_error():
            players = num_players(env)
    return World(name, env, _agents(env, players), players, size)


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
