"""The network, whose inputs are the visible board of any size and the number of mines."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from zero_nets import Conv


class MineNet(eqx.Module):
    """Maps an observation to the logits of the cells, the probability of a win, and the logits of a
    mine in each cell.

    It is fully convolutional, so one network plays boards of every size. Every block also has the
    mean and the maximum over the board, so that the network can count mines.
    """

    stem: Conv
    blocks: tuple["GlobalBlock", ...]
    cells: Conv
    hidden: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, channels: int, blocks: int, *, key: PRNGKeyArray):
        """There are so many residual `blocks`, each as wide as `channels`."""
        keys = iter(jr.split(key, blocks + 4))
        self.stem = Conv(_PLANES, channels, key=next(keys))
        self.blocks = tuple(GlobalBlock(channels, key=next(keys)) for _ in range(blocks))
        self.cells = Conv(channels, 2, 1, key=next(keys))
        self.hidden = eqx.nn.Linear(2 * channels, 64, dtype=jnp.float32, key=next(keys))
        self.value = eqx.nn.Linear(64, 1, dtype=jnp.float32, key=next(keys))

    def __call__(
        self, features: dict[str, Num[Array, "..."]], *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " cells"], Float[Array, ""], Float[Array, "rows columns"]]:
        """`features` are those of [`zero_envs.Minesweeper`][]; `key` is ignored."""
        del key
        x = self.stem(_planes(features["board"], features["num_mines"]))
        for block in self.blocks:
            x = block(x)
        x = jax.nn.relu(x)
        cells = self.cells(x)
        value = self.value(jax.nn.relu(self.hidden(_pooled(x))))[0]
        return cells[..., 0].reshape(-1), jax.nn.sigmoid(value), cells[..., 1]


class GlobalBlock(eqx.Module):
    """A residual block in which every cell gets the mean and the maximum over the board.

    Wu 2019, "Accelerating self-play learning in Go" (https://arxiv.org/abs/1902.10565), section
    3.3, without normalisation.
    """

    first: Conv
    last: Conv
    spread: eqx.nn.Linear

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        fkey, lkey, skey = jr.split(key, 3)
        self.first = Conv(channels, channels, key=fkey)
        # With zeros every block is initially the identity.
        self.last = Conv(channels, channels, scale=0.0, key=lkey)
        self.spread = eqx.nn.Linear(2 * channels, channels, dtype=jnp.float32, key=skey)

    def __call__(
        self, x: Float[Array, "rows columns channels"]
    ) -> Float[Array, "rows columns channels"]:
        y = self.first(jax.nn.relu(x))
        y = y + self.spread(_pooled(jax.nn.relu(y)))[None, None]
        return x + self.last(jax.nn.relu(y))


_PLANES = 13


def _planes(
    board: Int[Array, "rows columns"], num_mines: Int[Array, ""]
) -> Float[Array, "rows columns planes"]:
    """Planes of the ten states of a cell, of ones, of the density of mines in hidden cells, and of
    the fraction of hidden cells."""
    shown = jax.nn.one_hot(board + 1, 10, dtype=jnp.float32)
    number = jnp.sum(board < 0, dtype=jnp.float32)
    density = num_mines.astype(jnp.float32) / jnp.maximum(number, 1.0)
    everywhere = jnp.stack([jnp.ones_like(density), density, number / board.size])
    everywhere = jnp.broadcast_to(everywhere, (*board.shape, 3))
    return jnp.concatenate([shown, everywhere], axis=-1)


def _pooled(x: Float[Array, "rows columns channels"]) -> Float[Array, " both"]:
    return jnp.concatenate([jnp.mean(x, axis=(0, 1)), jnp.max(x, axis=(0, 1))])
