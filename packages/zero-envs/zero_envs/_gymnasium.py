"""Environments of Gymnasium (Towers et al., 2024, https://arxiv.org/abs/2407.17032), the Arcade
Learning Environment and EnvPool, stepped on the host."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

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
from ._foreign import Bounds, check_unbounded, checked_bounds, import_or_explain
from ._hosted import AbstractWorlds, HostStep
from ._known import names_of, unknown


@dataclasses.dataclass(frozen=True, eq=False)
class Simulator:
    """How the simulators of an environment are made, and what they show and take. Those of two
    environments that are made alike are equal, so that JAX compiles once for both.

    **Attributes:**

    - `library`, `id`: the library, as on the command line, and its own name of the environment.
    - `options`: of `gymnasium.make_vec` or `envpool.make`.
    - `seen`, `taken`: Gymnasium's spaces of one observation and one action.
    - `bounds`: the lowest and the highest action where it is continuous.
    """

    library: str
    id: str
    options: dict[str, Any]
    seen: Any = None
    taken: Any = None
    bounds: Any = None

    def __hash__(self) -> int:
        return hash((self.library, self.id, self.bounds))

    def __eq__(self, other: object) -> bool:
        # Options may be arrays.
        return isinstance(other, Simulator) and eqx.tree_equal(vars(self), vars(other)) is True

    def open(self, num_worlds: int, seed: int) -> tuple[Any, dict[str, Any]]:
        """A `gymnasium.vector.VectorEnv`, and what its first `reset` is given."""
        call = f"{self.library}_environment"
        if self.library == "envpool":
            return self._pool(call, num_worlds, seed), {}
        gymnasium = import_or_explain("gymnasium", call, self.library)
        id = self.id
        if self.library == "ale":
            id = f"ALE/{id}-v5"
        if id.startswith("ALE/"):
            gymnasium.register_envs(import_or_explain("ale_py", call, "ale"))
        try:
            return gymnasium.make_vec(id, num_worlds, **self.options), {"seed": seed}
        except gymnasium.error.UnregisteredEnv as e:
            raise unknown(call, self.id, names_of(self.library)) from e
        except (gymnasium.error.DependencyNotInstalled, ImportError) as e:
            missing = getattr(e, "name", None)
            said = f"it needs {missing}, which is not installed" if missing else f"{e}"
            known = missing or isinstance(e, gymnasium.error.DependencyNotInstalled)
            if known and ":" not in id:  # a module of the user's own has no extra of ours
                said = f"{said}; install zero-envs with its extra `{self.library}`."
            raise ImportError(self.refused(said)) from e
        except (gymnasium.error.Error, TypeError, ValueError) as e:
            raise ValueError(self.refused(e)) from e

    def _pool(self, call: str, num_worlds: int, seed: int) -> Any:
        envpool = import_or_explain("envpool", call)
        if self.id not in (known := envpool.list_all_envs()):
            raise unknown(call, self.id, known)
        given = {"env_type": "gymnasium", "num_envs": num_worlds, "seed": seed, **self.options}
        made = envpool.make(self.id, **given)
        with warnings.catch_warnings():
            # It makes its spaces when it is first asked, of bounds in float64 that become float32.
            warnings.simplefilter("ignore", UserWarning)
            _ = made.observation_space, made.action_space
        return made

    def refused(self, why: Any) -> str:
        """Why it cannot be played, in one line."""
        return f'{self.library}_environment("{self.id}"): {" ".join(str(why).split())}'

    def shown(self, seen: Any) -> PyTree[np.ndarray]:
        """States: the observations, as NumPy arrays of JAX's dtypes."""
        return _mapped(_shown, self.seen, seen)

    def given(self, action: np.ndarray) -> np.ndarray:
        """Actions as the simulators take them. They are clipped: whoever learns from such a row is
        told of a wrong one."""
        space, values = self.taken, _values(self.taken)
        if values is None:
            low, high = map(np.asarray, self.bounds)
            unit = np.clip(np.nan_to_num(action), -1.0, 1.0)
            given = np.clip(low + (unit + 1.0) * 0.5 * (high - low), low, high)
            given = given if np.issubdtype(space.dtype, np.floating) else np.rint(given)
        else:
            most = np.asarray(values if space.shape else values[0]) - 1
            given = np.clip(action, 0, most) + getattr(space, "start", 0)
        return given.astype(space.dtype).reshape(-1, *space.shape)


