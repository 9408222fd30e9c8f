"""What `spo` is made of, and the players that come with it."""

import dataclasses
import operator
import pathlib
from collections.abc import Sequence

from zero_app import App, load, peek, player_file, Trained

from ._build import build_loop
from ._config import Agent, Config, presets
from ._eval import Eval, evaluation
from ._report import page
from ._watch import episode, Watch


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The flags on which presets depend."""

    env: str = Config.env
    agent: Agent = Config.agent


def _presets(prog: str, words: Sequence[str]) -> dict[str, Config]:
    chosen = peek(_Chosen, prog, words)
    return presets(chosen.env, chosen.agent)


APP = App(
    name="spo",
    about="Sequential Monte Carlo policy optimisation, continuous and discrete.",
    presets=presets(Config.env, Config.agent),
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    players=pathlib.Path(__file__).with_name("players"),
    commands={"eval": Eval, "watch": Watch},
    num_steps=operator.attrgetter("blocks"),
    presets_of=_presets,
)


def pretrained(env: str = Config.env) -> Trained[Config]:
    """The trained player of an environment that comes with this package: cartpole or pendulum."""
    return load(APP, player_file(APP, env))
