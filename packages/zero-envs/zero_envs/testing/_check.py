"""Checks that an environment satisfies its interface."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._code import own_code
from .._environment import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    AbstractHiddenEnvironment,
    AbstractObservedEnvironment,
    check_count,
    Observation,
    Transition,
)
from .._filtered import Filtered
from ._check_chance import check_chance
from ._check_hidden import check_hidden
from ._check_parts import (
    batched,
    BrokenPromiseError,
    check_laws,
    check_pure,
    check_same,
    check_signature,
    check_strong,
    fail,
    key_leaf,
    kind,
    leaves,
)


class EnvironmentReport(eqx.Module):
    """The statistics of a run of [`zero_envs.testing.check_environment`][].

    **Attributes:**

    - `steps`: the number of steps before the ends of episodes.
    - `terminated`, `truncated`: the number of episodes that ended each way. If both are 0, no end
        was checked, so increase `num_steps`.
    - `same_player`, `opponent`: the number of steps after which the same player or the opponent
        moves next.
    - `state_bytes`: the size of one state, which a search stores in each node.
    """

    steps: int
    terminated: int
    truncated: int
    same_player: int
    opponent: int
    state_bytes: int


def check_environment(
    env: AbstractEnvironment[Any, Any], *, key: PRNGKeyArray, num_steps: int = 64, num_envs: int = 8
) -> EnvironmentReport:
    """Plays random legal actions and checks the interface [`zero_envs.AbstractEnvironment`][].

    - `init`, `step` and `observe` work under `jax.jit` and `jax.vmap`, and are traced only once:
        `step` keeps the structure, shapes and dtypes of `init`, and no leaf is weakly typed.
    - No state holds a PRNG key.
    - Methods are pure functions.
    - Rewards and discounts are floating-point scalars, rewards and features are finite, a discount
        is -1, 0 or 1, and a step with discount 0 is `last`.
    - Every state that is not final has a legal action, or a legal value of each component.
    - Final states are absorbing: reward 0, discount 0 and `last`.
    - No step draws where `random` is False, and none gives the move to an opponent where
        `num_players` is 1; an environment need not have these attributes.
    - For an [`zero_envs.AbstractObservedEnvironment`][], `observation_log_prob` of what was
        observed is a finite floating-point scalar. It is **not checked** that it is right.

    For an [`zero_envs.AbstractChanceEnvironment`][], also at the first, a middle and the last step:

    - Afterstates are deterministic and hold no PRNG key.
    - The probabilities of the outcomes add up to 1.
    - `resolve` returns the structure, shapes and dtypes of `step`, and every possible outcome
        satisfies the conditions above.
    - `step` results in possible outcomes, with their frequencies. A correct environment fails this
        check with a probability below 10^-8.

    The same is checked of a [`zero_envs.Filtered`][] environment whose filter knows the odds:
    `imagine` takes the place of `step`, and states after the end are left out.

    For an [`zero_envs.AbstractHiddenEnvironment`][], also at every step, with two results of
    `resample`:

    - `resample` keeps structure, shapes and dtypes, and the observation is bitwise equal.
    - It changes some state, unless `hidden` is `False`. It is **not checked** that it draws from
        the exact posterior.
    - A signal is an integer from 0 to `num_signals - 1`.
    - If states with equal observations give the same signal for the same action, then `discount`
        and `last` are equal and, unless the game is over, the next observations are equal.

    **Arguments:**

    - `env`: a discrete, factored or continuous environment.
    - `key`: decides the episodes.
    - `num_steps`, `num_envs`: the number of steps and of parallel episodes. Episodes are not reset,
        so steps from final states are checked too.

    **Returns:** an [`zero_envs.testing.EnvironmentReport`][].

    **Raises:** `AssertionError` with the first condition that does not hold.
    """
    check_count("check_environment", num_steps=num_steps, num_envs=num_envs)
    try:
        return _check(env, key, num_steps, num_envs)
    except BrokenPromiseError as error:
        raise AssertionError(f"check_environment({type(env).__name__}): {error}") from None


def check_shapes(env: Any) -> None:
    """The part of [`zero_envs.testing.check_environment`][] that traces the methods, and neither
    compiles nor runs them: there are actions, no state holds a PRNG key, and methods return what
    they should, in the shapes and dtypes that they should.

    **Raises:** `ValueError` of one line with the first condition that does not hold, or with what a
    method raised.
    """
    name, broken = type(env).__name__, ""
    with own_code(name):
        try:
            _check_shapes(env, 1)
        except BrokenPromiseError as error:
            broken = str(error)
    if broken:
        raise ValueError(f"{name}: {broken}")


def _check_shapes(env: Any, num_envs: int) -> None:
    _check_attributes(env)
    # Other functions than those that are compiled: these are traced once.
    shapes = lambda name, *args: jax.eval_shape(batched(env, name), *args)
    keys = jax.eval_shape(lambda: jr.split(jr.key(0), num_envs))
    state = shapes("init", keys)
    if name := key_leaf(state):
        fail(
            f"state{name} is a PRNG key, so a planner could foresee the future of a state; use the "
            "key that step receives."
        )
    observation = shapes("observe", state)
    _check_observation(env, observation, num_envs)
    action = jax.eval_shape(
        lambda seen: _random_action(env, seen, num_envs, jr.key(0)), observation
    )
    result = shapes("step", state, action, keys)
    _check_result(result, num_envs)
    check_signature("step", state, result[0])
    if isinstance(env, AbstractObservedEnvironment):
        likely = shapes("observation_log_prob", observation, state, action, state)
        scalar = getattr(likely, "shape", None) == (num_envs,)
        if not (scalar and jnp.issubdtype(likely.dtype, jnp.floating)):
            got = kind(likely) if hasattr(likely, "dtype") else _named(likely)
            fail(f"observation_log_prob returns {got}; it must be a floating scalar.")


def _check(env: Any, key: PRNGKeyArray, num_steps: int, num_envs: int) -> EnvironmentReport:
    _check_shapes(env, num_envs)
    init, step, observe = (jax.jit(batched(env, name)) for name in ("init", "step", "observe"))
    ikey, akey, skey = jr.split(key, 3)
    ikeys = jr.split(ikey, num_envs)
    state = init(ikeys)
    check_strong("init", state)
    check_same("init", state, init(jr.clone(ikeys)))
    observation = observe(state)
    if observation.legal is not None and _stuck(env, observation.legal).any():
        fail("an initial state has no legal action; every state that is not final needs one.")
    likely = None
    if isinstance(env, AbstractObservedEnvironment):
        likely = jax.jit(batched(env, "observation_log_prob"))
        none = jnp.full(num_envs, -1, jnp.int32)
        _check_likely("init, with action -1", likely(observation, state, none, state))
    over = np.zeros(num_envs, np.bool_)
    counts = np.zeros(5, np.int64)
    looked, played = [], []
    for i in range(num_steps):
        action = _random_action(env, observation, num_envs, jr.fold_in(akey, i))
        skeys = jr.split(jr.fold_in(skey, i), num_envs)
        next_state, transition = step(state, action, skeys)
        if i == 0:
            check_strong("step", next_state)
            check_same("step", (next_state, transition), step(state, action, jr.clone(skeys)))
            check_pure("init", init, batched(env, "init"), ikeys)
            check_pure("step", step, batched(env, "step"), state, action, skeys)
            check_pure("observe", observe, batched(env, "observe"), state)
        if i in (0, num_steps // 2, num_steps - 1):
            looked.append((state, action, over))
            if getattr(env, "random", None) is False:
                other = step(state, action, jr.split(jr.fold_in(akey, num_steps + i), num_envs))
                how = "with another key, where `random` is False,"
                check_same("step", (next_state, transition), other, how)
        if isinstance(env, AbstractHiddenEnvironment):
            played.append((state, action))
        observation = observe(next_state)
        counts += check_laws(f"step {i}", over, transition)
        if likely is not None:
            shown = np.asarray(likely(observation, state, action, next_state))
            _check_likely(f"step {i}", shown[~over])
        state = next_state
        over = over | np.asarray(transition.last)
        _check_values(env, i, over, observation)
    if counts[4] and getattr(env, "num_players", 2) == 1:
        fail("a discount is -1, which gives the move to the opponent; num_players is 1.")
    filtered = isinstance(env, Filtered)
    if isinstance(env, AbstractChanceEnvironment) or (filtered and env.num_outcomes != 0):
        stacked = jax.tree.map(lambda *x: jnp.concatenate([jnp.asarray(y) for y in x]), *looked)
        if filtered:  # what is believed after the end means nothing
            going = np.flatnonzero(~np.asarray(stacked[2]))
            stacked = jax.tree.map(lambda x: x[going], stacked)
        name = "imagine" if filtered else "step"
        check_chance(env, name, *stacked, key=jr.fold_in(skey, num_steps))
    if isinstance(env, AbstractHiddenEnvironment):
        check_hidden(env, step, observe, played, key=jr.fold_in(skey, num_steps + 1))
    size = sum(x.nbytes for x in jax.tree.leaves(state)) // num_envs
    return EnvironmentReport(*(int(count) for count in counts), state_bytes=size)


def _random_action(env: Any, observation: Observation, num_envs: int, key: PRNGKeyArray) -> Array:
    if isinstance(env, AbstractContinuousEnvironment):
        shape = (num_envs, env.action_size)
        return jr.uniform(key, shape, jnp.float32, minval=-1.0, maxval=1.0)
    assert observation.legal is not None
    logits = jnp.where(observation.legal, jnp.float32(0), jnp.float32(-jnp.inf))
    if isinstance(env, AbstractDiscreteEnvironment):
        return jr.categorical(key, logits).astype(jnp.int32)
    rows = _components(env, logits)
    keys = jr.split(key, len(rows))
    drawn = [jr.categorical(k, row) for k, row in zip(keys, rows, strict=True)]
    return jnp.stack(drawn, axis=-1).astype(jnp.int32)


def _components(env: Any, legal: Array) -> list[Array]:
    """The mask of each component, `[num_envs, values]`; a discrete action has one component."""
    if isinstance(env, AbstractDiscreteEnvironment):
        return [legal]
    return jnp.split(legal, np.cumsum(env.num_values)[:-1], axis=-1)


def _check_attributes(env: Any) -> None:
    match env:
        case AbstractDiscreteEnvironment():
            name = "num_actions"
        case AbstractContinuousEnvironment():
            name = "action_size"
        case AbstractFactoredEnvironment():
            name = "num_values"
        case _:
            fail(
                "must be an AbstractDiscreteEnvironment, an AbstractFactoredEnvironment or an "
                "AbstractContinuousEnvironment; derive from one of them."
            )
    size = getattr(env, name)
    if name == "num_values":
        if type(size) is not tuple or not size or any(type(n) is not int or n < 1 for n in size):
            fail(f"{name} is {size!r}; it must be a tuple of Python ints of at least 1.")
    elif type(size) is not int or size < 1:
        fail(f"{name} is {size!r}; it must be a Python int of at least 1.")
    if type(env.hidden) is not bool:
        fail(f"hidden is {env.hidden!r}; it must be True or False.")
    players = getattr(env, "num_players", 1)
    if type(players) is not int or players not in (1, 2):
        fail(f"num_players is {players!r}; it must be 1 or 2.")


def _check_result(result: Any, num_envs: int) -> None:
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"{len(result)} things" if isinstance(result, tuple) else _named(result)
        fail(f"step returns {got}; return (state, Transition).")
    transition = result[1]
    if not isinstance(transition, Transition):
        fail(f"step returns a state and {_named(transition)}; return (state, Transition).")
    for name, dtype in (("reward", jnp.floating), ("discount", jnp.floating), ("last", jnp.bool_)):
        leaf = getattr(transition, name)
        if leaf.shape != (num_envs,) or not jnp.issubdtype(leaf.dtype, dtype):
            fail(f"{name} is {kind(leaf)}; it must be a {dtype.__name__} scalar.")


def _check_observation(env: Any, observation: Any, num_envs: int) -> None:
    if not isinstance(observation, Observation):
        fail(f"observe returns {_named(observation)}; return a zero_envs.Observation.")
    if not jax.tree.leaves(observation.features):
        fail("observe returns no features; return at least one array.")
    legal = observation.legal
    if isinstance(env, AbstractContinuousEnvironment):
        if legal is not None:
            fail("observe returns a legal mask; with continuous actions it must be None.")
        return
    discrete = isinstance(env, AbstractDiscreteEnvironment)
    size = env.num_actions if discrete else sum(env.num_values)
    if legal is None or legal.dtype != jnp.bool_ or legal.shape != (num_envs, size):
        got = "None" if legal is None else kind(legal)
        fail(f"the legal mask is {got}; it must be bool[{size}].")


def _named(thing: Any) -> str:
    """The kind of thing that a method returned, as its author calls it."""
    return "an array" if isinstance(thing, jax.ShapeDtypeStruct) else f"a {type(thing).__name__}"


def _check_values(env: Any, i: int, over: np.ndarray, observation: Observation) -> None:
    for name, leaf in leaves(observation.features):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            fail(f"step {i}: features{name} are not finite.")
    if observation.legal is not None and (_stuck(env, observation.legal) & ~over).any():
        fail(f"step {i}: a state that is not final has no legal action.")


def _check_likely(where: str, log_prob: Any) -> None:
    if not np.isfinite(log_prob).all():
        fail(f"{where}: observation_log_prob of what was observed is not finite.")


def _stuck(env: Any, legal: Array) -> np.ndarray:
    """The rows in which some component has no legal value."""
    playable = [np.asarray(row).any(axis=-1) for row in _components(env, legal)]
    return ~np.all(playable, axis=0)
