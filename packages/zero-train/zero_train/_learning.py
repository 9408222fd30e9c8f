"""Tools for agents: parameters, gradient steps, target networks, masks and schedules."""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.tree_util import keystr, tree_leaves_with_path
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from zero_envs import Observation
from zero_memory import Batch

from ._agent import Experience, Metrics
from ._arrays import log_softmax
from ._checks import check_count, check_kind, check_range
from ._mesh import select_rows, whole


State = TypeVar("State", bound=PyTree)
Tree = TypeVar("Tree", bound=PyTree)


def parameters(network: Callable[..., Any], *, key: PRNGKeyArray) -> PyTree[Array]:
    """The arrays of a fresh `network(key=key)`, which the gradient acts on."""
    return eqx.filter(network(key=key), eqx.is_array)


def adopted(params: PyTree[Array], network: Any) -> PyTree[Array]:
    """The arrays of a trained network, which have the names, shapes and dtypes of the fresh
    `params` that they replace."""
    arrays = eqx.filter(network, eqx.is_array)
    named = lambda tree: [
        f"{keystr(path)} {x.dtype}{list(x.shape)}" for path, x in tree_leaves_with_path(tree)
    ]
    for has, needs in itertools.zip_longest(named(arrays), named(params), fillvalue="nothing"):
        if has != needs:
            raise ValueError(
                f"the network of the actor does not fit: it has {has} where {needs} is expected"
            )
    return jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(arrays))


def bind(network: Callable[..., Any], params: PyTree[Array]) -> Any:
    """The network with these parameters, where `params` has the structure of
    [`zero_train.parameters`][].

    In an update on a mesh with the axis `fsdp` this is where split parameters are gathered.
    """
    return with_arrays(lambda: network(key=jax.random.key(0)), whole(params))


def with_arrays(build: Callable[[], Any], arrays: PyTree[Array]) -> Any:
    """The result of `build()` with `arrays` in place of its own, which are not computed."""
    skeleton = eqx.filter_eval_shape(build)
    static = eqx.filter(skeleton, lambda x: isinstance(x, jax.ShapeDtypeStruct), inverse=True)
    return eqx.combine(arrays, static)


def init_optimiser(optimiser: optax.GradientTransformation, params: PyTree[Array]) -> PyTree[Array]:
    """The optimiser's state before the first step, also under JAX's strict dtype promotion."""
    check_optimisers("init_optimiser", optimiser=optimiser)
    with jax.numpy_dtype_promotion("standard"):
        return optimiser.init(params)


