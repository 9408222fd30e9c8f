"""Random levels for Jumanji's Sokoban."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int


# What Jumanji's Sokoban is made for, and the numbers of its grids.
_SIZE, _BOXES = 10, 4
_WALL, _TARGET, _AGENT, _BOX = 1, 2, 3, 4
# Up, right, down and left on a flattened grid.
_MOVES = np.array([-_SIZE, 1, _SIZE, -1], np.int32)
# Of backward play: the logit of a pull, and of nearing a box. Without, one try in ten succeeds.
_EAGERNESS = 2.0
# With fewer steps too few tries succeed.
_FEWEST_STEPS = 40


class SokobanLevel(eqx.Module):
    """Cells are numbered row by row.

    **Attributes:**

    - `floor`: all that is no wall; every cell can be reached.
    - `targets`, `boxes`, `agent`: where they are.
    - `solution`: Jumanji's actions that lead to the end, perhaps before the last of them; -1 is
        none.
    - `complete`: no box begins on a target.
    """

    floor: Bool[Array, " cells"]
    targets: Int[Array, " boxes"]
    boxes: Int[Array, " boxes"]
    agent: Int[Array, ""]
    solution: Int[Array, " steps"]
    complete: Bool[Array, ""]


class SokobanGenerator(eqx.Module):
    """Draws levels for `jumanji.environments.Sokoban`, each with a solution: what
    `JumanjiEnvironment("Sokoban-v0")` plays.

    From its end a level is played backwards, pulling boxes, and begins where they are farthest
    from their targets, as in Racanière et al. 2017 (arXiv:1707.06203, supplement). All in JAX, so
    that every reset draws another.

    **Attributes:**

    - `num_steps`: of backward play, so that no level needs more; Jumanji's limit is 120.
    - `wall_probability`: of each cell of the room.
    """

    num_steps: int = 120
    wall_probability: float = 0.15

    def __check_init__(self):
        if self.num_steps < _FEWEST_STEPS or not 0 <= self.wall_probability <= 0.3:
            raise ValueError(
                f"SokobanGenerator(num_steps={self.num_steps}, wall_probability="
                f"{self.wall_probability}): the steps must be {_FEWEST_STEPS} or more, and the "
                "probability from 0 to 0.3, beyond which rooms fall to pieces."
            )

    def __call__(self, rng_key: Array) -> Any:
        """Jumanji's state at the start of a level."""
        from jumanji.environments.routing.sokoban.types import State

        level = self.level(rng_key)
        fixed = jnp.where(level.floor, 0, _WALL).at[level.targets].set(_TARGET)
        moving = jnp.zeros_like(fixed).at[level.boxes].set(_BOX).at[level.agent].set(_AGENT)
        grid = lambda cells: cells.astype(jnp.uint8).reshape(_SIZE, _SIZE)
        return State(
            key=rng_key,
            fixed_grid=grid(fixed),
            variable_grid=grid(moving),
            agent_location=jnp.stack([level.agent // _SIZE, level.agent % _SIZE]),
            step_count=jnp.zeros((), jnp.int32),
        )

    def level(self, key: Array) -> SokobanLevel:
        """A level with its solution; where a try left a box on a target, the next one."""

        def again(
            carry: tuple[Int[Array, ""], SokobanLevel],
        ) -> tuple[Int[Array, ""], SokobanLevel]:
            i, _ = carry
            return i + 1, self._try(jr.fold_in(key, i))

        first = (jnp.int32(1), self._try(jr.fold_in(key, 0)))
        return jax.lax.while_loop(lambda carry: ~carry[1].complete, again, first)[1]

    def _try(self, key: Array) -> SokobanLevel:
        wkey, pkey, skey = jr.split(key, 3)
        floor, start = _room(wkey, self.wall_probability)
        # A target each, anywhere but where the agent is.
        free = floor.at[start].set(False)
        noise = jr.uniform(pkey, free.shape)
        targets = jax.lax.top_k(jnp.where(free, noise, -1.0), _BOXES)[1].astype(jnp.int32)
        is_target = jnp.zeros_like(floor).at[targets].set(True)

        def back(carry: Any, i: Int[Array, ""]) -> tuple[Any, Int[Array, ""]]:
            agent, boxes, best = carry
            agent, boxes, move = _pull((floor, is_target), agent, boxes, jr.fold_in(skey, i))
            score = _score(is_target, targets, boxes)
            better = score > best[0]
            now = (score, agent, boxes, i + 1)
            best = jax.tree.map(lambda old, new: jnp.where(better, new, old), best, now)
            return (agent, boxes, best), move

        numbers = jnp.arange(self.num_steps, dtype=jnp.int32)
        origin = (jnp.int32(0), start, targets, jnp.int32(0))
        (_, _, best), moves = jax.lax.scan(back, (start, targets, origin), numbers)
        _, agent, boxes, length = best
        # The way back is the way there, backwards.
        moves = moves[jnp.maximum(length - 1 - numbers, 0)]
        solution = jnp.where((numbers < length) & (moves >= 0), (moves + 2) % 4, -1)
        complete = (jnp.sum(free) >= _BOXES) & ~jnp.any(is_target[boxes])
        return SokobanLevel(floor, targets, boxes, agent, solution, complete)


def _room(key: Array, wall_probability: float) -> tuple[Bool[Array, " cells"], Int[Array, ""]]:
    """The floor that can be reached from a cell, and the cell."""
    wkey, skey = jr.split(key)
    inside = np.zeros((_SIZE, _SIZE), np.bool_)
    inside[1:-1, 1:-1] = True
    floor = ~jr.bernoulli(wkey, wall_probability, (_SIZE * _SIZE,)) & inside.ravel()
    start = jnp.argmax(jnp.where(floor, jr.uniform(skey, floor.shape), -1.0)).astype(jnp.int32)

    def spread(_: Int[Array, ""], reached: Bool[Array, " cells"]) -> Bool[Array, " cells"]:
        # The border is wall, so nothing comes around it.
        near = [jnp.roll(reached, move) for move in _MOVES.tolist()]
        return floor & (reached | jnp.any(jnp.stack(near), axis=0))

    reached = jnp.zeros_like(floor).at[start].set(floor[start])
    return jax.lax.fori_loop(0, inside.sum().item(), spread, reached), start


def _pull(
    level: tuple[Bool[Array, " cells"], Bool[Array, " cells"]],
    agent: Int[Array, ""],
    boxes: Int[Array, " boxes"],
    key: Array,
) -> tuple[Int[Array, ""], Int[Array, " boxes"], Int[Array, ""]]:
    """A random move on a floor with targets, which most often pulls a box or nears one that is
    still on a target; -1 and nothing where there is none."""
    floor, is_target = level
    ahead, behind = agent + _MOVES, agent - _MOVES
    taken = jnp.any(ahead[:, None] == boxes[None, :], axis=1)
    pulls = jnp.any(behind[:, None] == boxes[None, :], axis=1)
    legal = floor[ahead] & ~taken
    pairs = jnp.broadcast_arrays(ahead[:, None], boxes[None, :])
    nearest = jnp.min(jnp.where(is_target[boxes][None, :], _distance(*pairs), 2 * _SIZE), axis=1)
    nears = nearest == jnp.min(jnp.where(legal, nearest, 2 * _SIZE))
    logits = _EAGERNESS * (pulls.astype(jnp.float32) + nears.astype(jnp.float32))
    move = jr.categorical(key, jnp.where(legal, logits, -jnp.inf)).astype(jnp.int32)
    stuck = ~jnp.any(legal)
    pulled = jnp.where(boxes == behind[move], agent, boxes)
    agent = jnp.where(stuck, agent, ahead[move])
    return agent, jnp.where(stuck, boxes, pulled), jnp.where(stuck, -1, move)


def _score(
    is_target: Bool[Array, " cells"], targets: Int[Array, " boxes"], boxes: Int[Array, " boxes"]
) -> Int[Array, ""]:
    """How far the boxes are from where they began, and first of all that none is on a target."""
    away = jnp.sum(~is_target[boxes], dtype=jnp.int32)
    return away * 8 * _SIZE + jnp.sum(_distance(boxes, targets))


def _distance(first: Int[Array, "*axes"], second: Int[Array, "*axes"]) -> Int[Array, "*axes"]:
    rows = jnp.abs(first // _SIZE - second // _SIZE)
    return rows + jnp.abs(first % _SIZE - second % _SIZE)
