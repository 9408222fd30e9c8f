"""What is refused, in one line that names the argument."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from .._check import is_kind, shown


def check_arguments(
    root: Any,
    num_simulations: int,
    invalid_actions: Array | None,
    max_depth: int | None = None,
    max_nodes: int | None = None,
) -> tuple[int, int | None, int | None]:
    """Of a policy's arguments; raises a `ValueError` while it is traced.

    **Returns:** the three counts as Python's integers.
    """
    optional = {"max_depth": max_depth, "max_nodes": max_nodes}
    given = {name: count for name, count in optional.items() if count is not None}
    counts = dict[str, int]()
    for name, count in ({"num_simulations": num_simulations} | given).items():
        counts[name] = _known_integer(count)
        if counts[name] < 1:
            raise ValueError(f"`{name}={count}`: must be 1 or more, a known integer.")
    fields = ("prior_logits", "value", "embedding")
    _check_fields("root", root, fields, "give an `mctx.RootFnOutput`")
    logits, value = root.prior_logits, root.value
    batch = np.shape(logits)[:1]
    if jnp.ndim(logits) != 2 or not is_kind(logits, jnp.floating):
        _refuse("root.prior_logits", logits, "a float [batch, actions]")
    if np.shape(value) != batch or not is_kind(value, jnp.floating):
        _refuse("root.value", value, f"a float [{batch[0]}], as prior_logits has rows")
    for path, leaf in jax.tree_util.tree_leaves_with_path(root.embedding):
        if np.shape(leaf)[:1] != batch:
            name = f"root.embedding{jax.tree_util.keystr(path)}"
            _refuse(name, leaf, f"[{batch[0]}, ...], as prior_logits has rows")
    if invalid_actions is not None:
        if np.shape(invalid_actions) != np.shape(logits):
            wanted = f"{list(np.shape(logits))}, the shape of root.prior_logits"
            _refuse("invalid_actions", invalid_actions, wanted)
        known = not isinstance(invalid_actions, Tracer)
        # Under `jit` a row without a valid action is filler.
        if known and (rows := np.flatnonzero(np.asarray(invalid_actions).astype(bool).all(1))).size:
            raise ValueError(
                f"`invalid_actions`: every action is invalid in rows "
                f"{rows[:8].tolist()} of {len(logits)}; leave at least one valid."
            )
    return counts["num_simulations"], counts.get("max_depth"), counts.get("max_nodes")


def check_tree(tree: Any, root: Any) -> None:
    """A tree to go on with must be of the same games."""
    batch, actions = root.prior_logits.shape
    shape = np.shape(tree.children_index)
    if len(shape) != 3 or (shape[0], shape[2]) != (batch, actions):
        wanted = f"[{batch}, nodes, {actions}], as root.prior_logits is [{batch}, {actions}]"
        _refuse("search_tree.children_index", tree.children_index, wanted)
    shapes = lambda x, rows: jax.tree.map(lambda y: (y.shape[rows:], y.dtype), x)
    old, new = shapes(tree.embeddings, 2), shapes(root.embedding, 1)
    if jax.tree.structure(old) != jax.tree.structure(new) or old != new:
        raise ValueError(
            f"`search_tree.embeddings` holds {old}, `root.embedding` {new} a game: "
            "go on only with a tree of the same kind of embedding."
        )


def check_output(output: Any, embedding: PyTree, state: Any) -> None:
    """Of `recurrent_fn`, against the node it was called for."""
    fields: dict[str, Any] = dict.fromkeys(("reward", "discount", "value"), state.value)
    fields["prior_logits"] = state.logits
    hint = "it must be an `mctx.RecurrentFnOutput`"
    _check_fields("recurrent_fn: output", output, tuple(fields), hint)
    for name, like in fields.items():
        found = getattr(output, name)
        if np.shape(found) != like.shape:
            _refuse(f"recurrent_fn: output.{name}", found, f"of shape {list(like.shape)}")
    old, new = jax.tree.structure(state.embedding), jax.tree.structure(embedding)
    if old != new:
        raise ValueError(
            f"`recurrent_fn` turned an embedding of structure {old} into one of {new}; keep it."
        )
    leaves = jax.tree_util.tree_leaves_with_path(embedding)
    for (path, x), y in zip(leaves, jax.tree.leaves(state.embedding), strict=True):
        if np.shape(x) != y.shape:
            name = f"recurrent_fn: embedding{jax.tree_util.keystr(path)}"
            _refuse(name, x, f"of shape {list(y.shape)}, as before")


def _check_fields(name: str, given: Any, fields: tuple[str, ...], hint: str) -> None:
    if not all(hasattr(given, field) for field in fields):
        raise ValueError(f"`{name}` is a {type(given).__name__}; {hint}.")


def _known_integer(x: Any) -> int:
    """0 where it is no integer, or one that is being traced."""
    try:
        return operator.index(x)
    except TypeError:
        return 0


def _refuse(name: str, found: Any, wanted: str) -> None:
    raise ValueError(f"`{name}` is {shown(found)}; it must be {wanted}.")
