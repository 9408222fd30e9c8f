"""The positions that MuZero's model is unrolled over: what they learn, and what it says of them."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from ._latent import PrefixNetwork, StochasticNetwork, turned
from ._mesh import select_rows


#: What priorities of windows that teach something, lengths and shares are kept above.
LEAST = 1e-6
#: At it the softmax of an encoder's scores is nearly one-hot, as the scores themselves become.
CODE_TEMPERATURE = 0.1


class Unrolled(eqx.Module):
    """What an unroll of `K` steps from the first row of a window learns. Losses of weight 0 do not
    count.

    After the true end of an episode nothing follows: rewards and values are 0, actions are drawn
    and policies are free. After a truncated one nothing is known.

    **Attributes:**

    - `action`: those of the unroll.
    - `chance`: drawn from [0, 1): which of its codes a stochastic model takes after a true end.
    - `reward`, `reward_weight`: of the step that led to each position; of weight 0 at the first.
    - `value`, `value_weight`: of each position: the first row, and after each step.
    - `policy`, `policy_weight`: likewise.
    - `candidates`: the actions that `policy` weighs; `None` for all of them, in order.
    """

    action: PyTree[Array]
    chance: Float[Array, "*axes steps"]
    reward: Float[Array, "*axes positions"]
    reward_weight: Float[Array, "*axes positions"]
    value: Float[Array, "*axes positions"]
    value_weight: Float[Array, "*axes positions"]
    policy: Float[Array, "*axes positions candidates"]
    policy_weight: Float[Array, "*axes positions"]
    candidates: PyTree[Array] = None

    @property
    def played(self) -> Bool[Array, "*axes steps"]:
        """Which steps were played: those from positions where a policy is learned."""
        return self.policy_weight[..., :-1] > 0


def check_network(
    network: Any, *, num_unroll: int, num_players: int, consistency: float, memory_steps: int
) -> None:
    """Raises unless MuZero's network has what its losses need, and the agent what the network
    needs."""
    name = type(network).__name__
    if consistency and not callable(getattr(network, "project", None)):
        raise ValueError(
            f"MuZero(consistency={consistency}): {name} has no `project` and `predict_projection`; "
            "give it both, or a consistency of 0."
        )
    if isinstance(network, PrefixNetwork) and network.prefix_steps > num_unroll:
        raise ValueError(
            f"MuZero(num_unroll={num_unroll}): {name} sums {network.prefix_steps} rewards, of "
            f"which the last would never be learned; give it at most {num_unroll} `prefix_steps`."
        )
    remembers = getattr(network, "memory", None) is not None
    if remembers != (memory_steps > 0):
        raise ValueError(
            f"MuZero(memory_steps={memory_steps}): {name} has {'a' if remembers else 'no'} "
            "`memory`; give at least 1 to a network with a memory, and 0 to one without."
        )
    if remembers and num_players == 2:
        raise ValueError(
            f"MuZero(num_players=2): {name} has a `memory`, but in a game of two a player plans, "
            "and remembers, its own moves alone; give it none."
        )


def summed(network: Any, learned: Unrolled, num_players: int) -> Unrolled:
    """The same with the value prefixes of the rewards, if it is these that the network predicts."""
    if not isinstance(network, PrefixNetwork):
        return learned
    prefix, prefixes = learned.reward[:, 0], [learned.reward[:, 0]]
    for k in range(1, learned.reward.shape[1]):
        begins = (k - 1) % network.prefix_steps == 0
        prefix = learned.reward[:, k] + (0 if begins else turned(prefix, num_players))
        prefixes.append(prefix)
    return dataclasses.replace(learned, reward=jnp.stack(prefixes, axis=1))


def chance_codes(
    network: StochasticNetwork,
    features: PyTree[Array],
    played: Bool[Array, " steps"],
    chance: Float[Array, " steps"],
) -> tuple[Float[Array, "steps codes"], Float[Array, "steps codes"]]:
    """The encoder's scores and the code of every step between the positions of one window: the
    highest, or where nothing was played a drawn one."""
    before: Any = jax.tree.map(lambda x: x[:-1], features)
    after: Any = jax.tree.map(lambda x: x[1:], features)
    scores: Any = jax.vmap(network.encode)(before, after)
    one_hot = ft.partial(jax.nn.one_hot, num_classes=network.num_codes, dtype=jnp.float32)
    highest: Any = one_hot(jnp.argmax(scores, axis=1))
    straight = scores + jax.lax.stop_gradient(highest - scores)
    drawn = one_hot((chance * network.num_codes).astype(jnp.int32))
    return scores, jnp.where(played[:, None], straight, drawn)


def likeness(network: Any, hidden: Array, features: PyTree[Array]) -> Float[Array, ""]:
    """The cosine between what a hidden state predicts and what is observed, which is held fixed."""
    predicted = network.predict_projection(network.project(hidden))
    observed = jax.lax.stop_gradient(network.project(network.represent(features)))
    # A length of 0 has no gradient.
    length = lambda x: jnp.sqrt(jnp.sum(jnp.square(x)) + LEAST)
    return jnp.sum(predicted * observed) / (length(predicted) * length(observed))


def code_entropy(
    codes: Float[Array, "batch steps codes"], weights: Float[Array, "batch steps"]
) -> Float[Array, ""]:
    """In nats, of how often each code is taken; 0 where it is always the same one."""
    counts = jnp.sum(weights[..., None] * codes, axis=(0, 1))
    shares = counts / jnp.maximum(jnp.sum(counts), LEAST)
    # With a finite gradient where a share is 0.
    return -jnp.sum(shares * jnp.log(jnp.maximum(shares, LEAST)))


def unroll(
    network: Any, features: PyTree[Array], learned: Unrolled
) -> tuple[tuple[Array, Array] | None, tuple[Array, Array, Any, Array, Any]]:
    """Of one window what `chance_codes` returns, or `None` unless the network is stochastic; and
    the hidden states after each step, the rewards, policies and values of all positions, and with
    codes what is predicted of its afterstates. The first reward is filler. A network of prefixes
    gives these for rewards."""
    stochastic, summing = (isinstance(network, x) for x in (StochasticNetwork, PrefixNetwork))
    coded = None
    if stochastic:
        coded = chance_codes(network, features, learned.played, learned.chance)
    begun = network.init() if summing else None

    def body(state: tuple[Array, Any], step: tuple[Any, Array | None, Array]) -> Any:
        (hidden, carry), (action, code, number), after = state, step, None
        # That of what a prefix remembers is not halved, as in the authors' program.
        before = optax.scale_gradient(hidden, 0.5)
        if stochastic:
            after = network.afterstate(before, action)
            hidden, reward = network.resolve(after, code)
        elif summing:
            carry = select_rows(number % network.prefix_steps == 0, begun, carry)
            hidden, reward, carry = network.step(before, action, carry)
        else:
            hidden, reward = network.step(before, action)
        return (hidden, carry), (hidden, reward, after)

    first = network.represent(jax.tree.map(lambda x: x[0], features))
    numbers = jnp.arange(learned.chance.size, dtype=jnp.int32)
    # Not in a loop, where a CPU takes many times as long for the gradient of a convolution.
    steps = learned.action, None if coded is None else coded[1], numbers
    _, (hidden, rewards, after) = jax.lax.scan(body, (first, begun), steps, unroll=True)
    policies, values = jax.vmap(network.predict)(jnp.concatenate([first[None], hidden]))
    afterstates = None if after is None else jax.vmap(network.predict_afterstate)(after)
    rewards = jnp.concatenate([rewards[:1], rewards])
    return coded, (hidden, rewards, policies, values, afterstates)
