"""Jumanji's environments (Bonnet et al., 2024, arXiv:2306.09884)."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ._environment import (
    AbstractDiscreteEnvironment,
    AbstractFactoredEnvironment,
    Observation,
    Transition,
)
from ._foreign import default_numerics, raw_key, strongly_typed
from ._jumanji_features import features_of
from ._jumanji_legal import factored_legal, joint_legal
from ._jumanji_make import is_hidden, make, name_of


# Beyond, a policy head and the children of every node of a tree are mostly waste.
_MOST_ACTIONS = 4_096


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


class FactoredJumanjiEnvironment(AbstractFactoredEnvironment[JumanjiState]):
    """A single-player environment of Jumanji whose actions are one integer or several.

    As [`zero_envs.JumanjiEnvironment`][], but with actions as Jumanji has them, for those that have
    too many to be numbered.
    """

    env: Any = eqx.field(static=True)
    features: Callable[[Any], PyTree[Array]] = eqx.field(static=True)
    max_steps: int | None
    num_values: tuple[int, ...] = eqx.field(static=True)
    hidden: bool

    def __init__(
        self,
        env: Any,
        *,
        features: Callable[[Any], PyTree[Array]] | None = None,
        hidden: bool | None = None,
        **options: Any,
    ):
        """As for [`zero_envs.JumanjiEnvironment`][], with any number of joint actions."""
        self.env, self.max_steps, self.num_values = make(env, options)
        self.hidden = is_hidden(self.env) if hidden is None else hidden
        self.features = features or features_of(name_of(self.env))
        # Fails now rather than in the first step, where Jumanji's mask is not understood.
        jax.eval_shape(lambda: self.observe(self.init(key=jax.random.key(0))))

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
        self, state: JumanjiState, action: Int[Array, " components"], *, key: PRNGKeyArray
    ) -> tuple[JumanjiState, Transition]:
        """Plays `action`; `key` decides what chance does."""
        _check_bounds(self.env, action, self.num_values)
        values = np.asarray(self.num_values, np.int32)
        action = jnp.asarray(action, jnp.int32)
        # Jumanji may clip an action outside, or pay for it; here it never reaches it.
        outside = jnp.any((action < 0) | (action >= values))
        spec = self.env.action_spec
        played = jnp.where(outside, 0, action).astype(spec.dtype).reshape(spec.shape)
        before = state.position.replace(key=raw_key(key))
        with default_numerics():
            position, after = self.env.step(before, played)
            ended = after.last()
        steps = state.steps + 1
        last = ended if self.max_steps is None else ended | (steps >= self.max_steps)
        next_state = JumanjiState(
            position=strongly_typed(position.replace(key=None)),
            observation=strongly_typed(after.observation),
            steps=steps,
            over=last,
        )
        over, kept = state.over, state.over | outside
        next_state = jax.tree.map(lambda old, new: jnp.where(kept, old, new), state, next_state)
        # An environment that knows truncation itself says so by its discount.
        ended = ended & (after.discount == 0) & ~outside
        transition = Transition(
            reward=jnp.where(kept, 0.0, after.reward).astype(jnp.float32),
            discount=jnp.where(over | ended, 0.0, 1.0).astype(jnp.float32),
            last=over | (last & ~outside),
        )
        return next_state, transition

    def observe(self, state: JumanjiState) -> Observation:
        """The features, and what Jumanji's mask allows each component."""
        with default_numerics():
            features = self.features(state.observation)
        legal = factored_legal(_mask(state), self.num_values)
        return Observation(features=features, legal=legal)

    def raw(self, state: JumanjiState) -> Any:
        """Jumanji's own state, for its viewers; its key is that of no episode."""
        return state.position.replace(key=raw_key(jax.random.key(0)))


