"""Does an environment keep the promises that planners, buffers and training loops rely on?"""

from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from .._environment import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    Observation,
    Transition,
)


class EnvironmentReport(eqx.Module):
    """What [`zero_envs.testing.check_environment`][] saw on the way.

    **Attributes:**

    - `steps`: steps taken before the episodes' ends.
    - `terminated`, `truncated`: episodes that ended each way. Where both are 0 no end was checked:
        raise `num_steps`.
    - `same_player`, `opponent`: steps after which the same player, or the opponent, moved next.
    - `state_bytes`: the size of one state, which a search keeps for each of its nodes.
    """

    steps: int
    terminated: int
    truncated: int
    same_player: int
    opponent: int
    state_bytes: int


def check_environment(
    env: AbstractEnvironment[Any, Any],
    *,
    key: PRNGKeyArray,
    num_steps: int = 64,
    num_envs: int = 8,
) -> EnvironmentReport:
    """Plays random legal actions and checks every promise of [`zero_envs.AbstractEnvironment`][].

    - `init`, `step` and `observe` work under `jax.jit` and `jax.vmap`, and need to be traced only
      once: `step` returns the structure, shapes and dtypes of `init`, none weakly typed.
    - No PRNG key is part of a state.
    - Nothing but the arguments decides the result.
    - Rewards and discounts are floating-point scalars, rewards and features are finite, a discount
      is -1, 0 or 1, and discount 0 comes with `last`.
    - Every state that is not final has a legal action.
    - A final state is absorbing: reward 0, discount 0, `last` again.

    What [`zero_envs.AbstractHiddenEnvironment`][] and [`zero_envs.AbstractChanceEnvironment`][]
    promise beyond that is **not checked yet**: that `resample` keeps the observation, that signals
    are below `num_signals`, that the outcomes' probabilities add up to 1 and that `resolve` agrees
    with `step`.

    **Arguments:**

    - `env`: the environment, discrete or continuous.
    - `key`: decides the episodes.
    - `num_steps`, `num_envs`: how many episodes are played at once, and for how long. They are not
        reset, so what comes after an end is checked too.

    **Returns:** an [`zero_envs.testing.EnvironmentReport`][].

    **Raises:** `AssertionError` with the first promise that does not hold.
    """
    _check_attributes(env)
    init, step, observe = _batched(env)
    ikey, akey, skey = jr.split(key, 3)
    ikeys = jr.split(ikey, num_envs)
    state = init(ikeys)
    _check_same(env, "init", state, init(jr.clone(ikeys)))
    _check_state(env, state)
    observation = observe(state)
    _check_observation(env, observation, num_envs)
    over = np.zeros(num_envs, np.bool_)
    counts = np.zeros(5, np.int64)
    for i in range(num_steps):
        action = _random_action(env, observation, num_envs, jr.fold_in(akey, i))
        skeys = jr.split(jr.fold_in(skey, i), num_envs)
        next_state, transition = step(state, action, skeys)
        if i == 0:
            _check_signature(env, state, next_state)
            _check_transition(env, transition, num_envs)
            again = step(state, action, jr.clone(skeys))
            _check_same(env, "step", (next_state, transition), again)
            _check_pure(env, state, action, ikeys, skeys)
        state, observation = next_state, observe(next_state)
        counts += _check_laws(env, i, over, transition)
        over = over | np.asarray(transition.last)
        _check_values(env, i, over, observation)
    size = sum(x.nbytes for x in jax.tree.leaves(state)) // num_envs
    return EnvironmentReport(*(int(count) for count in counts), state_bytes=size)


def _fail(env: Any, message: str) -> NoReturn:
    raise AssertionError(f"check_environment({type(env).__name__}): {message}")


def _functions(env: Any) -> tuple[Callable, Callable, Callable]:
    """Fresh functions, so that `jax.jit` cannot remember having traced them."""

    def init(key):
        return env.init(key=key)

    def step(state, action, key):
        return env.step(state, action, key=key)

    def observe(state):
        return env.observe(state)

    return jax.vmap(init), jax.vmap(step), jax.vmap(observe)


def _batched(env: Any) -> tuple[Callable, Callable, Callable]:
    init, step, observe = _functions(env)
    return jax.jit(init), jax.jit(step), jax.jit(observe)


def _random_action(env: Any, observation: Observation, num_envs: int, key: PRNGKeyArray) -> Array:
    if isinstance(env, AbstractContinuousEnvironment):
        shape = (num_envs, env.action_size)
        return jr.uniform(key, shape, jnp.float32, minval=-1.0, maxval=1.0)
    assert observation.legal is not None
    logits = jnp.where(observation.legal, jnp.float32(0), jnp.float32(-jnp.inf))
    return jr.categorical(key, logits).astype(jnp.int32)


def _check_attributes(env: Any) -> None:
    match env:
        case AbstractDiscreteEnvironment():
            name = "num_actions"
        case AbstractContinuousEnvironment():
            name = "action_size"
        case _:
            _fail(
                env,
                "must be an AbstractDiscreteEnvironment or an AbstractContinuousEnvironment; "
                "derive from one of them.",
            )
    size = getattr(env, name)
    if type(size) is not int or size < 1:
        _fail(env, f"{name} is {size!r}; it must be a Python int of at least 1.")
    if type(env.hidden) is not bool:
        _fail(env, f"hidden is {env.hidden!r}; it must be True or False.")


