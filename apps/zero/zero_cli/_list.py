"""`zero list`: what there is to play."""

import contextlib
import dataclasses
import difflib

import tyro

from zero_envs import environment_names
from zero_train.app import AbstractCommand, App, UsageError

from ._worlds import build_world, OWN_APPS, SYMMETRIES


@dataclasses.dataclass(frozen=True)
class List(AbstractCommand):
    """Print the environments: players, numbers in an observation, agents that can play them."""

    part: tyro.conf.Positional[str] = ""
    """A part of their names."""

    def __call__(self, app: App) -> None:
        del app
        every = environment_names()
        names = [name for name in every if self.part in name]
        if not names:
            near = difflib.get_close_matches(self.part, every, 3, 0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise UsageError(f"no environment has {self.part} in its name{hint}")
        width = max(map(len, names))
        print(f"{'environment':{width}}  players  observation  agents")
        for name in names:
            print(f"{name:{width}}  {_line(name)}".rstrip(), flush=True)


def _line(name: str) -> str:
    if name in OWN_APPS:
        return f"{'':7}  {'':11}  the app {OWN_APPS[name][0]}, with presets of its own"
    with contextlib.suppress(UsageError):
        world = build_world(name)
        turned = "; symmetries" if name in SYMMETRIES else ""
        agents = ", ".join(world.agents) if world.agents else "none: a part of its state is hidden"
        return f"{world.players:7}  {world.size:11,}  {agents}{turned}"
    return f"{'':7}  {'':11}  refused"
