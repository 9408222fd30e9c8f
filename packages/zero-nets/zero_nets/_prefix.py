"""A learned model that sums rewards up."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._checks import check_sizes, subkeys
from ._recurrent import Recurrent, RNN
from ._world_model import AbstractWorldNetwork, WorldModel
from ._world_parts import flat, head, HEAD_CHANNELS, linear, moved


class PrefixWorldModel(AbstractWorldNetwork):
    """A [`zero_nets.WorldModel`][] that predicts value prefixes: in the place of a reward, the sum
    of the rewards of the last steps, which does not have to tell at which of them they came
    (EfficientZero, Ye et al. 2021, https://arxiv.org/abs/2111.00210, section 4.2).

    Whoever unrolls it hands the carry from step to step, and gives that of `init` again after every
    `prefix_steps`.

    [`zero_nets.PrefixWorldModel.perceptron`][] and [`zero_nets.PrefixWorldModel.convolutional`][]
    build one, with an LSTM of `width` units.

    **Attributes:**

    - `world`: a [`zero_nets.WorldModel`][] whose `reward` is a [`zero_nets.Recurrent`][], from the
        hidden states after the steps to the sum of their rewards.
    - `prefix_steps`: rewards in a sum, at most.
    """

    world: WorldModel
    prefix_steps: int = eqx.field(static=True)

    def __check_init__(self):
        check_sizes(prefix_steps=self.prefix_steps)
        self._reward()

    @classmethod
    def perceptron(
        cls,
        observation: PyTree,
        num_actions: int | tuple[int, ...] | None = None,
        *,
        prefix_steps: int = 5,
        width: int = 64,
        value_shape: tuple[int, ...] = (),
        key: PRNGKeyArray,
        **options: Any,
    ) -> "PrefixWorldModel":
        """Perceptrons; `options` are others of [`zero_nets.WorldModel.perceptron`][]."""
        wkey, rkey = jr.split(key)
        world = WorldModel.perceptron(
            observation, num_actions, width=width, value_shape=value_shape, key=wkey, **options
        )
        reward = _sum_of(eqx.nn.Identity(), width, width, value_shape, key=rkey)
        return cls(eqx.tree_at(lambda world: world.reward, world, reward), prefix_steps)

    @classmethod
    def convolutional(
        cls,
        shape: tuple[int, ...],
        num_actions: int | tuple[int, ...] | None = None,
        *,
        prefix_steps: int = 5,
        channels: int = 32,
        width: int = 64,
        value_shape: tuple[int, ...] = (),
        key: PRNGKeyArray,
        **options: Any,
    ) -> "PrefixWorldModel":
        """Residual blocks; `options` are others of [`zero_nets.WorldModel.convolutional`][]."""
        wkey, rkey, fkey = jr.split(key, 3)
        sizes: dict[str, Any] = {"channels": channels, "width": width, "value_shape": value_shape}
        world = WorldModel.convolutional(shape, num_actions, key=wkey, **sizes, **options)
        size = shape[0] * shape[1] * HEAD_CHANNELS
        reward = _sum_of(flat(channels, key=fkey), size, width, value_shape, key=rkey)
        return cls(eqx.tree_at(lambda world: world.reward, world, reward), prefix_steps)

    @property
    def memory(self) -> Recurrent | None:
        """That of `world`."""
        return self.world.memory

    def init(self) -> PyTree[Float[Array, " width"]]:
        """The carry before the first reward of a sum."""
        return self._reward().init()

    def _reward(self) -> Recurrent:
        reward = self.world.reward
        if not isinstance(reward, Recurrent):
            raise ValueError(
                f"The world of a PrefixWorldModel has a `reward` of {type(reward).__name__}; give "
                "it a Recurrent."
            )
        return reward

    def step(
        self,
        hidden: Float[Array, "..."],
        action: PyTree,
        carry: PyTree[Float[Array, " width"]],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "..."], Any, PyTree[Float[Array, " width"]]]:
        """The hidden state after an action, the reward network's result for the rewards up to it,
        and the carry for the next step."""
        gkey, rkey = subkeys(key, 2)
        hidden = moved(self.world.dynamics, hidden, action, key=gkey)
        return hidden, *self._reward()(hidden, carry, key=rkey)


def _sum_of(
    torso: Callable[..., Any],
    in_size: int,
    width: int,
    value_shape: tuple[int, ...],
    *,
    key: PRNGKeyArray,
) -> Recurrent:
    rkey, hkey = jr.split(key)
    rnn = RNN(in_size, width, key=rkey)
    return Recurrent(torso, rnn, head(width, width, linear(value_shape), key=hkey))
