"""The best parameters of a run, for the absolute metric."""

import math
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree


Params = TypeVar("Params", bound=PyTree)


class BestSoFar(eqx.Module, Generic[Params]):
    """The parameters with the highest score so far, which later training does not touch.

    What a run reports is its absolute metric (Gorsane et al. 2022,
    https://arxiv.org/abs/2209.10485): the parameters that did best in any evaluation, evaluated
    anew on ten times the episodes, because the best score itself was partly luck.

    ```python
    best = BestSoFar.start(state.agent)
    ...
    best = best.update(state.agent, result.summary().mean, step)  # after every evaluation
    ...
    actor = agent.actor(best.params, explore=False)
    absolute = evaluate(env, actor, num_episodes=10 * num_episodes, max_steps=max_steps, key=key)
    ```

    A pytree of arrays wherever `params` is one: save it beside the state, and a resumed run goes
    on with it.

    **Attributes:**

    - `params`: a copy, so the original may be donated. Any pytree: parameters, the state of an
        agent, or an actor.
    - `score`: what they scored, `-inf` before the first evaluation.
    - `step`: when, -1 before the first evaluation.
    """

    params: Params
    score: Float[Array, ""]
    step: Int[Array, ""]

    @classmethod
    def start(cls, params: Params) -> "BestSoFar[Params]":
        """Nothing is evaluated yet: any score that is not NaN will replace `params`."""
        return _keep(params, -math.inf, -1)

    def update(
        self, params: Params, score: float | Float[Array, ""], step: int | Int[Array, ""]
    ) -> "BestSoFar[Params]":
        """Keeps `params` if they score as much or more: of equals the newer, never a NaN.

        **Raises:** `ValueError` where `params` differ from those kept in more than the values of
        their arrays.
        """
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
