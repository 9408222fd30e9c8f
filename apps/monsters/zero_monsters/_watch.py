"""`monsters watch`: shows episodes in the terminal, with the plan of every move."""

import dataclasses
import functools as ft
import pathlib
from collections.abc import Iterator

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from rich.console import Console, RenderableType

from zero_app import App, check_path, Count, Delay, drawn, Frame, is_plain, moments, screen, Trained
from zero_train import AbstractActor

from ._build import build_actor, build_env
from ._config import Config
from ._eval import AbstractPlannedCommand
from ._measure import NUM_STEPS
from ._planners import GAMMA
from ._scene import draw, ending, Scene
from .oracle import MonstersOracle


@dataclasses.dataclass(frozen=True)
class Watch(AbstractPlannedCommand):
    """Watch the player of a run, with the plan's Q-values and the exact ones for every move.

    In a terminal the picture is updated in place. Otherwise the pictures are printed one after
    another, as plain text and without delay.
    """

    episodes: Count = 5
    """Episodes, each cut off after 32 steps."""
    delay: Delay = 1.0
    """Seconds between two moves."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    def __call__(self, app: App[Config], console: Console | None = None) -> None:
        check_path(self.save)
        trained, actor, number = self.player(app)
        console = console or Console(highlight=False)
        alone = self.planner == "network"
        who = "the network alone" if alone else f"{self.planner}, {number} simulations"
        title = f"{self.run} (step {trained.step}), {who}"
        console.print(title, soft_wrap=True, markup=False)
        console.print("solving the game exactly, and compiling the player\n")
        won, oracle = 0, MonstersOracle(build_env(trained.config))
        # The end of an episode is shown for longer.
        seconds = lambda scene: self.delay if scene.end is None else 2 * self.delay
        with screen(console, _picture, seconds, save=self.save) as show:
            for episode in range(self.episodes):
                key = jr.fold_in(jr.key(self.seed), episode)
                scenes = list[Scene]()
                for scene in _scenes(oracle, actor, trained.config, key):
                    show(scene)
                    scenes.append(scene)
                won += scenes[-1].now.gained > 0
                lost = sum(scene.regret for scene in scenes[:-1])
                console.print(f"episode {episode + 1}: {scenes[-1].end}; its moves lost {lost:.3f}")
        console.print(f"{won} of {self.episodes} won")


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of an episode for the report."""
    config = trained.config
    actor, _ = build_actor(config, trained.player, config.planner)
    for scene in _scenes(MonstersOracle(build_env(config)), actor, config, key):
        yield Frame(drawn(ft.partial(_picture, scene)), scene.end or "")


def _picture(scene: Scene, console: Console) -> RenderableType:
    plain = is_plain(console)
    return draw(scene, width=console.width, height=console.height, plain=plain)


def _scenes(
    oracle: MonstersOracle, actor: AbstractActor, config: Config, key: PRNGKeyArray
) -> Iterator[Scene]:
    """A scene for each decision of an episode, and one for its end."""
    # Without a time limit, values are finite only for a gamma below 1.
    gamma = config.gamma if config.gamma < 1 else GAMMA
    start, exact = jr.fold_in(key, NUM_STEPS), np.empty(0)
    for now in moments(oracle.env, actor, start=start, key=key, most=NUM_STEPS):
        shares, qvalues, end = now.record.weights, None, None
        if now.plan is not None:
            visits = now.plan.visits
            shares = visits / np.sum(visits)
            qvalues = np.where(visits > 0, now.plan.qvalues, np.nan)
        if now.end is None:
            one = jax.tree.map(lambda x: x[None], now.state)
            exact = oracle.qvalues(one, gamma=gamma, step_penalty=config.step_penalty)[0]
        else:
            end = ending(now.state) if now.state.over else f"not over after {NUM_STEPS} steps"
        yield Scene(oracle.env, now, shares, qvalues, exact, end)
