"""The search behind the policies."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
from jaxtyping import Array, Key, PyTree

from .._engine import KeyPair, RootChoice, Rules, search
from .._select import AbstractSelection
from .._tree import empty, plant, Tree
from ._convert import from_mctx
from ._recurrent import break_ties, prior, Recurrent
from ._root import Root


def typed_key(rng_key: Array) -> Key[Array, ""]:
    """Also of a raw one, as `jax.random.PRNGKey` makes."""
    return rng_key if _is_typed(rng_key) else jr.wrap_key_data(rng_key)


def as_model(
    params: PyTree, recurrent_fn: Callable[..., Any], rng_key: Array, *, noisy: bool
) -> Recurrent:
    """`recurrent_fn` gets keys of the kind of `rng_key`."""
    unwrap = (lambda key: key) if _is_typed(rng_key) else jr.key_data
    return Recurrent(params, recurrent_fn, unwrap, noisy)


def grow(
    root: Root,
    model: Recurrent,
    selection: AbstractSelection,
    key: Key[Array, ""],
    *,
    num_simulations: int,
    max_depth: int | None,
    loop: Callable[..., Any],
    tree: mctx.Tree | None = None,
    max_nodes: int | None = None,
    choose_root: RootChoice | None = None,
) -> Tree:
    """Searches from the root, in a new tree or in what is kept of an earlier one."""
    batch, actions = root.logits.shape
    keys, rest = _keys(key, num_simulations, batch)
    root_key, tree_key = jr.split(rest)
    ties = lambda logits, key: break_ties(logits, key) if model.noisy else logits
    rules = Rules(selection, max_depth=max_depth, stop_at_final=False)
    if tree is None:
        room = num_simulations + 1 if max_nodes is None else max_nodes
        features = jax.eval_shape(rules.prior, root.logits).shape[1]
        trees = empty(root.node, room, actions, features)
    else:
        kept: Any = tree
        trees = from_mctx(tree, selection, ties(prior(kept.children_prior_logits), tree_key))
    logits = ties(root.legal_logits, root_key)
    # As the search does with what it finds: a value that is not finite counts as 0.
    value = jnp.nan_to_num(root.value.astype(jnp.float32), posinf=0.0, neginf=0.0)
    grown, _ = search(
        plant(trees, root.node, rules.prior(logits), value),
        model,
        rules,
        num_simulations=num_simulations,
        key=keys,
        choose_root=choose_root,
        loop=loop,
    )
    return grown


def _keys(
    key: Key[Array, ""], num_simulations: int, batch: int
) -> tuple[Callable[[Any], KeyPair], Key[Array, ""]]:
    """Of every simulation as mctx splits them off, for `recurrent_fn` and for ties, and what is
    left in the end.
    """

    def split(key, _):
        key, tie_key, step_key = jr.split(key, 3)
        return key, (jr.key_data(step_key), jr.key_data(tie_key))

    rest, pairs = jax.lax.scan(split, key, length=num_simulations)
    # Plain integers up to here: JAX's key-reuse check takes keys read in a loop for reused ones.
    wrap = lambda data: jnp.broadcast_to(jr.wrap_key_data(data, impl=jr.key_impl(key)), (batch,))
    return lambda sim: (wrap(pairs[0][sim]), wrap(pairs[1][sim])), rest


def _is_typed(key: Array) -> bool:
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