class JumanjiEnvironment(AbstractDiscreteEnvironment[JumanjiState]):
    """A single-player environment of Jumanji whose actions are discrete.

    - Actions of several components are one integer, the last component the fastest, up to 4 096 of
        them; for more see [`zero_envs.FactoredJumanjiEnvironment`][].
    - An action outside is an error. Where actions are traced there can be none: then the step does
        not happen. The state stays, the reward is 0 and nothing ends.
    - Jumanji calls it an end when its `time_limit` runs out. Here that is a truncation: `last` with
        the discount kept.
    - Jumanji keeps a PRNG key in its state. Here there is none: chance follows the `key` that
        `step` is given.
    - Where Jumanji's mask allows nothing, or there is none, every action is legal. Where it has a
        row for each component, that goes for each row.

    **Attributes:**

    - `factored`: the same with actions as Jumanji has them.
    - `num_actions`, `hidden`: as for all environments.
    """

    factored: FactoredJumanjiEnvironment
    num_actions: int
    hidden: bool

    def __init__(
        self,
        env: Any,
        *,
        features: Callable[[Any], PyTree[Array]] | None = None,
        hidden: bool | None = None,
        **options: Any,
    ):
        """**Arguments:**

        - `env`: an id out of `jumanji.registered_environments()`, for instance `"Snake-v1"`, or a
            `jumanji.Environment`, its wrappers included. `"Sokoban-v0"` has the levels of a
            [`zero_envs.SokobanGenerator`][]; for Jumanji's data set, which is downloaded, pass its
            generator.
        - `features`: makes of Jumanji's observation what networks take. By default one array of
            planes, `[rows, columns, planes]`, for `Game2048`, `Snake` and `Sokoban`,
            `[faces, rows, columns, colours]` for `RubiksCube`, and elsewhere a dictionary of all
            that is observed but the mask.
        - `hidden`: whether the state holds what the player cannot see. Known for Jumanji's own
            environments, to be given for one of yours.
        - `options`: with an id, what the environment itself takes: its `generator`, its
            `reward_fn`, its `time_limit`, by the names that it has for them.

        **Raises:** `ValueError` for an unknown id or option, for actions that are not discrete or
        too many, for several rewards and for an environment of your own without `hidden`;
        `ImportError` naming the package to install.
        """
        self.factored = FactoredJumanjiEnvironment(env, features=features, hidden=hidden, **options)
        self.hidden = self.factored.hidden
        values = self.factored.num_values
        self.num_actions = math.prod(values)
        if self.num_actions > _MOST_ACTIONS:
            raise ValueError(
                f"JumanjiEnvironment(<{name_of(self.env)}>): its {len(values)} components make "
                f"{self.num_actions} joint actions, more than {_MOST_ACTIONS}; use "
                "FactoredJumanjiEnvironment, for particle search, or choose a smaller one."
            )

    @property
    def env(self) -> Any:
        """Jumanji's environment, without its time limit."""
        return self.factored.env

    @property
    def features(self) -> Callable[[Any], PyTree[Array]]:
        """Makes of Jumanji's observation what networks take."""
        return self.factored.features

    @property
    def max_steps(self) -> int | None:
        """The time limit, if there is one."""
        return self.factored.max_steps

    def init(self, *, key: PRNGKeyArray) -> JumanjiState:
        """A fresh episode."""
        return self.factored.init(key=key)

    def step(
        self, state: JumanjiState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[JumanjiState, Transition]:
        """Plays `action`; `key` decides what chance does."""
        _check_bounds(self.env, action, (self.num_actions,))
        action = jnp.asarray(action, jnp.int32)
        outside = (action < 0) | (action >= self.num_actions)
        parts = jnp.stack(jnp.unravel_index(action, self.factored.num_values))
        # To where it is outside of each component.
        return self.factored.step(state, jnp.where(outside, -1, parts), key=key)

    def observe(self, state: JumanjiState) -> Observation:
        """The features, and Jumanji's mask over the flattened actions."""
        with default_numerics():
            features = self.features(state.observation)
        legal = joint_legal(_mask(state), self.factored.num_values)
        return Observation(features=features, legal=legal)

    def raw(self, state: JumanjiState) -> Any:
        """Jumanji's own state, for its viewers; its key is that of no episode."""
        return self.factored.raw(state)


def _mask(state: JumanjiState) -> Array | None:
    return getattr(state.observation, "action_mask", None)


def _check_bounds(env: Any, action: Any, num_values: tuple[int, ...]) -> None:
    """Of an action that can be looked at."""
    if isinstance(action, Tracer):
        return
    given = np.ravel(np.asarray(action))
    if given.size != len(num_values):
        raise ValueError(
            f"{name_of(env)}: the action {given.tolist()} has {given.size} components; it must "
            f"have {len(num_values)}. Use jax.vmap over a batch."
        )
    if np.any((given < 0) | (given >= np.asarray(num_values))):
        raise ValueError(
            f"{name_of(env)}: the action {given.tolist()} is outside; each component must be from "
            f"0 to {', '.join(str(n - 1) for n in num_values)}."
        )
