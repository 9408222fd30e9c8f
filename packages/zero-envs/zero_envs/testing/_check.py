"""Does an environment keep the promises that planners, buffers and training loops rely on?"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._environment import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    AbstractHiddenEnvironment,
    Observation,
)
from ._check_chance import check_chance
from ._check_hidden import check_hidden
from ._check_parts import (
    check_laws,
    check_pure,
    check_same,
    check_signature,
    check_transition,
    fail,
    is_key,
    leaves,
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
    - Every state that is not final has a legal action: a legal value of each component where
        actions are factored.
    - A final state is absorbing: reward 0, discount 0, `last` again.

    Of an [`zero_envs.AbstractChanceEnvironment`][] also, at the first, a middle and the last step:

    - Nothing in an afterstate is random, and no PRNG key is part of one.
    - The outcomes' probabilities add up to 1.
    - `resolve` returns what `step` returns, with the same structure, shapes and dtypes, and every
      possible outcome keeps the promises above.
    - `step` leads where possible outcomes lead, as often as they are probable. A right
      environment fails this with a probability below one in 10^8.

    Of an [`zero_envs.AbstractHiddenEnvironment`][] also, at every step, where `resample` draws two
    other states that look alike:

    - `resample` keeps structure, shapes and dtypes, and all that is seen to the last bit: features
      and legal actions.
    - It does change something, unless `hidden` is False. Whether it draws from the exact posterior
      is **not checked**.
    - A signal is an integer from 0 to `num_signals - 1`.
    - Where states that look alike give the same signal to the same action, whatever the keys of
      `step`, `discount` and `last` are equal, and unless the game is over they look alike again.

    **Arguments:**

    - `env`: the environment, discrete, factored or continuous.
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
    check_same(env, "init", state, init(jr.clone(ikeys)))
    _check_state(env, state)
    observation = observe(state)
    _check_observation(env, observation, num_envs)
    over = np.zeros(num_envs, np.bool_)
    counts = np.zeros(5, np.int64)
    looked, played = [], []
    for i in range(num_steps):
        action = _random_action(env, observation, num_envs, jr.fold_in(akey, i))
        skeys = jr.split(jr.fold_in(skey, i), num_envs)
        next_state, transition = step(state, action, skeys)
        if i == 0:
            check_signature(env, "step", state, next_state)
            check_transition(env, transition, num_envs)
            again = step(state, action, jr.clone(skeys))
            check_same(env, "step", (next_state, transition), again)
            check_pure(
                env,
                lambda: dict(zip(("init", "step", "observe"), _functions(env), strict=True)),
                ((ikeys,), (state, action, skeys), (state,)),
            )
        if i in (0, num_steps // 2, num_steps - 1):
            looked.append((state, action, over))
        if isinstance(env, AbstractHiddenEnvironment):
            played.append((state, action))
        state, observation = next_state, observe(next_state)
        counts += check_laws(env, f"step {i}", over, transition)
        over = over | np.asarray(transition.last)
        _check_values(env, i, over, observation)
    if isinstance(env, AbstractChanceEnvironment):
        stacked = jax.tree.map(lambda *x: jnp.concatenate([jnp.asarray(y) for y in x]), *looked)
        check_chance(env, *stacked, key=jr.fold_in(skey, num_steps))
    if isinstance(env, AbstractHiddenEnvironment):
        check_hidden(env, step, observe, played, key=jr.fold_in(skey, num_steps + 1))
    size = sum(x.nbytes for x in jax.tree.leaves(state)) // num_envs
    return EnvironmentReport(*(int(count) for count in counts), state_bytes=size)


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
    if isinstance(env, AbstractDiscreteEnvironment):
        return jr.categorical(key, logits).astype(jnp.int32)
    rows = _components(env, logits)
    keys = jr.split(key, len(rows))
    drawn = [jr.categorical(k, row) for k, row in zip(keys, rows, strict=True)]
    return jnp.stack(drawn, axis=-1).astype(jnp.int32)


def _components(env: Any, legal: Array) -> list[Array]:
    """`[num_envs, values]` of each component: one, where an action is one integer."""
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
                env,
                "must be an AbstractDiscreteEnvironment, an AbstractFactoredEnvironment or an "
                "AbstractContinuousEnvironment; derive from one of them.",
            )
    size = getattr(env, name)
    if name == "num_values":
        if type(size) is not tuple or not size or any(type(n) is not int or n < 1 for n in size):
            fail(env, f"{name} is {size!r}; it must be a tuple of Python ints of at least 1.")
    elif type(size) is not int or size < 1:
        fail(env, f"{name} is {size!r}; it must be a Python int of at least 1.")
    if type(env.hidden) is not bool:
        fail(env, f"hidden is {env.hidden!r}; it must be True or False.")


def _check_state(env: Any, state: Any) -> None:
    for name, leaf in leaves(state):
        if is_key(name, leaf):
            fail(
                env,
                f"state{name} is a PRNG key, so whoever holds a state can foresee its future; use "
                "the key that step is given.",
            )
        if leaf.weak_type:
            fail(
                env,
                f"state{name} of init is weakly typed, so the second step is traced again; give it "
                "a dtype, for instance jnp.zeros((), jnp.int32).",
            )


def _check_observation(env: Any, observation: Any, num_envs: int) -> None:
    if not isinstance(observation, Observation):
        fail(
            env, f"observe returns a {type(observation).__name__}; return a zero_envs.Observation."
        )
    if not jax.tree.leaves(observation.features):
        fail(env, "observe returns no features; return at least one array.")
    legal = observation.legal
    if isinstance(env, AbstractContinuousEnvironment):
        if legal is not None:
            fail(env, "observe returns a legal mask; with continuous actions it must be None.")
        return
    discrete = isinstance(env, AbstractDiscreteEnvironment)
    size = env.num_actions if discrete else sum(env.num_values)
    if legal is None or legal.dtype != jnp.bool_ or legal.shape != (num_envs, size):
        got = "None" if legal is None else f"{legal.dtype}{list(legal.shape[1:])}"
        fail(env, f"the legal mask is {got}; it must be bool[{size}].")
    if _stuck(env, legal).any():
        fail(env, "an initial state has no legal action; every state that is not final needs one.")


def _check_values(env: Any, i: int, over: np.ndarray, observation: Observation) -> None:
    for name, leaf in leaves(observation.features):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(np.asarray(leaf)).all():
            fail(env, f"step {i}: features{name} are not finite.")
    if observation.legal is None:
        return
    if (_stuck(env, observation.legal) & ~over).any():
        fail(env, f"step {i}: a state that is not final has no legal action.")


def _stuck(env: Any, legal: Array) -> np.ndarray:
    """Where a component has no legal value."""
    playable = [np.asarray(row).any(axis=-1) for row in _components(env, legal)]
    return ~np.all(playable, axis=0)
