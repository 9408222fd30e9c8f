"""Environments of Gymnasium (Towers et al., 2024, https://arxiv.org/abs/2407.17032), the Arcade
Learning Environment and EnvPool, stepped on the host."""

import dataclasses
import functools as ft
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from ._environment import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    Observation,
    Transition,
)
from ._foreign import Bounds, checked_bounds, import_or_explain
from ._hosted import AbstractWorlds, cannot_step, HostStep, Live
from ._known import names_of, unknown


@dataclasses.dataclass(frozen=True, eq=False)
class Simulator:
    """How the simulators of an environment are made, and what they show and take.

    **Attributes:**

    - `name`: as on the command line.
    - `make`: `(num_worlds, seed)`, a `gymnasium.vector.VectorEnv` and what its first `reset` is
        given.
    - `seen`, `taken`: Gymnasium's spaces of one observation and one action.
    - `num_values`: the values of each component of an action; `None` where it is continuous.
    - `bounds`: the lowest and the highest action where it is continuous.
    """

    name: str
    make: Callable[[int, int], tuple[Any, dict[str, Any]]]
    seen: Any
    taken: Any
    num_values: tuple[int, ...] | None
    bounds: Any = None

    def shown(self, seen: Any) -> PyTree[np.ndarray]:
        """States: copies of the observations, as NumPy arrays of JAX's dtypes."""
        return _mapped(_shown, self.seen, seen)


class AbstractGymnasiumEnvironment(AbstractEnvironment[PyTree[Array], Any]):
    """What environments of Gymnasium with different actions have in common. A state is the
    observation as the simulator shows it."""

    simulator: eqx.AbstractVar[Simulator]
    live: eqx.AbstractVar[Live]

    @property
    def name(self) -> str:
        """The library and its own name of the environment."""
        return self.simulator.name

    def init(self, *, key: PRNGKeyArray) -> PyTree[Array]:
        del key
        blank = lambda space: jnp.asarray(_shown(space, np.zeros(space.shape, space.dtype)))
        return _mapped(blank, self.simulator.seen)

    def step(
        self, state: PyTree[Array], action: Any, *, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], Transition]:
        raise cannot_step(self.name)

    def observe(self, state: PyTree[Array]) -> Observation:
        values = self.simulator.num_values
        legal = None if values is None else jnp.ones(sum(values), jnp.bool_)
        return Observation(_mapped(_features, self.simulator.seen, state), legal)

    def open(self, num_worlds: int, *, key: PRNGKeyArray) -> AbstractWorlds:
        """New simulators, see [`zero_envs.Hosted`][]."""
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1, jnp.int32))
        return GymnasiumWorlds(self.simulator, num_worlds, seed)


class GymnasiumEnvironment(AbstractGymnasiumEnvironment, AbstractDiscreteEnvironment[Any]):
    """An environment of Gymnasium whose actions are numbered."""

    simulator: Simulator = eqx.field(static=True)
    live: Live = eqx.field(static=True)
    num_actions: int
    max_steps: int | None
    hidden: bool = False
    num_players: int = 1


class FactoredGymnasiumEnvironment(AbstractGymnasiumEnvironment, AbstractFactoredEnvironment[Any]):
    """An environment of Gymnasium whose actions have several components."""

    simulator: Simulator = eqx.field(static=True)
    live: Live = eqx.field(static=True)
    num_values: tuple[int, ...]
    max_steps: int | None
    hidden: bool = False
    num_players: int = 1


class ContinuousGymnasiumEnvironment(
    AbstractGymnasiumEnvironment, AbstractContinuousEnvironment[Any]
):
    """An environment of Gymnasium whose actions in [-1, 1] are scaled to the bounds of each
    dimension."""

    simulator: Simulator = eqx.field(static=True)
    live: Live = eqx.field(static=True)
    action_size: int
    max_steps: int | None
    hidden: bool = False
    num_players: int = 1


_Adapted = GymnasiumEnvironment | FactoredGymnasiumEnvironment | ContinuousGymnasiumEnvironment


