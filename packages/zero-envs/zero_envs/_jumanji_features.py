"""What networks are shown of Jumanji's observations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def features_of(name: str) -> Callable[[Any], PyTree[Array]]:
    """For the environment of that name: planes where there are some, else all but the mask."""
    return _FEATURES.get(name, _without_mask)


def _without_mask(observation: Any) -> dict[str, PyTree[Array]]:
    fields = observation._asdict()
    fields.pop("action_mask", None)
    return fields


def _game_2048(observation: Any) -> Array:
    # As in pgx: room for tiles up to 2^30.
    return jax.nn.one_hot(observation.board, 31, dtype=jnp.float32)


def _snake(observation: Any) -> Array:
    return observation.grid.astype(jnp.float32)


def _rubiks_cube(observation: Any) -> Array:
    return jax.nn.one_hot(observation.cube, 6, dtype=jnp.float32)


def _sokoban(observation: Any) -> Array:
    """Agent, boxes, walls and targets."""
    moving, fixed = observation.grid[..., 0], observation.grid[..., 1]
    planes = [moving == 3, moving == 4, fixed == 1, fixed == 2]
    return jnp.stack(planes, axis=-1).astype(jnp.float32)


_FEATURES = {
    "Game2048": _game_2048,
    "RubiksCube": _rubiks_cube,
    "Snake": _snake,
    "Sokoban": _sokoban,
}
