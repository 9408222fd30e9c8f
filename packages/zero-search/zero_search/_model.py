"""What a planner plans over. Batch-native: every array has a leading batch axis."""

import abc
from collections.abc import Callable
from typing import Any, Generic, Protocol, runtime_checkable, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._check import check_prediction, check_step, unpacked
from ._types import Bools, Floats, Ints, Keys, Node, PerAction, Prediction, Stepped


State = TypeVar("State")
Afterstate = TypeVar("Afterstate")

# The largest value, reward or discount that counts as finite. Sums of such numbers are still
# finite floats; an overflow would end in NaN scores.
LARGEST = 1e30


class AbstractModel(eqx.Module, Generic[Node]):
    """A model of the world that a planner may step. `Node` is any pytree of `[batch, ...]`.

    The model says what kind of world it is by what its nodes are. Where everything is visible they
    are the states of the world. Where something is hidden they are guesses at the state, or beliefs
    ([`zero_search.BeliefModel`][]). A learned model's nodes are latent states. Planners never look
    at a state themselves.

    A model that draws in `step` and knows no odds may say so by an attribute `random` that is true:
    a [`zero_search.TreeSearch`][] then keeps several drawn outcomes of an action.
    """

    @abc.abstractmethod
    def root(self, state: PyTree[Array], obs: Any, /, *, key: Keys) -> Node:
        """Returns what a planner may know of the positions that it starts from.

        A visible world returns `state`. A hidden one draws from the posterior, so that two states
        which the player cannot tell apart give the same nodes for the same key.

        **Arguments:**

        - `state`: the true states.
        - `obs`: what the players observe there; `None` where no environment is around.
        """

    @abc.abstractmethod
    def step(self, node: Node, action: Ints, /, *, key: Keys) -> Stepped[Node]:
        """Plays one action in every row.

        **Returns:** `(next_node, reward, discount, last)`. The reward belongs to the player who
        acts. The signed discount turns the value of the next node into the view of that player: it
        is negative when the opponent moves next and 0 at the end, and its size is the agent's
        gamma. A row whose node is final must not raise or return NaN.
        """


class AbstractPriorModel(AbstractModel[Node], Generic[Node]):
    """A model with an evaluator over discrete actions."""

    @abc.abstractmethod
    def predict(self, node: Node, /, *, key: Keys) -> Prediction:
        """Returns prior logits and the value for the player to move.

        A logit of `-inf` marks an illegal action.
        """


class AbstractHiddenModel(AbstractPriorModel[Node], Generic[Node]):
    """A model of a world that may hide something from the player to move.

    Its `root` draws a guess at the state, and `signal` tells what a step shows to the player.
    [`zero_search.BeliefModel`][] makes beliefs of the two.
    """

    @property
    @abc.abstractmethod
    def num_signals(self) -> int:
        """The number of different signals; 0 where nothing is hidden."""

    @abc.abstractmethod
    def signal(self, node: Node, action: Ints, next_node: Node, /) -> Ints:
        """Returns what the player learns from a step: a number below `num_signals`.

        It tells whatever `predict` depends on, and the `discount` and `last` of the step: nodes
        that look alike, and give the same signals to the same actions, look alike afterwards. The
        reward need not be told. Zeros where nothing is hidden.
        """


class AbstractChanceModel(AbstractPriorModel[Node], Generic[Node, Afterstate]):
    """A model that knows the probabilities of its random outcomes.

    An action leads from a node to an afterstate, in which nothing is random; an outcome then leads
    to the next node. [`zero_search.TreeSearch`][] gives afterstates nodes of their own, so that its
    values are expectations. `step` draws an outcome with the same probabilities, for planners that
    only sample. `Afterstate` is any pytree of `[batch, ...]`.

    Antonoglou et al. 2022, "Planning in stochastic environments with a learned model".
    """

    @property
    @abc.abstractmethod
    def num_outcomes(self) -> int:
        """The number of outcomes; 0 where nothing is left to chance, and then the methods below
        are never called."""

    @abc.abstractmethod
    def afterstate(self, node: Node, action: Ints, /) -> Afterstate:
        """Returns what lies between the action and its outcome."""

    @abc.abstractmethod
    def outcome_logits(self, afterstate: Afterstate, /) -> Float[Array, "batch outcomes"]:
        """Returns log-probabilities of the outcomes, up to a constant a row.

        `-inf` marks an impossible outcome. Where a single outcome is possible the search spends no
        node on the afterstate.
        """

    @abc.abstractmethod
    def afterstate_value(self, afterstate: Afterstate, /, *, key: Keys) -> Floats | None:
        """Returns the value for the player who acted, with the reward of the move.

        `None` stands for a model that evaluates nodes only.
        """

    @abc.abstractmethod
    def resolve(self, afterstate: Afterstate, outcome: Ints, /) -> Stepped[Node]:
        """Returns what an outcome leads to.

        **Returns:** `(next_node, reward, discount, last)` of the whole move, action and outcome,
        as [`zero_search.AbstractModel.step`][] does. It may be called with any outcome.
        """