class GymnasiumWorlds(AbstractWorlds):
    """The simulators of an environment of Gymnasium."""

    def __init__(self, simulator: Simulator, num_worlds: int, seed: int):
        self._simulator = simulator
        self._envs, self._options = simulator.make(num_worlds, seed)

    def reset(self) -> PyTree[np.ndarray]:
        seen, _ = self._envs.reset(**self._options)
        self._options = {}  # so that the next time they go on with their own randomness
        return self._simulator.shown(seen)

    def step(self, action: np.ndarray) -> HostStep:
        given = _given(self._simulator, action)
        seen, reward, terminated, truncated, _ = self._envs.step(given)
        terminated = np.asarray(terminated, np.bool_)
        return HostStep(
            state=self._simulator.shown(seen),
            reward=np.array(reward, np.float32),
            discount=(~terminated).astype(np.float32),
            last=terminated | np.asarray(truncated, np.bool_),
        )

    def close(self) -> None:
        self._envs.close()


def gymnasium_environment(name: str, *, bounds: Bounds | None = None, **options: Any) -> _Adapted:
    """An environment of Gymnasium, whose simulators run on the host: see [`zero_envs.Hosted`][].

    - `terminated` is an end with discount 0, and `truncated` one with discount 1.
    - Observations that are dictionaries or tuples are pytrees. An integer becomes one-hot; an image
        of 8 bits has values from 0 to 1 and is `[rows, columns, channels]`, of which the channels
        are the last frames where an environment stacks those.
    - Actions are numbered, of several components, or in [-1, 1] and scaled to the bounds of each
        dimension. All are legal.

    **Arguments:**

    - `name`: an id of `gymnasium.registry`, for instance `"LunarLander-v3"`, or `module:ID` of one
        that a module registers.
    - `bounds`: of continuous actions, by default those of Gymnasium's action space.
    - `options`: of `gymnasium.make_vec`.
    """
    return _own("gymnasium", name, _maker("gymnasium", name, name, options), bounds)


def ale_environment(name: str, **options: Any) -> _Adapted:
    """A game of the Arcade Learning Environment (Bellemare et al., 2013,
    https://arxiv.org/abs/1207.4708), for instance `"Breakout"`: `ALE/Breakout-v5` of
    [`zero_envs.gymnasium_environment`][].

    Its last four frames are seen, in grey and of 84 x 84 pixels. Each action is held for four
    frames, and the one before it is repeated with a probability of 0.25 (Machado et al., 2018,
    https://arxiv.org/abs/1709.06009). Rewards are those of the game: `reward_clipping=True` clips
    them to [-1, 1].
    """
    options = {"reward_clipping": False, **options}
    return _own("ale", name, _maker("ale", name, f"ALE/{name}-v5", options), None)


def envpool_environment(name: str, *, bounds: Bounds | None = None, **options: Any) -> _Adapted:
    """An environment of EnvPool (Weng et al., 2022, https://arxiv.org/abs/2206.10558), for instance
    `"Pong-v5"`, whose simulators are threads: otherwise as
    [`zero_envs.gymnasium_environment`][]. The options are those of `envpool.make`."""
    envpool = import_or_explain("envpool", "envpool_environment")
    if name not in (known := envpool.list_all_envs()):
        raise unknown("envpool_environment", name, known)

    def make(num_worlds: int, seed: int) -> tuple[Any, dict[str, Any]]:
        made = envpool.make(name, env_type="gymnasium", num_envs=num_worlds, seed=seed, **options)
        with warnings.catch_warnings():
            # It makes its spaces when it is first asked, of bounds in float64 that become float32.
            warnings.simplefilter("ignore", UserWarning)
            _ = made.observation_space, made.action_space
        return made, {}

    return _own("envpool", name, make, bounds)


def _maker(library: str, name: str, id: str, options: dict[str, Any]) -> Any:
    """What makes the simulators of an id of Gymnasium, which a library has by a name."""
    call = f"{library}_environment"
    gymnasium = import_or_explain("gymnasium", call)
    if id.startswith("ALE/"):
        gymnasium.register_envs(import_or_explain("ale_py", call, "ale"))

    def make(num_worlds: int, seed: int) -> tuple[Any, dict[str, Any]]:
        try:
            return gymnasium.make_vec(id, num_worlds, **options), {"seed": seed}
        except gymnasium.error.UnregisteredEnv as e:
            raise unknown(call, name, names_of(library)) from e
        except (gymnasium.error.DependencyNotInstalled, ImportError) as e:
            said = " ".join(str(e).split())
            if isinstance(e, ModuleNotFoundError) and not said.endswith("."):
                said = f"it needs {e.name}, which is not installed."
            raise ImportError(f'{call}("{name}"): {said}') from e
        except (gymnasium.error.Error, TypeError, ValueError) as e:
            raise ValueError(f'{call}("{name}"): {" ".join(str(e).split())}') from e

    return make


