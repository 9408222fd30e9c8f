"""The environments of MuJoCo Playground (Zakka et al., 2025, arXiv:2502.08844)."""

import contextlib
import functools as ft
from typing import Any, ClassVar

import equinox as eqx

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
from ._known import (
    names_of,
    PLAYGROUND,
    playground_menagerie,
    playground_names,
    PLAYGROUND_ROBOTS,
    PLAYGROUND_SUITE,
    unknown,
)
from ._physics import AbstractPhysicsEnvironment, building, calling


_CALL = "PlaygroundEnvironment"


class PlaygroundEnvironment(AbstractPhysicsEnvironment):
    """An environment of MuJoCo Playground without its wrappers: see
    [`zero_envs.AbstractPhysicsEnvironment`][].

    In the tasks of the DeepMind Control Suite, Playground's `done` says only that a number is NaN.
    Here that is a failure, so these episodes end at their limit. `hidden` is false for these tasks
    and true for robots.
    """

    env: Any = eqx.field(static=True)
    max_steps: int
    action_size: int
    hidden: bool
    _limits: Limits = eqx.field(static=True)
    _physics: ClassVar[str] = "data"

    def __init__(
        self,
        env: Any,
        *,
        max_steps: int = 1000,
        bounds: Bounds = (-1.0, 1.0),
        hidden: bool | None = None,
        impl: str = "jax",
        **options: Any,
    ):
        """`env` is a name of Playground's registry, for instance `"CartpoleBalance"`, or an
        unwrapped `mujoco_playground.MjxEnv`.

        - `max_steps`: the number of steps after which an episode is truncated. Playground's is
            1000 as well.
        - `bounds`: the lowest and the highest action of `env.step`, each a number or one for each
            dimension. It is [-1, 1] for all of Playground's own.
        - `hidden`: whether the state is only partly observable. It is required for environments
            that are not Playground's own.
        - `impl`: with a name, the simulator: `"jax"`, or `"warp"`, which needs a GPU.
        - `options`: with a name, what is changed in its configuration, such as `sim_dt=0.005`.
        """
        check_count(_CALL, max_steps=max_steps)
        check_no_options(_CALL, env, options)
        if unread := [name for name in ("action_repeat", "episode_length") if name in options]:
            raise ValueError(
                f"{_CALL}({unread[0]}=...): only Playground's wrappers read it, which are not used "
                "here; give `max_steps` for the length of episodes."
            )
        try:
            self.env = _make(env, impl=impl, **options) if isinstance(env, str) else env
        except TypeError as error:  # what is cached by its arguments takes no mappings
            raise ValueError(
                f"{_CALL}({env!r}): {options} cannot be given ({error}); give plain values, such "
                'as **{"vision_config.render_width": 64}.'
            ) from error
        check_foreign(_CALL, self.env, "a name or an MjxEnv", "action_size", "reset", "mjx_model")
        check_unwrapped(_CALL, self.env, "EpisodeWrapper")
        kind = type(self.env)
        if hidden is None and not kind.__module__.startswith(f"{PLAYGROUND}."):
            raise ValueError(
                f"{_CALL}(<{kind.__name__}>): not one of Playground's own, so it is not known "
                "whether its state is fully observable; pass hidden=True or False."
            )
        self.hidden = f".{PLAYGROUND_SUITE}." not in kind.__module__ if hidden is None else hidden
        self.max_steps, self.action_size = max_steps, int(self.env.action_size)
        self._limits = checked_bounds(_CALL, kind.__name__, (self.action_size,), bounds)


@ft.cache
def _make(name: str, **options: Any) -> Any:
    """Returns the same object for the same arguments, so that nothing is traced twice."""
    # On import MuJoCo prints which optional parts are missing.
    with calling(name), contextlib.redirect_stdout(None):
        registry = import_or_explain(PLAYGROUND, _CALL, "playground").registry
    known = names_of("playground")
    if name not in known and name in playground_names(*PLAYGROUND_ROBOTS):
        raise ValueError(
            f'{_CALL}("{name}"): it needs the models of robots of mujoco_menagerie, which must be '
            f"downloaded to {playground_menagerie()}; allowed without them: "
            f"{', '.join(sorted(known))}."
        )
    if name not in registry.ALL_ENVS:
        raise unknown(_CALL, name, known)
    try:
        with building(name):
            return registry.load(name, config_overrides=options)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f'{_CALL}("{name}"): its configuration cannot be changed by {options}: {error}.'
        ) from error
