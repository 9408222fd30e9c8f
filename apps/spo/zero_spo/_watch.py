"""`spo watch`: shows episodes in the terminal, with the plan of every step; brax's as pages."""

import contextlib
import dataclasses
import functools as ft
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from rich.console import Console, RenderableType

from zero_app import (
    AbstractPlayerCommand,
    App,
    check_path,
    Count,
    Delay,
    drawn,
    Frame,
    is_plain,
    Moment,
    moments,
    screen,
    Seed,
    Trained,
)
from zero_envs import BraxEnvironment
from zero_search import ParticleSearch

from ._config import Config
from ._scene import draw
from ._worlds import longest_episode


# The number of steps between two pictures outside a terminal.
_EVERY = 20


@dataclasses.dataclass(frozen=True)
class Watch(AbstractPlayerCommand):
    """Watch the player of a run plan and play.

    In a terminal the picture is updated in place. Otherwise some of the pictures are printed one
    after another, as plain text and without delay. Episodes of brax are written as HTML pages into
    the run's folder.
    """

    episodes: Count = 1
    """The number of episodes."""
    delay: Delay = 0.05
    """Seconds between two steps in the terminal."""
    seed: Seed = 0
    """The seed of all randomness."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    def __call__(self, app: App[Config], console: Console | None = None) -> None:
        check_path(self.save)
        trained = self.load(app)
        env: Any = trained.loop.env
        console = console or Console(highlight=False)
        console.print(_title(self.run, trained), soft_wrap=True, markup=False)
        ends = list[Moment]()
        with _screen(console, self.delay, trained, self.save) as show:
            for episode in range(self.episodes):
                played = list[Moment]()
                for moment in _moments(trained, jr.fold_in(jr.key(self.seed), episode)):
                    show(moment)
                    played.append(moment)
                end = played[-1]
                ends.append(end)
                said = f"episode {episode + 1}: return {end.gained:.2f}, {end.step:,} steps, "
                said += end.end or ""
                if isinstance(env, BraxEnvironment):
                    said += f"; {_write_page(self.folder, env, played)}"
                console.print(said, soft_wrap=True, markup=False)
        console.print(_summary(ends), soft_wrap=True)


def _title(run: str, trained: Trained[Config]) -> str:
    config = trained.config
    how = "the policy alone"
    if config.agent == "spo":
        how = f"{config.particles} particles, {config.depth} deep"
    return f"{run} (block {trained.step}): {config.agent} on {config.env}, {how}"


def _summary(ends: list[Moment]) -> str:
    """The mean over the episodes. Failed simulations are excluded."""
    sound = [end for end in ends if end.end != "simulation failed"]
    dropped = f"; {len(ends) - len(sound)} failed" if len(sound) < len(ends) else ""
    if not sound:
        return f"no mean{dropped}"
    returned, steps = (np.mean([getattr(e, name) for e in sound]) for name in ("gained", "step"))
    return f"mean of {len(sound)}: return {returned:.2f}, {steps:,.1f} steps{dropped}"


def _moments(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Moment]:
    env: Any = trained.loop.env
    start, key = jr.split(key)
    return moments(env, trained.player, start=start, key=key, most=longest_episode(env))


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of an episode for the report."""
    picture = _picture_of(trained)
    for moment in _moments(trained, key):
        yield Frame(drawn(ft.partial(picture, moment)), moment.end or "", 0.1)


def _picture_of(trained: Trained[Config]) -> Callable[[Moment, Console], RenderableType]:
    """What draws the moments of a player."""
    planner = getattr(trained.player, "planner", None)
    temperature = float(planner.temperature) if isinstance(planner, ParticleSearch) else math.nan
    return lambda moment, console: draw(
        moment, temperature, width=console.width, plain=is_plain(console)
    )


@contextlib.contextmanager
def _screen(
    console: Console, delay: float, trained: Trained[Config], save: pathlib.Path | None
) -> Iterator[Callable[[Moment], None]]:
    """A function that shows a moment and, in a terminal, waits for `delay`."""
    if isinstance(trained.loop.env, BraxEnvironment) and save is None:
        with console.status("playing") as status:
            yield lambda moment: status.update(f"playing, step {moment.step:,}")
        return
    picture = _picture_of(trained)

    def write(moment: Moment) -> None:
        if moment.step % _EVERY and moment.end is None:
            return
        with console.capture() as capture:
            console.print(picture(moment, console))
        lines = (line.rstrip() for line in capture.get().splitlines())
        console.print("\n".join(lines), soft_wrap=True, markup=False)

    # The end of an episode is shown for longer.
    seconds = lambda moment: delay if moment.end is None else 10 * delay
    with screen(console, picture, seconds, write, save=save) as show:
        yield show


def _write_page(folder: pathlib.Path, env: BraxEnvironment, played: list[Moment]) -> pathlib.Path:
    """Writes a page of an episode, which loads brax's viewer from the internet, under the first
    free name. Returns its path."""
    page = env.render([moment.state for moment in played])
    for number in itertools.count():
        path = folder / f"episode-{number}.html"
        with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(page)
            return path
    raise AssertionError("unreachable")
