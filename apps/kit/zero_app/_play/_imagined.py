"""What a learned model expected of the moves that were played."""

from collections import deque
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment
from zero_train import AbstractActor, AbstractLatentModel, PlanningActor


class Imagination:
    """Compares each move of an episode with what a learned model had expected of it, one move and
    several moves before. It has nothing to say of other players, nor of a model with a memory,
    since it is told single states."""

    def __init__(self, env: AbstractEnvironment, actor: AbstractActor, moves: int = 5):
        model = actor.model if isinstance(actor, PlanningActor) else None
        self._env = env
        if not isinstance(model, AbstractLatentModel) or model.memory is not None:
            model = None
        self._model = model
        self._moves, self._played = moves, deque[tuple[Any, Any]](maxlen=moves)

    def told(self, state: PyTree, action: PyTree, reward: float) -> str:
        """What was expected of a move that has been played: `""`, or lines of text. Values are for
        the player who moved.

        **Arguments:**

        - `state`: the state that the move was played in.
        - `reward`: of that move.
        """
        if self._model is None:
            return ""
        self._played.append((state, action))
        said = f"\n   reward {reward:+z.2f}"
        for ahead in (1, self._moves):
            if ahead > len(self._played):
                break
            line = [*self._played][-ahead:]
            actions = [action for _, action in line]
            rewards, values = _imagined(self._env, self._model, line[0][0], actions, jr.key(0))
            when = f"{ahead} moves" if ahead > 1 else "1 move"
            value = values[0, -1] * (1 if self._model.num_players == 1 else -1)
            said += f"\n   imagined {when} before: {rewards[0, -1]:+z.2f}, "
            said += f"and a value of {value:+z.2f} after it"
        return said


@eqx.filter_jit
def _imagined(
    env: AbstractEnvironment,
    model: AbstractLatentModel,
    state: PyTree,
    actions: list[PyTree],
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    batched = lambda tree: jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    line = jax.tree.map(lambda *x: jnp.stack(x), *actions)
    return model.imagine(batched(env.observe(state)), batched(line), key=key[None])
