"""The parts that learned models are built of."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._assemblies import ActorCritic, alike, Chain, Concatenate, ConcatenateOneHot, one_hot_action
from ._checks import as_features, check_each, check_shape, check_sizes, numbers
from ._heads import LinearHead, MultiDiscreteHead, TanhGaussianHead
from ._layers import Conv, ResidualBlock
from ._precision import is_floating, real
from ._recurrent import Recurrent, RNN
from ._torsos import MLP


#: Channels of the 1x1 convolution before a head.
HEAD_CHANNELS = 4


#: `(in_size, *, key) -> head`.
Head = Callable[..., Callable[..., Any]]


def linear(shape: tuple[int, ...]) -> Head:
    return ft.partial(LinearHead, shape=shape, scale=0.01)


def actions_of(
    num_actions: int | tuple[int, ...] | None, action_size: int | None
) -> tuple[int | tuple[int, ...], Callable[..., Any], Head]:
    """What a builder of a [`zero_nets.WorldModel`][] makes of its two arguments for actions: the
    one that was given, what joins a vector and an action, and the head of the policy."""
    if num_actions is None and action_size is not None:
        check_sizes(action_size=action_size)
        action_size = int(action_size)
        return action_size, Concatenate(), ft.partial(TanhGaussianHead, action_size=action_size)
    if num_actions is None or action_size is not None:
        raise ValueError(
            f"`WorldModel` was given num_actions={num_actions} and action_size={action_size}; "
            "give one of the two, for discrete or for continuous actions."
        )
    several = isinstance(num_actions, tuple)
    check_each(num_actions=num_actions if several else (num_actions,))
    sizes = tuple(map(int, num_actions)) if several else int(num_actions)
    return sizes, ConcatenateOneHot(sizes), policy_head(sizes)


def policy_head(num_actions: int | tuple[int, ...]) -> Head:
    if isinstance(num_actions, tuple):
        return ft.partial(MultiDiscreteHead, num_actions=num_actions)
    return linear((num_actions,))


#: The perceptron of all learned models.
perceptron = ft.partial(MLP, activation=jax.nn.silu, norm="layer")


def head(in_size: int, width: int, head: Head, *, key: PRNGKeyArray) -> Chain:
    mkey, lkey = jr.split(key)
    hidden = perceptron(in_size, (width,), key=mkey)
    return Chain(hidden, head(width, key=lkey))


def prediction_of(
    in_size: int, width: int, policy: Head, value_shape: tuple[int, ...], *, key: PRNGKeyArray
) -> ActorCritic:
    pkey, vkey = jr.split(key)
    return ActorCritic(
        head(in_size, width, policy, key=pkey), head(in_size, width, linear(value_shape), key=vkey)
    )


def projections(
    in_size: int, width: int, size: int | None, *, key: PRNGKeyArray
) -> tuple[MLP, MLP] | tuple[None, None]:
    """The projector and the predictor, each of two layers."""
    if size is None:
        return None, None
    check_sizes(projection_size=size)
    mlp = ft.partial(perceptron, widths=(width, size), activate_final=False)
    first, second = jr.split(key)
    return mlp(in_size, key=first), mlp(size, key=second)


def board_prediction(
    board: tuple[int, int, int],
    width: int,
    policy: Head,
    value_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
) -> ActorCritic:
    pkey, fkey = jr.split(key)
    rows, columns, channels = board
    size = rows * columns * HEAD_CHANNELS
    prediction = prediction_of(size, width, policy, value_shape, key=pkey)
    return eqx.tree_at(lambda net: net.torso, prediction, flat(channels, key=fkey))


def flat(channels: int, *, key: PRNGKeyArray) -> Chain:
    """A board as a vector with few numbers for each cell."""
    return Chain(
        eqx.nn.Lambda(jax.nn.relu),
        Conv(channels, HEAD_CHANNELS, 1, key=key),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Lambda(jnp.ravel),
    )


def moved(
    dynamics: Callable[..., Any], hidden: Array, action: PyTree, *, key: PRNGKeyArray | None
) -> Array:
    moved = dynamics(hidden, action, key=key)
    if moved.shape != hidden.shape:
        raise ValueError(
            f"The dynamics' result has shape {moved.shape}; it must be {hidden.shape}, that of "
            "the hidden state."
        )
    return normalise_min_max(hidden + moved)


def remembering(
    see: Callable[[PRNGKeyArray], Chain], in_size: int, size: int | None, *, key: PRNGKeyArray
) -> Recurrent | None:
    """A memory of so many numbers of what `see(key)` makes of observations; `None` without one."""
    if size is None:
        return None
    check_sizes(memory_size=size)
    skey, rkey = jr.split(key)
    rnn = RNN(in_size, size, cell=eqx.nn.GRUCell, key=rkey)
    return Recurrent(see(skey), rnn, eqx.nn.Identity())


class Beside(eqx.Module):
    """Two boards as one with the features of both; in the place of the second may stand a vector,
    each number of which is a plane."""

    def __call__(self, *boards: PyTree[Array], key: PRNGKeyArray | None = None) -> Array:
        del key
        first, second = alike(jax.tree.leaves(boards))
        second = jnp.broadcast_to(second, (*first.shape[:-1], second.shape[-1]))
        return jnp.concatenate([first, second], axis=-1)


class Tower(eqx.Module):
    """A convolution and residual blocks."""

    stem: Conv
    blocks: tuple[ResidualBlock, ...]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], channels: int, blocks: int, *, key: PRNGKeyArray):
        skey, bkey = jr.split(key)
        self.stem = Conv(shape[2], channels, key=skey)
        self.blocks = tuple(
            ResidualBlock(channels, "layer", key=jr.fold_in(bkey, i)) for i in range(blocks)
        )
        self.shape = shape

    def __call__(self, features: Array, *, key: PRNGKeyArray | None = None) -> Array:
        del key
        x = self.stem(as_features(features, self.shape, self.stem.weight.dtype))
        for block in self.blocks:
            x = block(x)
        return x


def first_planes(
    inputs: int, rows: int, columns: int, *, moves: bool, key: PRNGKeyArray
) -> Float[Array, "inputs rows columns"]:
    """Planes before they are learned. Of `moves` of which there are as many as cells, or one more
    that passes, each is its cell, as in MuZero; of which there are as many as columns, its column;
    otherwise they are drawn."""
    cells = rows * columns
    if moves and inputs in (cells, cells + 1):
        return jnp.eye(inputs, cells, dtype=jnp.float32).reshape(inputs, rows, columns)
    if moves and inputs == columns:
        each = jnp.eye(columns, dtype=jnp.float32)[:, None]
        return jnp.broadcast_to(each, (columns, rows, columns))
    return jr.normal(key, (inputs, rows, columns), jnp.float32)


class BoardDynamics(eqx.Module):
    """A tower of the hidden state beside the plane of the action: that of its index, the sum of
    those of the indices of its components, or of all planes by the numbers of a vector."""

    planes: Float[Array, "inputs rows columns"]
    tower: Tower
    sizes: int | tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        sizes: int | tuple[int, ...],
        blocks: int,
        *,
        moves: bool = False,
        key: PRNGKeyArray,
    ):
        akey, tkey = jr.split(key)
        rows, columns, channels = shape
        self.planes = first_planes(int(np.sum(sizes)), rows, columns, moves=moves, key=akey)
        self.tower = Tower((rows, columns, channels + 1), channels, blocks, key=tkey)
        self.sizes = sizes

    def __call__(
        self,
        hidden: Array,
        action: Int[Array, "*components"] | Float[Array, " inputs"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Array:
        if is_floating(action):
            check_shape("action", action, self.planes.shape[:1])
        else:
            # Not by index: the gradient of each step of an unroll would cross devices apart.
            action = one_hot_action(self.sizes, action, self.planes.dtype)
        plane = jnp.tensordot(action.astype(self.planes.dtype), self.planes, axes=1)
        plane = plane.astype(hidden.dtype)[..., None]
        return self.tower(jnp.concatenate([hidden, plane], axis=-1), key=key)


def normalise_min_max(x: Float[Array, "..."], *, epsilon: float = 1e-5) -> Float[Array, "..."]:
    """Shifts and scales the array of one example, of any shape, so that its smallest entry is 0 and
    its largest 1 (MuZero, appendix G). Use `jax.vmap` over a batch, whose examples would otherwise
    be scaled together.

    If the range of `x` is smaller than `epsilon`, it is scaled as if it were this large. Therefore
    a constant array becomes 0 everywhere, with a finite gradient.
    """
    x = numbers(x)
    # The range of numbers in float16 may be too large for float16.
    wide = real(x)
    least = jnp.min(wide)
    unit = (wide - least) / jnp.maximum(jnp.max(wide) - least, epsilon)
    return unit.astype(x.dtype if is_floating(x) else wide.dtype)
