"""The best parameters so far, by score or by matches."""

import math
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment

from ._agent import AbstractActor
from ._dispatch import plain
from ._evaluation import check_parts
from ._faults import check_faults
from ._match import MatchResult, OPENING_PLIES, play_games


Params = TypeVar("Params", bound=PyTree)


class BestSoFar(eqx.Module, Generic[Params]):
    """A copy of the parameters with the highest score so far.

    It serves to compute the absolute metric of a run (Gorsane et al. 2022,
    https://arxiv.org/abs/2209.10485): the best parameters are evaluated again on ten times the
    episodes, because the best of many scores is biased upwards.

    ```python
    best = BestSoFar.start(state.agent)
    ...
    best = best.update(state.agent, result.summary().mean, step)  # after every evaluation
    ...
    actor = agent.actor(best.params, explore=False)
    absolute = evaluate(env, actor, num_episodes=10 * num_episodes, max_steps=max_steps, key=key)
    ```

    It is a pytree of arrays if `params` is one. Save it with the state of a run that may resume.

    **Attributes:**

    - `params`: any pytree: parameters, the state of an agent, or an actor. The original may be
        donated.
    - `score`: their score, `-inf` before the first evaluation.
    - `step`: the step of that evaluation, -1 before the first, which is no step of a checkpoint.
    """

    params: Params
    score: Float[Array, ""]
    step: Int[Array, ""]

    @classmethod
    def start(cls, params: Params) -> "BestSoFar[Params]":
        """Starts before the first evaluation. Any score that is not NaN replaces `params`."""
        return _keep(params, -math.inf, -1)

    def update(
        self, params: Params, score: float | Float[Array, ""], step: int | Int[Array, ""]
    ) -> "BestSoFar[Params]":
        """Keeps `params`, of the same structure, shapes and dtypes as before, if their score is at
        least the best so far, in float32. A NaN is never kept."""
        for name, x in {"score": score, "step": step}.items():
            if not isinstance(x, int | float | np.number | Array | np.ndarray) or np.ndim(x):
                raise ValueError(f"BestSoFar.update({name}={x!r}): give one number")
        # An array of JAX's has no more than 32 bits.
        if not isinstance(step, Array) and not 0 <= step < 2**31:
            raise ValueError(f"BestSoFar.update(step={step!r}): must be from 0 to {2**31 - 1}")
        if _kind(params) != _kind(self.params):
            raise ValueError(
                "BestSoFar.update(params) was given another kind of parameters than it keeps; "
                "their structure, shapes and dtypes must be the same"
            )
        return _keep(params, score, step) if np.float32(score) >= self.score else self


def _keep(
    params: Params, score: float | Float[Array, ""], step: int | Int[Array, ""]
) -> BestSoFar[Params]:
    # A copy, because the caller will donate `params` to the next step. On the host, because they
    # may live on other devices than the score.
    kept = jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, params)
    return BestSoFar(kept, jnp.asarray(score, jnp.float32), jnp.asarray(step, jnp.int32))


def _kind(params: PyTree) -> tuple[object, list[object]]:
    leaves, structure = jax.tree.flatten(params)
    return structure, [(x.shape, x.dtype) if eqx.is_array(x) else type(x) for x in leaves]


Actor = TypeVar("Actor", bound=AbstractActor)


def challenge(
    env: AbstractEnvironment,
    challenger: Actor,
    best: Actor,
    *,
    num_games: int,
    max_steps: int,
    key: PRNGKeyArray,
    opening_plies: int = OPENING_PLIES,
) -> tuple[Actor, MatchResult]:
    """Plays a match between a challenger and the best actor so far, which the challenger replaces
    if the mean outcome of the games that count is above 0. Pass the returned best to the next call.

    The arguments are those of [`zero_train.match`][]; the actors must differ in their arrays only.

    **Returns:** the new best actor, and the match from the view of the challenger. Under `jax.jit`
    the best actor stays where a move is wrong.
    """
    check_parts("challenge", env, challenger=challenger, best=best)
    env, challenger, best, num_games, max_steps, opening_plies = plain(
        (env, challenger, best, num_games, max_steps, opening_plies)
    )
    new, new_static = eqx.partition(challenger, eqx.is_array)
    old, old_static = eqx.partition(best, eqx.is_array)
    if not eqx.tree_equal(new_static, old_static):
        raise ValueError(
            "challenge(challenger, best): the two differ in more than the values of their arrays, "
            "so neither can take the other's place; build both in the same way, or use match"
        )
    games = num_games, max_steps, key, opening_plies
    result = play_games(env, challenger, best, *games, mesh=None)
    check_faults("challenge", result.fault, "games")
    better = jnp.mean(result.outcomes, where=result.counts) > 0
    chosen = jax.tree.map(lambda x, y: jnp.where(better, x, y), new, old)
    return eqx.combine(chosen, old_static), result
