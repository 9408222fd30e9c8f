"""From an environment and a network to a model that planners plan over."""

import functools as ft
from collections.abc import Callable
from typing import Any, Generic, Protocol, runtime_checkable, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from zero_envs import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractHiddenEnvironment,
    Observation,
    Transition,
)
from zero_search import (
    AbstractChanceModel,
    AbstractHiddenModel,
    AbstractModel,
    AbstractProposalModel,
    Proposal,
    sampled_step,
)

from ._arrays import check_kind
from ._mesh import split_rows
from ._policies import masked, normalised, Statistics


State = TypeVar("State")

#: The policy logits `[actions]` and the value `[]` of ONE observation, for the player to move.
Evaluator = Callable[[Observation], tuple[Array, Array]]


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

    A pytree, so a jitted function that is given other parameters does not compile again, as it
    would with `lambda obs: network(obs.features)`.

    **Attributes:**

    - `network`: returns logits, or a policy for a [`zero_train.PolicyModel`][], and a value of
        `obs.features`; what it may return beside is left out.
    - `value_code`: where the value is not a number but logits over atoms, what they stand for.
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


def evaluate_batch(
    evaluate: Evaluator, obs: Observation
) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
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
    if not pair or not all(isinstance(x, Array) for x in found):
        raise ValueError("evaluate(obs) must return two arrays: logits and a value")
    logits, value = found
    if logits.shape != legal.shape or value.shape != legal.shape[:1]:
        raise ValueError(
            f"evaluate(obs) returned logits of shape {logits.shape[1:]} and a value of shape "
            f"{value.shape[1:]} for one observation; it must return {legal.shape[1:]} and (): "
            "check the heads of the network"
        )
    return jnp.where(legal, logits, -jnp.inf), value


