"""The PUCT family of tree search."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._model import AbstractPriorModel
from ._noise import AbstractRootNoise
from ._planner import AbstractPlanner, Plan
from ._sample import sample_action, Temperature
from ._select import AbstractSelection, PUCT
from ._simulate import check_prediction, search
from ._tree import batch_size, empty, MAX_NODES, plant, subtree, Tree, VALUE


class SearchCarry(eqx.Module):
    """What a tree search keeps between moves.

    **Attributes:**

    - `ply`: moves played in the episode so far.
    - `tree`: the kept subtrees, or `None` without reuse.
    """

    ply: Int[Array, " batch"]
    tree: Tree | None


class TreeSearch(AbstractPlanner[AbstractPriorModel, SearchCarry]):
    """Monte-Carlo tree search with a prior: AlphaZero, MuZero or UCT by choice of `selection`.

    A simulation walks down by the selection rule to an action without a stored child, evaluates
    what lies behind it and backs up `reward + gamma * discount * value`, so single-player games,
    alternating players and players who move twice are all the same. Final states are revisited,
    not expanded; a truncated state counts with its predicted value. Illegal actions (logit
    `-inf`) are never visited. A row whose root has no legal action is filler: its weights are 0.

    **Full trees.** Once `max_nodes` are stored, new leaves are still evaluated, counted and
    backed up, but not stored.

    **Reuse.** With `reuse=True`, `advance` keeps the nodes below the played action with their
    visits and values, provided that the stored state equals the real next state in every leaf.
    So a subtree grown from another chance outcome, or from a guess at something hidden, is
    dropped. `plan` then evaluates the root anew, with fresh noise on the root's own prior;
    all other priors in the tree are without noise. `num_simulations` new ones are added to the
    kept visits; raise `max_nodes` to make room for both.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    num_simulations: int
    selection: AbstractSelection = PUCT()
    noise: AbstractRootNoise | None = None
    temperature: float | Temperature = 0.0
    gamma: float = 1.0
    max_nodes: int | None = None
    reuse: bool = False

    def __check_init__(self):
        check_sizes("TreeSearch", self.num_simulations, self.max_nodes)

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        ply = jnp.zeros((batch_size(state),), jnp.int32)
        if not self.reuse:
            return SearchCarry(ply=ply, tree=None)
        return SearchCarry(ply=ply, tree=self._empty(state, num_actions(model, state)))

    def plan(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`.

        **Returns:** the plan (weights are visit counts over their sum, before temperature) and the
        carry for `advance`. `stats` has the mean `depth` of the leaves, the stored `nodes` and the
        visits `reused` from the move before.
        """
        rkey, nkey, skey, akey = jax.vmap(lambda k: tuple(jr.split(k, 4)))(key)
        batch = batch_size(state)
        logits, value = model.predict(state, key=rkey)
        check_prediction(logits, value, batch, None)
        logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)
        noisy = logits if self.noise is None else self.noise(logits, key=nkey)
        tree = self._empty(state, logits.shape[1]) if carry.tree is None else carry.tree
        tree = plant(tree, self.selection, state, noisy, value)
        reused = jnp.sum(tree.edge[:, 0, 0], axis=1)
        tree, depth = search(
            tree,
            model,
            self.selection,
            num_simulations=self.num_simulations,
            gamma=self.gamma,
            key=skey,
        )
        visits, qvalues, mean = root_statistics(tree)
        weights = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        heat = self.temperature
        heat = heat(carry.ply) if isinstance(heat, Temperature) else heat
        plan = Plan(
            action=sample_action(weights, heat, key=akey),
            candidates=all_actions(weights),
            weights=weights,
            qvalues=qvalues,
            advantages=qvalues - mean[:, None],
            value=mean,
            stats={"depth": depth, "nodes": tree.size, "reused": reused},
        )
        return plan, SearchCarry(ply=carry.ply, tree=tree if self.reuse else None)

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move and keeps the subtree that still holds."""
        tree = carry.tree
        if tree is not None:
            tree = subtree(tree, action, next_state, last)
        return SearchCarry(ply=next_ply(carry.ply, last), tree=tree)

    def _empty(self, state: PyTree[Array], actions: int) -> Tree:
        max_nodes = self.num_simulations + 1 if self.max_nodes is None else self.max_nodes
        return empty(state, self.selection, max_nodes, actions)


def next_ply(ply: Int[Array, " batch"], last: Bool[Array, " batch"]) -> Int[Array, " batch"]:
    return jnp.where(last, 0, ply + 1)


def root_statistics(
    tree: Tree,
) -> tuple[Float[Array, "batch actions"], Float[Array, "batch actions"], Float[Array, " batch"]]:
    """Visits, Q-values completed by the root's value, and that value."""
    visits, qvalues = tree.edge[:, 0, 0], tree.edge[:, 0, 1]
    mean = tree.node[:, 0, VALUE]
    return visits, jnp.where(visits > 0, qvalues, mean[:, None]), mean


def all_actions(weights: Float[Array, "batch actions"]) -> Int[Array, "batch actions"]:
    return jnp.broadcast_to(jnp.arange(weights.shape[1], dtype=jnp.int32)[None], weights.shape)


def num_actions(model: AbstractPriorModel, state: PyTree[Array]) -> int:
    """How many actions the model's prior has, found without running it."""
    batch = batch_size(state)

    def predict(state):
        logits, value = model.predict(state, key=jr.split(jr.key(0), batch))
        check_prediction(logits, value, batch, None)
        return logits

    return eqx.filter_eval_shape(predict, state).shape[1]


def check_sizes(name: str, num_simulations: int, max_nodes: int | None) -> None:
    if num_simulations < 1:
        raise ValueError(f"`{name}(num_simulations={num_simulations})`: must be 1 or more.")
    if max_nodes is not None and not 1 <= max_nodes < MAX_NODES:
        raise ValueError(
            f"`{name}(max_nodes={max_nodes})`: must be from 1 (the root alone) to "
            f"{MAX_NODES - 1}; leave it out for num_simulations + 1."
        )
