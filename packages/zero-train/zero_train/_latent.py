"""Learned models, which know of an environment only what was observed."""

import dataclasses
import functools as ft
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PyTree

from zero_envs import Observation
from zero_search import (
    AbstractChanceModel,
    AbstractModel,
    AbstractProposalModel,
    Proposal,
    sampled_step,
)

from ._agent import Experience
from ._mesh import select_rows, split_rows
from ._model import check_gamma, decoded, Floats, Ints, Keys, Prediction, Stepped, ValueCode
from ._policies import masked, normalised, Statistics
from ._recurrent import fresh, recalled, RecurrentNetwork


class _Network(Protocol):
    """What all learned models have."""

    def represent(self, features: Any, /) -> Array:
        """The hidden state of the features of an observation."""
        ...

    def predict(self, hidden: Array) -> tuple[Any, Array]:
        """The logits, or for a [`zero_train.LatentPolicyModel`][] the policy, and the value of a
        hidden state, for the player to move."""
        ...


@runtime_checkable
class LatentNetwork(_Network, Protocol):
    """What MuZero learns, each for ONE example, as a `zero_nets.WorldModel` does.

    A network with a memory has it as its attribute `memory`, a [`zero_train.RecurrentNetwork`][] of
    features. In the place of features `represent` then takes the pair of them and the result of the
    memory.
    """

    def step(self, hidden: Array, action: Any) -> tuple[Array, Array]:
        """The next hidden state and the reward of the step."""
        ...


@runtime_checkable
class PrefixNetwork(_Network, Protocol):
    """A [`zero_train.LatentNetwork`][] that predicts value prefixes, as a
    `zero_nets.PrefixWorldModel` does (EfficientZero, Ye et al. 2021,
    https://arxiv.org/abs/2111.00210, section 4.2): after each step the sum of the rewards so far,

    `P_k = r_k + P_(k-1)`, between two players `r_k - P_(k-1)`, for the player who moved,

    of at most `prefix_steps` steps, after which the sum begins anew with `P_0 = 0` and the carry of
    `init`. Nothing in it is discounted. A plan has their differences for rewards."""

    prefix_steps: int

    def init(self) -> PyTree[Array]:
        """The carry before the first step of a sum."""
        ...

    def step(
        self, hidden: Array, action: Any, carry: PyTree[Array]
    ) -> tuple[Array, Array, PyTree[Array]]:
        """The next hidden state, the sum up to it, and the next carry."""
        ...


@runtime_checkable
class StochasticNetwork(_Network, Protocol):
    """What Stochastic MuZero learns, each for ONE example, as a `zero_nets.StochasticWorldModel`
    does. An action leads from a hidden state to an afterstate, and a code of what chance did from
    there to the next hidden state."""

    num_codes: int

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

    def encode(self, features: Any, next_features: Any, /) -> Float[Array, " codes"]:
        """A score for each code, of two observations in turn: the highest is what chance did
        between them."""
        ...


class LatentPrefix(eqx.Module):
    """The sum of the rewards of the last `steps` steps, for the player who moved, and what the
    network remembers of them."""

    carry: PyTree[Array]
    total: Floats
    steps: Ints


class LatentNode(eqx.Module):
    """A hidden state, and the actions that a plan may take there: those that are legal at the root,
    and below it all, since the network alone knows what comes then. `None` where all are. With a
    [`zero_train.PrefixNetwork`][] also the sum that its rewards are told from."""

    hidden: Float[Array, "batch ..."]
    legal: Bool[Array, "batch actions"] | None
    prefix: LatentPrefix | None = None


