"""DeepMind's mctx as a second engine behind the same interface."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import check_carry, check_count, check_kinds, check_range
from ._expand import ask, Rules
from ._model import AbstractPriorModel
from ._noise import AbstractRootNoise, disturb
from ._planner import AbstractPlanner, Plan
from ._root import (
    evaluate_root,
    first_carry,
    make_plan,
    next_carry,
    play_visits,
    Root,
    SearchCarry,
)
from ._sample import Temperature
from ._select import PUCT
from ._statistics import NodeStatistics


# chex dataclasses hide their constructors from type checkers.
_engine: Any = mctx
# What only one policy has, with its default.
_OPTIONS: dict[str, dict[str, Any]] = {
    "muzero": {"noise": None, "temperature": 0.0},
    "gumbel": {"max_num_considered_actions": 16, "gumbel_scale": 1.0},
}


class MctxSearch(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """`mctx.muzero_policy` (`policy="muzero"`) or `mctx.gumbel_muzero_policy` (`"gumbel"`).

    For comparison, or as a fallback: the results are those of [`zero_search.TreeSearch`][] with
    [`zero_search.MuZeroPUCT`][] up to mctx's random tie-breaks, and of
    [`zero_search.GumbelSearch`][] up to the noise. mctx expands below final states; the copies it
    finds there change no value and are counted in neither `depth` nor `nodes`. Nothing but the
    move number is kept between moves. The noise and temperature are for `"muzero"`,
    `max_num_considered_actions` and `gumbel_scale` for `"gumbel"`; the other policy refuses them.
    mctx draws for the whole batch from one key, the first row's.
    """

    num_simulations: int
    policy: str = "muzero"
    noise: AbstractRootNoise | None = None
    temperature: float | Temperature = 0.0
    gamma: float = 1.0
    max_num_considered_actions: int = 16
    gumbel_scale: float = 1.0

    def __check_init__(self):
        if self.policy not in _OPTIONS:
            raise ValueError(f'`MctxSearch(policy={self.policy!r})`: must be "muzero" or "gumbel".')
        for policy, options in _OPTIONS.items():
            for name, default in options.items():
                value = getattr(self, name)
                if policy != self.policy and value != default:
                    raise ValueError(
                        f"`MctxSearch(policy={self.policy!r}, {name}={value})`: `{name}` is for "
                        f"policy={policy!r}; leave it out."
                    )
        if self.noise is not None:
            check_kinds("MctxSearch", AbstractRootNoise, noise=self.noise)
        heat, considered = self.temperature, self.max_num_considered_actions
        check_count("MctxSearch", 1, num_simulations=self.num_simulations)
        check_count("MctxSearch", 1, max_num_considered_actions=considered)
        check_range("MctxSearch", 0, temperature=0.0 if isinstance(heat, Temperature) else heat)
        check_range("MctxSearch", 0, gumbel_scale=self.gumbel_scale)
        check_range("MctxSearch", 0, 1, gamma=self.gamma)

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0."""
        del model
        return first_carry(state)

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`."""
        root = evaluate_root(model, state, key)
        check_carry(carry.ply, None, None, root.value.shape[0])
        logits = disturb(self.noise, root.logits, root.noise_key)
        legal = logits > -jnp.inf
        # mctx mixes integers and floats freely.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            output = self._search(model, state, logits, root, root.search_key[0])
            summary = output.search_tree.summary()
        visits = jnp.where(legal, summary.visit_counts, 0).astype(jnp.float32)
        found = NodeStatistics(
            prior=logits[:, None],
            visits=visits,
            qvalues=summary.qvalues,
            count=1 + jnp.sum(visits, axis=1),
            value=summary.value,
            raw_value=root.value,
        )
        if self.policy == "gumbel":
            action = output.action.astype(jnp.int32)
            weights = jnp.where(legal, output.action_weights, 0.0)
        else:
            action, weights = play_visits(visits, self.temperature, carry.ply, root.action_key)
        _, final, _, invalid = output.search_tree.embeddings
        depth, nodes = _count(output.search_tree.parents, final)
        stats = {"depth": depth, "nodes": nodes, "reused": jnp.zeros_like(depth)}
        stats["invalid"] = jnp.sum(invalid, axis=1, dtype=jnp.int32)
        return make_plan(found, action, weights, **stats), carry

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move."""
        return next_carry(carry, action, next_state, last)

    def _search(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        logits: Float[Array, "batch actions"],
        root: Root,
        key: Key[Array, ""],
    ) -> Any:
        illegal = jnp.isneginf(logits)
        # JAX's key-reuse check has false alarms on mctx, but none where keys are plain integers.
        key = jr.PRNGKey(jr.bits(key, (), jnp.uint32))
        # mctx subtracts the largest logit, which must be finite.
        start = _engine.RootFnOutput(
            prior_logits=_finite(logits),
            value=root.value,
            embedding=(state, jnp.all(illegal, axis=1), root.value, root.invalid),
        )
        recurrent = self._recurrent(model, logits.shape[1])
        args = ((), key, start, recurrent, self.num_simulations, illegal)
        if self.policy == "muzero":
            return _engine.muzero_policy(*args, dirichlet_fraction=0.0)
        return _engine.gumbel_muzero_policy(
            *args,
            max_num_considered_actions=self.max_num_considered_actions,
            gumbel_scale=self.gumbel_scale,
        )

    def _recurrent(self, model: AbstractPriorModel, num_actions: int):
        rules = Rules(PUCT(), gamma=self.gamma)

        def recurrent(_, key, action, embedding):
            before, over, kept, _ = embedding
            batch = action.shape[0]
            keys = jr.wrap_key_data(jr.split(key, 2 * batch))
            found = ask(model, rules, before, action, (keys[:batch], keys[batch:]), num_actions)
            # Below a final state its own value comes back unchanged, so that its mean stays.
            value = jnp.where(over, kept, found.value)
            output = _engine.RecurrentFnOutput(
                reward=jnp.where(over, 0.0, found.reward),
                discount=jnp.where(over, 1.0, found.discount),
                prior_logits=_finite(found.logits),
                value=value,
            )
            return output, (found.state, over | found.final, value, found.invalid & ~over)

        return recurrent


def _finite(logits: Float[Array, "batch actions"]) -> Float[Array, "batch actions"]:
    """Zeros where a row has no legal action: mctx expands below final states."""
    return jnp.where(jnp.any(logits > -jnp.inf, axis=1, keepdims=True), logits, 0.0)


def _count(
    parents: Int[Array, "batch nodes"], final: Bool[Array, "batch nodes"]
) -> tuple[Float[Array, " batch"], Int[Array, " batch"]]:
    """Mean depth of the leaves, and how many nodes are no copies below a final one."""
    # A parent's number is below its child's; the root's own parent is written -1.
    real = ~jnp.take_along_axis(final, jnp.maximum(parents, 0), axis=1)

    def body(i, depth):
        above = jnp.take_along_axis(depth, parents[:, i][:, None], axis=1)[:, 0]
        return depth.at[:, i].set(above + real[:, i].astype(jnp.float32))

    depth = jnp.zeros(parents.shape, jnp.float32)
    depth = jax.lax.fori_loop(1, parents.shape[1], body, depth)
    nodes = 1 + jnp.sum(real[:, 1:], axis=1, dtype=jnp.int32)
    return jnp.sum(depth, axis=1) / (parents.shape[1] - 1), nodes
