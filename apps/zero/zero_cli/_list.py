"""`zero list`: what there is to play."""

import dataclasses
import difflib

import jax
import tyro

from zero_envs import AbstractContinuousEnvironment, EnvironmentFacts, known_environments
from zero_train.app import AbstractCommand, App, UsageError

from ._worlds import agents_of, build_world, OWN_APPS, SYMMETRIES


@dataclasses.dataclass(frozen=True)
class List(AbstractCommand):
    """Print the environments: players, and agents that can play them. Of a single one, also its
    observations and actions."""

    name: tyro.conf.Positional[str] = ""
    """The name of one, a part of the names of several, or module:Class."""

    def __call__(self, app: App) -> None:
        del app
        every = known_environments()
        names = [name for name in every if self.name in name]
        # A name with its library that is not known is refused with the reason.
        if self.name in every or ":" in self.name or ("/" in self.name and not names):
            return _print_closely(self.name)
        if len(names) == 1:
            return _print_closely(names[0])
        if not names:
            near = difflib.get_close_matches(self.name, every, 3, 0.4)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise UsageError(f"no environment has {self.name} in its name{hint}")
        width = max(map(len, names))
        print(f"{'environment':{width}}  players  agents")
        for name in names:
            facts = every[name]
            print(f"{name:{width}}  {facts.num_players:7}  {_agents(name, facts)}")


def _agents(name: str, facts: EnvironmentFacts) -> str:
    if name in OWN_APPS:
        return f"the app {OWN_APPS[name][0]}, with presets of its own"
    agents = ", ".join(agents_of(facts)) or "none: a part of its state is hidden"
    return f"{agents}; symmetries" if name in SYMMETRIES else agents


def _print_closely(name: str) -> None:
    world = build_world(name)
    leaves = jax.tree.leaves(world.observation.features)
    shapes = ", ".join(str(list(leaf.shape)) for leaf in leaves)
    actions = getattr(world.env, "num_actions", "vectors of integers")
    if isinstance(world.env, AbstractContinuousEnvironment):
        actions = f"{world.env.action_size} continuous"
    print(
        f"environment  {name}\n"
        f"players      {world.players}\n"
        f"observation  {world.size:,} numbers: {shapes}\n"
        f"actions      {actions}\n"
        f"agents       {_agents(name, world.facts)}"
    )
