"""DeepMind's mctx as a second engine behind the same interface."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._model import AbstractPriorModel
from ._noise import AbstractRootNoise
from ._planner import AbstractPlanner, Plan
from ._sample import sample_action, Temperature
from ._simulate import check_prediction
from ._tree import batch_size
from ._tree_search import all_actions, check_sizes, next_ply, SearchCarry


# chex dataclasses hide their constructors from type checkers.
_engine: Any = mctx


class MctxSearch(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """`mctx.muzero_policy` (`policy="muzero"`) or `mctx.gumbel_muzero_policy` (`"gumbel"`).

    For comparison, or as a fallback: the results are those of [`zero_search.TreeSearch`][] with
    [`zero_search.MuZeroPUCT`][] up to mctx's random tie-breaks, and of
    [`zero_search.GumbelSearch`][] up to the noise. Nothing but the move number is kept between
    moves. The noise and temperature are for `"muzero"`, `max_num_considered_actions` and
    `gumbel_scale` for `"gumbel"`. mctx draws for the whole batch from one key, the first row's.
    """

    num_simulations: int
    policy: str = "muzero"
    noise: AbstractRootNoise | None = None
    temperature: float | Temperature = 0.0
    gamma: float = 1.0
    max_num_considered_actions: int = 16
    gumbel_scale: float = 1.0

    def __check_init__(self):
        check_sizes("MctxSearch", self.num_simulations, None)
        if self.policy not in ("muzero", "gumbel"):
            raise ValueError(f'`MctxSearch(policy={self.policy!r})`: must be "muzero" or "gumbel".')

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0."""
        del model
        return SearchCarry(ply=jnp.zeros((batch_size(state),), jnp.int32), tree=None)

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`."""
        rkey, nkey, skey, akey = jax.vmap(lambda k: tuple(jr.split(k, 4)))(key)
        logits, value = model.predict(state, key=rkey)
        check_prediction(logits, value, batch_size(state), None)
        logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)
        if self.noise is not None and self.policy == "muzero":
            logits = self.noise(logits, key=nkey)
        legal = logits > -jnp.inf
        # mctx mixes integers and floats freely.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            output = self._search(model, state, logits, value, skey[0])
            summary = output.search_tree.summary()
        visits = jnp.where(legal, summary.visit_counts, 0).astype(jnp.float32)
        share = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        mean = summary.value
        qvalues = jnp.where(visits > 0, summary.qvalues, mean[:, None])
        if self.policy == "gumbel":
            action = output.action.astype(jnp.int32)
            weights = jnp.where(legal, output.action_weights, 0.0)
        else:
            heat = self.temperature
            heat = heat(carry.ply) if isinstance(heat, Temperature) else heat
            action, weights = sample_action(share, heat, key=akey), share
        nodes = jnp.full(mean.shape, self.num_simulations + 1, jnp.int32)
        depth = _mean_depth(output.search_tree.parents)
        plan = Plan(
            action=action,
            candidates=all_actions(weights),
            weights=weights,
            qvalues=qvalues,
            advantages=qvalues - mean[:, None],
            value=mean,
            stats={"depth": depth, "nodes": nodes, "reused": jnp.zeros_like(mean)},
        )
        return plan, carry

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move."""
        del action, next_state
        return SearchCarry(ply=next_ply(carry.ply, last), tree=None)

    def _search(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        logits: Float[Array, "batch actions"],
        value: Float[Array, " batch"],
        key: Key[Array, ""],
    ) -> Any:
        invalid = jnp.isneginf(logits)
        # JAX's key-reuse check has false alarms on mctx, but none where keys are plain integers.
        key = jr.PRNGKey(jr.bits(key, (), jnp.uint32))
        # mctx subtracts the largest logit, which must be finite.
        root = _engine.RootFnOutput(prior_logits=_finite(logits), value=value, embedding=state)
        args = ((), key, root, self._recurrent(model), self.num_simulations, invalid)
        if self.policy == "muzero":
            return _engine.muzero_policy(*args, dirichlet_fraction=0.0)
        return _engine.gumbel_muzero_policy(
            *args,
            max_num_considered_actions=self.max_num_considered_actions,
            gumbel_scale=self.gumbel_scale,
        )

    def _recurrent(self, model: AbstractPriorModel):
        def recurrent(_, key, action, state):
            batch = action.shape[0]
            keys = jr.wrap_key_data(jr.split(key, 2 * batch))
            state, reward, discount, _ = model.step(state, action, key=keys[:batch])
            logits, value = model.predict(state, key=keys[batch:])
            output = _engine.RecurrentFnOutput(
                reward=reward.astype(jnp.float32),
                discount=self.gamma * discount.astype(jnp.float32),
                prior_logits=_finite(logits.astype(jnp.float32)),
                value=value.astype(jnp.float32),
            )
            return output, state

        return recurrent


def _finite(logits: Float[Array, "batch actions"]) -> Float[Array, "batch actions"]:
    """Zeros where a row has no legal action: mctx expands below final states."""
    return jnp.where(jnp.any(logits > -jnp.inf, axis=1, keepdims=True), logits, 0.0)


def _mean_depth(parents: Int[Array, "batch nodes"]) -> Float[Array, " batch"]:
    """Mean depth of the nodes below the root; a parent's number is below its child's."""

    def body(i, depth):
        above = jnp.take_along_axis(depth, parents[:, i][:, None], axis=1)
        return depth.at[:, i].set(above[:, 0] + 1.0)

    depth = jnp.zeros(parents.shape, jnp.float32)
    depth = jax.lax.fori_loop(1, parents.shape[1], body, depth)
    return jnp.sum(depth, axis=1) / (parents.shape[1] - 1)
