"""What a player of `Monsters` sees: planes for convolutions, or the words of the original."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int8, Int16

from ._monsters_rules import HOLDS_BAD, HOLDS_GOOD


#: The words of [`zero_envs.MonstersTokens`][], each at its number. The monsters are a cold jaguar
#: and a fire panther; the blessed sword beats cold, the gleaming one beats fire.
MONSTERS_WORDS = ("", "wall", "empty", "you", "cold", "fire", "blessed", "gleaming")
_WALL, _EMPTY = 1, 2
_PIECES = np.arange(3, 8, dtype=np.int8)
_INVENTORY = np.asarray([0, 6, 7], np.int8)


class MonstersTokens(eqx.Module):
    """The board in words, the numbers being places in [`zero_envs.MONSTERS_WORDS`][].

    **Attributes:**

    - `names`: the first word of up to two objects in each cell, walls included. The agent comes
        before monsters, target first, and those before items; a third object is not seen, as in
        the original. Nothing is 0, but the first word of an empty cell is 2.
    - `inventory`: the first word of the item held, 0 if there is none.
    """

    names: Int8[Array, "*axes size size 2"]
    inventory: Int8[Array, "*axes"]


def planes(
    pieces: Int16[Array, " 5"], held: Int8[Array, ""], size: int
) -> Bool[Array, "size size 8"]:
    """Five pieces, two items held, walls."""
    board = jnp.pad(_present(pieces, size - 2), ((1, 1), (1, 1), (0, 0)))
    items = jnp.broadcast_to(jnp.stack([held == HOLDS_GOOD, held == HOLDS_BAD]), (size, size, 2))
    return jnp.concatenate([board, items, jnp.asarray(_walls(size))[..., None]], axis=-1)


def tokens(pieces: Int16[Array, " 5"], held: Int8[Array, ""], size: int) -> MonstersTokens:
    """Up to two words in each cell."""
    present = _present(pieces, size - 2)
    place = jnp.cumsum(present, axis=-1, dtype=jnp.int8)
    words = [
        jnp.sum(jnp.where(present & (place == i), _PIECES.reshape(1, 1, 5), jnp.int8(0)), axis=-1)
        for i in (1, 2)
    ]
    first, second = (jnp.pad(x.astype(jnp.int8), 1) for x in words)
    first = jnp.where(first == 0, jnp.int8(_EMPTY), first)
    first = jnp.where(_walls(size), jnp.int8(_WALL), first)
    return MonstersTokens(jnp.stack([first, second], axis=-1), jnp.asarray(_INVENTORY)[held])


def _present(pieces: Int16[Array, " 5"], n: int) -> Bool[Array, "n n 5"]:
    cells = jnp.arange(n * n, dtype=jnp.int16).reshape(n, n, 1)
    return cells == pieces.reshape(1, 1, 5)


def _walls(size: int) -> Bool[np.ndarray, "size size"]:
    return np.pad(np.zeros((size - 2, size - 2), np.bool_), 1, constant_values=True)
