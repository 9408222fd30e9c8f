"""How things move and fight in `Monsters`, on a board of `n * n` cells within the walls."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int8, Int16, Int32


#: Who is dead, taken or not in the game.
GONE = -1
HOLDS_GOOD, HOLDS_BAD = 1, 2
#: Stay, up, down, left, right: the agent's actions and the monsters' moves.
NUM_MOVES = 5
_DX, _DY = np.asarray([[0, 0, 0, -1, 1], [0, -1, 1, 0, 0]], np.int16)


def moves_open(cell: Int16[Array, ""], n: int) -> Bool[Array, " moves"]:
    """Which moves do not lead into a wall."""
    x, y = cell % n, cell // n
    return jnp.stack([jnp.ones_like(x, jnp.bool_), y > 0, y < n - 1, x > 0, x < n - 1])


def moved(cell: Int16[Array, ""], move: Int[Array, ""], n: int) -> Int16[Array, ""]:
    """Where the move leads; a move into a wall, or of who is gone, leads nowhere."""
    x = jnp.clip(cell % n + jnp.asarray(_DX)[move], 0, n - 1)
    y = jnp.clip(cell // n + jnp.asarray(_DY)[move], 0, n - 1)
    return jnp.where(cell == GONE, cell, x + n * y)


def motion(
    cell: Int16[Array, ""], prey: Int16[Array, ""], n: int, sight: float, aggression: float
) -> Float32[Array, " moves"]:
    """The probabilities of the moves of a monster at `cell`; one who is gone stays.

    With probability `aggression` one that brings it nearer to `prey`, if that is in sight, else
    any that is open.
    """
    dx, dy = (d.astype(jnp.int32) for d in (prey % n - cell % n, prey // n - cell // n))
    # Compared as whole numbers: the roots of a program may be rounded otherwise than Python's.
    reach = max(square for square in range(2 * n**2) if math.sqrt(square) <= sight)
    seen = dx**2 + dy**2 <= reach
    nearer = seen & jnp.stack([jnp.zeros_like(seen), dy < 0, dy > 0, dx < 0, dx > 0])
    eager = jnp.where(jnp.any(nearer), jnp.float32(aggression), jnp.float32(0.0))
    moves = eager * _uniform(nearer) + (1.0 - eager) * _uniform(moves_open(cell, n))
    return jnp.where(cell == GONE, (jnp.arange(NUM_MOVES) == 0).astype(jnp.float32), moves)


def drawn(odds: Float[Array, " moves"], share: Float[Array, ""]) -> Int32[Array, ""]:
    """The move at which the sum of the odds passes `share`, which is from 0 to below 1.

    Never one of probability 0.
    """
    # Summed one by one, so that adding nothing changes nothing, and up to their own sum, which may
    # be rounded to below 1.
    sums = list(itertools.accumulate(jnp.unstack(odds)))
    return jnp.sum(jnp.stack(sums) <= share * sums[-1], dtype=jnp.int32)


def fight(
    agent: Int16[Array, ""],
    target: Int16[Array, ""],
    distractor: Int16[Array, ""],
    held: Int8[Array, ""],
) -> tuple[Int16[Array, ""], Int16[Array, ""], Int16[Array, ""]]:
    """Who is left of the three: the agent fights the target first, if both are in its cell."""
    gone = jnp.int16(GONE)
    # Who is gone meets who is gone, and both stay so.
    meets_target = target == agent
    beats_target = meets_target & (held == HOLDS_GOOD)
    falls = meets_target & ~beats_target
    meets_distractor = (distractor == agent) & ~falls
    beats_distractor = meets_distractor & (held == HOLDS_BAD)
    falls |= meets_distractor & ~beats_distractor
    return (
        jnp.where(falls, gone, agent),
        jnp.where(beats_target, gone, target),
        jnp.where(beats_distractor, gone, distractor),
    )


def _uniform(among: Bool[Array, " moves"]) -> Float[Array, " moves"]:
    """Alike wherever it is true; 0 everywhere if it is nowhere."""
    number = jnp.sum(among, dtype=jnp.int32).astype(jnp.float32)
    return among.astype(jnp.float32) / jnp.maximum(number, 1.0)
