"""mctx's policies, with mctx's arguments and results, over this package's search."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Key, PyTree, Shaped

from .._engine import search
from .._root import best_due, SequentialHalving
from .._rules import (
    AbstractQTransform,
    AbstractSelection,
    ByMinMax,
    ByParentAndSiblings,
    CompletedByMixedValue,
    ImprovedPolicySelection,
    PUCT,
)
from .._tree import Rules, Tree
from .._types import NodeStatistics, PerAction, RootStatistics
from .._walk import KeyPair, RootChoice
from ._check import check_arguments, check_tree
from ._nodes import break_ties, dirichlet, draw, masked_root, Node, prior, Recurrent
from ._trees import going_on, to_mctx


# chex dataclasses hide their constructors from type checkers.
_engine: Any = mctx


def muzero_policy(
    params: PyTree,
    rng_key: Array,
    root: mctx.RootFnOutput,
    recurrent_fn: Callable[..., Any],
    num_simulations: int,
    invalid_actions: Shaped[Array, "batch actions"] | None = None,
    max_depth: int | None = None,
    loop_fn: Callable[..., Any] = jax.lax.fori_loop,
    *,
    qtransform: Callable[..., Any] = mctx.qtransform_by_parent_and_siblings,
    dirichlet_fraction: ArrayLike = 0.25,
    dirichlet_alpha: ArrayLike = 0.3,
    pb_c_init: ArrayLike = 1.25,
    pb_c_base: ArrayLike = 19652,
    temperature: ArrayLike = 1.0,
) -> mctx.PolicyOutput:
    """`mctx.muzero_policy`, faster: the same arguments, and the same `mctx.PolicyOutput` with every
    array of its `search_tree`.

    For the same `rng_key` the noise at the root, the keys of `recurrent_fn` and the final draw are
    mctx's. What differs, on purpose:

    - Ties are broken by noise on a node's probabilities, at most 1e-6 of each, drawn once, where
        mctx draws at every selection.
    - A logit at or below `jnp.finfo(dtype).min` is illegal: never visited, at the root or inside.
        Where nothing is legal, as below the end of a game, all actions count as equal.
    - A row whose `invalid_actions` are all true is filler, with a root and no visits; outside of
        `jit` it is an error.
    - An action without visits is never drawn, whatever the `temperature`.
    - With `max_depth`, a leaf there is revisited with its first evaluation, and nodes are numbered
        without gaps.
    - Statistics are kept in float32, whatever the dtype of `root.value`. A number that
        `recurrent_fn` returns counts as 0 if it is not finite or beyond 1e30.

    `qtransform` may be one of mctx's three, a `functools.partial` of one with keywords, or a
    [`zero_search.AbstractQTransform`][]; others are refused. `loop_fn` runs the simulations.
    `root.prior_logits`, `root.value`, all leaves of `root.embedding` and `invalid_actions` must
    have the same batch axis: a `ValueError` names what does not fit, while it is traced.

    Schrittwieser et al. 2020, "Mastering Atari, Go, chess and shogi by planning with a learned
    model".
    """
    return alphazero_policy(
        params,
        rng_key,
        root,
        recurrent_fn,
        num_simulations,
        invalid_actions=invalid_actions,
        max_depth=max_depth,
        loop_fn=loop_fn,
        qtransform=qtransform,
        dirichlet_fraction=dirichlet_fraction,
        dirichlet_alpha=dirichlet_alpha,
        pb_c_init=pb_c_init,
        pb_c_base=pb_c_base,
        temperature=temperature,
    )


def alphazero_policy(
    params: PyTree,
    rng_key: Array,
    root: mctx.RootFnOutput,
    recurrent_fn: Callable[..., Any],
    num_simulations: int,
    search_tree: mctx.Tree | None = None,
    max_nodes: int | None = None,
    invalid_actions: Shaped[Array, "batch actions"] | None = None,
    max_depth: int | None = None,
    loop_fn: Callable[..., Any] = jax.lax.fori_loop,
    *,
    qtransform: Callable[..., Any] = mctx.qtransform_by_parent_and_siblings,
    dirichlet_fraction: ArrayLike = 0.25,
    dirichlet_alpha: ArrayLike = 0.3,
    pb_c_init: ArrayLike = 1.25,
    pb_c_base: ArrayLike = 19652,
    temperature: ArrayLike = 1.0,
) -> mctx.PolicyOutput:
    """[`zero_search.mctx.muzero_policy`][] that can go on with an earlier tree, as in mctx-az.

    Pass what [`zero_search.mctx.get_subtree`][] left of the last `search_tree` after a move:
    `num_simulations` are added to its visits. The root's embedding, value and prior are replaced by
    those of `root`, with fresh noise; other nodes keep theirs, which never had any. A row starts
    anew if [`zero_search.mctx.reset_search_tree`][] emptied it or its action had no visits.

    A tree given has the room it has; a new one has it for `max_nodes`, by default the root and
    every simulation. In a full tree leaves are still evaluated, counted and backed up, only not
    stored: such an edge has visits but no child, and its value is in `children_rewards`.
    """
    num_simulations, max_depth, max_nodes = check_arguments(
        root, num_simulations, invalid_actions, max_depth, max_nodes
    )
    root = given = jax.tree.map(jnp.asarray, root)
    if search_tree is not None:
        check_tree(search_tree, root)
    typed, unwrap = with_typed_key(rng_key)
    action_key, noise_key, search_key = jr.split(typed, 3)
    noisy = dirichlet(given.prior_logits, dirichlet_fraction, dirichlet_alpha, noise_key)
    start, logits, invalid = masked_root(root, noisy, invalid_actions)
    rule = PUCT(1.25, as_qtransform(qtransform), c_base=19652.0)
    selection = with_options(rule, c=pb_c_init, c_base=pb_c_base)
    tree = grow(
        start,
        logits,
        Recurrent(params, recurrent_fn, unwrap, noisy=True),
        selection,
        search_key,
        num_simulations=num_simulations,
        max_depth=max_depth,
        loop=loop_fn,
        tree=search_tree,
        max_nodes=max_nodes,
    )
    visits = tree.root.visits.astype(given.value.dtype)
    action, weights = draw(visits, temperature, action_key)
    return _engine.PolicyOutput(
        action=action, action_weights=weights, search_tree=to_mctx(tree, invalid, None)
    )


def gumbel_muzero_policy(
    params: PyTree,
    rng_key: Array,
    root: mctx.RootFnOutput,
    recurrent_fn: Callable[..., Any],
    num_simulations: int,
    invalid_actions: Shaped[Array, "batch actions"] | None = None,
    max_depth: int | None = None,
    loop_fn: Callable[..., Any] = jax.lax.fori_loop,
    *,
    qtransform: Callable[..., Any] = mctx.qtransform_completed_by_mix_value,
    max_num_considered_actions: int = 16,
    gumbel_scale: ArrayLike = 1.0,
) -> mctx.PolicyOutput:
    """`mctx.gumbel_muzero_policy`, as [`zero_search.mctx.muzero_policy`][] is `mctx.muzero_policy`;
    ties are broken by the lowest index, like there.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel".
    """
    num_simulations, max_depth, _ = check_arguments(
        root, num_simulations, invalid_actions, max_depth
    )
    root = given = jax.tree.map(jnp.asarray, root)
    typed, unwrap = with_typed_key(rng_key)
    key, gumbel_key = jr.split(typed)
    start, logits, invalid = masked_root(root, given.prior_logits, invalid_actions)
    shape, dtype = start.logits.shape, start.logits.dtype
    gumbel = jr.gumbel(gumbel_key, shape, dtype) * gumbel_scale
    transform = as_qtransform(qtransform)
    halving = SequentialHalving(max_num_considered_actions, qtransform=transform)
    zeros, noise = jnp.zeros(shape, jnp.float32), gumbel.astype(jnp.float32)
    ply = jnp.zeros(shape[:1], jnp.int32)
    legal = jnp.sum(logits > -jnp.inf, axis=1, dtype=jnp.int32)

    def known(node: NodeStatistics) -> RootStatistics:
        return RootStatistics(node, logits, node.visits > 0, zeros, node.visits, noise, legal, ply)

    def choose(sim, node, started, inside):
        del started  # leaves are evaluated one by one, so these are the visits
        return halving.choose(sim, num_simulations, known(node), inside)

    tree = grow(
        start,
        logits,
        Recurrent(params, recurrent_fn, unwrap, noisy=False),
        ImprovedPolicySelection(transform),
        key,
        num_simulations=num_simulations,
        max_depth=max_depth,
        loop=loop_fn,
        choose_root=choose,
    )
    found = tree.root
    improved = start.logits + transform(found).astype(dtype)
    lowest = jnp.finfo(dtype).min
    weights = jax.nn.softmax(jnp.where(invalid.astype(bool), lowest, improved))
    most = found.visits == jnp.max(found.visits, axis=1, keepdims=True)
    extra = _engine.GumbelMuZeroExtraData(root_gumbel=gumbel)
    return _engine.PolicyOutput(
        action=best_due(known(found), transform, most),
        action_weights=weights,
        search_tree=to_mctx(tree, invalid, extra),
    )


def with_typed_key(rng_key: Array) -> tuple[Key[Array, ""], Callable[[Key[Array, ""]], Array]]:
    """The key as a typed one, and what turns typed keys into the caller's kind: `recurrent_fn` gets
    raw ones if `rng_key` is raw, as `jax.random.PRNGKey` makes it."""
    if not hasattr(rng_key, "dtype"):
        raise ValueError(f"`rng_key` is {rng_key!r}; give a key, such as `jax.random.key(0)`.")
    if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key):
        return rng_key, lambda key: key
    return jr.wrap_key_data(rng_key), jr.key_data


def grow(
    root: Node,
    logits: PerAction,
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
    """Searches from the root, of which selection sees these logits, in a new tree or in what is
    kept of an earlier one."""
    keys, rest = _keys(key, num_simulations, root.logits.shape[0])
    root_key, tree_key = jr.split(rest)
    ties = lambda logits, key: break_ties(logits, key) if model.noisy else logits
    rules = Rules(selection, max_depth=max_depth, stop_at_final=False)
    features = rules.prior(ties(logits, root_key))
    if tree is None:
        room = num_simulations + 1 if max_nodes is None else max_nodes
        trees = Tree.empty(root, features, room)
    else:
        kept: Any = tree
        trees = going_on(tree, selection, ties(prior(kept.children_prior_logits), tree_key))
    # As the search does with what it finds: a value that is not finite counts as 0.
    value = jnp.nan_to_num(root.value.astype(jnp.float32), posinf=0.0, neginf=0.0)
    grown, _ = search(
        trees.plant(root, features, value),
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


# mctx's, ours, and our names for those of mctx's options that have another.
_KNOWN: list[tuple[Callable[..., Any], AbstractQTransform, dict[str, str]]] = [
    (mctx.qtransform_by_min_max, ByMinMax(0, 1), {"min_value": "low", "max_value": "high"}),
    (mctx.qtransform_by_parent_and_siblings, ByParentAndSiblings(), {}),
    (mctx.qtransform_completed_by_mix_value, CompletedByMixedValue(), {}),
]


def as_qtransform(given: Callable[..., Any]) -> AbstractQTransform:
    """Our part for one of mctx's functions, or a `functools.partial` of one with options."""
    if isinstance(given, AbstractQTransform):
        return given
    function, positional, options = given, (), {}
    if isinstance(given, functools.partial):
        function, positional, options = given.func, given.args, given.keywords
    for theirs, ours, names in _KNOWN:
        if function is theirs and not positional:
            # Complains of what the function itself would.
            inspect.signature(function).bind(None, None, **options)
            return with_options(ours, **{names.get(name, name): x for name, x in options.items()})
    raise ValueError(
        f"`qtransform={given}`: must be one of mctx's three, a `functools.partial` of "
        "one with keywords, or a `zero_search.AbstractQTransform`: write yours as that."
    )


def with_options(part: Any, **options: Any) -> Any:
    """The part with other options, which may be traced numbers as in mctx."""
    names = list(options)
    where = lambda p: tuple(getattr(p, name) for name in names)
    plain = tuple(x.item() if isinstance(x, np.generic) else x for x in options.values())
    return eqx.tree_at(where, part, plain) if names else part
