"""Compositions of networks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ._checks import subkeys


class Chain(eqx.Module):
    """Applies layers one after another: for example an input layer, a torso and a head.

    It is like `equinox.nn.Sequential`, except that the first layer receives all inputs, so
    `Chain(Concatenate(), torso, head)(observation, action)` is a critic of actions.
    """

    layers: tuple[Callable[..., Any], ...]

    def __init__(self, *layers: Callable[..., Any]):
        """**Arguments:**

        - `layers`: callables with a keyword argument `key`, such as the layers of this package and
            of `equinox.nn`. Wrap a plain function in `equinox.nn.Lambda`.
        """
        if not layers:
            raise ValueError("`Chain()` has no layers; give it at least one.")
        self.layers = layers

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> Any:
        """**Arguments:**

        - `inputs`: the inputs of the first layer.
        - `key`: for layers that draw noise; without it there is none.
        """
        for layer, subkey in zip(self.layers, subkeys(key, len(self.layers)), strict=True):
            inputs = (layer(*inputs, key=subkey),)
        return inputs[0]


class ActorCritic(eqx.Module):
    """A policy and a value of one embedding.

    With a torso it is an actor-critic with shared layers; without one, `policy` and `value` are
    separate networks. If the policy is a `LinearHead(size, (num_actions,), scale=0.01)`, it is a
    network for [`zero_train.AlphaZero`][], which expects `(logits, value)`.
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
        """**Arguments:**

        - `policy`, `value`: each maps the embedding to its result.
        - `torso`: maps the inputs to the embedding; with `None` the embedding is the one input.
        """
        self.torso = eqx.nn.Identity() if torso is None else torso
        self.policy = policy
        self.value = value

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> tuple[Any, Any]:
        """**Arguments:**

        - `inputs`: the inputs of the torso.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        The results of `policy` and of `value`.
        """
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
        """**Arguments:**

        - `members`: the networks.
        """
        if not members:
            raise ValueError("`Ensemble()` has no members; give it at least one.")
        self.members = members

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> Any:
        """**Arguments:**

        - `inputs`: the inputs of every member.
        - `key`: for layers that draw noise, which is different for each member.
        """
        keys = subkeys(key, len(self.members))
        results = [net(*inputs, key=subkey) for net, subkey in zip(self.members, keys, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *results)
