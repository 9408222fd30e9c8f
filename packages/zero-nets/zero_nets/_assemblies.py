"""Input layers, and compositions of networks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped
from numpy.typing import DTypeLike

from ._checks import (
    check_each,
    check_function,
    check_vector,
    checked_action,
    numbers,
    shape_of,
    subkeys,
)


class Select(eqx.Module):
    """Selects one part of a structured observation.

    `Select("features")` returns `observation.features`. `Select("camera", 0)` returns the first
    entry of `observation.camera`, or of `observation["camera"]` if the observation is a mapping.
    `Select()` returns the observation itself. The outermost attribute, key or index comes first.
    """

    path: tuple[str | int, ...] = eqx.field(static=True)

    def __init__(self, *path: str | int):
        self.path = path

    def __call__(self, observation: PyTree, *, key: PRNGKeyArray | None = None) -> PyTree:
        del key
        part = observation
        for step in self.path:
            try:
                if isinstance(step, str) and not isinstance(part, Mapping):
                    part = getattr(part, step)
                else:
                    part = part[step]
            except (AttributeError, KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"`Select{self.path}` finds no {step!r} in a {type(part).__name__}; name an "
                    "attribute, a key or an index of it."
                ) from error
        return part


class Concatenate(eqx.Module):
    """Concatenates all arrays of all inputs into one vector, in the order of their leaves.

    Use it for an observation of several arrays, or for an embedding and a continuous action.
    Booleans and integers are cast to the dtype of the floating-point ones, or without any to
    float32.
    """

    def __call__(
        self, *inputs: PyTree[Array], key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        del key
        leaves = jax.tree.leaves(inputs)
        if not leaves:
            raise ValueError("`Concatenate` got no arrays; give it at least one.")
        return jnp.concatenate([leaf.reshape(-1) for leaf in alike(leaves)])


def alike(arrays: Iterable[Array]) -> list[Array]:
    """Arrays in the dtype of the floating-point ones of them, or without any in float32."""
    arrays = [numbers(x) for x in arrays]
    floating = [x.dtype for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)]
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*floating) if floating else jnp.float32
    return [x.astype(dtype) for x in arrays]


class ConcatenateOneHot(eqx.Module):
    """Concatenates an embedding and the one-hot encoding of a discrete action. With a tuple as
    `num_actions`, a number for each component of the action, there is one encoding for each."""

    num_actions: int | tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        check_each(num_actions=_sizes(self.num_actions))

    def __call__(
        self,
        embedding: Shaped[Array, " size"],
        action: Int[Array, "*components"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " size_and_actions"]:
        del key
        check_vector("embedding", embedding)
        embedding = numbers(embedding)
        floating = jnp.issubdtype(embedding.dtype, jnp.floating)
        dtype = embedding.dtype if floating else jnp.dtype(jnp.float32)
        hot = one_hot_action(self.num_actions, action, dtype)
        return jnp.concatenate([embedding.astype(dtype), hot])


def one_hot_action(
    num_actions: int | tuple[int, ...], action: Int[Array, "*components"], dtype: DTypeLike
) -> Float[Array, " actions"]:
    """The one-hot encodings of the components of an action, one after the other."""
    sizes = _sizes(num_actions)
    expected = (len(sizes),) if isinstance(num_actions, tuple) else ()
    if (shape := shape_of("action", action)) != expected:
        raise ValueError(
            f"The action has shape {shape}; `num_actions` of {num_actions} needs {expected}. Use "
            "`jax.vmap` over a batch."
        )
    components = jnp.reshape(checked_action(action, expected), -1)
    hot = [jax.nn.one_hot(components[i], n, dtype=dtype) for i, n in enumerate(sizes)]
    return jnp.concatenate(hot)


def _sizes(num_actions: int | tuple[int, ...]) -> tuple[int, ...]:
    return num_actions if isinstance(num_actions, tuple) else (num_actions,)


class Chain(eqx.Module):
    """Applies layers one after another: for example an input layer, a torso and a head.

    It is like `equinox.nn.Sequential`, except that the first layer receives all inputs, so
    `Chain(Concatenate(), torso, head)(observation, action)` is a critic of actions.
    """

    layers: tuple[Callable[..., Any], ...]

    def __init__(self, *layers: Callable[..., Any]):
        """`layers` are callables with a keyword argument `key`, such as those of this package and
        of `equinox.nn`. Wrap a plain function in `equinox.nn.Lambda`."""
        if not layers:
            raise ValueError("`Chain()` has no layers; give it at least one.")
        check_function(**{f"layers[{i}]": layer for i, layer in enumerate(layers)})
        self.layers = layers

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> Any:
        for layer, subkey in zip(self.layers, subkeys(key, len(self.layers)), strict=True):
            inputs = (layer(*inputs, key=subkey),)
        return inputs[0]


class ActorCritic(eqx.Module):
    """A policy and a value of one embedding.

    With a torso it is an actor-critic with shared layers; without one, `policy` and `value` are
    separate networks. If the policy is a `LinearHead(size, (num_actions,), scale=0.01)`, it is a
    network for [`zero_train.ExpertIteration.alphazero`][], which expects `(logits, value)`.
    """

    torso: Callable[..., Any]
    policy: Callable[..., Any]
    value: Callable[..., Any]

    def __init__(
        self,
        policy: Callable[..., Any],
        value: Callable[..., Any],
        *,
        torso: Callable[..., Any] | None = None,
    ):
        """The torso maps the inputs to the embedding, and with `None` the embedding is the one
        input. `policy` and `value` each map the embedding to their result."""
        self.torso = eqx.nn.Identity() if torso is None else torso
        check_function(torso=self.torso, policy=policy, value=value)
        self.policy = policy
        self.value = value

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> tuple[Any, Any]:
        """The results of `policy` and of `value`, for the inputs of the torso."""
        tkey, pkey, vkey = subkeys(key, 3)
        embedding = self.torso(*inputs, key=tkey)
        return self.policy(embedding, key=pkey), self.value(embedding, key=vkey)


class Ensemble(eqx.Module):
    """Several networks with the same inputs, whose results are stacked along a new last axis.

    For example, `Ensemble(first, second)` are twin critics, and the minimum over the last axis is
    the pessimistic value. The members must return the same structure, shapes and dtypes.
    """

    members: tuple[Callable[..., Any], ...]

    def __init__(self, *members: Callable[..., Any]):
        if not members:
            raise ValueError("`Ensemble()` has no members; give it at least one.")
        check_function(**{f"members[{i}]": member for i, member in enumerate(members)})
        self.members = members

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> Any:
        """Every member has noise of its own."""
        keys = subkeys(key, len(self.members))
        results = [net(*inputs, key=subkey) for net, subkey in zip(self.members, keys, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *results)
