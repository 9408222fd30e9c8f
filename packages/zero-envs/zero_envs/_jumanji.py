"""Jumanji's environments (Bonnet et al., 2024, arXiv:2306.09884)."""

import copy
import functools as ft
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ._environment import AbstractDiscreteEnvironment, Observation, Transition
from ._foreign import default_numerics, raw_key, strongly_typed, unknown


#: Environments of Jumanji whose state holds what the player cannot see, by the name of the class.
HIDDEN_JUMANJI = frozenset({"Minesweeper", "RobotWarehouse"})

# So many joint actions that no network or search has a use for them.
_MOST_ACTIONS = 100_000

_MISSING = (
    "JumanjiEnvironment needs jumanji, which is not installed: install zero-envs with its extra "
    "`jumanji`."
)


class JumanjiState(eqx.Module):
    """One position.

    **Attributes:**

    - `position`: Jumanji's own state without its PRNG key; that field is `None`.
    - `observation`: Jumanji's observation, which it returns with the state and has no public way
        to derive.
    - `steps`: how many were taken.
    - `over`: the state is final.
    """

    position: Any
    observation: Any
    steps: Int[Array, ""]
    over: Bool[Array, ""]


class JumanjiEnvironment(AbstractDiscreteEnvironment[JumanjiState]):
    """A single-player environment of Jumanji whose actions are discrete.

    - Actions of several components are one integer, the last component the fastest.
    - Jumanji calls it an end when its `time_limit` runs out. Here that is a truncation: `last` with
        the discount kept.
    - Jumanji keeps a PRNG key in its state. Here there is none: chance follows the `key` that
        `step` is given.
    - Where Jumanji's mask allows nothing, or there is none, every action is legal.
    """

    env: Any = eqx.field(static=True)
    features: Callable[[Any], PyTree[Array]] = eqx.field(static=True)
    max_steps: int | None
    num_actions: int
    hidden: bool
    _radices: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        env: Any,
        *,
        features: Callable[[Any], PyTree[Array]] | None = None,
        hidden: bool | None = None,
    ):
        """**Arguments:**

        - `env`: an id out of `jumanji.registered_environments()`, for instance `"Snake-v1"`, or a
            `jumanji.Environment`. `"Sokoban-v0"` has the two levels that come with Jumanji; for
            its data set, which is downloaded, pass a `Sokoban` of your own.
        - `features`: makes of Jumanji's observation what networks take. By default one array of
            planes, `[rows, columns, planes]`, for `Game2048`, `Snake` and `Sokoban`,
            `[faces, rows, columns, colours]` for `RubiksCube`, and elsewhere a dictionary of all
            that is observed but the mask.
        - `hidden`: whether the state holds what the player cannot see. Known for Jumanji's own
            environments, to be given for one of yours.

        **Raises:** `ValueError` for an unknown id, for actions that are not discrete or too many,
        for several rewards and for an environment of your own without `hidden`; `ImportError`
        naming the package to install.
        """
        self.env, self.max_steps = _make(env) if isinstance(env, str) else _unlimited(env)
        name = type(self.env).__name__
        self._radices = _check_spec(name, self.env.action_spec)
        self.num_actions = math.prod(self._radices)
        self.hidden = _is_hidden(self.env) if hidden is None else hidden
        self.features = features or _FEATURES.get(name, _without_mask)
        with default_numerics():
            _, first = jax.eval_shape(lambda: self.env.reset(raw_key(jax.random.key(0))))
        if first.reward.shape:
            raise ValueError(
                f"JumanjiEnvironment(<{name}>): it pays {first.reward.shape[0]} agents one reward "
                "each; only environments with one reward have one player. Choose another."
            )
        # Fails now rather than in the first step, where Jumanji's mask is not understood.
        jax.eval_shape(self._legal, first.observation)

    def init(self, *, key: PRNGKeyArray) -> JumanjiState:
        """A fresh episode."""
        with default_numerics():
            position, first = self.env.reset(raw_key(key))
        return JumanjiState(
            position=strongly_typed(position.replace(key=None)),
            observation=strongly_typed(first.observation),
            steps=jnp.zeros((), jnp.int32),
            over=jnp.zeros((), jnp.bool_),
        )

    def step(
        self, state: JumanjiState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[JumanjiState, Transition]:
        """Plays `action`; `key` decides what chance does."""
        spec = self.env.action_spec
        parts = jnp.stack(jnp.unravel_index(action, self._radices)).astype(spec.dtype)
        before = state.position.replace(key=raw_key(key))
        with default_numerics():
            position, after = self.env.step(before, parts.reshape(spec.shape))
            ended = after.last()
        steps = state.steps + 1
        last = ended if self.max_steps is None else ended | (steps >= self.max_steps)
        next_state = JumanjiState(
            position=strongly_typed(position.replace(key=None)),
            observation=strongly_typed(after.observation),
            steps=steps,
            over=last,
        )
        over = state.over
        next_state = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, next_state)
        # An environment that knows truncation itself says so by its discount.
        ended = ended & (after.discount == 0)
        transition = Transition(
            reward=jnp.where(over, 0.0, after.reward).astype(jnp.float32),
            discount=jnp.where(over | ended, 0.0, 1.0).astype(jnp.float32),
            last=over | last,
        )
        return next_state, transition

    def observe(self, state: JumanjiState) -> Observation:
        """The features, and Jumanji's mask over the flattened actions."""
        with default_numerics():
            features = self.features(state.observation)
        return Observation(features=features, legal=self._legal(state.observation))

    def raw(self, state: JumanjiState) -> Any:
        """Jumanji's own state, for its viewers; its key is that of no episode."""
        return state.position.replace(key=raw_key(jax.random.key(0)))

    def _legal(self, observation: Any) -> Bool[Array, " actions"]:
        mask = getattr(observation, "action_mask", None)
        if mask is None:
            return jnp.ones(self.num_actions, jnp.bool_)
        if mask.shape == (len(self._radices), self._radices[0]) and mask.shape != self._radices:
            # One mask for each component: what is joined is legal where all of it is.
            joined = mask[0]
            for part in mask[1:]:
                joined = joined[..., None] & part[(None,) * joined.ndim]
            mask = joined
        if mask.shape != self._radices:
            raise ValueError(
                f"JumanjiEnvironment(<{type(self.env).__name__}>): its action mask has the shape "
                f"{mask.shape} for actions of {self._radices}; it must be the same, or one row for "
                "each component."
            )
        legal = mask.reshape(self.num_actions).astype(jnp.bool_)
        return legal | ~jnp.any(legal)


