"""What running episodes have come to, and checks that `evaluate` and `match` share."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from zero_envs import Transition

from ._actor import AbstractActor


class Tally(eqx.Module):
    """What running episodes have come to so far.

    **Attributes:**

    - `sign`: +1 where the side from whose view `returns` is kept moves next, -1 elsewhere.
    - `returns`: signed sum of rewards.
    - `lengths`: moves made.
    - `over`: frozen from here on.
    - `terminated`: over by the rules (discount 0), not by truncation or the step limit.
    - `kept`, `passed`: somebody moved again; the move passed to the other side.
    - `fault`: the first thing that was wrong, see `_faults.py`.
    """

    sign: Float[Array, " rows"]
    returns: Float[Array, " rows"]
    lengths: Int[Array, " rows"]
    over: Bool[Array, " rows"]
    terminated: Bool[Array, " rows"]
    kept: Bool[Array, " rows"]
    passed: Bool[Array, " rows"]
    fault: Int[Array, " rows"]

    def add(
        self,
        moved: Bool[Array, " rows"],
        transition: Transition,
        fault: Int[Array, " rows"],
        max_steps: int,
    ) -> "Tally":
        """Counts one transition in the rows that moved."""
        reward, discount, last = transition.reward, transition.discount, transition.last
        lengths = self.lengths + moved.astype(jnp.int32)
        return Tally(
            sign=jnp.where(moved & (discount < 0), -self.sign, self.sign),
            # `where` and not a product: a frozen row's filler may be anything.
            returns=self.returns + jnp.where(moved, self.sign * reward, 0.0),
            lengths=lengths,
            over=self.over | (moved & (last | (lengths >= max_steps))),
            terminated=self.terminated | (moved & last & (discount == 0)),
            kept=self.kept | (moved & (discount > 0)),
            passed=self.passed | (moved & (discount < 0)),
            fault=jnp.where(moved & (self.fault == 0), fault, self.fault),
        )


def start_tally(sign: Float[Array, " rows"]) -> Tally:
    """Nothing has happened yet."""
    none = jnp.zeros(sign.shape, bool)
    zeros = jnp.zeros(sign.shape, jnp.int32)
    return Tally(sign, jnp.zeros_like(sign), zeros, none, none, none, none, zeros)


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
