"""Rows of arrays, read and written by number, without the care that negative numbers need."""

import jax
from jaxtyping import Array, Int, Shaped


def take(x: Shaped[Array, "rows ..."], index: Int[Array, " number"]) -> Shaped[Array, "number ..."]:
    """The rows `x[index]`; a number that is too large takes the last row."""
    numbers = jax.lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, x.ndim)), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    return jax.lax.gather(x, index[:, None], numbers, (1, *x.shape[1:]), mode="clip")


def put(
    x: Shaped[Array, "rows ..."],
    index: Int[Array, " number"],
    values: Shaped[Array, "number ..."],
) -> Shaped[Array, "rows ..."]:
    """`x` with the rows `x[index]` replaced; a number that is too large writes nothing.

    No row may be written twice. Narrower `values` replace the first columns.
    """
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, x.ndim)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    return jax.lax.scatter(x, index[:, None], values, numbers, unique_indices=True, mode="drop")
