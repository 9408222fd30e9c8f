"""What the search steps: a `recurrent_fn` as a model, its nodes, and the root."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped, UInt32

from .._check import unpacked
from .._model import AbstractPriorModel
from .._types import Ints, Keys, PerAction, Prediction, Stepped
from ._check import check_output


# How far ties between actions are broken: at most this much is added to a log-probability.
TIE_BREAK = 1e-6


class Node(NamedTuple):
    """What the tree keeps of a state: what `recurrent_fn` said, in mctx's dtypes."""

    embedding: PyTree[Array]
    logits: Float[Array, "*rows actions"]
    value: Float[Array, "*rows"]
    action: Int[Array, "*rows"]  # that led here; -1 at the root


class Recurrent(AbstractPriorModel[Node]):
    """`recurrent_fn(params, rng_key, action, embedding)` for the whole batch, with one key.

    It never says `last`: mctx knows no final states and walks on below them.
    """

    params: PyTree
    function: Callable[..., Any]
    unwrap: Callable[[Key[Array, ""]], Array]  # to a key of the kind that the caller uses
    noisy: bool  # whether ties are broken at random

    def root(self, state: Node, obs: Any, *, key: Keys) -> Node:
        return state

    def step(self, node: Node, action: Ints, *, key: Keys) -> Stepped[Node]:
        found = self.function(self.params, self.unwrap(key[0]), action, node.embedding)
        output, embedding = unpacked("recurrent_fn", found, "output, embedding")
        check_output(output, embedding, node)
        # mctx writes into arrays of the root's dtypes.
        like = lambda x, old: jnp.asarray(x).astype(old.dtype)
        after = Node(
            embedding=jax.tree.map(like, embedding, node.embedding),
            logits=like(output.prior_logits, node.logits),
            value=like(output.value, node.value),
            action=action,
        )
        reward, discount = (
            jnp.asarray(x).astype(jnp.float32) for x in (output.reward, output.discount)
        )
        return after, reward, discount, jnp.zeros(action.shape, bool)

    def predict(self, node: Node, *, key: Keys) -> Prediction:
        logits = prior(node.logits)
        if self.noisy:
            logits = break_ties(logits, key[0])
        return logits, node.value.astype(jnp.float32)


def illegal(logits: Float[Array, "*rows actions"]) -> Bool[Array, "*rows actions"]:
    """Where a mask has left the lowest finite number, or `-inf`."""
    return logits <= jnp.finfo(logits.dtype).min


def clean(logits: Float[Array, "*rows actions"]) -> Float[Array, "*rows actions"]:
    """Without NaN, which becomes very unlikely, or infinity."""
    return jnp.nan_to_num(logits, nan=float(jnp.finfo(logits.dtype).min) / 2)


def prior(logits: Float[Array, "*rows actions"]) -> Float[Array, "*rows actions"]:
    """Logits with `-inf` for what is illegal. In a state without any legal action, as at the end of
    a game, they stay, all alike: the search walks on below it, as mctx does.
    """
    out = illegal(logits)
    return jnp.where(out & ~jnp.all(out, axis=-1, keepdims=True), -jnp.inf, single(clean(logits)))


def single(logits: Float[Array, "*rows actions"]) -> Float[Array, "*rows actions"]:
    """Finite logits in float32, none of which becomes infinite."""
    limit = float(jnp.finfo(jnp.float32).max)
    return jnp.clip(logits, -limit, limit).astype(jnp.float32)


def break_ties(
    logits: Float[Array, "*rows actions"], key: Key[Array, ""]
) -> Float[Array, "*rows actions"]:
    """mctx adds `1e-7 u` to the scores at every selection; here noise is drawn once a node, and
    disturbs the probabilities by that little.
    """
    # One draw a node, hashed with the action: a sixth of the search would go into a draw for each.
    drawn = jr.bits(key, (*logits.shape[:-1], 1), jnp.uint32)
    action = jnp.arange(logits.shape[-1], dtype=jnp.uint32)
    each = _mix(drawn + _mix(action + jnp.uint32(1)).reshape((1,) * (logits.ndim - 1) + (-1,)))
    noise = (each >> jnp.uint32(8)).astype(jnp.float32) / 2**24
    # Near zero, where floats are dense enough to hold it.
    return logits - jnp.max(logits, axis=-1, keepdims=True) + TIE_BREAK * noise


def _mix(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """An integer hash: Wellons 2018, "Prospecting for hash functions", `lowbias32`."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(factor)
    return x ^ (x >> jnp.uint32(16))


def masked_root(
    root: Any, logits: PerAction, invalid_actions: Shaped[Array, "batch actions"] | None
) -> tuple[Node, PerAction, Shaped[Array, "batch actions"]]:
    """The root's node with other logits, what selection sees of them, and
    `mctx.Tree.root_invalid_actions`.

    Invalid is what the caller says and, besides, what the root's own logits leave out. There the
    logits become the lowest finite number; selection sees `-inf`, and the largest logit as 0.
    """
    logits = clean(logits)
    if invalid_actions is None:
        invalid = jnp.zeros_like(logits)
    else:
        invalid = jnp.asarray(invalid_actions)
        logits = logits - jnp.max(logits, axis=-1, keepdims=True)
    invalid = jnp.where(illegal(root.prior_logits), jnp.ones_like(invalid), invalid)
    logits = jnp.where(invalid.astype(bool), jnp.finfo(logits.dtype).min, logits)
    action = jnp.full(logits.shape[:1], -1, jnp.int32)
    masked = jnp.where(invalid.astype(bool), -jnp.inf, single(logits))
    highest = jnp.max(masked, axis=1, keepdims=True)
    seen = masked - jnp.where(highest > -jnp.inf, highest, 0.0)
    return Node(root.embedding, logits, root.value, action), seen, invalid


def dirichlet(logits: PerAction, fraction: ArrayLike, alpha: ArrayLike, key: Array) -> PerAction:
    """Logarithms of `(1 - fraction) p + fraction noise`, over all actions."""
    probs = jax.nn.softmax(clean(logits))
    batch, actions = logits.shape
    noise = jr.dirichlet(key, alpha=jnp.full((actions,), alpha), shape=(batch,))
    mixed = (1 - fraction) * probs.astype(noise.dtype) + fraction * noise
    return jnp.log(jnp.maximum(mixed, jnp.finfo(mixed.dtype).tiny))


def draw(visits: PerAction, temperature: ArrayLike, key: Array) -> tuple[Ints, PerAction]:
    """An action with probability proportional to `visits ** (1 / temperature)`, and the visits over
    their sum. An action without visits is never drawn, however hot. A row without any is filler.
    """
    total = jnp.sum(visits, axis=1, keepdims=True)
    weights = jnp.where(total > 0, visits / jnp.maximum(total, 1), 1 / visits.shape[1])
    tiny = jnp.finfo(weights.dtype).tiny
    logits = jnp.log(jnp.maximum(weights, tiny))
    logits = logits - jnp.max(logits, axis=1, keepdims=True)
    logits = logits / jnp.maximum(tiny, temperature)
    return jr.categorical(key, jnp.where(weights > 0, logits, -jnp.inf)), weights