def _leaves(tree: Any) -> list[tuple[str, Array]]:
    return [(jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(tree)]


def _is_typed_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _check_state(env: Any, state: Any) -> None:
    for name, leaf in _leaves(state):
        named = "key" in name.lower() or "rng" in name.lower()
        legacy = leaf.dtype == jnp.uint32 and leaf.shape[1:] == (2,) and named
        if _is_typed_key(leaf) or legacy:
            _fail(
                env,
                f"state{name} is a PRNG key, so whoever holds a state can foresee its future; use "
                "the key that step is given.",
            )
        if leaf.weak_type:
            _fail(
                env,
                f"state{name} of init is weakly typed, so the second step is traced again; give it "
                "a dtype, for instance jnp.zeros((), jnp.int32).",
            )


def _check_signature(env: Any, before: Any, after: Any) -> None:
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        _fail(env, f"step changes the state's structure from {old} to {new}; it must keep it.")
    for (name, x), (_, y) in zip(_leaves(before), _leaves(after), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            _fail(
                env,
                f"state{name} is {x.dtype}{list(x.shape[1:])} after init and "
                f"{y.dtype}{list(y.shape[1:])} after step; both must agree.",
            )
        if y.weak_type:
            _fail(env, f"state{name} is weakly typed after step; cast it to a dtype.")


def _check_observation(env: Any, observation: Any, num_envs: int) -> None:
    if not isinstance(observation, Observation):
        _fail(
            env, f"observe returns a {type(observation).__name__}; return a zero_envs.Observation."
        )
    if not jax.tree.leaves(observation.features):
        _fail(env, "observe returns no features; return at least one array.")
    legal = observation.legal
    if isinstance(env, AbstractContinuousEnvironment):
        if legal is not None:
            _fail(env, "observe returns a legal mask; with continuous actions it must be None.")
        return
    if legal is None or legal.dtype != jnp.bool_ or legal.shape != (num_envs, env.num_actions):
        got = "None" if legal is None else f"{legal.dtype}{list(legal.shape[1:])}"
        _fail(env, f"the legal mask is {got}; it must be bool[{env.num_actions}].")
    if not np.asarray(legal).any(-1).all():
        _fail(env, "an initial state has no legal action; every state that is not final needs one.")


def _check_transition(env: Any, transition: Any, num_envs: int) -> None:
    if not isinstance(transition, Transition):
        _fail(env, f"step returns a {type(transition).__name__}; return (state, Transition).")
    for name, kind in (("reward", jnp.floating), ("discount", jnp.floating), ("last", jnp.bool_)):
        leaf = getattr(transition, name)
        wanted = kind.__name__
        if leaf.shape != (num_envs,) or not jnp.issubdtype(leaf.dtype, kind):
            _fail(
                env,
                f"{name} is {leaf.dtype}{list(leaf.shape[1:])}; it must be a {wanted} scalar.",
            )


def _check_same(env: Any, name: str, first: Any, second: Any) -> None:
    for (where, x), (_, y) in zip(_leaves(first), _leaves(second), strict=True):
        if _is_typed_key(x):
            continue
        if not np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True):
            _fail(env, f"{name} called twice with the same arguments differs in {where}.")


def _check_pure(env: Any, state: Any, action: Array, *keys: Key[Array, " envs"]) -> None:
    """Compares the programs of two traces: they differ if Python state gets into them."""
    arguments = ((keys[0],), (state, action, keys[1]), (state,))
    traces = zip(_functions(env), _functions(env), arguments, strict=True)
    for name, (first, second, args) in zip(("init", "step", "observe"), traces, strict=True):
        one, two = (jax.jit(fn).lower(*args).as_text() for fn in (first, second))
        # The text of a host callback holds an address.
        if one != two and "callback" not in one:
            _fail(
                env,
                f"{name} is another program each time it is traced; it must depend on nothing but "
                "its arguments: no Python counters, no numpy.random.",
            )


def _check_laws(env: Any, i: int, over: np.ndarray, transition: Transition) -> np.ndarray:
    """Checks one step's transitions and counts them, in the order of the report."""
    reward = np.asarray(transition.reward)
    discount = np.asarray(transition.discount)
    last = np.asarray(transition.last)
    if not np.isfinite(reward).all():
        _fail(env, f"step {i}: a reward is not finite: {reward}.")
    if not np.isin(discount, (-1.0, 0.0, 1.0)).all():
        _fail(
            env,
            f"step {i}: a discount is not -1, 0 or 1: {discount}. It says who moves next; gamma "
            "belongs to the planner and the agent.",
        )
    if (over & ((reward != 0) | (discount != 0) | ~last)).any():
        _fail(
            env,
            f"step {i}: a final state is not absorbing; after last, reward is {reward[over]}, "
            f"discount {discount[over]}, last {last[over]}, and must be 0, 0, True.",
        )
    if ((discount == 0) & ~last).any():
        _fail(env, f"step {i}: discount is 0 where last is False; the end must have both.")
    live = ~over
    ends = live & last
    terminated = ends & (discount == 0)
    rows = (live, terminated, ends & ~terminated, live & (discount > 0), live & (discount < 0))
    return np.asarray([row.sum() for row in rows])


def _check_values(env: Any, i: int, over: np.ndarray, observation: Observation) -> None:
    for name, leaf in _leaves(observation.features):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            _fail(env, f"step {i}: features{name} are not finite.")
    if observation.legal is None:
        return
    stuck = ~np.any(np.asarray(observation.legal), axis=-1) & ~over
    if stuck.any():
        _fail(env, f"step {i}: a state that is not final has no legal action.")