def _own(library: str, name: str, make: Any, bounds: Bounds | None) -> _Adapted:
    """The environment whose simulators are made so."""
    call = f"{library}_environment"
    envs, _ = make(1, 0)
    try:
        seen, taken = envs.single_observation_space, envs.single_action_space
        mode = getattr(envs.metadata.get("autoreset_mode"), "name", None)
        limit = getattr(envs.spec, "max_episode_steps", None)
    finally:
        envs.close()
    if mode != "NEXT_STEP":
        raise ValueError(
            f'{call}("{name}"): its vector environment resets by {mode}; NEXT_STEP is allowed, '
            'such as vectorization_mode="sync" has.'
        )
    _mapped(lambda space: _check_seen(call, name, space), seen)
    simulator = ft.partial(Simulator, f"{library}/{name}", make, seen, taken)
    shared: dict[str, Any] = {"live": Live(), "max_steps": limit}
    kind = type(taken).__name__
    if kind == "Discrete":
        number = int(taken.n)
        return GymnasiumEnvironment(simulator=simulator((number,)), num_actions=number, **shared)
    if kind in ("MultiDiscrete", "MultiBinary") and len(taken.shape) == 1:
        values = tuple(map(int, getattr(taken, "nvec", np.full(taken.shape, 2))))
        return FactoredGymnasiumEnvironment(
            simulator=simulator(values), num_values=values, **shared
        )
    if kind != "Box":
        raise ValueError(
            f'{call}("{name}"): its actions are a {taken}; Discrete, MultiDiscrete and Box are '
            "allowed."
        )
    size = int(np.prod(taken.shape))
    wide = [np.ravel(np.broadcast_to(x, taken.shape)) for x in bounds or (taken.low, taken.high)]
    limits = checked_bounds(call, name, size, (wide[0], wide[1]))
    return ContinuousGymnasiumEnvironment(
        simulator=simulator(None, limits), action_size=size, **shared
    )


def _given(simulator: Simulator, action: np.ndarray) -> np.ndarray:
    """Actions as the simulators take them. They are clipped: whoever learns from such a row is told
    of a wrong one."""
    space = simulator.taken
    if simulator.bounds is None:
        most = np.asarray(simulator.num_values) - 1
        start = getattr(space, "start", 0)
        given = np.clip(action, 0, most if space.shape else most[0]) + start
    else:
        low, high = map(np.asarray, simulator.bounds)
        unit = np.clip(np.nan_to_num(action), -1.0, 1.0)
        given = low + (unit + 1.0) * 0.5 * (high - low)
    return given.astype(space.dtype).reshape(-1, *space.shape)


def _mapped(function: Callable[..., Any], space: Any, *values: Any) -> Any:
    """A function of every simple space in a dictionary or tuple of spaces, and of the values at its
    place."""
    inner = getattr(space, "spaces", space)
    if isinstance(inner, dict):
        return {name: _mapped(function, inner[name], *(x[name] for x in values)) for name in inner}
    if isinstance(inner, tuple):
        rows = zip(inner, *values, strict=True)
        return tuple(_mapped(function, one, *rest) for one, *rest in rows)
    return function(space, *values)


def _check_seen(call: str, name: str, space: Any) -> None:
    kinds = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")
    if type(space).__name__ not in kinds:
        raise ValueError(
            f'{call}("{name}"): a part of its observation is a {space}; {", ".join(kinds)} are '
            "allowed, and dictionaries and tuples of them."
        )


def _shown(space: Any, seen: Any) -> np.ndarray:
    """What a simulator shows of a space, copied, because it may write there again."""
    if type(space).__name__ == "Discrete":
        seen = seen - space.start
    kinds = {"f": np.float32, "i": np.int32, "u": np.int32}
    dtype = np.asarray(seen).dtype
    return np.array(seen, dtype if dtype.itemsize == 1 else kinds[dtype.kind])


def _features(space: Any, state: Array) -> Array:
    """What a network sees of one observation of a space."""
    if type(space).__name__ == "Discrete":
        return jax.nn.one_hot(state, space.n)
    if state.dtype != jnp.uint8 or state.ndim != 3:
        return state
    first, *_, last = state.shape
    image = jnp.moveaxis(state, 0, 2) if first < last else state
    return image.astype(jnp.float32) / 255
