"""Recurrent cells that Equinox does not have, called like those it has."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_sizes


class SimpleCell(eqx.Module):
    """Elman's recurrent unit, `h' = tanh(W x + U h + b)`."""

    weight_ih: Float[Array, "hidden_size input_size"]
    weight_hh: Float[Array, "hidden_size hidden_size"]
    bias: Float[Array, " hidden_size"] | None
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        *,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `input_size`, `hidden_size`: lengths of the input and of the hidden state.
        - `use_bias`: whether to add one.
        - `dtype`: of the parameters.
        - `key`: for the initial parameters, uniform within `1 / sqrt(hidden_size)` of zero.
        """
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        ikey, hkey, bkey = jr.split(key, 3)
        self.weight_ih = _uniform(ikey, (hidden_size, input_size), hidden_size, dtype)
        self.weight_hh = _uniform(hkey, (hidden_size, hidden_size), hidden_size, dtype)
        self.bias = _uniform(bkey, (hidden_size,), hidden_size, dtype) if use_bias else None
        self.hidden_size = hidden_size

    def __call__(
        self,
        input: Float[Array, " input_size"],
        hidden: Float[Array, " hidden_size"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " hidden_size"]:
        """The next hidden state; `key` is ignored."""
        del key
        total = self.weight_ih @ input + self.weight_hh @ hidden
        return jnp.tanh(total if self.bias is None else total + self.bias)


class MGUCell(eqx.Module):
    """The minimal gated unit, a GRU whose one gate `f` both forgets and updates.

    Zhou et al. 2016 (https://arxiv.org/abs/1603.09420): with
    `f = sigmoid(W_f [h, x] + b_f)` and `n = tanh(W_h [f * h, x] + b_h)`, the next hidden state
    is `(1 - f) * h + f * n`.
    """

    weight_ih: Float[Array, "both_sizes input_size"]
    weight_fh: Float[Array, "hidden_size hidden_size"]
    weight_nh: Float[Array, "hidden_size hidden_size"]
    bias: Float[Array, " both_sizes"] | None
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        *,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `input_size`, `hidden_size`: lengths of the input and of the hidden state.
        - `use_bias`: whether to add one.
        - `dtype`: of the parameters.
        - `key`: for the initial parameters, uniform within `1 / sqrt(hidden_size)` of zero.
        """
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        ikey, fkey, nkey, bkey = jr.split(key, 4)
        square = (hidden_size, hidden_size)
        self.weight_ih = _uniform(ikey, (2 * hidden_size, input_size), hidden_size, dtype)
        self.weight_fh = _uniform(fkey, square, hidden_size, dtype)
        self.weight_nh = _uniform(nkey, square, hidden_size, dtype)
        self.bias = _uniform(bkey, (2 * hidden_size,), hidden_size, dtype) if use_bias else None
        self.hidden_size = hidden_size

    def __call__(
        self,
        input: Float[Array, " input_size"],
        hidden: Float[Array, " hidden_size"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " hidden_size"]:
        """The next hidden state; `key` is ignored."""
        del key
        total = self.weight_ih @ input
        total = total if self.bias is None else total + self.bias
        gate, new = jnp.split(total, 2)
        gate = jax.nn.sigmoid(gate + self.weight_fh @ hidden)
        new = jnp.tanh(new + self.weight_nh @ (gate * hidden))
        return hidden + gate * (new - hidden)


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], hidden_size: int, dtype: Any) -> Array:
    bound = hidden_size**-0.5
    return jr.uniform(key, shape, dtype, -bound, bound)