@ft.cache
def _make(name: str) -> tuple[Any, int | None]:
    """Always the same object for an id, so that nothing is traced twice."""
    try:
        from jumanji import registration
    except ImportError as error:
        raise ImportError(_MISSING) from error
    allowed = registration.registered_environments()
    if name not in allowed:
        raise unknown("JumanjiEnvironment", name, allowed)
    with default_numerics():
        if name != "Sokoban-v0":
            return _unlimited(registration.make(name))
        from jumanji.environments.routing.sokoban.generator import ToyGenerator

        return _unlimited(registration.make(name, generator=ToyGenerator()))


def _unlimited(env: Any) -> tuple[Any, int | None]:
    """The environment without its time limit, and the limit.

    Only so can an end at the limit be told from the limit.
    """
    limit = getattr(env, "time_limit", None)
    if limit is None:
        return env, None
    env = copy.copy(env)
    env.time_limit = jnp.iinfo(jnp.int32).max
    return env, int(limit)


def _check_spec(name: str, spec: Any) -> tuple[int, ...]:
    """How many values each component of an action has."""
    values = getattr(spec, "num_values", None)
    if values is None:
        raise ValueError(
            f"JumanjiEnvironment(<{name}>): its actions are a {type(spec).__name__}; only a "
            "DiscreteArray or a MultiDiscreteArray can be numbered. Choose another environment."
        )
    radices = tuple(int(x) for x in jnp.ravel(jnp.asarray(values)).tolist())
    if math.prod(radices) > _MOST_ACTIONS:
        raise ValueError(
            f"JumanjiEnvironment(<{name}>): its {len(radices)} components make "
            f"{math.prod(radices)} joint actions, more than {_MOST_ACTIONS}; choose a smaller one."
        )
    return radices


def _is_hidden(env: Any) -> bool:
    kind = type(env)
    if not kind.__module__.startswith("jumanji."):
        raise ValueError(
            f"JumanjiEnvironment(<{kind.__name__}>): not one of Jumanji's own, so nobody but you "
            "knows whether its state holds what the player cannot see; pass hidden=True or False."
        )
    return kind.__name__ in HIDDEN_JUMANJI


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
