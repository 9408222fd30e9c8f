"""brax's environments (Freeman et al., 2021, arXiv:2106.13281)."""

import contextlib
import functools as ft
import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ._environment import check_count
from ._foreign import (
    Bounds,
    check_foreign,
    check_no_options,
    check_unwrapped,
    checked_bounds,
    import_or_explain,
    Limits,
)
from ._known import unknown
from ._physics import AbstractPhysicsEnvironment, building, calling, PhysicsState


_CALL = "BraxEnvironment"

# The physics backends of brax; not every environment supports all of them.
_BACKENDS = ("generalized", "mjx", "positional", "spring")

# The paper uses `spring`; only swimmer does not support it.
_DEFAULT_BACKENDS = ("spring", "generalized")


class BraxEnvironment(AbstractPhysicsEnvironment):
    """A brax environment without brax's wrappers: see
    [`zero_envs.AbstractPhysicsEnvironment`][]."""

    env: Any = eqx.field(static=True)
    max_steps: int
    action_size: int
    hidden: bool
    _limits: Limits = eqx.field(static=True)
    _physics: ClassVar[str] = "pipeline_state"

    def __init__(
        self,
        env: Any,
        *,
        backend: str | None = None,
        max_steps: int = 1000,
        bounds: Bounds | None = None,
    ):
        """`env` is a name of brax's registry, for instance `"ant"`, or an unwrapped
        `brax.envs.Env`.

        - `backend`: with a name, `"generalized"`, `"mjx"`, `"positional"` or `"spring"`. By default
            `"spring"`, and `"generalized"` for `"swimmer"`, which has no other.
        - `max_steps`: the number of steps after which an episode is truncated.
        - `bounds`: the lowest and the highest action of `env.step`, each a number or one for each
            dimension. By default, [-1, 1] for brax's own environments and the actuators' range for
            others.
        """
        check_count(_CALL, max_steps=max_steps)
        check_no_options(_CALL, env, [] if backend is None else ["backend"])
        self.env = _make(env, backend) if isinstance(env, str) else env
        check_foreign(_CALL, self.env, "a name or a brax.envs.Env", "action_size", "reset")
        check_unwrapped(_CALL, self.env, "EpisodeWrapper")
        _mend_fluids()
        self.max_steps, self.action_size = max_steps, int(self.env.action_size)
        self.hidden = False
        kind, bounds = type(self.env).__name__, _bounds(self.env) if bounds is None else bounds
        self._limits = checked_bounds(_CALL, kind, (self.action_size,), bounds)

    def render(self, states: Sequence[PhysicsState], *, height: int = 480) -> str:
        """An HTML page with brax's viewer of an episode, one frame for each state.

        The page loads its JavaScript from the internet.
        """
        from brax.io import html

        system = self.env.sys.tree_replace({"opt.timestep": self.env.dt})
        return html.render(system, [state.physics for state in states], height)


def _make(name: str, backend: str | None) -> Any:
    registry = _envs()._envs
    if name not in registry:
        raise unknown(_CALL, name, registry)
    for choice in _DEFAULT_BACKENDS if backend is None else (backend,):
        if choice in _BACKENDS and (env := _build(name, choice)) is not None:
            return env
    allowed = ", ".join(x for x in _BACKENDS if _build(name, x) is not None)
    raise ValueError(
        f'{_CALL}("{name}", backend="{backend}"): {name} has no such backend; allowed: {allowed}.'
    )


@ft.cache
def _build(name: str, backend: str) -> Any:
    """Returns the same object for the same arguments, so that nothing is traced twice, or `None` if
    the environment does not support the backend."""
    try:
        with building(name):
            return _envs().get_environment(name, backend=backend)
    except ValueError:
        return None


def _envs() -> Any:
    # On import MuJoCo prints which optional parts are missing.
    with calling("brax"), contextlib.redirect_stdout(None):
        return import_or_explain("brax.envs", _CALL)


def _mend_fluids() -> None:
    """Lets brax call `jnp.clip` with argument names that JAX has removed.

    brax 0.14.2 uses `a_min` in its fluid forces, which only its swimmer needs.
    """
    fluid: Any = sys.modules.get("brax.fluid")
    dropped = "a_min" not in inspect.signature(jnp.clip).parameters
    if fluid is not None and fluid.jp is jnp and dropped:
        now = lambda named: {name.removeprefix("a_"): x for name, x in named.items()}
        clip = lambda *args, **named: jnp.clip(*args, **now(named))
        fluid.jp = types.SimpleNamespace(**{**vars(jnp), "clip": clip})


def _bounds(env: Any) -> Bounds:
    """The range of the actions of `env.step`.

    It is [-1, 1] for brax's own environments, which scale actions to other ranges themselves.
    """
    if type(env).__module__.startswith("brax.envs."):
        return -1.0, 1.0
    actuator = getattr(getattr(env, "sys", None), "actuator", None)
    if actuator is None:
        return -np.inf, np.inf
    return actuator.ctrl_range[:, 0], actuator.ctrl_range[:, 1]