class EnvironmentModel(
    AbstractChanceModel[State, PyTree[Array]], AbstractHiddenModel[State], Generic[State]
):
    """The batch-native twin of a discrete environment, with an evaluator for its leaves.

    What kind of world it is follows from the environment. Where it hides something, `root` draws
    the hidden part from the posterior. Where it is an [`zero_envs.AbstractChanceEnvironment`][]
    that hides nothing, tree searches have chance nodes, unless their planner has
    `outcomes="frozen"`.

    **Attributes:**

    - `env`: a discrete environment. If it is `hidden` it must be able to `resample`.
    - `evaluate`: returns the logits and the value of an [`zero_envs.Observation`][]. Illegal logits
        are masked here. Give a pytree (a [`zero_train.FeatureEvaluator`][]) and new parameters do
        not compile anew.
    - `gamma`: the discount factor, above 0 and up to 1: it multiplies the signed discounts of the
        environment. Values that the evaluator learned with one gamma should be searched with it.
    """

    env: AbstractEnvironment
    evaluate: Evaluator
    gamma: float = 1.0

    def __check_init__(self):
        name = type(self.env).__name__
        if not isinstance(self.env, AbstractDiscreteEnvironment):
            raise ValueError(
                f"EnvironmentModel(env={name}) has no discrete actions, one integer each, so it "
                "has no prior logits for a tree search; give an AbstractDiscreteEnvironment, or "
                "plan with ParticleSearch or SampledSearch over a PolicyModel"
            )
        if self.env.hidden and not isinstance(self.env, AbstractHiddenEnvironment):
            raise ValueError(
                f"EnvironmentModel(env={name}): its state holds what the player cannot see, and "
                "planners may not see it either; make it an AbstractHiddenEnvironment with "
                "`resample`"
            )
        check_kind("EnvironmentModel", callable, "a function", evaluate=self.evaluate)
        check_gamma("EnvironmentModel", self.gamma)

    @property
    def num_signals(self) -> int:
        return self.env.num_signals if isinstance(self.env, AbstractHiddenEnvironment) else 0

    @property
    def num_outcomes(self) -> int:
        return 0 if self._chance is None else self._chance.num_outcomes

    def root(self, state: State, obs: Observation | None, *, key: Key[Array, " batch"]) -> State:
        if isinstance(self.env, AbstractHiddenEnvironment):
            return jax.vmap(self.env.resample)(state, key=key)
        return state

    def step(
        self, node: State, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return discounted(jax.vmap(self.env.step)(node, action, key=key), self.gamma)

    def predict(
        self, node: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        return evaluate_batch(self.evaluate, jax.vmap(self.env.observe)(node))

    def signal(
        self, node: State, action: Int[Array, " batch"], next_node: State
    ) -> Int[Array, " batch"]:
        if isinstance(self.env, AbstractHiddenEnvironment):
            return jax.vmap(self.env.signal)(node, action, next_node)
        return jnp.zeros_like(action)

    def afterstate(self, node: State, action: Int[Array, " batch"]) -> PyTree[Array]:
        assert self._chance is not None  # `num_outcomes` is 0 otherwise
        return jax.vmap(self._chance.afterstate)(node, action)

    def outcome_logits(self, afterstate: PyTree[Array]) -> Float[Array, "batch outcomes"]:
        assert self._chance is not None
        return jax.vmap(self._chance.outcome_logits)(afterstate)

    def afterstate_value(self, afterstate: PyTree[Array], *, key: Key[Array, " batch"]) -> None:
        return None

    def resolve(
        self, afterstate: PyTree[Array], outcome: Int[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        assert self._chance is not None
        return discounted(jax.vmap(self._chance.resolve)(afterstate, outcome), self.gamma)

    @property
    def _chance(self) -> AbstractChanceEnvironment | None:
        """The environment, where it knows the odds of all that the player cannot foresee."""
        if isinstance(self.env, AbstractChanceEnvironment) and not self.env.hidden:
            return self.env
        return None


def discounted(
    step: tuple[State, Transition], gamma: float
) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
    """An environment's step as a model's: gamma multiplies the signed discount."""
    state, transition = step
    return state, transition.reward, gamma * transition.discount, transition.last


def check_gamma(owner: str, gamma: float) -> None:
    """Raises where gamma is no discount factor of a model."""
    if not (isinstance(gamma, int | float | np.integer | np.floating | Array) and 0 < gamma <= 1):
        raise ValueError(
            f"{owner}(gamma={gamma!r}) must be above 0 and at most 1; a discount of 0 means the end"
        )


@runtime_checkable
class LatentNetwork(Protocol):
    """What MuZero learns, each for ONE example, as a `zero_nets.WorldModel` does."""

    def represent(self, features: Any) -> Array:
        """The hidden state of the features of an observation."""
        ...

    def step(self, hidden: Array, action: Any) -> tuple[Array, Array]:
        """The next hidden state and the reward of the step."""
        ...

    def predict(self, hidden: Array) -> tuple[Any, Array]:
        """The logits, or for a [`zero_train.LatentPolicyModel`][] the policy, and the value of a
        hidden state, for the player to move."""
        ...


@runtime_checkable
class StochasticNetwork(Protocol):
    """What Stochastic MuZero learns, each for ONE example, as a `zero_nets.StochasticWorldModel`
    does. An action leads from a hidden state to an afterstate, and a code of what chance did from
    there to the next hidden state."""

    num_codes: int

    def represent(self, features: Any) -> Array:
        """The hidden state of the features of an observation."""
        ...

    def predict(self, hidden: Array) -> tuple[Array, Array]:
        """The logits and the value of a hidden state, for the player to move."""
        ...

    def afterstate(self, hidden: Array, action: Any) -> Array:
        """What lies between the action and its outcome."""
        ...

    def predict_afterstate(self, afterstate: Array) -> tuple[Array, Array]:
        """The logits of the codes, and the value for the player who acted, with the reward of the
        move."""
        ...

    def resolve(self, afterstate: Array, code: Float[Array, " codes"]) -> tuple[Array, Array]:
        """The next hidden state and the reward of the move; `code` is one-hot."""
        ...

    def encode(self, features: Any, next_features: Any) -> Float[Array, " codes"]:
        """A score for each code, of two observations in turn: the highest is what chance did
        between them."""
        ...


class LatentNode(eqx.Module):
    """A hidden state, and the actions that a plan may take there: those that are legal at the root,
    and below it all, since the network alone knows what comes then. `None` where all are."""

    hidden: Float[Array, "batch ..."]
    legal: Bool[Array, "batch actions"] | None


class LatentAfterstate(eqx.Module):
    """An afterstate in the place of a hidden state, and what the network says of it."""

    node: LatentNode
    logits: Float[Array, "batch codes"]
    value: Float[Array, " batch"]


class AbstractLatentModel(AbstractModel[LatentNode]):
    """A learned model: of the environment it sees an observation and the legal actions of the root,
    and nothing else (Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265).

    Nothing is ever final in it: after an end, the network has learned, there are no rewards. What
    its attributes are, [`zero_train.LatentModel`][] says.
    """

    network: eqx.AbstractVar[Any]
    gamma: eqx.AbstractVar[float]
    num_players: eqx.AbstractVar[int]
    code: eqx.AbstractVar[ValueCode | None]
    statistics: eqx.AbstractVar[Statistics | None]

    def __check_init__(self):
        owner = type(self).__name__
        check_gamma(owner, self.gamma)
        check_players(owner, self.num_players)

    def evaluate(self, obs: Observation) -> tuple[Any, Float[Array, ""]]:
        """What the network predicts for one observation, without a search: logits or a policy, and
        the value."""
        features = normalised(self.statistics, obs.features)
        policy, value = self.network.predict(self.network.represent(features))
        return policy, decoded(self.code, value)

    def root(
        self, state: PyTree[Array], obs: Observation | None, *, key: Key[Array, " batch"]
    ) -> LatentNode:
        if obs is None:
            raise ValueError(
                f"{type(self).__name__} plans from observations, and was given none: use a planner "
                "without `reuse`, and give `plan` the observations."
            )
        features = normalised(self.statistics, obs.features)
        return LatentNode(jax.vmap(self.network.represent)(features), obs.legal)

    def predicted(self, node: LatentNode) -> tuple[Any, Float[Array, " batch"]]:
        """What the network predicts for hidden states, values decoded."""
        policy, value = jax.vmap(self.network.predict)(node.hidden)
        return policy, self.numbers(value)

    def stepped(
        self, before: LatentNode, hidden: Float[Array, "batch ..."], reward: Array
    ) -> tuple[LatentNode, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """What a step returns that leads to these hidden states, with these outputs for rewards."""
        reward = self.numbers(reward)
        sign = self.gamma if self.num_players == 1 else -self.gamma
        legal = jax.tree.map(jnp.ones_like, before.legal)
        last = jnp.zeros(reward.shape, bool)
        return LatentNode(hidden, legal), reward, jnp.full_like(reward, sign), last

    def imagine(
        self, obs: Observation, actions: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch steps"], Float[Array, "batch positions"]]:
        """What the model expects of a line of play, to be compared with what happens. What chance
        does in a stochastic model is drawn.

        **Arguments:**

        - `obs`: what is observed before the first action.
        - `actions`: of every row `[batch, steps]`.

        **Returns:** the reward of each step, and the values before the first and after each, for
        the player to move there.
        """
        rkey, skey = split_rows(key, 2)
        node = self.root(obs, obs, key=rkey)
        values, rewards = [self.predicted(node)[1]], []
        leaves, structure = jax.tree.flatten(actions)
        for i in range(leaves[0].shape[1]):
            keys = jax.vmap(jr.fold_in, in_axes=(0, None))(skey, i)
            action = structure.unflatten([leaf[:, i] for leaf in leaves])
            node, reward, *_ = self.step(node, action, key=keys)
            rewards.append(reward)
            values.append(self.predicted(node)[1])
        return jnp.stack(rewards, axis=1), jnp.stack(values, axis=1)

    def numbers(self, output: Array) -> Float[Array, " batch"]:
        """What the network's outputs for rewards or values stand for."""
        return jax.vmap(ft.partial(decoded, self.code))(output)


class LatentModel(AbstractLatentModel, AbstractChanceModel[LatentNode, LatentAfterstate]):
    """A learned model of discrete actions, see [`zero_train.AbstractLatentModel`][].

    What kind of world it is follows from the network: with a [`zero_train.StochasticNetwork`][]
    tree searches have chance nodes, whose outcomes are the codes (Antonoglou et al. 2022).

    **Attributes:**

    - `network`: see [`zero_train.LatentNetwork`][] and [`zero_train.StochasticNetwork`][].
    - `gamma`: the discount factor, as in [`zero_train.EnvironmentModel`][].
    - `num_players`: 1, or 2 who take turns, so that every value is the opponent's one move later.
    - `code`: where rewards and values are logits over atoms, what they stand for.
    - `statistics`: to normalise features by, or `None`.
    """

    network: LatentNetwork | StochasticNetwork
    gamma: float = 1.0
    num_players: int = 1
    code: ValueCode | None = None
    statistics: Statistics | None = None

    @property
    def num_outcomes(self) -> int:
        return self.network.num_codes if isinstance(self.network, StochasticNetwork) else 0

    def step(
        self, node: LatentNode, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[LatentNode, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        if isinstance(self.network, StochasticNetwork):
            return sampled_step(self, node, action, key=key)
        return self.stepped(node, *jax.vmap(self.network.step)(node.hidden, action))

    def predict(
        self, node: LatentNode, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        if node.legal is None:
            raise ValueError(
                "LatentModel was given observations without legal actions, which means continuous "
                "ones; use a LatentPolicyModel, with a zero_search.SampledSearch."
            )
        logits, value = self.predicted(node)
        return jnp.where(node.legal, logits, -jnp.inf), value

    def afterstate(self, node: LatentNode, action: Int[Array, " batch"]) -> LatentAfterstate:
        assert isinstance(self.network, StochasticNetwork)  # `num_outcomes` is 0 otherwise
        hidden = jax.vmap(self.network.afterstate)(node.hidden, action)
        logits, value = jax.vmap(self.network.predict_afterstate)(hidden)
        node = LatentNode(hidden, jax.tree.map(jnp.ones_like, node.legal))
        return LatentAfterstate(node, logits, self.numbers(value))

    def outcome_logits(self, afterstate: LatentAfterstate) -> Float[Array, "batch outcomes"]:
        return afterstate.logits

    def afterstate_value(
        self, afterstate: LatentAfterstate, *, key: Key[Array, " batch"]
    ) -> Float[Array, " batch"]:
        return afterstate.value

    def resolve(
        self, afterstate: LatentAfterstate, outcome: Int[Array, " batch"]
    ) -> tuple[LatentNode, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        assert isinstance(self.network, StochasticNetwork)
        code = jax.nn.one_hot(outcome, self.num_outcomes, dtype=jnp.float32)
        node = afterstate.node
        return self.stepped(node, *jax.vmap(self.network.resolve)(node.hidden, code))


class LatentPolicyModel(AbstractLatentModel, AbstractProposalModel[LatentNode]):
    """A learned model of continuous or factored actions, whose network predicts a policy such as
    the distributions of zero-nets. Its attributes are those of a [`zero_train.LatentModel`][]."""

    network: LatentNetwork
    gamma: float = 1.0
    num_players: int = 1
    code: ValueCode | None = None
    statistics: Statistics | None = None

    def step(
        self, node: LatentNode, action: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> tuple[LatentNode, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return self.stepped(node, *jax.vmap(self.network.step)(node.hidden, action))

    def propose(
        self, node: LatentNode, *, key: Key[Array, " batch"]
    ) -> tuple[Proposal, Float[Array, " batch"]]:
        policy, value = self.predicted(node)
        return jax.vmap(masked)(policy, node.legal), value


def check_players(owner: str, num_players: int) -> None:
    """Raises unless one or two play."""
    if type(num_players) is not int or num_players not in (1, 2):
        raise ValueError(f"{owner}(num_players={num_players!r}) must be 1 or 2.")


#: The policy and the value `[]` of ONE observation, for the player to move.
PolicyEvaluator = Callable[[Observation], tuple[Any, Array]]


class PolicyModel(AbstractProposalModel[State], Generic[State]):
    """The batch-native twin of an environment of continuous or factored actions, with a policy to
    draw them from. For discrete ones use a [`zero_train.EnvironmentModel`][].

    **Attributes:**

    - `env`: an environment that hides nothing.
    - `evaluate`: returns a policy, such as the distributions of zero-nets, and the value of an
        [`zero_envs.Observation`][]. Where actions are factored, the policy's `logits` are those of
        all components' values, as in a `zero_nets.MultiDiscrete`; illegal ones are masked here.
    - `gamma`: the discount factor, as in [`zero_train.EnvironmentModel`][].
    """

    env: AbstractEnvironment
    evaluate: PolicyEvaluator
    gamma: float = 1.0

    def __check_init__(self):
        if self.env.hidden:
            raise ValueError(
                f"PolicyModel(env={type(self.env).__name__}): its state holds what the player "
                "cannot see, and planners may not see it either; use an environment that hides "
                "nothing."
            )
        check_kind("PolicyModel", callable, "a function", evaluate=self.evaluate)
        check_gamma("PolicyModel", self.gamma)

    def root(self, state: State, obs: Observation | None, *, key: Key[Array, " batch"]) -> State:
        return state

    def step(
        self, node: State, action: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return discounted(jax.vmap(self.env.step)(node, action, key=key), self.gamma)

    def propose(
        self, node: State, *, key: Key[Array, " batch"]
    ) -> tuple[Proposal, Float[Array, " batch"]]:
        def one(state: State) -> tuple[Proposal, Float[Array, ""]]:
            obs = self.env.observe(state)
            policy, value = self.evaluate(obs)
            return masked(policy, obs.legal), value

        return jax.vmap(one)(node)