class LatentAfterstate(eqx.Module):
    """An afterstate in the place of a hidden state, and what the network says of it."""

    node: LatentNode
    logits: Float[Array, "batch codes"]
    value: Floats


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
        the value. With a memory the features of the observation are, here and in `root` and
        `imagine`, the pair of what is observed and the memory before that."""
        return self.judged(self.seen(obs)[0])

    @property
    def memory(self) -> RecurrentNetwork | None:
        """That of the network, if it has one."""
        return getattr(self.network, "memory", None)

    def seen(self, obs: Observation) -> tuple[Any, PyTree[Array]]:
        """What the network represents of one observation, and the memory after it."""
        if self.memory is None:
            return normalised(self.statistics, obs.features), None
        features, memory = obs.features
        features = normalised(self.statistics, features)
        said, memory = self.memory(features, memory)
        return (features, said), memory

    def read(self, rows: Experience) -> Any:
        """What the network represents of windows `[batch, time]`, read in turn from the memory that
        is stored with their first rows."""
        features = normalised(self.statistics, rows.obs.features)
        if self.memory is None:
            return features
        return features, recalled(self.memory, features, rows)

    def judged(self, seen: Any) -> tuple[Any, Float[Array, ""]]:
        """The policy and the decoded value of one input of `represent`, as `seen` or `read` makes
        it."""
        policy, value = self.network.predict(self.network.represent(seen))
        return policy, decoded(self.code, value)

    def root(self, state: PyTree[Array], obs: Observation | None, *, key: Keys) -> LatentNode:
        if obs is None:
            raise ValueError(
                f"{type(self).__name__} plans from observations, and was given none: use a planner "
                "without `reuse`, and give `plan` the observations."
            )
        hidden = jax.vmap(lambda obs: self.network.represent(self.seen(obs)[0]))(obs)
        prefix = self._begun(len(hidden)) if isinstance(self.network, PrefixNetwork) else None
        return LatentNode(hidden, obs.legal, prefix)

    def _begun(self, rows: int) -> LatentPrefix:
        return LatentPrefix(
            fresh(self.network, rows), jnp.zeros(rows, jnp.float32), jnp.zeros(rows, jnp.int32)
        )

    def predicted(self, node: LatentNode) -> tuple[Any, Floats]:
        """What the network predicts for hidden states, values decoded."""
        policy, value = jax.vmap(self.network.predict)(node.hidden)
        return policy, self.numbers(value)

    def moved(self, node: LatentNode, action: PyTree[Array]) -> Stepped[LatentNode]:
        """What a step of a network without chance returns."""
        network, before = self.network, node.prefix
        if before is None:
            return self.stepped(node, *jax.vmap(network.step)(node.hidden, action))
        hidden, total, carry = jax.vmap(network.step)(node.hidden, action, before.carry)
        after, total, discount, last = self.stepped(node, hidden, total)
        reward = total - turned(before.total, self.num_players)
        steps = (before.steps + 1) % network.prefix_steps
        prefix = LatentPrefix(carry, total, steps)
        prefix = select_rows(steps == 0, self._begun(len(steps)), prefix)
        return dataclasses.replace(after, prefix=prefix), reward, discount, last

    def stepped(
        self, before: LatentNode, hidden: Float[Array, "batch ..."], reward: Array
    ) -> Stepped[LatentNode]:
        """What a step returns that leads to these hidden states, with these outputs for rewards."""
        reward = self.numbers(reward)
        legal = jax.tree.map(jnp.ones_like, before.legal)
        last = jnp.zeros(reward.shape, bool)
        discount = turned(jnp.full_like(reward, self.gamma), self.num_players)
        return LatentNode(hidden, legal), reward, discount, last

    def imagine(
        self, obs: Observation, actions: PyTree[Array], *, key: Keys
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

    def numbers(self, output: Array) -> Floats:
        """What the network's outputs for rewards or values stand for."""
        return jax.vmap(ft.partial(decoded, self.code))(output)


