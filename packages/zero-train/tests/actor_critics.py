"""What the tests of SPO and MPO share: a world of continuous actions, networks, statistics of
observations, agents, and windows to learn from."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from zero_envs import AbstractContinuousEnvironment, AbstractEnvironment, Observation, Transition
from zero_memory import Batch, TrajectoryBuffer
from zero_search import ParticleSearch
from zero_train import (
    ActorCriticState,
    bind,
    Experience,
    fill,
    init,
    Loop,
    MPO,
    PolicyModel,
    SPO,
    step,
)
from zero_train.losses import DecoupledTrustRegion, Dual, TrustRegion

from .policies import Categorical, Gaussian


FEATURES, DIMS, ACTIONS, CANDIDATES = 3, 2, 4, 5


class AimState(eqx.Module):
    goal: Float[Array, " dims"]
    steps: Int[Array, ""]


class Aim(AbstractContinuousEnvironment[AimState]):
    """Play the goal that is shown: a step costs its squared distance, and the best return is 0.

    After `max_steps` steps the episode is truncated. What is shown is `10 + 4 * goal`, which a
    network makes little of that is not shown it normalised.
    """

    max_steps: int
    action_size: int
    hidden: bool

    def __init__(self, max_steps: int = 3):
        self.max_steps = max_steps
        self.action_size = DIMS
        self.hidden = False

    def init(self, *, key: PRNGKeyArray) -> AimState:
        goal = jr.uniform(key, (DIMS,), jnp.float32, minval=-0.8, maxval=0.8)
        return AimState(goal, jnp.zeros((), jnp.int32))

    def step(
        self, state: AimState, action: Float[Array, " dims"], *, key: PRNGKeyArray
    ) -> tuple[AimState, Transition]:
        del key
        over = state.steps >= self.max_steps
        cost = jnp.sum(jnp.square(jnp.clip(action, -1.0, 1.0) - state.goal))
        steps = state.steps + (~over).astype(jnp.int32)
        goal = jnp.where(over, state.goal, -jnp.roll(state.goal, 1))
        transition = Transition(
            reward=jnp.where(over, 0.0, -cost),
            discount=(~over).astype(jnp.float32),
            last=steps >= self.max_steps,
        )
        return AimState(goal, steps), transition

    def observe(self, state: AimState) -> Observation:
        return Observation(features=10 + 4 * state.goal, legal=None)


class GaussianNet(eqx.Module):
    """A policy of continuous actions whose mean keeps within the bounds."""

    mlp: eqx.nn.MLP

    def __init__(self, size: int, dims: int = DIMS, *, key: PRNGKeyArray):
        self.mlp = eqx.nn.MLP(size, 2 * dims, 16, 1, jnp.tanh, key=key)

    def __call__(self, features: Float[Array, " size"]) -> Gaussian:
        loc, scale = jnp.split(self.mlp(features), 2)
        return Gaussian(jnp.tanh(loc), jax.nn.softplus(scale) + 0.05)


class LogitsNet(eqx.Module):
    """A policy of discrete actions."""

    mlp: eqx.nn.MLP

    def __init__(self, size: int, actions: int, *, key: PRNGKeyArray):
        self.mlp = eqx.nn.MLP(size, actions, 16, 1, jnp.tanh, key=key)

    def __call__(self, features: Float[Array, " size"]) -> Categorical:
        return Categorical(self.mlp(features))


class ValueNet(eqx.Module):
    """A value; or, of features and a continuous action, a Q-value."""

    mlp: eqx.nn.MLP

    def __init__(self, size: int, *, key: PRNGKeyArray):
        self.mlp = eqx.nn.MLP(size, "scalar", 16, 1, jnp.tanh, key=key)

    def __call__(self, features: Float[Array, " size"], *action: Array) -> Float[Array, ""]:
        return self.mlp(jnp.concatenate([features, *action]))


class Moments(eqx.Module):
    """Statistics of vectors: their number, sum and sum of squares."""

    count: Float[Array, ""]
    total: Float[Array, " size"]
    squares: Float[Array, " size"]

    @classmethod
    def zeros(cls, size: int) -> "Moments":
        return cls(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))

    def update(self, batch: Any, weights: Any = None) -> "Moments":
        assert weights is None
        axes = tuple(range(batch.ndim - 1))
        return Moments(
            self.count + batch[..., 0].size,
            self.total + jnp.sum(batch, axes),
            self.squares + jnp.sum(jnp.square(batch), axes),
        )

    def normalise(self, x: Any) -> Any:
        seen = self.count > 0
        count = jnp.where(seen, self.count, 1.0)
        mean = self.total / count
        stddev = jnp.sqrt(jnp.maximum(self.squares / count - mean**2, 0.0))
        stddev = jnp.where(seen, stddev, 1.0)
        spread = lambda y: jnp.expand_dims(y, tuple(range(x.ndim - 1)))
        return (x - spread(mean)) / spread(stddev)


def particle_search(**changes: Any) -> ParticleSearch:
    fields: dict[str, Any] = dict(num_particles=CANDIDATES, depth=2, resample_every=2)
    return ParticleSearch(**{**fields, **changes})


def continuous_region(dims: int = DIMS, **changes: Any) -> DecoupledTrustRegion:
    fields: dict[str, Any] = dict(
        epsilon=0.2,
        epsilon_mean=0.05,
        epsilon_stddev=5e-4,
        temperature=Dual(0.3),
        alpha_mean=Dual(1.2, (dims,)),
        alpha_stddev=Dual(4.0, (dims,)),
    )
    return DecoupledTrustRegion(**{**fields, **changes})


def discrete_region(**changes: Any) -> TrustRegion:
    fields: dict[str, Any] = dict(
        epsilon=0.2, epsilon_policy=1e-2, temperature=Dual(0.3), alpha=Dual(0.8)
    )
    return TrustRegion(**{**fields, **changes})


def _parts(discrete: bool, rate: float) -> dict[str, Any]:
    """Of both agents. Optimisers have rates of their own, that one may be told from another."""
    return dict(
        policy=ft.partial(LogitsNet, FEATURES, ACTIONS)
        if discrete
        else ft.partial(GaussianNet, FEATURES),
        region=discrete_region() if discrete else continuous_region(),
        policy_optimiser=optax.sgd(rate),
        critic_optimiser=optax.sgd(2 * rate),
        dual_optimiser=optax.sgd(3 * rate),
    )


def spo(discrete: bool = False, **changes: Any) -> SPO:
    """SPO of `windows`."""
    fields = dict(
        critic=ft.partial(ValueNet, FEATURES),
        model=ft.partial(PolicyModel, Aim()),
        explorer=particle_search(),
        planner=particle_search(readout="argmax"),
    )
    return SPO(**{**_parts(discrete, 0.1), **fields, **changes})


def mpo(discrete: bool = False, **changes: Any) -> MPO:
    """MPO of `windows`."""
    fields = dict(critic=ft.partial(ValueNet, FEATURES + DIMS), num_samples=CANDIDATES)
    return MPO(**{**_parts(discrete, 0.1), **fields, **changes})


def apart(agent: Any, *, key: int = 0) -> ActorCriticState:
    """A state whose target networks are others than those that are learned, and whose duals
    differ between dimensions."""
    state, other = (agent.init(key=jr.key(key + i)) for i in range(2))
    targets = other.online.policy, other.online.critic
    state = eqx.tree_at(lambda s: (s.target_policy, s.target_critic), state, targets)
    shift = lambda x: x + 0.5 * jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)
    return eqx.tree_at(lambda s: s.online.duals, state, jax.tree.map(shift, state.online.duals))


def aiming(make: Callable[..., Any], **changes: Any) -> Any:
    """An agent of `spo` or `mpo` for the world above."""
    size = DIMS if make is spo else 2 * DIMS
    fields = dict(policy=ft.partial(GaussianNet, DIMS), critic=ft.partial(ValueNet, size))
    return make(**{**fields, **changes})


BATCH, LENGTH = 4, 6


def windows(discrete: bool = False, *, seed: int = 0, record: Any = None) -> Batch:
    """Windows with ends inside and weights of their own; `record` is called with arrays by name.

    The first ends by termination at row 2, the second by truncation at row 3, the third begins
    with a final row and ends with one, the last has a row of weight 0.
    """
    draws = np.random.default_rng(seed)
    shape = BATCH, LENGTH
    last, discount = np.zeros(shape, bool), np.ones(shape)
    last[0, 2] = last[1, 3] = last[2, 0] = last[2, 5] = True
    discount[0, 1] = discount[last] = 0
    reward = np.where(last, 0, draws.normal(size=shape))
    weights = draws.uniform(0.5, 1.5, shape)
    weights[3, 2] = 0
    legal = None
    if discrete:
        # The last action is nowhere legal, the first everywhere, but nothing is at the end.
        legal = draws.random((*shape, ACTIONS)) < 0.7
        legal[..., 0], legal[..., -1] = True, False
        legal[last & (np.arange(LENGTH) == 2)] = False
        pick = lambda rows: draws.choice(ACTIONS, CANDIDATES, p=rows / rows.sum())
        usable = np.where(legal.any(-1, keepdims=True), legal, np.eye(ACTIONS, dtype=bool)[0])
        candidates = np.stack([[pick(rows) for rows in window] for window in usable])
        candidates = jnp.asarray(candidates, jnp.int32)
        action = candidates[..., 0]
    else:
        candidates = jnp.asarray(draws.normal(size=(*shape, CANDIDATES, DIMS)), jnp.float32)
        action = candidates[..., 0, :]
    number = lambda x: jnp.asarray(x, jnp.float32)
    shares = draws.dirichlet(np.ones(CANDIDATES), shape)
    shares[0, 0, 1] = 0
    advantages = draws.normal(size=shares.shape)
    log_prob = draws.normal(-3, 1.5, shape)
    rows = Experience(
        obs=Observation(
            number(draws.normal(size=(*shape, FEATURES))),
            None if legal is None else jnp.asarray(legal),
        ),
        action=action,
        reward=number(reward),
        discount=number(discount),
        last=jnp.asarray(last),
        record=record(
            candidates=candidates,
            weights=number(shares),
            advantages=number(advantages),
            log_prob=number(log_prob),
        ),
    )
    return Batch(rows, number(weights), jnp.zeros(shape, jnp.int32))


def counted(batch: Batch) -> np.ndarray:
    """How much each row counts: none that is final, or the last of its window."""
    counts = np.array(batch.weights, np.float64)
    counts[np.asarray(batch.items.last)] = 0
    counts[:, -1] = 0
    return counts


def each(network: Any, params: Any, *args: Array) -> Any:
    """What a network with these parameters says of every row, in double precision."""
    out = _over_windows(bind(network, params), *args)
    return jax.tree.map(lambda x: np.asarray(x, np.float64), out)


@eqx.filter_jit
def _over_windows(net: Any, *args: Array) -> Any:
    return jax.vmap(jax.vmap(net))(*args)


def moved_by(tree: Any, along: Any, by: float) -> Any:
    return jax.tree.map(lambda x, d: x + by * d, tree, along)


def assert_same(one: Any, other: Any, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def rates(policy: float, critic: float) -> dict[str, Any]:
    return dict(
        policy_optimiser=optax.adam(policy, eps=1e-5),
        critic_optimiser=optax.adam(critic, eps=1e-5),
        dual_optimiser=optax.adam(3e-2, eps=1e-5),
        target_rate=0.05,
    )


def learned(env: AbstractEnvironment, agent: Any, *, blocks: int) -> tuple[Any, Any]:
    """The agent's state before and after so many blocks of 16 environments and 8 rows."""
    buffer = TrajectoryBuffer(capacity=64, num_envs=16, batch_size=16, length=6)
    loop = Loop(env=env, agent=agent, buffer=buffer, unroll_length=8, num_updates=8)
    state = fill(loop, init(loop, key=jr.key(0)))
    before = jax.device_get(state.agent)
    for _ in range(blocks):
        state, metrics = step(loop, state)
        assert np.isfinite(metrics["gradient_norm"])
    return before, state.agent


def aimer(make: Callable[..., Any], **changes: Any) -> Any:
    """An agent that learns the world of `Aim` in a few blocks."""
    region = continuous_region(
        epsilon=0.3,
        epsilon_stddev=5e-3,
        temperature=Dual.from_value(1.0),
        alpha_mean=Dual.from_value(1.0, (DIMS,)),
        alpha_stddev=Dual.from_value(1.0, (DIMS,)),
    )
    return aiming(make, region=region, statistics=Moments.zeros(DIMS), gamma=0.5, **changes)


def aiming_error(agent: Any, state: ActorCriticState) -> float:
    """How far the policy's mean is from the goals that it is shown, in the root mean square."""

    @eqx.filter_jit
    def error(state: ActorCriticState) -> Float[Array, ""]:
        goals = jr.uniform(jr.key(2), (200, DIMS), jnp.float32, minval=-0.8, maxval=0.8)
        net = bind(agent.policy, state.online.policy)
        policy = jax.vmap(net)(state.online.statistics.normalise(10 + 4 * goals))
        return jnp.sqrt(jnp.mean(jnp.square(policy.loc - goals)))

    return float(error(state))
