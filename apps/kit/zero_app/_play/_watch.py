"""An episode move by move, and pictures of one in a terminal or a file."""

import contextlib
import dataclasses
import functools as ft
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, cast, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree
from rich.console import Console, RenderableType
from rich.live import Live

from zero_envs import AbstractEnvironment, Fallible, Hosted, HostStep, Observation, Transition
from zero_search import AbstractPriorModel, Plan, Tree, TreeSearch
from zero_train import AbstractActor, PlanningActor

from .._run._film import drawn, Frame, save_film


Scene = TypeVar("Scene")


class Episode:
    """An episode of an actor, move by move. All arrays have a batch of one.

    **Attributes:**

    - `state`, `obs`: the current state and its observation.
    - `tree`: that of the last `act`, where the actor searches one.
    """

    tree: Tree | None = None

    def __init__(self, env: AbstractEnvironment, actor: AbstractActor, *, key: PRNGKeyArray):
        if isinstance(actor, PlanningActor):
            actor = dataclasses.replace(actor, record=whole)
        self._env, self._actor = env, actor
        self.state: Any
        self.obs: Observation
        self._worlds = None
        if isinstance(env, Hosted):
            self._worlds = env.open(1, key=key)
        try:
            first = None if self._worlds is None else _arrays(self._worlds.reset())
            self.state, self.obs, self._carry = _start(env, actor, key[None], first)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the simulator of a [`zero_envs.Hosted`][] environment. No step can follow."""
        if self._worlds is not None:
            self._worlds.close()

    def act(self, *, key: PRNGKeyArray) -> tuple[PyTree[Array], Any]:
        """The action of the actor, and its record: the whole [`zero_search.Plan`][] of an actor
        that plans."""
        acted = act(self._actor, self.state, self.obs, self._carry, key[None])
        action, record, self._carry, self.tree = acted
        return action, record

    def step(self, action: PyTree[Array], *, key: PRNGKeyArray) -> Transition:
        """Takes an action. The actor hears of it, whether it is its own or another's."""
        after = None
        if self._worlds is not None:
            after = _arrays(self._worlds.step(np.asarray(action)))
        self.state, self.obs, self._carry, transition = _step(
            self._env, self._actor, self.state, action, self._carry, key[None], after
        )
        return transition


def _arrays(tree: Any) -> Any:
    """Copies, because the simulator may write there again."""
    return jax.tree.map(jnp.array, tree)


def only(batch: PyTree[Array]) -> Any:
    """The one row of a batch, with NumPy arrays."""
    return jax.tree.map(lambda x: x[0, ...], jax.device_get(batch))


# One function, so that all episodes of an actor share what was compiled.
def whole(plan: Plan) -> Plan:
    return plan


@eqx.filter_jit
def _start(
    env: AbstractEnvironment,
    actor: AbstractActor,
    keys: Key[Array, " batch"],
    first: PyTree[Array] | None,
) -> tuple[PyTree[Array], Observation, PyTree[Array]]:
    """The first state is drawn, unless it is that of a simulator on the host."""
    state = jax.vmap(lambda key: env.init(key=key))(keys) if first is None else first
    return state, jax.vmap(env.observe)(state), actor.init(state)


@eqx.filter_jit
def act(
    actor: AbstractActor,
    state: PyTree[Array],
    obs: Observation,
    carry: PyTree[Array],
    keys: Key[Array, " batch"],
) -> tuple[Any, Any, Any, Tree | None]:
    """The action, the record, the next carry, and the tree where there is one."""
    if isinstance(actor, PlanningActor) and isinstance(actor.planner, TreeSearch):
        grow, model = actor.planner.grow, cast(AbstractPriorModel, actor.model)
        plan, carry, tree = grow(model, state, carry, key=keys, obs=obs)
        return plan.action, actor.record(plan), carry, tree
    return *actor.act(state, obs, carry, key=keys), None


