"""Counts the floating-point operations of a traced function."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def matrix_flops(function: Callable[..., Any], *args: Any) -> int:
    """The number of floating-point operations of all matrix products and convolutions in one call.

    Unlike in XLA's own count, the body of a `scan` counts once for each iteration. The body of a
    `while` loop counts once, because the number of its iterations is unknown. Of the branches of a
    `cond` the largest counts. The arguments are arrays, or their shapes.
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        left = equation.invars[0].aval.shape
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, layout = equation.invars[1].aval.shape, params["dimension_numbers"].rhs_spec
        per_output = math.prod(kernel) // kernel[layout[0]]
        return 2 * equation.outvars[0].aval.size * per_output
    leaves = jax.tree.leaves([*params.values()])
    called = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in leaves]
    inner = [_count(x) for x in called if isinstance(x, Jaxpr)]
    if name == "cond":
        return max(inner)
    devices = params["mesh"].size if "mesh" in params else 1
    times = {"scan": params.get("length", 1), "shard_map": devices}
    return times.get(name, 1) * sum(inner)
