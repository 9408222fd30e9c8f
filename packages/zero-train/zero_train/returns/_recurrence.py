"""What all multistep targets share: where rows end, and one linear recurrence backwards in time."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._arguments import check_axes


def check_rows(owner: str, lambda_: float | Array, **rows: Array) -> None:
    """Raises unless all are one window of equally many rows, and `lambda_` as many or one number,
    which, if it is not traced, is from 0 to 1."""
    if isinstance(lambda_, int | float) and not 0 <= lambda_ <= 1:
        raise ValueError(f"`{owner}(lambda_={lambda_})`: must be from 0 to 1.")
    tables = {"qvalues": "rows actions", "policy": "rows actions"}
    axes = {name: (x, tables.get(name, "rows")) for name, x in rows.items()}
    check_axes(owner, **axes, lambda_=(lambda_, "rows" if jnp.ndim(lambda_) else ""))


def stopped(stop_gradient: bool, *given: Any) -> tuple[Any, ...]:
    """Stops gradients where they go in: not even their rules are traced then."""
    return jax.lax.stop_gradient(given) if stop_gradient else given


def end_rows(last: Bool[Array, " rows"]) -> Bool[Array, " rows"]:
    """Rows without a step of their own: true final observations, and the window's last row."""
    return last | (jnp.arange(last.size) == last.size - 1)


def cut(
    last: Bool[Array, " rows"], discount: Float[Array, " rows"]
) -> tuple[Bool[Array, " rows"], Float[Array, " rows"]]:
    """The end rows, and the discounts with 0 in them: what a filler holds, perhaps NaN, could
    otherwise reach the gradient of a value through a `where`."""
    ends = end_rows(last)
    return ends, jnp.where(ends, 0.0, discount)


def following(x: Float[Array, " rows"], steps: int = 1) -> Float[Array, " rows"]:
    """`x[t + steps]` at row `t`, and 0 where the window ends before."""
    # Unlike a concatenation, XLA fuses it with what comes after: GAE in nine tenths of the time.
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [(-steps, steps, 0)])


def solve(a: Float[Array, " rows"], b: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """`g[t] = a[t] + b[t] * g[t + 1]`, from 0 behind the last row."""
    # In as many steps as rows: on a CPU the parallel `associative_scan` takes twice as long, and
    # unrolling does not help.
    return jax.lax.scan(_step, jnp.zeros_like(a[0]), (a, b), reverse=True)[1]


def _step(g: Array, ab: tuple[Array, Array]) -> tuple[Array, Array]:
    g = ab[0] + ab[1] * g
    return g, g
