"""What running episodes have come to, and checks that `evaluate` and `match` share."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._actor import AbstractActor


class Tally(eqx.Module):
    """What running episodes have come to so far.

    **Attributes:**

    - `sign`: +1 where the side from whose view `returns` is kept moves next, -1 elsewhere.
    - `returns`: signed sum of rewards.
    - `lengths`: moves made.
    - `over`: frozen from here on.
    - `terminated`: over by the rules (discount 0), not by truncation or the step limit.
    """

    sign: Float[Array, " rows"]
    returns: Float[Array, " rows"]
    lengths: Int[Array, " rows"]
    over: Bool[Array, " rows"]
    terminated: Bool[Array, " rows"]

    def add(
        self,
        moved: Bool[Array, " rows"],
        reward: Float[Array, " rows"],
        discount: Float[Array, " rows"],
        last: Bool[Array, " rows"],
        max_steps: int,
    ) -> "Tally":
        """Counts one transition in the rows that moved."""
        lengths = self.lengths + moved.astype(jnp.int32)
        return Tally(
            sign=jnp.where(moved & (discount < 0), -self.sign, self.sign),
            # `where` and not a product: a frozen row's filler may be anything.
            returns=self.returns + jnp.where(moved, self.sign * reward, 0.0),
            lengths=lengths,
            over=self.over | (moved & (last | (lengths >= max_steps))),
            terminated=self.terminated | (moved & last & (discount == 0)),
        )


def start_tally(sign: Float[Array, " rows"]) -> Tally:
    """Nothing has happened yet."""
    none = jnp.zeros(sign.shape, bool)
    return Tally(sign, jnp.zeros_like(sign), jnp.zeros(sign.shape, jnp.int32), none, none)


def check_positive(call: str, **values: int) -> None:
    """Raises a `ValueError` naming the first of `values` below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{call}({name}={value}): {name} must be at least 1")


def check_rows(actor: AbstractActor, carry: PyTree[Array], rows: int) -> PyTree[Array]:
    """Returns the carry if every leaf can be frozen row by row, else raises a `ValueError`."""
    for leaf in jax.tree.leaves(carry):
        if leaf.shape[:1] != (rows,):
            raise ValueError(
                f"the carry of {type(actor).__name__} has a leaf of shape {leaf.shape} for {rows} "
                "rows; every leaf needs a leading [batch] axis, so that rows can wait"
            )
    return carry
