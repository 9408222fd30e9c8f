"""`zero list`: what there is to play."""

import dataclasses
import difflib
from typing import Annotated

import tyro

from zero_app import AbstractCommand, App, COMMANDS, UsageError
from zero_envs import EnvironmentFacts, known_environments

from ._agents import agents_of, facts_of, OWN_APPS, SYMMETRIES, TRAINED, TUNED


@dataclasses.dataclass(frozen=True)
class List(AbstractCommand):
    """List the environments, with the number of players and the agents that can play each. Of a
    single one, its observations, actions and commands are shown too."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """The name of an environment, a part of several names, or module:Class."""

    def __call__(self, app: App) -> None:
        every = known_environments()
        names = [name for name in every if self.name.lower() in name.lower()]
        # A name with its library that is not known is refused with the reason.
        if self.name in every or ":" in self.name or ("/" in self.name and not names):
            return _print_closely(app, self.name)
        if len(names) == 1:
            return _print_closely(app, names[0])
        if self.name.endswith(".py"):
            raise UsageError(f"{self.name} was given; give {self.name}:Class, with its class.")
        if not names:
            bare = {name.rpartition("/")[2].lower(): name for name in every}
            close = difflib.get_close_matches(self.name.lower(), bare, 3, 0.4)
            near = [bare[name] for name in close]
            hint = f"did you mean {' or '.join(near)}?" if near else "`zero list` names them all."
            raise UsageError(f"no environment has {self.name!r} in its name; {hint}")
        width = max(map(len, names))
        print(f"{'environment':{width}}  players  agents")
        for name in names:
            facts = every[name]
            print(f"{name:{width}}  {facts.num_players:7}  {_agents(name, facts)}")


def _agents(name: str, facts: EnvironmentFacts) -> str:
    """Which agents can play it, and what is known of it."""
    said = [", ".join(agents_of(name, facts)) or "none: a part of its state is hidden"]
    if name in OWN_APPS:
        said = [f"the app {OWN_APPS[name][0]}", "presets of its own"]
    has = {"symmetries": SYMMETRIES, "tuned presets": TUNED, "trained player": TRAINED}
    return "; ".join(said + [what for what, names in has.items() if name in names])


def _print_closely(app: App, name: str) -> None:
    facts_of(name)  # an unknown one is refused
    import jax  # and what else takes seconds

    from ._board import commands_of
    from ._worlds import build_world

    world = build_world(name)
    leaves = jax.tree.leaves(world.observation.features)
    shapes = ", ".join(str(list(leaf.shape)) for leaf in leaves)
    actions = world.num_actions
    if world.is_continuous:
        actions = f"{world.num_actions} continuous"
    elif isinstance(actions, tuple):
        actions = " x ".join(map(str, actions))
    print(
        f"environment  {name}\n"
        f"players      {world.players}\n"
        f"observation  {world.size:,} numbers: {shapes}\n"
        f"actions      {actions}\n"
        f"agents       {_agents(name, world.facts)}"
    )
    if name in OWN_APPS:
        print(f"commands     those of `{OWN_APPS[name][0]} --help`")
    elif agents_of(name, world.facts):
        has = dict.fromkeys(("train", "eval", *commands_of(app, world), *COMMANDS))
        print(f"commands     {', '.join(name for name in has if name != 'list')}")
