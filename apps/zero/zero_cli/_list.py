"""`zero list`: what there is to play."""

import contextlib
import difflib

from zero_envs import environment_names
from zero_train.app import UsageError

from ._worlds import build_world, OWN_APPS, SYMMETRIC


def list_environments(only: str | None) -> None:
    """Prints a line for each environment: players, numbers in an observation, agents."""
    names = environment_names()
    if only is not None:
        kept = [name for name in names if only in name]
        if not kept:
            near = difflib.get_close_matches(only, names, 3, 0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise UsageError(f"no environment has {only} in its name{hint}")
        names = kept
    width = max(map(len, names))
    print(f"{'environment':{width}}  players  observation  agents")
    for name in names:
        print(f"{name:{width}}  {_line(name)}".rstrip())


def _line(name: str) -> str:
    if name in OWN_APPS:
        return f"{'':7}  {'':11}  the app {OWN_APPS[name]}, with presets of its own"
    with contextlib.suppress(UsageError):
        world = build_world(name)
        turned = "; symmetries" if name in SYMMETRIC else ""
        agents = ", ".join(world.agents) if world.agents else "none: a part of its state is hidden"
        return f"{world.players:7}  {world.size:11,}  {agents}{turned}"
    return f"{'':7}  {'':11}  refused"
