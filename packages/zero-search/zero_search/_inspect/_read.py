"""From the arrays of a batch of search trees to one game's tree on the host."""

import operator
from typing import SupportsIndex

import jax
import numpy as np
from jax.core import Tracer

from .._tree import DISCOUNT, FINAL, RAW, REWARD, Tree, VALUE
from ._search_tree import SearchTree


def read_tree(tree: Tree, row: SupportsIndex = 0) -> SearchTree:
    """Copies the tree of one row of a batch to the host.

    **Arguments:**

    - `tree`: what a planner's `grow` returned, or the `tree` kept in its carry.
    - `row`: which row of the batch.

    **Returns:** a [`zero_search.SearchTree`][].

    Raises an `IndexError` if there is no such row, and a `ValueError` if no tree was kept there or
    while tracing.
    """
    if isinstance(tree.size, Tracer):
        raise ValueError(
            "`read_tree` got a tree that is being traced: return it from the jitted function and "
            "read it outside."
        )
    row, batch = operator.index(row), tree.size.shape[0]
    if not 0 <= row < batch:
        raise IndexError(f"`read_tree(row={row})`: this batch has the rows 0 to {batch - 1}.")
    one = jax.device_get(jax.tree.map(lambda x: x[row], tree))
    size = int(one.size)
    if size == 0:
        raise ValueError(f"`read_tree(row={row})`: no tree was kept for this row; plan first.")
    one = jax.tree.map(lambda x: x[:size] if x.ndim else x, one)
    ends = one.child <= FINAL
    child = np.where(ends, FINAL - one.child, one.child)
    at, taken = np.nonzero(child >= 0)
    parent, action = (np.full((size,), -1, np.int32) for _ in range(2))
    final = np.zeros((size,), bool)
    behind = child[at, taken]
    parent[behind], action[behind], final[behind] = at, taken, ends[at, taken]
    legal = one.prior[:, 0] > -np.inf
    inner = np.arange(size) > 0  # what led to the root is no part of the tree
    return SearchTree(
        parent=parent,
        action=action,
        value=one.node[:, VALUE],
        raw_value=one.node[:, RAW],
        reward=np.where(inner, one.node[:, REWARD], np.float32(0)),
        discount=np.where(inner, one.node[:, DISCOUNT], np.float32(0)),
        final=final,
        legal=legal,
        # A selection keeps its prior's probabilities as the last feature.
        prior=np.where(legal, one.prior[:, -1], np.float32(0)),
        visits=one.edge[:, 0].astype(np.int32),
        qvalues=one.edge[:, 1],
        child=child,
        states=one.state,
    )
