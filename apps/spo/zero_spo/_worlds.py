"""Environments by the names of the command line."""

import difflib

from zero_envs import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    BraxEnvironment,
    CartPole,
    JumanjiEnvironment,
    Pendulum,
)
from zero_train.app import as_usage_error, UsageError


World = AbstractContinuousEnvironment | AbstractDiscreteEnvironment

_OWN = {"pendulum": Pendulum, "cartpole": CartPole}
#: The time limit of evaluations for environments without one.
_LONGEST = 10_000


def build_world(name: str, backend: str) -> World:
    """The environment of a name such as `pendulum`, `cartpole`, `brax/ant` or `jumanji/Snake-v1`.

    **Raises:** [`zero_train.app.UsageError`][] for an unknown name, with similar ones.
    """
    library, _, theirs = name.partition("/")
    if library == "brax" and theirs:
        with as_usage_error():
            return BraxEnvironment(theirs, backend=backend)
    if library == "jumanji" and theirs:
        with as_usage_error():
            return JumanjiEnvironment(theirs)
    if name in _OWN:
        return _OWN[name]()
    known = [*_OWN, "brax/NAME", "jumanji/NAME"]
    near = difflib.get_close_matches(name, _OWN, 1) or [
        f"{known}/NAME" for known in difflib.get_close_matches(library, ("brax", "jumanji"), 1)
    ]
    hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}."
    raise UsageError(f"--env {name} is unknown; {hint}")


def longest_episode(env: World) -> int:
    """The maximum length of an episode in an evaluation."""
    return getattr(env, "max_steps", None) or _LONGEST


def continuous(name: str) -> bool:
    """Whether the actions of the named environment are continuous."""
    return name == "pendulum" or name.startswith("brax/")
