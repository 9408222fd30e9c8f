"""brax's environments (Freeman et al., 2021, arXiv:2106.13281)."""

import contextlib
import functools as ft
import inspect
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractContinuousEnvironment,
    check_count,
    check_vector,
    Observation,
    Transition,
)
from ._foreign import (
    check_foreign,
    default_numerics,
    import_or_explain,
    raw_key,
    strongly_typed,
)
from ._known import unknown


# The physics backends of brax; not every environment supports all of them.
_BACKENDS = ("generalized", "mjx", "positional", "spring")

# The paper uses `spring`; only swimmer does not support it.
_DEFAULT_BACKENDS = ("spring", "generalized")

_Bound = ArrayLike | Sequence[float]

_KEYS = ("key", "rng")

_NO_BOUNDS = (
    "BraxEnvironment(<{name}>): its actions have no bounds (low {low}, high {high}), so they "
    "cannot be mapped to [-1, 1]; pass bounds=(low, high), all finite and low below high."
)


class BraxState(eqx.Module):
    """A state of a brax environment.

    **Attributes:**

    - `physics`: brax's pipeline state, the last finite one.
    - `observation`: brax's observation. brax returns it with the state and has no public function
        to compute it.
    - `info`: the environment's own information, in which PRNG keys are `None`.
    - `steps`: the number of steps so far.
    - `over`: whether the state is final.
    - `failed`: whether it is final because the simulation returned a number that is not finite.
    """

    physics: Any
    observation: Any
    info: Any
    steps: Int[Array, ""]
    over: Bool[Array, ""]
    failed: Bool[Array, ""]


class BraxEnvironment(AbstractContinuousEnvironment[BraxState]):
    """A brax environment without brax's wrappers.

    - `init` draws a new initial state. (brax's own wrapper always returns to the first one.)
    - brax's `done` is a termination. `max_steps` is a truncation: `last` with discount 1. brax's
        `time_out` is ignored, because its inverted pendulum sets it when it falls.
    - Actions in [-1, 1] are scaled to the bounds of each dimension, and others are clipped.
    - If a step results in a number that is not finite, the episode is truncated: the state stays,
        the reward is 0 and `failed` is set, so that the episode can be discarded.
    """

    env: Any = eqx.field(static=True)
    max_steps: int
    action_size: int
    hidden: bool
    _low: tuple[float, ...] = eqx.field(static=True)
    _high: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        env: Any,
        *,
        backend: str | None = None,
        max_steps: int = 1000,
        bounds: tuple[_Bound, _Bound] | None = None,
    ):
        """**Arguments:**

        - `env`: a name of brax's registry, for instance `"ant"`, or an unwrapped `brax.envs.Env`.
        - `backend`: with a name, `"generalized"`, `"mjx"`, `"positional"` or `"spring"`. By
            default `"spring"`, and `"generalized"` for `"swimmer"`, which has no other.
        - `max_steps`: the number of steps after which an episode is truncated.
        - `bounds`: the lowest and the highest action of `env.step`, each a number or one number for
            each dimension. By default, [-1, 1] for brax's own environments and the actuators' range
            for others.
        """
        check_count("BraxEnvironment", max_steps=max_steps)
        self.env = _make(env, backend) if isinstance(env, str) else env
        check_foreign(
            "BraxEnvironment", self.env, "a name or a brax.envs.Env", "action_size", "reset"
        )
        _mend_fluids()
        self.max_steps = max_steps
        self.action_size = int(self.env.action_size)
        self.hidden = False
        size = (self.action_size,)
        try:
            low, high = _bounds(self.env) if bounds is None else bounds
            low, high = (np.broadcast_to(np.asarray(x, np.float64), size) for x in (low, high))
        except (TypeError, ValueError):
            raise ValueError(
                f"BraxEnvironment(bounds={bounds!r}): give the lowest and the highest action, each "
                f"a number or {self.action_size} numbers."
            ) from None
        if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
            name = type(self.env).__name__
            raise ValueError(_NO_BOUNDS.format(name=name, low=low.tolist(), high=high.tolist()))
        self._low, self._high = tuple(low.tolist()), tuple(high.tolist())

    def init(self, *, key: PRNGKeyArray) -> BraxState:
        with _calling_brax():
            first = self.env.reset(raw_key(key))
        return _kept(first, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_))

    def step(
        self, state: BraxState, action: Float[Array, " action_size"], *, key: PRNGKeyArray
    ) -> tuple[BraxState, Transition]:
        """Takes an action; `key` is for environments that draw random numbers."""
        low, high = jnp.asarray(self._low, jnp.float32), jnp.asarray(self._high, jnp.float32)
        check_vector(self, action)
        action = low + (jnp.clip(action, -1.0, 1.0) + 1.0) * 0.5 * (high - low)
        before = self.raw(state)
        before = before.replace(info=_with_keys(before.info, raw_key(key)))
        with _calling_brax():
            after = self.env.step(before, action)
        steps = state.steps + 1
        ended = jnp.asarray(after.done, jnp.float32) > 0
        next_state = _kept(after, steps, ended | (steps >= self.max_steps))
        reward = jnp.asarray(after.reward, jnp.float32)
        failed = ~_finite((next_state.physics, next_state.observation, reward)) & ~state.over
        stays = state.over | failed
        transition = absorbing_transition(
            state.over,
            jnp.where(failed, 0.0, reward),
            terminated=ended & ~failed,
            truncated=failed | next_state.over,
        )
        next_state = jax.tree.map(lambda old, new: jnp.where(stays, old, new), state, next_state)
        marks = (next_state.over | failed, next_state.failed | failed)
        return eqx.tree_at(lambda s: (s.over, s.failed), next_state, marks), transition

    def failed(self, state: BraxState) -> Bool[Array, ""]:
        """Whether the simulation returned a number that is not finite."""
        return state.failed

    def observe(self, state: BraxState) -> Observation:
        """brax's observation: an array or a dictionary of arrays."""
        return Observation(features=state.observation, legal=None)

    def raw(self, state: BraxState) -> Any:
        """brax's own state, for brax's tools, in which reward and metrics are 0."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), _shapes(self.env))
        # brax's environments write into these dictionaries, so they are copied.
        info = jax.tree.map(lambda x: x, state.info)
        return zeros.replace(pipeline_state=state.physics, obs=state.observation, info=info)

    def render(self, states: Sequence[BraxState], *, height: int = 480) -> str:
        """An HTML page with brax's viewer of an episode, one frame for each state.

        The page loads its JavaScript from the internet.
        """
        from brax.io import html

        system = self.env.sys.tree_replace({"opt.timestep": self.env.dt})
        return html.render(system, [state.physics for state in states], height)


def _kept(raw: Any, steps: Int[Array, ""], over: Bool[Array, ""]) -> BraxState:
    """What is kept of a state of brax."""
    return BraxState(
        physics=strongly_typed(raw.pipeline_state),
        observation=strongly_typed(raw.obs),
        info=strongly_typed(_with_keys(raw.info, None)),
        steps=steps,
        over=over,
        failed=jnp.zeros((), jnp.bool_),
    )


@ft.cache
def _shapes(env: Any) -> Any:
    """The shapes of brax's state. They are cached, because tracing a reset takes seconds."""
    with _calling_brax():
        return jax.eval_shape(env.reset, raw_key(jax.random.key(0)))


