"""A network of observations that consist of parts, which shares its weights among them."""

import functools as ft
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._checks import check_sizes, numbers, shape_of
from ._heads import LinearHead
from ._precision import widen
from ._torsos import MLP


class PartsNet(eqx.Module):
    """Policy logits and a value of an observation that consists of parts, such as rocks or goals.

    All arrays of two axes must be `[parts, numbers]` and say something of each part, in the order
    of the parts; all other numbers of the observation belong to every part. What is learned of one
    part holds for all (Zaheer et al. 2017, "Deep sets", https://arxiv.org/abs/1703.06114): a
    perceptron embeds each part, and in every round it sees the sum and the maximum of the
    embeddings too. The last actions belong to the parts, one to each in the same order, and their
    logits are those that the embedding of the part gives; all other logits and the value follow
    from the sum, the maximum and the other numbers. No array depends on how many parts there are,
    so parameters of one number of parts fit another.
    """

    first: MLP
    rounds: tuple[MLP, ...]
    trunk: MLP
    policy: LinearHead
    part_policy: MLP
    value: MLP
    value_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        features: PyTree[Any],
        num_actions: int,
        *,
        width: int = 32,
        rounds: int = 1,
        value_shape: tuple[int, ...] = (),
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `features`: an observation, or its shapes.
        - `num_actions`: more than there are parts.
        - `width`: the length of an embedding.
        - `rounds`: in which parts see each other.
        - `value_shape`: `()`, or the atoms of a [`zero_nets.ValueSupport`][].
        """
        check_sizes(num_actions=num_actions, width=width)
        check_sizes(0, rounds=rounds)
        shapes = [shape_of("features", x) for x in jax.tree.leaves(features)]
        of_parts = [shape for shape in shapes if len(shape) == 2]
        parts = {shape[0] for shape in of_parts}
        if len(parts) != 1 or not 0 < min(parts) < num_actions:
            raise ValueError(
                f"`features` has arrays of shapes {shapes} for {num_actions} actions; those of two "
                "axes must be [parts, numbers], all with as many parts, of which each has an "
                "action, and there must be other actions."
            )
        rest = sum(math.prod(shape) for shape in shapes if len(shape) != 2)
        fkey, rkey, tkey, pkey, akey, vkey = jr.split(key, 6)
        mlp = ft.partial(MLP, activation=jax.nn.silu)
        end = ft.partial(mlp, activate_final=False)
        self.first = mlp(sum(n for _, n in of_parts) + rest, (width, width), key=fkey)
        self.rounds = tuple(
            mlp(3 * width, (width,), key=jr.fold_in(rkey, i)) for i in range(rounds)
        )
        self.trunk = mlp(2 * width + rest, (2 * width,), key=tkey)
        self.policy = LinearHead(2 * width, (num_actions - min(parts),), scale=0.01, key=pkey)
        self.part_policy = end(3 * width, (width, 1), key=akey)
        self.value = end(2 * width, (width, math.prod(value_shape)), key=vkey)
        self.value_shape = tuple(value_shape)

    def __call__(
        self, features: PyTree[Array], *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " actions"], Float[Array, "*value_shape"]]:
        del key
        dtype = self.first.layers[0].weight.dtype
        leaves = [numbers(x).astype(dtype) for x in jax.tree.leaves(features)]
        others = (x.reshape(-1) for x in leaves if x.ndim != 2)
        rest = jnp.concatenate([jnp.zeros(0, dtype), *others])
        parts = jnp.concatenate([x for x in leaves if x.ndim == 2], axis=1)
        seen_by = lambda layer, own, common: jax.vmap(
            lambda x: layer(jnp.concatenate([x, common]))
        )(own)
        embedded = seen_by(self.first, parts, rest)
        for layer in self.rounds:
            embedded = embedded + seen_by(layer, embedded, _pooled(embedded))
        whole = self.trunk(jnp.concatenate([_pooled(embedded), rest]))
        # Small at first, as the other logits are.
        of_parts = 0.1 * widen(seen_by(self.part_policy, embedded, whole)[:, 0])
        logits = jnp.concatenate([self.policy(whole), of_parts])
        return logits, widen(self.value(whole)).reshape(self.value_shape)


def _pooled(embedded: Float[Array, "parts width"]) -> Float[Array, " twice_width"]:
    # The sum is over 4, which keeps that of some ten parts near the size of one.
    return jnp.concatenate([jnp.sum(embedded, axis=0) / 4, jnp.max(embedded, axis=0)])
