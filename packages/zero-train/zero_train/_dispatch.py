"""Compiled programs that the host starts and does not wait for."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, PyTree


def dispatched(function: Callable[..., Any], **options: int) -> Any:
    """Jits `function(fixed, given, *donated)`. `eqx.filter_jit` would wait until it has ended.
    `options` are the compiler's.

    `.lower(fixed, given, *donated).compile()` compiles it ahead for such arguments, of which those
    after `fixed` may be templates. Later calls find it compiled. `.eval_shape(fixed, given,
    *donated)` gives the shapes of the result, and later calls find it traced.
    """

    def program(static: Any, arrays: PyTree[Array], given: PyTree[Array], donated: tuple) -> Any:
        leaves, structure = static
        fixed = eqx.combine(arrays, jax.tree.unflatten(structure, leaves))
        return function(fixed, given, *donated)

    program.__name__ = function.__name__.strip("_")
    jitted = jax.jit(program, static_argnums=0, donate_argnums=3, compiler_options=options)
    inner = jax.jit(program, static_argnums=0)  # which takes no options of the compiler

    def arguments(fixed: Any, given: PyTree, *donated: PyTree) -> tuple[Any, ...]:
        arrays, static = eqx.partition(fixed, eqx.is_array)
        leaves, structure = jax.tree.flatten(static)
        return (tuple(leaves), structure), arrays, given, donated

    @ft.wraps(function)
    def dispatch(*args: PyTree) -> Any:
        static, *arrays = arguments(*args)
        is_inner = any(isinstance(x, Tracer) for x in jax.tree.leaves(arrays))
        return (inner if is_inner else jitted)(static, *arrays)

    named: Any = dispatch
    named.lower = lambda *args: jitted.lower(*arguments(*args))
    named.eval_shape = lambda *args: jitted.eval_shape(*arguments(*args))
    return named
