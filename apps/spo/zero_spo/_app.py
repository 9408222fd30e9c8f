"""What `spo` is made of, and the players that come with it."""

import dataclasses
import operator
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro

from zero_app import (
    App,
    by_name,
    CommandsByName,
    Launch,
    load,
    peek,
    player_file,
    start_jax,
    Trained,
)

from ._config import Agent, Config, has_known_presets, presets
from ._report import page


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The flags on which presets depend."""

    env: str = Config.env
    agent: Agent = Config.agent
    launch: Annotated[Launch, tyro.conf.arg(name="")] = Launch()


def _presets(prog: str, words: Sequence[str]) -> dict[str, Config]:
    chosen = peek(_Chosen, prog, words)
    if not has_known_presets(chosen.env):
        start_jax(chosen.launch)
    return presets(chosen.env, chosen.agent)


APP = App(
    name="spo",
    about="Sequential Monte Carlo policy optimisation, continuous and discrete.",
    presets=presets(Config.env, Config.agent),
    build=by_name("zero_spo._build:build_loop"),
    evaluation=by_name("zero_spo._eval:evaluation"),
    page=page,
    episode=by_name("zero_spo._watch:episode"),
    players=pathlib.Path(__file__).with_name("players"),
    commands=CommandsByName(eval="zero_spo._eval:Eval", watch="zero_spo._watch:Watch"),
    num_steps=operator.attrgetter("blocks"),
    presets_of=_presets,
)


def pretrained(env: str = Config.env) -> Trained[Config]:
    """The trained player of an environment that comes with this package: cartpole or pendulum."""
    return load(APP, player_file(APP, env))
