"""The AlphaZero network: a residual tower with a policy head and a value head."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._checks import as_features, check_board, check_choice, check_number, check_sizes
from ._layers import ChannelNorm, Conv, ResidualBlock
from ._lines import LineTables
from ._precision import widen


class AlphaZeroNet(eqx.Module):
    """A residual tower with policy and value heads, for boards of any shape.

    The network of AlphaZero (Silver et al. 2018, https://doi.org/10.1126/science.aar6404) with two
    changes: the blocks are pre-activation, and there are no statistics over the batch, so the
    output for one position does not depend on the others in its batch.

    All arrays are float32 parameters and everything else is static, so `jax.grad` and
    `eqx.partition(net, eqx.is_array)` work without a filter.
    """

    stem: Conv
    lines: LineTables | None
    blocks: tuple[ResidualBlock, ...]
    norm: ChannelNorm | None
    policy_conv: Conv
    policy_out: eqx.nn.Linear
    value_conv: Conv
    value_hidden: eqx.nn.Linear
    value_out: eqx.nn.Linear
    board_shape: tuple[int, ...] = eqx.field(static=True)
    max_value: float = eqx.field(static=True)

    def __init__(
        self,
        board_shape: tuple[int, ...],
        num_actions: int,
        *,
        channels: int = 32,
        blocks: int = 3,
        norm: str = "none",
        lines: bool = False,
        policy_channels: int | None = None,
        value_channels: int | None = None,
        value_width: int = 64,
        max_value: float = 1.0,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `num_actions`: the length of the logits.
        - `channels`, `blocks`: the width and number of the residual blocks.
        - `norm`: `"none"`, or `"layer"` to normalise every cell over its channels before each
            convolution of a block. With 3 blocks of 32 channels on a CPU, normalisation made a
            forward pass 16 % and a gradient 30 % slower and did not improve learning (200 updates
            of 256 Othello positions, one seed); deeper towers may need it.
        - `lines`: add [`zero_nets.LineTables`][] of the board to the first convolution.
        - `policy_channels`, `value_channels`: the channels of each head's 1x1 convolution, by
            default 2 and 1, and 8 and 4 with `lines`.
        - `value_width`: the width of the value head's hidden layer.
        - `max_value`: the largest value; the smallest is `-max_value`.
        """
        check_board("board_shape", board_shape)
        check_sizes(0, blocks=blocks)
        policy_channels = (8 if lines else 2) if policy_channels is None else policy_channels
        value_channels = (4 if lines else 1) if value_channels is None else value_channels
        check_choice(("none", "layer"), norm=norm)
        check_number(0, above=True, max_value=max_value)
        check_sizes(
            num_actions=num_actions,
            channels=channels,
            policy_channels=policy_channels,
            value_channels=value_channels,
            value_width=value_width,
        )
        rows, columns, features = board_shape
        stem_key, tower_key, policy_key, value_key = jr.split(key, 4)
        self.stem = Conv(features, channels, key=stem_key)
        self.lines = LineTables(board_shape, channels) if lines else None
        self.blocks = tuple(
            ResidualBlock(channels, norm, key=jr.fold_in(tower_key, i)) for i in range(blocks)
        )
        self.norm = ChannelNorm(channels) if norm == "layer" else None
        conv_key, out_key = jr.split(policy_key)
        self.policy_conv = Conv(channels, policy_channels, 1, key=conv_key)
        self.policy_out = _small(
            _linear(rows * columns * policy_channels, num_actions, key=out_key)
        )
        conv_key, hidden_key, out_key = jr.split(value_key, 3)
        self.value_conv = Conv(channels, value_channels, 1, key=conv_key)
        self.value_hidden = _linear(rows * columns * value_channels, value_width, key=hidden_key)
        self.value_out = _small(_linear(value_width, 1, key=out_key))
        self.board_shape = board_shape
        self.max_value = max_value

    def __call__(
        self, features: Shaped[Array, "..."], *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
        """The logits of all actions, in which illegal actions are not masked, and the value in
        [-max_value, max_value], both from the view of the player to move, as the features are."""
        del key
        board = as_features(features, self.board_shape, self.stem.weight.dtype)
        x = self.stem(board)
        if self.lines is not None:
            x = x + self.lines(board)
        for block in self.blocks:
            x = block(x)
        if self.norm is not None:
            x = self.norm(x)
        x = jax.nn.relu(x)
        policy = jax.nn.relu(self.policy_conv(x)).reshape(-1)
        value = jax.nn.relu(self.value_conv(x)).reshape(-1)
        value = self.value_out(jax.nn.relu(self.value_hidden(value)))
        return widen((self.policy_out(policy), self.max_value * jnp.tanh(widen(value[0]))))


def _linear(in_size: int, out_size: int, *, key: PRNGKeyArray) -> eqx.nn.Linear:
    # Equinox would use float64 by default if that is enabled.
    return eqx.nn.Linear(in_size, out_size, dtype=jnp.float32, key=key)


def _small(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    # With a hundredth of the weights the initial policy is nearly uniform and the initial value
    # nearly 0, but the tower still receives a gradient.
    return jax.tree.map(lambda parameter: 0.01 * parameter, layer)
