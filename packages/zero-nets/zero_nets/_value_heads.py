"""Heads that map an embedding to the value of a state or to the values of all actions."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_each, subkeys
from ._discrete import DiscreteValued, EpsilonGreedy
from ._layers import apply_head, maybe_noisy, NoisyLinear
from ._torsos import MLP
from ._value_support import ValueSupport


class LinearHead(eqx.Module):
    """An array of any shape that is linear in the embedding; by default a scalar value.

    `shape=(num_actions,)` and `scale=0.01` give the logits of a policy.
    """

    linear: eqx.nn.Linear | NoisyLinear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        shape: tuple[int, ...] = (),
        *,
        scale: float = 1.0,
        noise: float | None = None,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_size`: the length of the embedding.
        - `shape`: the shape of the result: `()` for a scalar, `(actions,)` for the value of every
            action, `(actions, atoms)` for a distribution or the quantiles of each.
        - `scale`: the scale of the orthogonal weights.
        - `noise`: if it is a number, the layer is a [`zero_nets.NoisyLinear`][] with that initial
            noise.
        - `key`: for the initial weights.
        """
        self.shape = tuple(shape)
        if shape:
            check_each(shape=self.shape)
        self.linear = maybe_noisy(in_size, math.prod(shape), scale=scale, noise=noise, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*shape"]:
        """`key` is for the noise of a noisy layer; without it there is none."""
        return apply_head(self.linear, embedding, key=key).reshape(self.shape)


class Dueling(eqx.Module):
    """The values of all actions as `V + A - mean A`, where `V` and `A` have separate streams.

    Wang et al. 2016 (https://arxiv.org/abs/1511.06581, equation 9). With the shape
    `(actions, atoms)` the mean over actions is taken for each atom, as in Rainbow
    (https://arxiv.org/abs/1710.02298).
    """

    hidden: tuple[MLP, MLP] | None
    value: LinearHead
    advantage: LinearHead

    def __init__(
        self,
        in_size: int,
        shape: tuple[int, ...],
        *,
        widths: Sequence[int] = (),
        activation: Callable[[Array], Array] = jax.nn.relu,
        noise: float | None = None,
        scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_size`: the length of the embedding.
        - `shape`: `(actions,)` or `(actions, atoms)`.
        - `widths`: the widths of the hidden layers of each stream.
        - `activation`: the activation of those layers.
        - `noise`: if it is a number, every layer is a [`zero_nets.NoisyLinear`][] with that initial
            noise.
        - `scale`: the scale of the orthogonal weights of the last layers.
        - `key`: for the initial weights.
        """
        check_each(shape=tuple(shape))
        vkey, akey, hkey = jr.split(key, 3)
        self.hidden = None
        if widths:
            first, second = (
                MLP(in_size, widths, activation=activation, noise=noise, key=subkey)
                for subkey in jr.split(hkey)
            )
            self.hidden = (first, second)
            in_size = first.out_size
        self.value = LinearHead(in_size, (1, *shape[1:]), scale=scale, noise=noise, key=vkey)
        self.advantage = LinearHead(in_size, tuple(shape), scale=scale, noise=noise, key=akey)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*shape"]:
        """`key` is for the noise of noisy layers; without it there is none."""
        vkey, akey, first_key, second_key = subkeys(key, 4)
        first = second = embedding
        if self.hidden is not None:
            first = self.hidden[0](embedding, key=first_key)
            second = self.hidden[1](embedding, key=second_key)
        value = self.value(first, key=vkey)
        advantage = self.advantage(second, key=akey)
        return value + advantage - jnp.mean(advantage, axis=0, keepdims=True)


class DiscreteValuedHead(eqx.Module):
    """A distribution over evenly spaced values, whose mean is the value.

    With an embedding of observation and action it is the distributional critic of a continuous
    action (as in D4PG, https://arxiv.org/abs/1804.08617). For values under MuZero's transform use
    a `LinearHead(size, (num_atoms,))` and a [`zero_nets.ValueSupport`][] instead.
    """

    linear: LinearHead
    support: ValueSupport

    def __init__(
        self,
        in_size: int,
        support: ValueSupport | None = None,
        *,
        scale: float = 1.0,
        noise: float | None = None,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `in_size`: the length of the embedding.
        - `support`: the values; by default the 601 integers from -300 to 300.
        - `scale`: the scale of the orthogonal weights.
        - `noise`: if it is a number, the layer is a [`zero_nets.NoisyLinear`][] with that initial
            noise.
        - `key`: for the initial weights.
        """
        self.support = ValueSupport() if support is None else support
        _check_support(self.support)
        shape = (self.support.num_atoms,)
        self.linear = LinearHead(in_size, shape, scale=scale, noise=noise, key=key)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> DiscreteValued:
        """`key` is for the noise of a noisy layer; without it there is none."""
        logits = self.linear(embedding, key=key)
        return DiscreteValued(logits, self.support.atoms.astype(logits.dtype))


class EpsilonGreedyHead(eqx.Module):
    """The epsilon-greedy policy of a network of action values.

    **Attributes:**

    - `qvalues`: maps the embedding to `[actions]`, e.g. a [`zero_nets.LinearHead`][] or a
        [`zero_nets.Dueling`][].
    - `epsilon`: the probability of exploring. If it changes over time, use
        `EpsilonGreedy(policy.qvalues, epsilon)` with the `policy` that this head returns.
    """

    qvalues: Callable[..., Float[Array, " actions"]]
    epsilon: float = eqx.field(static=True, default=0.1)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> EpsilonGreedy:
        """`key` is for layers that draw noise; without it there is none."""
        return EpsilonGreedy(self.qvalues(embedding, key=key), self.epsilon)


class C51Head(eqx.Module):
    """A distribution over returns for every action, and the policy that is greedy in its mean.

    Bellemare et al. 2017 (https://arxiv.org/abs/1707.06887, section 4).

    **Attributes:**

    - `logits`: maps the embedding to `[actions, atoms]`, e.g. a [`zero_nets.LinearHead`][] or a
        [`zero_nets.Dueling`][] of that shape.
    - `support`: the returns of the atoms.
    - `epsilon`: the probability of exploring.
    """

    logits: Callable[..., Float[Array, "actions atoms"]]
    support: ValueSupport
    epsilon: float = eqx.field(static=True, default=0.1)

    def __check_init__(self):
        _check_support(self.support)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> tuple[EpsilonGreedy, DiscreteValued]:
        """**Arguments:**

        - `embedding`: the input of `logits`.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        The policy, and the distributions over returns with a leading actions axis.
        """
        logits = self.logits(embedding, key=key)
        _check_table("logits", logits)
        if logits.shape[1] != self.support.num_atoms:
            raise ValueError(
                f"`logits` returned shape {logits.shape}; the support has "
                f"{self.support.num_atoms} atoms, so it must be [actions, "
                f"{self.support.num_atoms}]."
            )
        values = self.support.atoms.astype(logits.dtype)
        returns = jax.vmap(lambda row: DiscreteValued(row, values))(logits)
        return EpsilonGreedy(jax.vmap(DiscreteValued.mean)(returns), self.epsilon), returns


class QuantileHead(eqx.Module):
    """Quantiles of the return of every action, and the policy that is greedy in their mean.

    Dabney et al. 2018 (https://arxiv.org/abs/1710.10044): the `i`-th of `n` quantiles is at the
    probability `(i + 1/2) / n`, counted from 0.

    **Attributes:**

    - `quantiles`: maps the embedding to `[actions, quantiles]`, e.g. a
        [`zero_nets.LinearHead`][] or a [`zero_nets.Dueling`][] of that shape.
    - `epsilon`: the probability of exploring.
    """

    quantiles: Callable[..., Float[Array, "actions quantiles"]]
    epsilon: float = eqx.field(static=True, default=0.1)

    def __call__(
        self, embedding: Float[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> tuple[EpsilonGreedy, Float[Array, "actions quantiles"]]:
        """**Arguments:**

        - `embedding`: the input of `quantiles`.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        The policy, and the quantiles.
        """
        quantiles = self.quantiles(embedding, key=key)
        _check_table("quantiles", quantiles)
        return EpsilonGreedy(jnp.mean(quantiles, axis=-1), self.epsilon), quantiles


def _check_support(support: ValueSupport) -> None:
    if support.transform:
        raise ValueError(
            "A distribution over values needs a `ValueSupport` with `transform=False`, because the "
            "mean of transformed values is not the value."
        )


def _check_table(name: str, table: Array) -> None:
    if table.ndim != 2:
        raise ValueError(
            f"`{name}` returned shape {table.shape}; it must be [actions, atoms], as from "
            "`LinearHead(size, (actions, atoms))`."
        )