class AbstractGymnasiumEnvironment(AbstractEnvironment[PyTree[Array], Any]):
    """What environments of Gymnasium with different actions have in common. A state is the
    observation as the simulator shows it."""

    simulator: eqx.AbstractVar[Simulator]
    hidden: ClassVar[bool] = False
    num_players: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The library and its own name of the environment."""
        return f"{self.simulator.library}/{self.simulator.id}"

    def init(self, *, key: PRNGKeyArray) -> PyTree[Array]:
        del key
        return _mapped(lambda x: jnp.zeros(x.shape, _dtype(x)), self.simulator.seen)

    def step(
        self, state: PyTree[Array], action: Any, *, key: PRNGKeyArray
    ) -> tuple[PyTree[Array], Transition]:
        raise ValueError(
            f"{self.name}: its simulator runs on the host and can be neither copied nor compiled, "
            "so nothing plans in it, and only `zero_train.step` and `evaluate` step it; choose an "
            "agent that plans in a learned model or not at all."
        )

    def observe(self, state: PyTree[Array]) -> Observation:
        values = _values(self.simulator.taken)
        legal = None if values is None else jnp.ones(sum(values), jnp.bool_)
        return Observation(_mapped(_features, self.simulator.seen, state), legal)

    def open(self, num_worlds: int, *, key: PRNGKeyArray) -> AbstractWorlds:
        """New simulators, see [`zero_envs.Hosted`][]."""
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1, jnp.int32))
        return GymnasiumWorlds(self.simulator, num_worlds, seed)


class GymnasiumEnvironment(AbstractGymnasiumEnvironment, AbstractDiscreteEnvironment[Any]):
    """An environment of Gymnasium whose actions are numbered."""

    simulator: Simulator = eqx.field(static=True)
    num_actions: int
    max_steps: int | None


class FactoredGymnasiumEnvironment(AbstractGymnasiumEnvironment, AbstractFactoredEnvironment[Any]):
    """An environment of Gymnasium whose actions have several components."""

    simulator: Simulator = eqx.field(static=True)
    num_values: tuple[int, ...]
    max_steps: int | None


class ContinuousGymnasiumEnvironment(
    AbstractGymnasiumEnvironment, AbstractContinuousEnvironment[Any]
):
    """An environment of Gymnasium whose actions in [-1, 1] are scaled to the bounds of each
    dimension."""

    simulator: Simulator = eqx.field(static=True)
    action_size: int
    max_steps: int | None


_Adapted = GymnasiumEnvironment | FactoredGymnasiumEnvironment | ContinuousGymnasiumEnvironment


class GymnasiumWorlds(AbstractWorlds):
    """The simulators of an environment of Gymnasium."""

    def __init__(self, simulator: Simulator, num_worlds: int, seed: int):
        self._simulator = simulator
        self._envs, self._options = simulator.open(num_worlds, seed)

    def reset(self) -> PyTree[np.ndarray]:
        seen, _ = self._envs.reset(**self._options)
        self._options = {}  # so that the next time they go on with their own randomness
        return self._simulator.shown(seen)

    def step(self, action: np.ndarray) -> HostStep:
        taken = self._simulator.given(action)
        seen, reward, terminated, truncated, _ = self._envs.step(taken)
        terminated = np.asarray(terminated, np.bool_)
        return HostStep(
            state=self._simulator.shown(seen),
            reward=np.asarray(reward, np.float32),
            discount=(~terminated).astype(np.float32),
            last=terminated | np.asarray(truncated, np.bool_),
        )

    def close(self) -> None:
        self._envs.close()


def gymnasium_environment(name: str, *, bounds: Bounds | None = None, **options: Any) -> _Adapted:
    """An environment of Gymnasium, whose simulators run on the host: see [`zero_envs.Hosted`][].

    - `terminated` is an end with discount 0, and `truncated` one with discount 1.
    - Observations that are dictionaries or tuples are pytrees. `Discrete` and each number of
        `MultiDiscrete` are one-hot, in one vector. Bytes are divided by the highest that the space
        allows; an image of them is `[rows, columns, channels]`, of which the channels are the last
        frames where an environment stacks those, and one without channels has one.
    - Actions are numbered, of several components, or in [-1, 1] and scaled to the bounds of each
        dimension. All are legal.

    **Arguments:**

    - `name`: an id of `gymnasium.registry`, for instance `"LunarLander-v3"`, or `module:ID` of one
        that a module registers.
    - `bounds`: of continuous actions, by default those of Gymnasium's action space.
    - `options`: of `gymnasium.make_vec`.
    """
    return _own("gymnasium", name, options, bounds)


def ale_environment(name: str, **options: Any) -> _Adapted:
    """A game of the Arcade Learning Environment (Bellemare et al., 2013,
    https://arxiv.org/abs/1207.4708), for instance `"Breakout"`: `ALE/Breakout-v5` of
    [`zero_envs.gymnasium_environment`][].

    Its last four frames are seen, in grey and of 84 x 84 pixels. Each action is held for four
    frames, and the action before it is repeated with a probability of 0.25 (Machado et al., 2018,
    https://arxiv.org/abs/1709.06009). An episode begins with up to 30 idle frames and, in the games
    that wait for it, with the button that starts them: `noop_max=0` and `use_fire_reset=False` turn
    that off. Rewards are those of the game: `reward_clipping=True` clips them to [-1, 1].
    `life_loss_info` is refused, and `episodic_life=True` makes each life an episode.
    """
    if options.get("life_loss_info"):
        raise ValueError(
            f'ale_environment("{name}", life_loss_info=True): a lost life ends an episode after '
            "which no new one begins; leave it out, or give episodic_life=True."
        )
    return _own("ale", name, {"reward_clipping": False, **options}, None)


def envpool_environment(name: str, *, bounds: Bounds | None = None, **options: Any) -> _Adapted:
    """An environment of EnvPool (Weng et al., 2022, https://arxiv.org/abs/2206.10558), for instance
    `"Pong-v5"`, whose simulators are threads: otherwise as
    [`zero_envs.gymnasium_environment`][]. The options are those of `envpool.make`."""
    return _own("envpool", name, options, bounds)


def _own(library: str, name: str, options: dict[str, Any], bounds: Bounds | None) -> _Adapted:
    """The environment of a library's name."""
    call = f"{library}_environment"
    if not isinstance(name, str):
        raise ValueError(f"{call}({name!r}): give the name of an environment, a text.")
    simulator = Simulator(library, name, options)
    envs, _ = simulator.open(1, 0)
    try:
        seen, taken = envs.single_observation_space, envs.single_action_space
        mode = getattr(envs.metadata.get("autoreset_mode"), "name", None)
        limit = getattr(envs.spec, "max_episode_steps", None)
        # Of Gymnasium's own the options are there that came in place of what is registered.
        limit = getattr(envs.spec, "kwargs", {}).get("max_episode_steps", limit)
    finally:
        envs.close()
    if mode != "NEXT_STEP":
        said = f"its vector environment resets by {mode}; NEXT_STEP is allowed, such as "
        raise ValueError(simulator.refused(f'{said}vectorization_mode="sync" has.'))
    if why := _refusal(seen):
        raise ValueError(simulator.refused(why))
    simulator = dataclasses.replace(simulator, seen=seen, taken=taken)
    values, limit = _values(taken), None if limit == -1 else limit
    if type(taken).__name__ == "Box":
        bounds = (taken.low, taken.high) if bounds is None else bounds
        limits = checked_bounds(call, name, taken.shape, bounds)
        simulator = dataclasses.replace(simulator, bounds=limits)
        return ContinuousGymnasiumEnvironment(
            simulator=simulator, action_size=len(limits[0]), max_steps=limit
        )
    if values is None or len(taken.shape) > 1:
        allowed = "Discrete, Box, and MultiDiscrete and MultiBinary of one dimension"
        raise ValueError(simulator.refused(f"its actions are a {taken}; {allowed} are allowed."))
    check_unbounded(call, name, bounds)
    if taken.shape:
        return FactoredGymnasiumEnvironment(simulator=simulator, num_values=values, max_steps=limit)
    return GymnasiumEnvironment(simulator=simulator, num_actions=values[0], max_steps=limit)


def _values(space: Any) -> tuple[int, ...] | None:
    """The values of each number of a space, `None` where they are not numbered."""
    kind = type(space).__name__
    if kind == "Discrete":
        return (int(space.n),)
    if kind == "MultiBinary":
        return (2,) * int(np.prod(space.shape))
    return tuple(map(int, np.ravel(space.nvec))) if kind == "MultiDiscrete" else None


def _mapped(function: Callable[..., Any], space: Any, *values: Any) -> Any:
    """A function of every simple space in a dictionary or tuple of spaces, and of the values at its
    place."""
    inner = space if type(space).__name__ == "OneOf" else getattr(space, "spaces", space)
    if isinstance(inner, dict):
        return {name: _mapped(function, inner[name], *(x[name] for x in values)) for name in inner}
    if isinstance(inner, tuple):
        rows = zip(inner, *values, strict=True)
        return tuple(_mapped(function, one, *rest) for one, *rest in rows)
    return function(space, *values)


def _refusal(space: Any) -> str | None:
    """Why an observation of a space cannot be shown."""
    kinds, parts = ("Box", "Discrete", "MultiBinary", "MultiDiscrete"), list[Any]()
    _mapped(parts.append, space)
    if not parts:
        return "its observation is empty."
    for part in parts:
        if type(part).__name__ not in kinds:
            return (
                f"a part of its observation is a {part}; {', '.join(kinds)} are allowed, and "
                "dictionaries and tuples of them."
            )
        if part.dtype == np.uint8 and len(part.shape) > 3:
            return (
                f"a part of its observation is bytes of shape {list(part.shape)}; three dimensions "
                "are allowed, rows, columns and channels."
            )
    return None


def _dtype(space: Any) -> Any:
    """The dtype of a state: numbers of one byte are kept as they are, and integers that may need
    more than 32 bits are seen as real numbers."""
    if space.dtype.itemsize == 1:
        return space.dtype
    limits = np.iinfo(np.int32)
    box = type(space).__name__ == "Box"
    wide = box and bool(((space.low < limits.min) | (space.high > limits.max)).any())
    return np.float32 if wide or space.dtype.kind == "f" else np.int32


def _shown(space: Any, seen: Any) -> np.ndarray:
    """What a simulator shows of a space, counted from 0 where it is numbered."""
    start = getattr(space, "start", None)
    return np.asarray(seen if start is None else seen - start, _dtype(space))


def _features(space: Any, state: Array) -> Array:
    """What a network sees of one observation of a space."""
    kind = type(space).__name__
    if kind in ("Discrete", "MultiDiscrete"):
        values = _values(space) or ()
        each = np.concatenate([np.arange(n, dtype=np.int32) for n in values])
        given = jnp.ravel(state)[np.repeat(np.arange(len(values)), values)]
        return (given == each.astype(state.dtype)).astype(jnp.float32)
    if kind == "MultiBinary":
        return state.astype(jnp.float32)
    if state.dtype != jnp.uint8:
        return state
    if state.ndim == 2:
        state = state[..., None]
    elif state.ndim == 3 and state.shape[0] < min(state.shape[1:]):
        state = jnp.moveaxis(state, 0, 2)
    return state.astype(jnp.float32) / max(1.0, float(np.max(space.high)))
