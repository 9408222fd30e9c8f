"""From an environment and a network to a model that planners plan over."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, runtime_checkable, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from zero_envs import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractHiddenEnvironment,
    draws,
    Filtered,
    Observation,
    Transition,
)
from zero_search import AbstractChanceModel, AbstractHiddenModel, AbstractProposalModel, Proposal

from ._checks import check_kind, within
from ._policies import masked


State = TypeVar("State")

Keys = Key[Array, " batch"]
Ints = Int[Array, " batch"]
Floats = Float[Array, " batch"]
PerAction = Float[Array, "batch actions"]
# What a model's `predict` and `step` return: `(logits, value)`, and `(next_node, reward, discount,
# last)`.
Prediction = tuple[PerAction, Floats]
Stepped = tuple[State, Floats, Floats, Bool[Array, " batch"]]

#: The policy, or its logits `[actions]`, and the value `[]` of ONE observation, for the player to
#: move.
Evaluator = Callable[[Observation], tuple[Any, Array]]


@runtime_checkable
class ValueCode(Protocol):
    """How a network's value output stands for a number, as a `zero_nets.ValueSupport` does."""

    def decode_logits(self, logits: Float[Array, " atoms"]) -> Float[Array, ""]:
        """The number that logits over the atoms stand for."""
        ...

    def cross_entropy(
        self, logits: Float[Array, " atoms"], value: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The loss of logits for a number, summed over the atoms."""
        ...


class FeatureEvaluator(eqx.Module):
    """An evaluator made of a network of the features alone.

    The network returns logits, or a policy for a [`zero_train.PolicyModel`][], and a value; what it
    may return beside is left out. Where the value is not a number but logits over atoms,
    `value_code` is what they stand for.

    A pytree, so a jitted function that is given other parameters does not compile again, as it
    would with `lambda obs: network(obs.features)`.
    """

    network: Callable[[Any], tuple[Any, ...]]
    value_code: ValueCode | None = None

    def __call__(self, obs: Observation) -> tuple[Any, Float[Array, ""]]:
        policy, value, *_ = self.network(obs.features)
        return policy, decoded(self.value_code, value)


def decoded(code: ValueCode | None, value: Float[Array, "*atoms"]) -> Float[Array, ""]:
    """The number that a network's value output stands for."""
    return value if code is None else code.decode_logits(value)


def number_loss(code: ValueCode | None, output: Array, target: Array) -> Float[Array, ""]:
    """The loss of a network's output for a number: the cross-entropy of `code`, or half the squared
    error without one."""
    if code is None:
        return 0.5 * jnp.square(output - target)
    return code.cross_entropy(output, target)


def evaluate_batch(evaluate: Evaluator, obs: Observation) -> Prediction:
    """Evaluates a batch of observations and marks illegal actions by a logit of `-inf`.

    The only place where legality meets logits. Values, and NaNs of the evaluator on legal
    actions, pass as they are.
    """
    legal = obs.legal
    if legal is None:
        raise ValueError(
            "got an observation without legal actions, which means continuous actions; logits "
            "need discrete ones: use an environment with `num_actions`"
        )
    found = jax.vmap(evaluate)(obs)
    pair = isinstance(found, tuple | list) and len(found) == 2
    logits, value = found if pair else (None, None)
    logits = getattr(logits, "logits", logits)  # of a policy
    if not isinstance(logits, Array) or not isinstance(value, Array):
        raise ValueError("evaluate(obs) must return logits, or a policy that has some, and a value")
    if logits.shape != legal.shape or value.shape != legal.shape[:1]:
        raise ValueError(
            f"evaluate(obs) returned logits of shape {logits.shape[1:]} and a value of shape "
            f"{value.shape[1:]} for one observation; it must return {legal.shape[1:]} and (): "
            "check the heads of the network"
        )
    return jnp.where(legal, logits, -jnp.inf), value


#: The logit of a legal action beside one that wins at once: none at any temperature, and finite in
#: half precision, as `-inf` would mark it as illegal.
_NEVER = -1e4


class EnvironmentModel(
    AbstractChanceModel[State, PyTree[Array]], AbstractHiddenModel[State], Generic[State]
):
    """The batch-native twin of a discrete environment, with an evaluator for its leaves.

    What kind of world it is follows from the environment. Where it hides something, `root` draws
    the hidden part from the posterior. A [`zero_envs.Filtered`][] one is planned over as beliefs.
    Where it is an [`zero_envs.AbstractChanceEnvironment`][] that hides nothing, or a `Filtered` one
    with an [`zero_envs.AbstractChanceFilter`][], tree searches have chance nodes, and where it is
    `random` drawn outcomes, unless their planner has `outcomes="frozen"`.

    **Attributes:**

    - `env`: a discrete environment. If it is `hidden` it must be able to `resample`. It may say by
        an attribute `random` whether its `step` draws; otherwise the trace of a step tells.
    - `evaluate`: returns logits, or a policy that has some, and the value of an
        [`zero_envs.Observation`][]. Illegal logits are masked here. Give a pytree (a
        [`zero_train.FeatureEvaluator`][]) and new parameters do
        not compile anew.
    - `gamma`: the discount factor, above 0 and up to 1: it multiplies the signed discounts of the
        environment. Values that the evaluator learned with one gamma should be searched with it.
    - `evaluate_afterstate`: returns the value of ONE afterstate, with the reward of the move.
        Without it an afterstate has the value of the node behind one of its outcomes.
    - `decisive_moves`: whether the model plays every legal action of a node that it evaluates, to
        see which of them end the episode (Teytaud and Teytaud 2010, "On the huge benefit of
        decisive moves in Monte-Carlo tree search algorithms"). A node is then worth at least what
        such an action pays. Where one pays the greatest return of the environment, its attribute
        `max_return` or 1, the prior is on such actions alone, however unlikely the evaluator thinks
        them. It costs a step of every action, and is for environments that are not random and hide
        nothing.
    """

    env: AbstractEnvironment
    evaluate: Evaluator
    gamma: float = 1.0
    evaluate_afterstate: Callable[[Any], Array] | None = None
    decisive_moves: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        name = type(self.env).__name__
        if not isinstance(self.env, AbstractDiscreteEnvironment):
            raise ValueError(
                f"EnvironmentModel(env={name}) has no discrete actions, one integer each, so it "
                "has no prior logits for a tree search; give an AbstractDiscreteEnvironment, or "
                "plan with ParticleSearch or SampledSearch over a PolicyModel"
            )
        if self.env.hidden and not isinstance(self.env, AbstractHiddenEnvironment | Filtered):
            raise ValueError(
                f"EnvironmentModel(env={name}): its state holds what the player cannot see, and "
                "planners may not see it either; make it an AbstractHiddenEnvironment with "
                "`resample`, or a Filtered one"
            )
        owner, called = "EnvironmentModel", "a function"
        check_kind(owner, Callable, called, evaluate=self.evaluate)
        check_kind(owner, Callable | None, called, evaluate_afterstate=self.evaluate_afterstate)
        check_gamma("EnvironmentModel", self.gamma)
        if self.decisive_moves and (self.env.hidden or self.random or self.num_outcomes):
            raise ValueError(
                f"decisive_moves=True was given for {name}, which is random or hides something, so "
                "that nobody knows before a move whether it ends the episode; give False."
            )

    @property
    def num_signals(self) -> int:
        return self.env.num_signals if isinstance(self.env, AbstractHiddenEnvironment) else 0

    @property
    def num_outcomes(self) -> int:
        return 0 if self._chance is None else self._chance.num_outcomes

    @property
    def random(self) -> bool:
        """Whether `step` draws something of which no odds are known."""
        return self._chance is None and draws(self.env)

    def root(self, state: State, obs: Observation | None, *, key: Keys) -> State:
        if isinstance(self.env, AbstractHiddenEnvironment):
            return jax.vmap(self.env.resample)(state, key=key)
        if isinstance(self.env, Filtered):
            forget: Any = self.env.forget
            return forget(state)
        return state

    def step(self, node: State, action: Ints, *, key: Keys) -> Stepped[State]:
        step: Any = self.env.imagine if isinstance(self.env, Filtered) else self.env.step
        return discounted(jax.vmap(step)(node, action, key=key), self.gamma)

    def predict(self, node: State, *, key: Keys) -> Prediction:
        obs = jax.vmap(self.env.observe)(node)
        logits, value = evaluate_batch(self.evaluate, obs)
        return self._decided(node, obs, logits, value) if self.decisive_moves else (logits, value)

    def _decided(
        self, node: State, obs: Observation, logits: PerAction, value: Floats
    ) -> Prediction:
        assert obs.legal is not None  # `evaluate_batch` refuses that
        actions = jnp.arange(logits.shape[1], dtype=jnp.int32)

        def after(state: State, action: Int[Array, ""]) -> tuple[Transition, Bool[Array, ""]]:
            # Nothing is random, so the key does not matter.
            stepped, move = self.env.step(state, action, key=jr.key(0))
            equal = lambda x, y: jnp.all((x == y) | ((x != x) & (y != y)))  # NaN equals NaN
            same = jax.tree.map(equal, state, stepped)
            return move, jax.tree.reduce(jnp.logical_and, same, move.reward == 0)

        moves, stays = jax.vmap(jax.vmap(after, (None, 0)), (0, None))(node, actions)
        # A final node stays as it is, and where it is truncated its value counts.
        ends = obs.legal & moves.last & (moves.discount == 0) & ~stays
        pays = jnp.where(ends, moves.reward, -jnp.inf)
        wins = pays >= getattr(self.env, "max_return", 1.0)
        won = jnp.any(wins, axis=1, keepdims=True) & obs.legal
        logits = jnp.where(won, jnp.where(wins, 0.0, _NEVER).astype(logits.dtype), logits)
        return logits, jnp.maximum(value, jnp.max(pays, axis=1).astype(value.dtype))

    def signal(self, node: State, action: Ints, next_node: State) -> Ints:
        if isinstance(self.env, AbstractHiddenEnvironment):
            return jax.vmap(self.env.signal)(node, action, next_node)
        return jnp.zeros_like(action)

    def afterstate(self, node: State, action: Ints) -> PyTree[Array]:
        assert self._chance is not None  # `num_outcomes` is 0 otherwise
        return jax.vmap(self._chance.afterstate)(node, action)

    def outcome_logits(self, afterstate: PyTree[Array]) -> Float[Array, "batch outcomes"]:
        assert self._chance is not None
        return jax.vmap(self._chance.outcome_logits)(afterstate)

    def afterstate_value(self, afterstate: PyTree[Array], *, key: Keys) -> Floats | None:
        of = self.evaluate_afterstate
        return None if of is None else jax.vmap(of)(afterstate)

    def resolve(self, afterstate: PyTree[Array], outcome: Ints) -> Stepped[State]:
        assert self._chance is not None
        return discounted(jax.vmap(self._chance.resolve)(afterstate, outcome), self.gamma)

    @property
    def _chance(self) -> Any:
        """The environment, where it knows the odds of all that the player cannot foresee."""
        env = self.env
        knows = isinstance(env, AbstractChanceEnvironment) and not env.hidden
        return env if knows or (isinstance(env, Filtered) and env.num_outcomes > 0) else None


def discounted(step: tuple[State, Transition], gamma: float) -> Stepped[State]:
    """An environment's step as a model's: gamma multiplies the signed discount."""
    state, transition = step
    return state, transition.reward, gamma * transition.discount, transition.last


def check_gamma(owner: str, gamma: float) -> None:
    """Raises where gamma is no discount factor of a model."""
    if not within(gamma, lambda x: (x > 0) & (x <= 1)) or jnp.ndim(gamma):
        raise ValueError(
            f"{owner}(gamma={gamma!r}) must be above 0 and at most 1; a discount of 0 means the end"
        )


class PolicyModel(AbstractProposalModel[State], Generic[State]):
    """The batch-native twin of an environment of continuous or factored actions that hides nothing,
    with a policy to draw them from. For discrete ones use a [`zero_train.EnvironmentModel`][].
    `gamma` is the discount factor, as there.

    `evaluate` returns a policy, such as the distributions of zero-nets, and the value of an
    [`zero_envs.Observation`][]. Where actions are factored, the policy's `logits` are those of all
    components' values, as in a `zero_nets.MultiDiscrete`; illegal ones are masked here.
    """

    env: AbstractEnvironment
    evaluate: Evaluator
    gamma: float = 1.0

    def __check_init__(self):
        if self.env.hidden:
            raise ValueError(
                f"PolicyModel(env={type(self.env).__name__}): its state holds what the player "
                "cannot see, and planners may not see it either; use an environment that hides "
                "nothing."
            )
        check_kind("PolicyModel", Callable, "a function", evaluate=self.evaluate)
        check_gamma("PolicyModel", self.gamma)

    def root(self, state: State, obs: Observation | None, *, key: Keys) -> State:
        return state

    def step(self, node: State, action: PyTree[Array], *, key: Keys) -> Stepped[State]:
        return discounted(jax.vmap(self.env.step)(node, action, key=key), self.gamma)

    def propose(self, node: State, *, key: Keys) -> tuple[Proposal, Floats]:
        def one(state: State) -> tuple[Proposal, Float[Array, ""]]:
            obs = self.env.observe(state)
            policy, value = self.evaluate(obs)
            return masked(policy, obs.legal), value

        return jax.vmap(one)(node)