@eqx.filter_jit
def _step(
    env: AbstractEnvironment,
    actor: AbstractActor,
    state: PyTree[Array],
    action: PyTree[Array],
    carry: PyTree[Array],
    keys: Key[Array, " batch"],
    after: HostStep | None,
) -> tuple[Any, ...]:
    """What follows from an action, or from what a simulator on the host made of it."""
    if after is None:
        state, transition = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, action, keys)
    else:
        state, transition = after.state, after.transition()
    carry = actor.advance(carry, action, transition)
    return state, jax.vmap(env.observe)(state), carry, transition


@dataclasses.dataclass(frozen=True, eq=False)
class Moment:
    """A decision in an episode, or the end of it, with NumPy arrays.

    **Attributes:**

    - `env`, `state`: the environment and its state.
    - `step`: the number of steps so far.
    - `gained`, `reward`: the sum of the rewards so far, and the last reward.
    - `action`: the next action; at the end the last one, as for `record`.
    - `record`: the actor's record of it, which is the whole plan of one that plans.
    - `end`: at the end `"terminated"`, `"truncated"` or `"simulation failed"`, else `None`.
    """

    env: AbstractEnvironment
    state: Any
    step: int
    gained: float
    reward: float
    action: np.ndarray
    record: Any
    end: str | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan of the action; `None` for an actor without a search."""
        return self.record if isinstance(self.record, Plan) else None


def moments(
    env: AbstractEnvironment,
    actor: AbstractActor,
    *,
    start: PRNGKeyArray,
    key: PRNGKeyArray,
    most: int,
) -> Iterator[Moment]:
    """A moment for each decision of an episode, and one for its end.

    **Arguments:**

    - `start`: the key of the initial state.
    - `key`: that of all further randomness.
    - `most`: the steps after which the episode is truncated.
    """
    gained = reward = 0.0
    with contextlib.closing(Episode(env, actor, key=start)) as episode:
        for step in range(most):
            akey, skey = jr.split(jr.fold_in(key, step))
            state, chosen = only(episode.state), episode.act(key=akey)
            decision = Moment(env, state, step, gained, reward, *only(chosen))
            yield decision
            transition = only(episode.step(chosen[0], key=skey))
            reward = float(transition.reward)
            gained += reward
            if transition.last or step + 1 == most:
                state, end = only(episode.state), _end(env, episode, transition)
                yield dataclasses.replace(
                    decision, state=state, step=step + 1, gained=gained, reward=reward, end=end
                )
                return


def _end(env: AbstractEnvironment, episode: Episode, transition: Transition) -> str:
    if isinstance(env, Fallible) and bool(jax.vmap(env.failed)(episode.state)[0]):
        return "simulation failed"
    return "terminated" if transition.last and transition.discount == 0 else "truncated"


def is_plain(console: Console) -> bool:
    """Whether a picture on this console has to do without colours or Unicode."""
    colourless = console.color_system is None or console.no_color
    return not _animated(console) or colourless or console.options.ascii_only


@contextlib.contextmanager
def screen(
    console: Console,
    draw: Callable[[Scene, Console], RenderableType],
    seconds: Callable[[Scene], float],
    write: Callable[[Scene], None] | None = None,
    *,
    save: pathlib.Path | None = None,
    frame: Callable[[Scene], Frame] | None = None,
) -> Iterator[Callable[[Scene], None]]:
    """A function that shows a scene. In a terminal the picture replaces the one before and stays
    for so many `seconds`. Elsewhere it is printed, or `write` does that, without waiting.

    **Arguments:**

    - `draw`: the picture of a scene for a console.
    - `save`: the file, `.gif` or `.html`, that the pictures are written into at the end; nothing is
        shown then.
    - `frame`: the picture of a scene in that file; by default what `draw` draws.
    """
    if save is not None:
        frames = list[Frame]()
        usual = lambda scene: Frame(drawn(ft.partial(draw, scene)), "", seconds(scene))
        yield lambda scene: frames.append((frame or usual)(scene))
        save_film(save, frames)
        console.print(f"{len(frames)} pictures are in {save}", soft_wrap=True, markup=False)
        return
    if not _animated(console):
        yield write or (lambda scene: console.print(draw(scene, console)))
        return
    with Live(console=console, auto_refresh=False) as live:

        def show(scene: Scene) -> None:
            live.update(draw(scene, console), refresh=True)
            time.sleep(seconds(scene))

        yield show


def _animated(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal
