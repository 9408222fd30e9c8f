"""`monsters watch`: shows episodes in the terminal, with the plan of every move."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import Array, Int, PRNGKeyArray, PyTree
from rich.console import Console
from rich.live import Live

from zero_envs import Monsters, MonstersState, Observation, Transition
from zero_search import Plan
from zero_train import AbstractActor, PlanningActor
from zero_train.app import AbstractCommand, App, Bounds, load

from ._build import build_env
from ._config import Config, SIMULATIONS
from ._eval import named_player
from ._measure import NUM_STEPS
from ._planners import GAMMA
from ._scene import draw, ending, Scene, Thought
from .oracle import MonstersOracle


@dataclasses.dataclass(frozen=True)
class Watch(AbstractCommand):
    """Watch the player of a run, with the plan's Q-values and the exact ones for every move.

    In a terminal the picture is updated in place. Otherwise the pictures are printed one after
    another, as plain text and without delay.
    """

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the network without a search."""
    simulations: int | None = None
    """Simulations per move, in all trees together; by default those of the run's configuration."""
    episodes: int = 5
    """Episodes, each cut off after 32 steps."""
    delay: float = 1.0
    """Seconds between two moves."""
    seed: int = 0
    """The seed of all randomness."""

    bounds: ClassVar[Bounds] = {
        "episodes": (1, math.inf),
        "delay": (0, math.inf),
        "simulations": SIMULATIONS,
    }

    def __call__(self, app: App[Config], console: Console | None = None) -> None:
        trained = load(app, self.run)
        actor, number = named_player(trained, self.planner, self.simulations)
        console = console or Console(highlight=False)
        alone = self.planner == "network"
        who = "the network alone" if alone else f"{self.planner}, {number} simulations"
        title = f"{self.run} (step {trained.step}), {who}"
        console.print(title, soft_wrap=True, markup=False)
        console.print("solving the game exactly, and compiling the player\n")
        env, won = build_env(trained.config), 0
        oracle = MonstersOracle(env)
        # Without a time limit, values are finite only for a gamma below 1.
        gamma = trained.config.gamma if trained.config.gamma < 1 else GAMMA
        with _screen(console, self.delay) as show:
            for episode in range(self.episodes):
                key = jr.fold_in(jr.key(self.seed), episode)
                scenes = list[Scene]()
                for scene in _scenes(env, oracle, actor, gamma, key):
                    show(scene)
                    scenes.append(scene)
                won += scenes[-1].gained > 0
                lost = sum(scene.thought.regret for scene in scenes[:-1])
                console.print(f"episode {episode + 1}: {scenes[-1].end}; its moves lost {lost:.3f}")
        console.print(f"{won} of {self.episodes} won")


def _scenes(
    env: Monsters, oracle: MonstersOracle, actor: AbstractActor, gamma: float, key: PRNGKeyArray
) -> Iterator[Scene]:
    """A scene for each decision of an episode, and one for its end."""
    state, carry = _start(env, actor, jr.fold_in(key, NUM_STEPS))
    gained = 0.0
    for step in range(NUM_STEPS):
        tkey, skey = jr.split(jr.fold_in(key, step))
        thought, carry = _thought(oracle, actor, state, carry, gamma, tkey)
        yield Scene(env, _only(state), gained, thought)
        action = jnp.asarray([thought.action], jnp.int32)
        state, carry, transition = _step(env, actor, state, carry, action, skey)
        gained += float(transition.reward[0])
        over = bool(transition.last[0])
        if over or step == NUM_STEPS - 1:
            end = ending(_only(state)) if over else f"not over after {NUM_STEPS} steps"
            yield Scene(env, _only(state), gained, thought, end)
            return


def _thought(
    oracle: MonstersOracle,
    actor: AbstractActor,
    state: MonstersState,
    carry: PyTree[Array],
    gamma: float,
    key: PRNGKeyArray,
) -> tuple[Thought, PyTree[Array]]:
    exact = oracle.qvalues(state, gamma=gamma)[0]
    if not isinstance(actor, PlanningActor):
        obs = jax.vmap(oracle.env.observe)(state)
        action, record, carry = _act(actor, state, obs, carry, key)
        policy = np.asarray(record.weights[0])
        return Thought(int(action[0]), float(record.value[0]), policy, None, exact), carry
    plan, carry = _plan(actor, state, carry, key)
    visits = np.asarray(plan.visits[0])
    return Thought(
        action=int(plan.action[0]),
        value=float(plan.value[0]),
        shares=visits / np.sum(visits),
        qvalues=np.where(visits > 0, plan.qvalues[0], np.nan),
        exact=exact,
    ), carry


@eqx.filter_jit
def _start(
    env: Monsters, actor: AbstractActor, key: PRNGKeyArray
) -> tuple[MonstersState, PyTree[Array]]:
    state = jax.tree.map(lambda x: x[None], env.init(key=key))
    return state, actor.init(state)


@eqx.filter_jit
def _plan(
    actor: PlanningActor, state: MonstersState, carry: PyTree[Array], key: PRNGKeyArray
) -> tuple[Plan, PyTree[Array]]:
    return actor.planner.plan(actor.model, state, carry, key=key[None])


@eqx.filter_jit
def _act(
    actor: AbstractActor,
    state: MonstersState,
    obs: Observation,
    carry: PyTree[Array],
    key: PRNGKeyArray,
) -> tuple[Any, ...]:
    return actor.act(state, obs, carry, key=key[None])


@eqx.filter_jit
def _step(
    env: Monsters,
    actor: AbstractActor,
    state: MonstersState,
    carry: PyTree[Array],
    action: Int[Array, " batch"],
    key: PRNGKeyArray,
) -> tuple[MonstersState, PyTree[Array], Transition]:
    move = jax.vmap(lambda s, a, k: env.step(s, a, key=k))
    state, transition = move(state, action, key[None])
    return state, actor.advance(carry, action, state, transition), transition


def _only(state: MonstersState) -> MonstersState:
    """The one row of a batch."""
    return jax.tree.map(lambda x: x[0], state)


@contextlib.contextmanager
def _screen(console: Console, delay: float) -> Iterator[Callable[[Scene], None]]:
    """A function that shows a scene and, in a terminal, waits for `delay`."""
    animated = console.is_terminal and not console.is_dumb_terminal
    plain = not animated or console.color_system is None or console.no_color
    picture = lambda scene: draw(scene, width=console.width, height=console.height, plain=plain)
    if not animated:
        yield lambda scene: console.print(picture(scene))
        return
    with Live(console=console, auto_refresh=False) as live:

        def show(scene: Scene) -> None:
            live.update(picture(scene), refresh=True)
            # The end of an episode is shown for longer.
            time.sleep(delay if scene.end is None else 2 * delay)

        yield show