class LatentModel(AbstractLatentModel, AbstractChanceModel[LatentNode, LatentAfterstate]):
    """A learned model of discrete actions, see [`zero_train.AbstractLatentModel`][].

    What kind of world it is follows from the network: with a [`zero_train.StochasticNetwork`][]
    tree searches have chance nodes, whose outcomes are the codes (Antonoglou et al. 2022), and with
    a [`zero_train.PrefixNetwork`][] rewards are differences of the sums that it predicts.

    **Attributes:**

    - `network`: a [`zero_train.LatentNetwork`][] or one of these two.
    - `gamma`: the discount factor, as in [`zero_train.EnvironmentModel`][].
    - `num_players`: 1, or 2 who take turns, so that every value is the opponent's one move later.
    - `code`: where rewards and values are logits over atoms, what they stand for.
    - `statistics`: to normalise features by, or `None`.
    """

    network: LatentNetwork | PrefixNetwork | StochasticNetwork
    gamma: float = 1.0
    num_players: int = 1
    code: ValueCode | None = None
    statistics: Statistics | None = None

    @property
    def num_outcomes(self) -> int:
        return self.network.num_codes if isinstance(self.network, StochasticNetwork) else 0

    def step(self, node: LatentNode, action: Ints, *, key: Keys) -> Stepped[LatentNode]:
        if isinstance(self.network, StochasticNetwork):
            return sampled_step(self, node, action, key=key)
        return self.moved(node, action)

    def predict(self, node: LatentNode, *, key: Keys) -> Prediction:
        if node.legal is None:
            raise ValueError(
                "LatentModel was given observations without legal actions, which means continuous "
                "ones; use a LatentPolicyModel, with a zero_search.SampledSearch."
            )
        policy, value = self.predicted(node)
        logits = getattr(policy, "logits", policy)
        if not isinstance(logits, Array):
            raise ValueError(
                f"LatentModel was given a network that predicts a {type(policy).__name__}; use a "
                "LatentPolicyModel, with a zero_search.SampledSearch."
            )
        return jnp.where(node.legal, logits, -jnp.inf), value

    def afterstate(self, node: LatentNode, action: Ints) -> LatentAfterstate:
        assert isinstance(self.network, StochasticNetwork)  # `num_outcomes` is 0 otherwise
        hidden = jax.vmap(self.network.afterstate)(node.hidden, action)
        logits, value = jax.vmap(self.network.predict_afterstate)(hidden)
        node = LatentNode(hidden, jax.tree.map(jnp.ones_like, node.legal))
        return LatentAfterstate(node, logits, self.numbers(value))

    def outcome_logits(self, afterstate: LatentAfterstate) -> Float[Array, "batch outcomes"]:
        return afterstate.logits

    def afterstate_value(self, afterstate: LatentAfterstate, *, key: Keys) -> Floats:
        return afterstate.value

    def resolve(self, afterstate: LatentAfterstate, outcome: Ints) -> Stepped[LatentNode]:
        assert isinstance(self.network, StochasticNetwork)
        code = jax.nn.one_hot(outcome, self.num_outcomes, dtype=jnp.float32)
        node = afterstate.node
        return self.stepped(node, *jax.vmap(self.network.resolve)(node.hidden, code))


class LatentPolicyModel(AbstractLatentModel, AbstractProposalModel[LatentNode]):
    """A learned model of continuous or factored actions, whose network predicts a policy such as
    the distributions of zero-nets. Its attributes are those of a [`zero_train.LatentModel`][]."""

    network: LatentNetwork | PrefixNetwork
    gamma: float = 1.0
    num_players: int = 1
    code: ValueCode | None = None
    statistics: Statistics | None = None

    def step(self, node: LatentNode, action: PyTree[Array], *, key: Keys) -> Stepped[LatentNode]:
        return self.moved(node, action)

    def propose(self, node: LatentNode, *, key: Keys) -> tuple[Proposal, Floats]:
        policy, value = self.predicted(node)
        if isinstance(policy, Array):
            raise ValueError(
                "LatentPolicyModel was given a network that predicts logits; use a LatentModel."
            )
        return jax.vmap(masked)(policy, node.legal), value


def turned(x: Array, num_players: int) -> Array:
    """A number of the player who moved as that of who moves next."""
    return x if num_players == 1 else -x


def check_players(owner: str, num_players: int) -> None:
    """Raises unless one or two play."""
    if type(num_players) is not int or num_players not in (1, 2):
        raise ValueError(f"{owner}(num_players={num_players!r}) must be the int 1 or 2.")
