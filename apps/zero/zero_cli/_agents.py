"""Which agents can play what, and what else is known of environments before they are made."""

from typing import Any

from zero_app import as_usage_error, UsageError
from zero_envs import check_name, EnvironmentFacts, known_environments


#: Games with an app of their own, and the flags that it gets.
OWN_APPS = {
    "minesweeper": ("minesweeper",),
    "monsters": ("monsters",),
    "othello": ("othello",),
    "pgx/othello": ("othello", "--env-engine", "pgx"),
}
#: The agents of the app `spo`.
SPO_AGENTS = ("spo", "mpo", "ppo", "vmpo")
#: Environments and the agents of the app `spo` that were tuned for them.
TUNED = {"cartpole": SPO_AGENTS, "pendulum": SPO_AGENTS, "brax/inverted_pendulum": ("spo", "mpo")}
#: Agents that observe an environment and never step one to plan, so that nothing hidden reaches
#: them.
OBSERVERS = ("ppo", "vmpo", "mpo", "muzero", "stochastic", "sampled")
#: Games of two in which a turn has several moves.
SEVERAL_MOVES = ("pgx/backgammon",)
#: Environments of which a trained player comes with an app.
TRAINED = ("cartpole", "pendulum", "pgx/connect_four", *OWN_APPS)
#: The symmetries of boards, by game: the arguments of [`zero_nets.BoardSymmetries`][].
SYMMETRIES: dict[str, dict[str, Any]] = {
    "pgx/tic_tac_toe": {"rows": 3, "columns": 3, "num_actions": 9},
    "pgx/connect_four": {
        "rows": 6,
        "columns": 7,
        "num_actions": 7,
        "places": tuple((0, column) for column in range(7)),
        "mirror_only": True,
    },
    "pgx/go_9x9": {"rows": 9, "columns": 9, "num_actions": 82},
    "pgx/go_19x19": {"rows": 19, "columns": 19, "num_actions": 362},
}


def facts_of(name: str) -> EnvironmentFacts | None:
    """What is known of an environment before it is made: nothing of one's own code.

    **Raises:** [`zero_app.UsageError`][] for an unknown name, with similar ones.
    """
    with as_usage_error():
        check_name(name)
    return known_environments().get(name)


def agents_of(name: str, facts: EnvironmentFacts) -> tuple[str, ...]:
    """The agents that can play an environment, the best first."""
    if name in SEVERAL_MOVES:
        return ("alphazero",)
    two = facts.num_players == 2
    if not facts.hidden and not facts.hosted:
        return _agents_that_see(facts)
    if two:
        return ("alphazero",) if facts.resamples else ()
    able = _agents_that_see(facts)
    guessing = ("expert",) if facts.resamples else ()
    return (*guessing, *(agent for agent in OBSERVERS if agent in able))


def _agents_that_see(facts: EnvironmentFacts) -> tuple[str, ...]:
    two = facts.num_players == 2
    if facts.actions == "continuous":
        return "spo", "mpo", "ppo", "vmpo", "sampled", "sampled-alphazero"
    if facts.actions == "factored" and not two:
        return "sampled-alphazero", "sampled"
    if facts.actions != "discrete":
        return ()
    if two:
        return "alphazero", "muzero", "stochastic"
    if facts.chance:
        return "expert", "spo", "mpo", "ppo", "vmpo", "muzero", "stochastic"
    return "spo", "mpo", "ppo", "vmpo", "expert", "muzero", "stochastic"


def choose(name: str, facts: EnvironmentFacts, agent: str | None) -> str:
    """The agent asked for, or the best one, if it can play this environment."""
    agents = agents_of(name, facts)
    if not agents and not (facts.hidden and facts.num_players == 2):
        raise UsageError(
            f"{name} has no agent: its actions are neither discrete nor continuous, or "
            "two play with actions of several components; `zero list` names what can be played."
        )
    if not agents:
        raise UsageError(
            f"{name} hides a part of its state from its two players, and has no "
            "`resample` to guess it with, so no agent can plan in it; `zero list` names the "
            "agents of every game, such as alphazero for pgx/connect_four."
        )
    if agent is None or agent in agents:
        return agent or agents[0]
    why = ""
    if facts.hosted:
        why = ", whose simulator runs on the host and cannot be copied to plan in"
    if name in SEVERAL_MOVES:
        why = ", in which a turn has several moves, since models are learned of players in turns"
    raise UsageError(f"--agent {agent} cannot play {name}{why}; give one of {', '.join(agents)}.")
