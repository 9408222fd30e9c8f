"""An episode of a player that is on its own, decision by decision."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment, Fallible, Transition
from zero_search import Plan
from zero_train import AbstractActor

from ._watch import Episode


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
            state, chosen = _only(episode.state), episode.act(key=akey)
            decision = Moment(env, state, step, gained, reward, *_only(chosen))
            yield decision
            transition = _only(episode.step(chosen[0], key=skey))
            reward = float(transition.reward)
            gained += reward
            if transition.last or step + 1 == most:
                state, end = _only(episode.state), _end(env, episode, transition)
                yield dataclasses.replace(
                    decision, state=state, step=step + 1, gained=gained, reward=reward, end=end
                )
                return


def _end(env: AbstractEnvironment, episode: Episode, transition: Transition) -> str:
    if isinstance(env, Fallible) and bool(jax.vmap(env.failed)(episode.state)[0]):
        return "simulation failed"
    return "terminated" if transition.last and transition.discount == 0 else "truncated"


def _only(tree: PyTree[Array]) -> Any:
    """The one row of a batch, with NumPy arrays."""
    return jax.tree.map(lambda x: x[0, ...], jax.device_get(tree))
