"""DeepMind's mctx as a planner, for comparisons."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from zero_search import (
    AbstractPlanner,
    AbstractPriorModel,
    AbstractRootNoise,
    masked_prediction,
    Plan,
    sample_action,
    Temperature,
)


# chex dataclasses hide their constructors from type checkers.
_engine: Any = mctx


class MctxSearch(AbstractPlanner[AbstractPriorModel, Array]):
    """`mctx.gumbel_muzero_policy` if actions are `considered`, otherwise `mctx.muzero_policy`.

    The results are equal to those of `TreeSearch.gumbel` except for the noise, and to those of
    `TreeSearch.muzero` except for mctx's random tie-breaks. mctx also expands final states, which
    changes no value. `invalid` counts results of `predict` that were not finite and were replaced.
    No tree is kept between moves. mctx draws for the whole batch from one key, that of the first
    row.
    """

    num_simulations: int
    considered: int | None = None
    noise: AbstractRootNoise | None = None
    temperature: float | Temperature = 0.0

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> Int[Array, " batch"]:
        batch = jax.tree.leaves(state)[0].shape[0]
        return jnp.zeros((batch,), jnp.int32)

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: Int[Array, " batch"],
        *,
        key: Key[Array, " batch"],
        obs: Any = None,
    ) -> tuple[Plan, Int[Array, " batch"]]:
        split = jax.vmap(lambda k: tuple(jr.split(k, 5)))(key)
        root_key, predict_key, noise_key, search_key, action_key = split
        node = model.root(state, obs, key=root_key)
        logits, value, invalid = masked_prediction(*model.predict(node, key=predict_key))
        if self.noise is not None:
            logits = self.noise(logits, key=noise_key)
        legal = logits > -jnp.inf
        # mctx mixes integers and floats freely.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            output = self._search(model, node, logits, value, search_key[0])
            summary = output.search_tree.summary()
        visits = jnp.where(legal, summary.visit_counts, 0).astype(jnp.float32)
        if self.considered is None:
            weights = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
            heat = self.temperature
            heat = heat(carry) if isinstance(heat, Temperature) else heat
            action = sample_action(weights, heat, key=action_key)
        else:
            weights = jnp.where(legal, output.action_weights, 0.0)
            action = output.action.astype(jnp.int32)
        # How often an evaluation of a stored node was invalid; its last embedding counts them.
        stored = output.search_tree.node_visits > 0
        bad = jnp.sum(stored & output.search_tree.embeddings[3], axis=1, dtype=jnp.int32)
        plan = Plan.over_actions(
            action,
            weights,
            visits=visits,
            qvalues=jnp.where(visits > 0, summary.qvalues, summary.value[:, None]),
            value=summary.value,
            stats={"invalid": bad + invalid.astype(jnp.int32)},
        )
        return plan, carry

    def advance(
        self, carry: Int[Array, " batch"], action: Int[Array, " batch"], last: Bool[Array, " batch"]
    ) -> Int[Array, " batch"]:
        return jnp.where(last, 0, carry + 1)

    def _search(
        self,
        model: AbstractPriorModel,
        node: PyTree[Array],
        logits: Float[Array, "batch actions"],
        value: Float[Array, " batch"],
        key: Key[Array, ""],
    ) -> Any:
        illegal = jnp.isneginf(logits)
        # JAX's key-reuse check has false alarms for mctx, but not with raw keys.
        key = jr.PRNGKey(jr.bits(key, (), jnp.uint32))
        # mctx subtracts the largest logit, which must be finite.
        start = _engine.RootFnOutput(
            prior_logits=_finite(logits),
            value=value,
            embedding=(node, jnp.all(illegal, axis=1), value, jnp.zeros(value.shape, jnp.bool_)),
        )

        def recurrent(_, key, action, embedding):
            before, over, kept, _ = embedding
            batch = action.shape[0]
            keys = jr.wrap_key_data(jr.split(key, 2 * batch))
            after, reward, discount, last = model.step(before, action, key=keys[:batch])
            logits, value, invalid = masked_prediction(*model.predict(after, key=keys[batch:]))
            # Below a final state the value stays the same, and so does the mean.
            value = jnp.where(over, kept, value)
            output = _engine.RecurrentFnOutput(
                reward=jnp.where(over, 0.0, reward),
                discount=jnp.where(over, 1.0, discount),
                prior_logits=_finite(logits),
                value=value,
            )
            final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
            return output, (after, over | final, value, invalid & ~over)

        args = ((), key, start, recurrent, self.num_simulations, illegal)
        if self.considered is None:
            return _engine.muzero_policy(*args, dirichlet_fraction=0.0)
        return _engine.gumbel_muzero_policy(*args, max_num_considered_actions=self.considered)


def _finite(logits: Float[Array, "batch actions"]) -> Float[Array, "batch actions"]:
    """The logits, or zeros in rows without a legal action, because mctx expands final states."""
    return jnp.where(jnp.any(logits > -jnp.inf, axis=1, keepdims=True), logits, 0.0)
