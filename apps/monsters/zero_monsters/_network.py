"""The networks of the presets, which return logits of the moves and of the value's atoms."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int8, PRNGKeyArray

from zero_envs import Monsters, MONSTERS_WORDS, MonstersTokens
from zero_nets import ActorCritic, Chain, ChannelNorm, Conv, LinearHead, MLP

from ._config import Config


def build_network(config: Config, env: Monsters, *, key: PRNGKeyArray) -> Any:
    if config.network == "original":
        return OriginalNet(env.num_actions, config.atoms, key=key)
    tkey, pkey, vkey = jr.split(key, 3)
    inside = (env.size - 2) ** 2 * 7
    torso = MLP(inside, (config.width,) * config.layers, key=tkey)
    return ActorCritic(
        LinearHead(config.width, (env.num_actions,), scale=0.01, key=pkey),
        LinearHead(config.width, (config.atoms,), scale=0.01, key=vkey),
        torso=Chain(eqx.nn.Lambda(_within_the_walls), torso),
    )


def _within_the_walls(planes: Bool[Array, "size size 8"]) -> Float[Array, " inputs"]:
    """The inputs that are not equal in all states."""
    return planes[1:-1, 1:-1, :-1].reshape(-1).astype(jnp.float32)


class OriginalNet(eqx.Module):
    """The residual network of the original system, on words.

    The two names in each cell and the held item are embedded in ten dimensions a word; the second
    of their two words is always blank. 1x1 convolutions to 64 channels, two residual blocks, a 3x3
    convolution to 128 channels and the maximum over the board follow, and two heads with one hidden
    layer. The original's batch normalisation is a layer normalisation over the channels of a cell
    here, so the result for a state does not depend on the rest of its batch.
    """

    words: eqx.nn.Embedding
    held: eqx.nn.Embedding
    inputs: tuple[Conv, ...]
    blocks: tuple["OriginalBlock", ...]
    last: Conv
    policy: eqx.nn.MLP
    value: eqx.nn.MLP

    def __init__(self, num_actions: int, atoms: int, *, key: PRNGKeyArray):
        keys = iter(jr.split(key, 9))
        number = len(MONSTERS_WORDS)
        self.words = eqx.nn.Embedding(number, 10, dtype=jnp.float32, key=next(keys))
        self.held = eqx.nn.Embedding(number, 10, dtype=jnp.float32, key=next(keys))
        self.inputs = Conv(60, 64, 1, key=next(keys)), Conv(64, 64, 1, key=next(keys))
        self.blocks = OriginalBlock(64, key=next(keys)), OriginalBlock(64, key=next(keys))
        self.last = Conv(64, 128, key=next(keys))
        head = lambda size: eqx.nn.MLP(128, size, 128, 1, dtype=jnp.float32, key=next(keys))
        self.policy, self.value = head(num_actions), head(atoms)

    def __call__(
        self, tokens: MonstersTokens, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " actions"], Float[Array, " atoms"]]:
        """The logits of the moves, without a mask, and of the atoms. `key` is ignored."""
        del key
        size = tokens.names.shape[0]
        names = _embedded(self.words, tokens.names).reshape(size, size, 40)
        held = _embedded(self.held, tokens.inventory).reshape(20)
        x = jnp.concatenate([names, jnp.broadcast_to(held, (size, size, 20))], axis=-1)
        for conv in self.inputs:
            x = jax.nn.relu(conv(x))
        for block in self.blocks:
            x = block(x)
        x = jnp.max(self.last(x), axis=(0, 1))
        return self.policy(x), self.value(x)


class OriginalBlock(eqx.Module):
    """`relu(x + relu(norm(conv(relu(norm(conv(x)))))))`."""

    convs: tuple[Conv, Conv]
    norms: tuple[ChannelNorm, ChannelNorm]

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        first, second = jr.split(key)
        self.convs = Conv(channels, channels, key=first), Conv(channels, channels, key=second)
        self.norms = ChannelNorm(channels), ChannelNorm(channels)

    def __call__(
        self, x: Float[Array, "rows columns channels"]
    ) -> Float[Array, "rows columns channels"]:
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = jax.nn.relu(norm(conv(y)))
        return jax.nn.relu(x + y)


def _embedded(table: eqx.nn.Embedding, first: Int8[Array, "*names"]) -> Float[Array, "*names 2 10"]:
    """The embeddings of names of two words, the second of which is blank."""
    words = jnp.stack([first, jnp.zeros_like(first)], axis=-1)
    # With so few words a matrix product is faster than a lookup.
    return jax.nn.one_hot(words, len(MONSTERS_WORDS), dtype=jnp.float32) @ table.weight