@runtime_checkable
class Proposal(Protocol):
    """A policy over the actions of ONE state, such as the distributions of zero-nets.

    Any pytree with these methods will do.
    """

    def sample(self, *, key: PRNGKeyArray) -> PyTree[Array]:
        """Draws one action."""
        ...

    def log_prob(self, action: Any) -> Float[Array, ""]:
        """The log-probability, or log-density, of one action: summed over its dimensions."""
        ...


class AbstractProposalModel(AbstractModel[Node], Generic[Node]):
    """A model with an evaluator over any actions, above all continuous ones.

    Discrete actions have logits: for those, an [`zero_search.AbstractPriorModel`][] serves every
    planner.
    """

    @abc.abstractmethod
    def step(self, node: Node, action: PyTree[Array], /, *, key: Keys) -> Stepped[Node]:
        """As [`zero_search.AbstractModel.step`][], with an action that the policy draws."""

    @abc.abstractmethod
    def propose(self, node: Node, /, *, key: Keys) -> tuple[Proposal, Floats]:
        """Returns one policy a row and the values for the players to move.

        The policies are one pytree whose arrays all begin with the batch axis: what
        `jax.vmap(network)(observations)` returns. Planners vmap its methods.
        """


def stepped(
    model: AbstractModel[Node], node: Node, action: PyTree[Array], key: Keys
) -> Stepped[Node]:
    """What `model.step` returns, if it has the right shapes."""
    names = "next_node, reward, discount, last"
    found = unpacked("model.step", model.step(node, action, key=key), names)
    check_step(node, found)
    return tuple(found)


def predicted(
    model: AbstractPriorModel[Node], node: Node, key: Keys, num_actions: int | None = None
) -> Prediction:
    """What `model.predict` returns, if it has the right shapes."""
    logits, value = unpacked("model.predict", model.predict(node, key=key), "logits, value")
    check_prediction(logits, value, key.shape[0], num_actions)
    return logits, value


def guesses(
    model: AbstractModel[Node],
    state: PyTree[Array],
    obs: Any,
    number: int,
    keys: Callable[[Int[Array, ""]], Keys],
) -> Node:
    """So many draws of `model.root` for every row, along the second axis; `keys` of the number of
    a draw are its keys.

    They are not drawn as so many times the rows: what `root` works out of a state alone, such as
    the tables of an exact posterior, is then shared by its guesses. And keys are derived one draw
    at a time, for the check of key reuse cannot follow a transposed array of them.
    """
    guess = lambda i: model.root(state, obs, key=keys(i))
    return jax.vmap(guess, out_axes=1)(jnp.arange(number, dtype=jnp.int32))


def masked_edge(
    reward: Floats, discount: Floats, most: float = 1.0
) -> tuple[Floats, Floats, Bools]:
    """Rewards and discounts in float32, and the rows where one had to be changed: what is not
    finite, a reward beyond `LARGEST` or a discount beyond `-most` or `most` becomes 0."""
    edge = jnp.stack([reward.astype(jnp.float32), discount.astype(jnp.float32)])
    known = jnp.abs(edge) <= np.array([[LARGEST], [most]], np.float32)
    reward, discount = jnp.unstack(jnp.where(known, edge, 0.0))
    return reward, discount, ~jnp.all(known, axis=0)


def masked_prediction(logits: PerAction, value: Floats) -> tuple[PerAction, Floats, Bools]:
    """A prediction in float32 with finite numbers, and the rows where it had to be changed.

    A NaN among the logits makes that action the least likely one, `+inf` the most likely; a value
    that is not finite, or beyond `LARGEST`, becomes 0. A logit of `-inf` stays: it means illegal.
    """
    check_prediction(logits, value, jnp.shape(value)[0] if jnp.ndim(value) else 0, None)
    logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)
    # Half of what a float holds, so that the difference of two logits is finite.
    limit = float(jnp.finfo(jnp.float32).max) / 2
    unknown = jnp.isnan(logits)
    clean = jnp.where(unknown, -limit, jnp.clip(logits, -limit, limit))
    clean = jnp.where(logits == -jnp.inf, -jnp.inf, clean)
    known = jnp.abs(value) <= LARGEST
    invalid = jnp.any(unknown | (logits == jnp.inf), axis=1) | ~known
    return clean, jnp.where(known, value, 0.0), invalid
