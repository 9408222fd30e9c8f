"""Networks made of networks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ._checks import subkeys


class Chain(eqx.Module):
    """Layers one after another: an input, torsos and a head make an actor or a critic.

    Like `equinox.nn.Sequential`, except that the first layer gets all the inputs there are, so
    `Chain(Concatenate(), torso, head)(observation, action)` is a critic of actions.
    """

    layers: tuple[Callable[..., Any], ...]

    def __init__(self, *layers: Callable[..., Any]):
        """**Arguments:**

        - `layers`: anything callable with a keyword `key`, such as the layers of this package
            and of `equinox.nn`; `equinox.nn.Lambda` makes one of a plain function.
        """
        if not layers:
            raise ValueError("`Chain()` has no layers; give it at least one.")
        self.layers = layers

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> Any:
        """**Arguments:**

        - `inputs`: all of what the first layer takes.
        - `key`: for layers that draw noise; without it there is none.
        """
        for layer, subkey in zip(self.layers, subkeys(key, len(self.layers)), strict=True):
            inputs = (layer(*inputs, key=subkey),)
        return inputs[0]


class ActorCritic(eqx.Module):
    """A policy and a value from one embedding.

    With a torso, an actor-critic that shares it; without one, a pair of heads, or of separate
    networks. Policies that are plain logits, `LinearHead(size, num_actions, scale=0.01)`, make it
    a network for [`zero_train.AlphaZero`][], which takes `(logits, value)`.
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

        - `policy`, `value`: each maps the embedding to what it says about it.
        - `torso`: maps the inputs to the embedding; `None` leaves a single input as it is.
        """
        self.torso = eqx.nn.Identity() if torso is None else torso
        self.policy = policy
        self.value = value

    def __call__(self, *inputs: Any, key: PRNGKeyArray | None = None) -> tuple[Any, Any]:
        """**Arguments:**

        - `inputs`: of the torso.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        What `policy` and `value` return.
        """
        tkey, pkey, vkey = subkeys(key, 3)
        embedding = self.torso(*inputs, key=tkey)
        return self.policy(embedding, key=pkey), self.value(embedding, key=vkey)


class Ensemble(eqx.Module):
    """Several networks of the same inputs, their results stacked along a new last axis.

    Twin critics are `Ensemble(first, second)`, whose result's `min(axis=-1)` is the pessimistic
    one. The members may differ in everything but what they return.
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

        - `inputs`: of each member.
        - `key`: for layers that draw noise; each member draws its own.
        """
        keys = subkeys(key, len(self.members))
        results = [net(*inputs, key=subkey) for net, subkey in zip(self.members, keys, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *results)