def _make(name: str, backend: str | None) -> Any:
    registry = _envs()._envs
    if name not in registry:
        raise unknown("BraxEnvironment", name, registry)
    for choice in _DEFAULT_BACKENDS if backend is None else (backend,):
        if choice in _BACKENDS and (env := _build(name, choice)) is not None:
            return env
    allowed = ", ".join(x for x in _BACKENDS if _build(name, x) is not None)
    raise ValueError(
        f'BraxEnvironment("{name}", backend="{backend}"): {name} has no such backend; allowed: '
        f"{allowed}."
    )


@ft.cache
def _build(name: str, backend: str) -> Any:
    """Returns the same object for the same arguments, so that nothing is traced twice, or `None` if
    the environment does not support the backend."""
    from brax.io import mjcf

    # MuJoCo is a dependency of brax, not of this package.
    mujoco: Any = mjcf.mujoco
    before = mujoco.get_mju_user_warning()
    # By default MuJoCo writes its warnings about brax's models to a file in the working folder.
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with _calling_brax():
            return _envs().get_environment(name, backend=backend)
    except ValueError:
        return None
    finally:
        mujoco.set_mju_user_warning(before)


def _envs() -> Any:
    # On import MuJoCo prints which optional parts are missing.
    with _calling_brax(), contextlib.redirect_stdout(None):
        return import_or_explain("brax.envs", "BraxEnvironment")


def _mend_fluids() -> None:
    """Lets brax call `jnp.clip` with argument names that JAX has removed.

    brax 0.14.2 uses `a_min` in its fluid forces, which only its swimmer needs.
    """
    fluid: Any = sys.modules.get("brax.fluid")
    dropped = "a_min" not in inspect.signature(jnp.clip).parameters
    if fluid is not None and fluid.jp is jnp and dropped:
        fluid.jp = types.SimpleNamespace(**{**vars(jnp), "clip": _clip})


def _clip(x: Array, *bounds: Any, **named: Any) -> Array:
    return jnp.clip(x, *bounds, **{name.removeprefix("a_"): y for name, y in named.items()})


@contextlib.contextmanager
def _calling_brax() -> Iterator[None]:
    """Suppresses the deprecation warnings of brax and of its dependencies."""
    with default_numerics("This environment of brax"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _bounds(env: Any) -> tuple[_Bound, _Bound]:
    """The range of the actions of `env.step`.

    It is [-1, 1] for brax's own environments, which scale actions to other ranges themselves.
    """
    if type(env).__module__.startswith("brax.envs."):
        return -1.0, 1.0
    actuator = getattr(getattr(env, "sys", None), "actuator", None)
    if actuator is None:
        return -np.inf, np.inf
    return actuator.ctrl_range[:, 0], actuator.ctrl_range[:, 1]


def _finite(tree: Any) -> Bool[Array, ""]:
    numbers = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.all(jnp.isfinite(x)) for x in numbers]).all()


def _with_keys(info: dict[str, Any], key: Array | None) -> dict[str, Any]:
    """Replaces every PRNG key by `key`."""
    return {name: key if name in _KEYS else value for name, value in info.items()}
