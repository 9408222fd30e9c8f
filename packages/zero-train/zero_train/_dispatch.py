"""Compiled programs that the host starts and does not wait for."""

import functools as ft
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree


Tree = TypeVar("Tree", bound=PyTree)


class _Static:
    """What a program is compiled for: a tree whose arrays are left out. JAX asks for its hash in
    every call."""

    def __init__(self, leaves: list[Any], structure: Any):
        self._parts = tuple(None if _is_dynamic(x) else x for x in leaves), structure
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Static) and self._parts == other._parts)

    def tree(self, arrays: list[Array]) -> PyTree:
        """The tree with these arrays."""
        leaves, structure = self._parts
        rest = iter(arrays)
        return structure.unflatten([next(rest) if x is None else x for x in leaves])


def plain(tree: Tree) -> Tree:
    """NumPy's scalars as Python's numbers: they would be traced as arrays are."""
    return jax.tree.map(lambda x: x.item() if isinstance(x, np.generic) else x, tree)


def _is_dynamic(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


def dispatched(function: Callable[..., Any], **options: int) -> Any:
    """Jits `function(fixed, given, *donated)`. `eqx.filter_jit` would wait until it has ended.
    `options` are the compiler's.

    `.lower(fixed, given, *donated).compile()` compiles it ahead for such arguments, whose arrays
    may be templates. Later calls find it compiled. `.eval_shape(fixed, given, *donated)` gives the
    shapes of the result, and later calls find it traced. `.bound(fixed)` is a function of the
    others, outside of `jax.jit`, that starts sooner: to look through what is fixed takes longer
    than many a program.
    """

    def program(static: _Static, arrays: list[Array], given: PyTree[Array], donated: tuple) -> Any:
        return function(static.tree(arrays), given, *donated)

    program.__name__ = function.__name__.strip("_")
    jitted = jax.jit(program, static_argnums=0, donate_argnums=3, compiler_options=options)
    inner = jax.jit(program, static_argnums=0)  # which takes no options of the compiler

    def arguments(fixed: Any, given: PyTree, *donated: PyTree) -> tuple[Any, ...]:
        leaves, structure = jax.tree.flatten(fixed)
        leaves = plain(leaves)
        arrays = [x for x in leaves if _is_dynamic(x)]
        return _Static(leaves, structure), arrays, given, donated

    @ft.wraps(function)
    def dispatch(*args: PyTree) -> Any:
        static, *arrays = arguments(*args)
        is_inner = any(isinstance(x, Tracer) for x in jax.tree.leaves(arrays))
        # Within `jax.jit` whatever is computed is traced, also of what is known.
        is_inner = is_inner or (bool(options) and isinstance(jnp.zeros(()), Tracer))
        return (inner if is_inner else jitted)(static, *arrays)

    def bound(fixed: Any) -> Callable[..., Any]:
        static, arrays, *_ = arguments(fixed, None)
        return lambda given, *donated: jitted(static, arrays, given, donated)

    named: Any = dispatch
    named.bound = bound
    named.lower = lambda *args: jitted.lower(*arguments(*args))
    named.eval_shape = lambda *args: jitted.eval_shape(*arguments(*args))
    return named