def gradient_step(
    loss: Callable[[PyTree[Array]], tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    params: PyTree[Array],
    optimiser_state: PyTree[Array],
) -> tuple[PyTree[Array], PyTree[Array], Metrics]:
    """One step of the optimiser down the gradient of `loss(params) -> (loss, metrics)`.

    **Returns:** the parameters, the optimiser's state, and the metrics with `gradient_norm` and the
    `learning_rate` where the optimiser's state holds it, as that of `optax.inject_hyperparams`
    does. Of an `optax.multi_transform` each part has its own, such as `learning_rate_policy`.
    """
    (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    with jax.numpy_dtype_promotion("standard"):
        change, optimiser_state = optimiser.update(gradient, optimiser_state, params)
        params = optax.apply_updates(params, change)
    norm = jnp.sqrt(square_sum(gradient))
    metrics = {**metrics, "gradient_norm": norm, **_learning_rates(optimiser_state)}
    return params, optimiser_state, metrics


def _learning_rates(optimiser_state: PyTree[Array]) -> Metrics:
    found = {}
    for path, rate in tree_leaves_with_path(optimiser_state):
        if keystr(path).endswith(".hyperparams['learning_rate']"):
            parts = [str(x.key) for x in path[:-1] if isinstance(x, jax.tree_util.DictKey)]
            found["_".join(["learning_rate", *parts])] = rate
    return found


def if_finite(metrics: Metrics, new: State, old: State) -> State:
    """`new` where every metric is finite, otherwise `old`: a step with a NaN changes nothing."""
    finite = jnp.all(jnp.isfinite(jnp.stack(list(metrics.values()))))
    return jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, old)


def update_target(
    target: Tree,
    params: Tree,
    rate: float | Float[Array, ""],
    *,
    period: int = 1,
    updates: Int[Array, ""] | None = None,
) -> Tree:
    """The target network's parameters, moved by `rate` of the way to `params`.

    A small `rate` gives an exponential moving average, and a `rate` of 1 a copy. The target moves
    only where `updates`, the number of gradient steps so far, is a multiple of `period`. Without
    `updates` it always moves.
    """
    check_range("update_target", 0, 1, rate=rate)
    check_count("update_target", period=period)
    shapes = lambda tree: {keystr(path): jnp.shape(x) for path, x in tree_leaves_with_path(tree)}
    old, new = shapes(target), shapes(params)
    for path in old | new:
        if old.get(path) != new.get(path):
            raise ValueError(
                f"`update_target`: the array {path or 'given'} has shape {old.get(path)} in the "
                f"target and {new.get(path)} in the parameters; both must have the same arrays."
            )
    if updates is not None:
        rate = jnp.where(updates % period == 0, rate, 0.0)
    elif period != 1:
        raise ValueError(f"`update_target(period={period})` needs `updates` as well.")
    # A rate that is an array makes parameters of fewer bits wider.
    with jax.numpy_dtype_promotion("standard"):
        moved: Any = optax.incremental_update(params, target, rate)
    return jax.tree.map(lambda x, y: jnp.asarray(x, jnp.result_type(y)), moved, target)


def loss_weights(batch: Batch) -> Float[Array, "*axes"]:
    """How much each row of a batch of [`zero_train.Experience`][] counts in a loss.

    The weights are those of the buffer, except that they are 0 in final rows and in the last row
    of every window, because values are only bootstrapped from these. A batch of `[batch]` has no
    windows and only loses its final rows. [`zero_train.losses.masked_mean`][] and
    [`zero_train.mask_rows`][] take them.
    """
    weights = jnp.where(batch.items.last, 0.0, batch.weights)
    if weights.ndim < 2:
        return weights
    if weights.shape[1] < 2:
        raise ValueError(
            f"`loss_weights` was given a batch of shape {list(weights.shape)}; the last row of a "
            "window is only bootstrapped from, so give the buffer a length of 2 rows or more."
        )
    return weights.at[:, -1].set(0.0)


def mask_rows(weights: Float[Array, "*axes"], tree: Tree) -> Tree:
    """The tree with 0 in all rows of weight 0, whose leaves have the axes of `weights` in front.

    Such rows may hold anything, and the gradient of 0 times NaN is NaN. So targets go through this
    function before they meet a network's output.
    """
    return select_rows(weights != 0, tree, jax.tree.map(jnp.zeros_like, tree))


def legal_actions(obs: Observation) -> Bool[Array, "*axes actions"]:
    """Which actions are legal. Observations of continuous actions do not say."""
    if obs.legal is None:
        raise ValueError(
            "an agent of discrete actions was given observations without legal actions, which "
            "means continuous ones; use an environment with `num_actions`."
        )
    return obs.legal


def log_policy(
    logits: Float[Array, "*axes actions"], obs: Observation
) -> Float[Array, "*axes actions"]:
    """The log-probabilities of actions: -inf for illegal ones, and uniform where none is legal, as
    in some final rows."""
    return log_softmax(jnp.where(legal_actions(obs), logits, -jnp.inf))


def check_optimisers(owner: str, **optimisers: Any) -> None:
    """Raises where an optimiser of `owner` is no optax transformation."""
    kinds = (optax.GradientTransformation, optax.GradientTransformationExtraArgs)
    check_kind(owner, kinds, "an optax transformation, such as `optax.adam(1e-3)`", **optimisers)


def check_windows(owner: str, rows: Experience) -> None:
    """Raises for rows that are not windows of 2 rows or more."""
    shape = rows.last.shape
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"{owner} was given rows of shape {list(shape)}; it learns from windows [batch, time] "
            "of 2 rows or more: use a buffer of them, such as zero_memory.TrajectoryBuffer."
        )


def square_sum(tree: PyTree[Array]) -> Float[Array, ""]:
    """The squared norm of all leaves together."""
    # optax's norm has another name in every other release.
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)]))


def observation_check(features: PyTree[Array]) -> Metrics:
    """A metric that is NaN where a feature is, so that the environment and not the network is
    named as the cause. Features of other types than floating point give no metric."""
    floats = [x for x in jax.tree.leaves(features) if jnp.issubdtype(x.dtype, jnp.floating)]
    if not floats:
        return {}
    # Counted, because a sum crosses devices together with those of the loss, and `all` does not.
    wrong = [jnp.sum(~jnp.isfinite(x), dtype=jnp.float32) for x in floats]
    error = jnp.where(jnp.sum(jnp.stack(wrong)) > 0, jnp.nan, 0.0)
    return {"observation_error": error.astype(jnp.float32)}


def per_update(schedule: optax.Schedule, num_steps: int) -> optax.Schedule:
    """A schedule of updates as the schedule of gradient steps that an optimiser asks for: constant
    within the `num_steps` gradient steps of one update.

    `per_update(optax.linear_schedule(3e-4, 0.0, num_updates), epochs * num_minibatches)` falls
    once per update, and reaches 0 only after the last. Any schedule of optax will do, such as
    `optax.warmup_cosine_decay_schedule` or several joined by `optax.join_schedules`.
    """
    check_kind("per_update", Callable, "a function of the number of updates", schedule=schedule)
    check_count("per_update", num_steps=num_steps)
    return lambda count: schedule(jnp.floor_divide(count, num_steps))
