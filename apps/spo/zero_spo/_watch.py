"""`spo watch`: shows episodes in the terminal, with the plan of every step; brax's as pages."""

import contextlib
import dataclasses
import functools as ft
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from rich.console import Console, RenderableType

from zero_app import (
    AbstractPlayerCommand,
    App,
    Bounds,
    check_path,
    drawn,
    Episode,
    Frame,
    is_plain,
    screen,
    Trained,
)
from zero_envs import BraxEnvironment, Fallible
from zero_search import ParticleSearch, Plan
from zero_train import AbstractActor, PlanningActor

from ._config import Config
from ._scene import draw, Scene
from ._worlds import longest_episode, World


# The number of steps between two pictures outside a terminal.
_EVERY = 20
# What ends an episode of a simulation that returned NaN.
_FAILED = "simulation failed"


@dataclasses.dataclass(frozen=True)
class Watch(AbstractPlayerCommand):
    """Watch the player of a run plan and play.

    In a terminal the picture is updated in place. Otherwise some of the pictures are printed one
    after another, as plain text and without delay. Episodes of brax are written as HTML pages into
    the run's folder.
    """

    episodes: int = 1
    """The number of episodes."""
    delay: float = 0.05
    """Seconds between two steps in the terminal."""
    seed: int = 0
    """The seed of all randomness."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    bounds: ClassVar[Bounds] = {"episodes": (1, math.inf), "delay": (0, 3600)}

    def __call__(self, app: App[Config], console: Console | None = None) -> None:
        check_path(self.save)
        trained = self.load(app)
        env: Any = trained.loop.env
        console = console or Console(highlight=False)
        console.print(_title(self.run, trained), soft_wrap=True, markup=False)
        ends = list[Scene]()
        with _screen(console, self.delay, env, self.save) as show:
            for episode in range(self.episodes):
                played = list[Scene]()
                for scene in _scenes(env, trained.player, jr.fold_in(jr.key(self.seed), episode)):
                    show(scene)
                    played.append(scene)
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


def _summary(ends: list[Scene]) -> str:
    """The mean over the episodes. Failed simulations are excluded."""
    sound = [end for end in ends if end.end != _FAILED]
    dropped = f"; {len(ends) - len(sound)} failed" if len(sound) < len(ends) else ""
    if not sound:
        return f"no mean{dropped}"
    returned, steps = (np.mean([getattr(e, name) for e in sound]) for name in ("gained", "step"))
    return f"mean of {len(sound)}: return {returned:.2f}, {steps:,.1f} steps{dropped}"


def _scenes(env: World, actor: AbstractActor, key: PRNGKeyArray) -> Iterator[Scene]:
    """A scene for each decision of an episode, and one for its end."""
    limit, temperature = longest_episode(env), float("nan")
    if isinstance(actor, PlanningActor):
        assert isinstance(actor.planner, ParticleSearch)
        temperature = float(actor.planner.temperature)
    ikey, pkey = jr.split(key)
    episode, gained, reward = Episode(env, actor, key=ikey), 0.0, 0.0
    for step in range(limit):
        akey, skey = jr.split(jr.fold_in(pkey, step))
        here, (chosen, record) = _only(episode.state), episode.act(key=akey)
        action, plan = _only((chosen, record if isinstance(record, Plan) else None))
        scene = Scene(env, here, step, gained, reward, action, plan, temperature)
        yield scene
        transition = _only(episode.step(chosen, key=skey))
        reward = float(transition.reward)
        gained += reward
        if transition.last or step + 1 == limit:
            state = _only(episode.state)
            end = "terminated" if transition.last and transition.discount == 0 else "truncated"
            if isinstance(env, Fallible) and bool(env.failed(jax.device_put(state))):
                end = _FAILED
            yield dataclasses.replace(
                scene, state=state, step=step + 1, gained=gained, reward=reward, end=end
            )
            return


def _only(tree: PyTree[Array]) -> Any:
    """The one row of a batch, with NumPy arrays."""
    return jax.tree.map(lambda x: x[0, ...], jax.device_get(tree))


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of an episode for the report."""
    env: Any = trained.loop.env
    for scene in _scenes(env, trained.player, key):
        yield Frame(drawn(ft.partial(_picture, scene)), scene.end or "", 0.1)


def _picture(scene: Scene, console: Console) -> RenderableType:
    return draw(scene, width=console.width, plain=is_plain(console))


@contextlib.contextmanager
def _screen(
    console: Console, delay: float, env: World, save: pathlib.Path | None
) -> Iterator[Callable[[Scene], None]]:
    """A function that shows a scene and, in a terminal, waits for `delay`."""
    if isinstance(env, BraxEnvironment) and save is None:
        with console.status("playing") as status:
            yield lambda scene: status.update(f"playing, step {scene.step:,}")
        return

    def write(scene: Scene) -> None:
        if scene.step % _EVERY and scene.end is None:
            return
        with console.capture() as capture:
            console.print(_picture(scene, console))
        lines = (line.rstrip() for line in capture.get().splitlines())
        console.print("\n".join(lines), soft_wrap=True, markup=False)

    # The end of an episode is shown for longer.
    seconds = lambda scene: delay if scene.end is None else 10 * delay
    with screen(console, _picture, seconds, write, save=save) as show:
        yield show


def _write_page(folder: pathlib.Path, env: BraxEnvironment, scenes: list[Scene]) -> pathlib.Path:
    """Writes a page with brax's viewer of an episode, under the first free name.

    **Returns:** the path of the page, which loads brax's viewer from the internet.
    """
    page = env.render([scene.state for scene in scenes])
    for number in itertools.count():
        path = folder / f"episode-{number}.html"
        with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(page)
            return path
    raise AssertionError("unreachable")
