"""What every agent with a network and an optimiser does."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from zero_envs import Observation

from ._agent import AbstractAgent, Metrics


State = TypeVar("State", bound=PyTree)


def parameters(network: Callable[..., Any], *, key: Array) -> PyTree[Array]:
    """The arrays of a fresh `network(key=key)`: what the gradient acts on."""
    return eqx.filter(network(key=key), eqx.is_array)


def bind(network: Callable[..., Any], params: PyTree[Array]) -> Callable[..., Any]:
    """The network with these parameters."""
    return with_arrays(lambda: network(key=jax.random.key(0)), params)


def with_arrays(build: Callable[[], Any], arrays: PyTree[Array]) -> Any:
    """What `build()` makes, with these arrays for its own, which are not computed."""
    skeleton = eqx.filter_eval_shape(build)
    static = eqx.filter(skeleton, lambda x: isinstance(x, jax.ShapeDtypeStruct), inverse=True)
    return eqx.combine(arrays, static)


def start(optimiser: optax.GradientTransformation, params: PyTree[Array]) -> PyTree[Array]:
    """The optimiser's state before the first step."""
    with jax.numpy_dtype_promotion("standard"):
        return optimiser.init(params)


def legal_actions(agent: AbstractAgent, obs: Observation) -> Bool[Array, "*axes actions"]:
    """Which actions were legal, for an agent of discrete ones.

    **Raises:** `ValueError` where they are continuous.
    """
    if obs.legal is None:
        raise ValueError(
            f"{type(agent).__name__}.update was given observations without legal actions, which "
            "means continuous ones; it learns discrete policies only."
        )
    return obs.legal


def numbers_where(counts: Float[Array, "*axes"], target: Float[Array, "*axes"]) -> Array:
    """Targets, 0 in rows of weight 0: these may hold anything, and a gradient of 0 times NaN is
    NaN."""
    return jnp.where(counts == 0, 0.0, target)


def gradient_step(
    loss: Callable[[PyTree[Array]], tuple[Array, Metrics]],
    optimiser: optax.GradientTransformation,
    params: PyTree[Array],
    state: PyTree[Array],
) -> tuple[PyTree[Array], PyTree[Array], Metrics]:
    """One step down `loss`, which returns its own metrics as well.

    **Returns:** parameters, the optimiser's state, and the metrics with `gradient_norm`.
    """
    (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    with jax.numpy_dtype_promotion("standard"):
        change, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, change)
    return params, state, {**metrics, "gradient_norm": jnp.sqrt(square_sum(gradient))}


def if_finite(metrics: Metrics, new: State, old: State) -> State:
    """`new`, or `old` where a metric is not finite: nothing is learned from a step gone wrong."""
    finite = jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))
    return jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, old)


def square_sum(tree: PyTree[Array]) -> Float[Array, ""]:
    """The squared norm of all leaves together."""
    # optax's norm has another name in every other release.
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)]))


def observation_check(features: PyTree[Array]) -> Metrics:
    """Names the culprit where an environment, not the network, went wrong. Nothing for features
    that cannot be NaN."""
    floats = [x for x in jax.tree.leaves(features) if jnp.issubdtype(x.dtype, jnp.floating)]
    if not floats:
        return {}
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
    return {"observation_error": jnp.where(finite, 0.0, jnp.nan).astype(jnp.float32)}
