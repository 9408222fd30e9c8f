"""Recurrent networks: one step at a time to act, a whole sequence to learn."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped
from numpy.typing import DTypeLike

from ._checks import as_features, check_function, check_sizes, subkeys
from ._precision import cast, computing, wide, widen


class RNN(eqx.Module):
    """A stack of recurrent cells, each of which reads the output of the one below.

    A *reset* marks the first step of an episode. The carry is set to zero before that step, so
    nothing of the previous episode reaches it or any later step. By default
    no step is a first one.
    """

    cells: tuple[Callable[..., Any], ...]
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    dtype: np.dtype = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden_size: int,
        *,
        layers: int = 1,
        cell: Callable[..., Any] = eqx.nn.LSTMCell,
        dtype: DTypeLike = jnp.float32,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `hidden_size`: the length of each cell's hidden state, and of the output.
        - `layers`: the number of cells.
        - `cell`: `equinox.nn.LSTMCell`, `equinox.nn.GRUCell`, or another class with the signature
            of the latter, whose carry is one vector of `hidden_size`.
        - `dtype`: the dtype of the cells' computation. Parameters, carry and output are float32
            regardless.
        """
        check_sizes(in_size=in_size, hidden_size=hidden_size, layers=layers)
        check_function(cell=cell)
        sizes = [in_size] + [hidden_size] * (layers - 1)
        self.cells = tuple(
            cell(size, hidden_size, dtype=jnp.float32, key=jr.fold_in(key, i))
            for i, size in enumerate(sizes)
        )
        self.in_size = in_size
        self.out_size = hidden_size
        self.dtype = computing(dtype)

    @property
    def carry_size(self) -> int:
        """The total number of elements of the carry."""
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(self.init)))

    def init(self) -> PyTree[Float[Array, " hidden_size"]]:
        """The carry before an episode: one vector of zeros for each cell, two for an LSTM."""
        return self._of_cells(jnp.zeros((self.out_size,), wide(self.dtype)))

    def _of_cells(self, x: Any) -> tuple[Any, ...]:
        return tuple((x, x) if isinstance(cell, eqx.nn.LSTMCell) else x for cell in self.cells)

    def __call__(
        self,
        x: Shaped[Array, "..."],
        carry: PyTree[Float[Array, " hidden_size"]],
        reset: Bool[Array, ""] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, " out_size"], PyTree[Float[Array, " hidden_size"]]]:
        """One step from the carry of the step before, or `init()`.

        **Returns:** the last cell's hidden state, and the carry for the next step.
        """
        del key
        given, wanted = jax.tree.map(jnp.shape, carry), self._of_cells((self.out_size,))
        if given != wanted:
            raise ValueError(
                f"The carry has the shapes {given}, expected {wanted}: give `init()`, or what the "
                "step before returned. Use `jax.vmap` over a batch."
            )
        if reset is not None:
            carry = jax.tree.map(lambda leaf: jnp.where(reset, jnp.zeros_like(leaf), leaf), carry)
        x = as_features(x, (self.in_size,), self.dtype)
        cells, carry = cast((self.cells, carry), self.dtype)
        after = []
        for cell, before in zip(cells, carry, strict=True):
            after.append(cell(x, before))
            x = after[-1][0] if isinstance(cell, eqx.nn.LSTMCell) else after[-1]
        return widen((x, tuple(after)))

    def scan(
        self,
        xs: Shaped[Array, "time in_size"],
        resets: Bool[Array, " time"],
        carry: PyTree[Float[Array, " hidden_size"]],
    ) -> tuple[Float[Array, "time out_size"], PyTree[Float[Array, " hidden_size"]]]:
        """All steps of a sequence, equal to calling `__call__` for each: the outputs, and the carry
        after the last step."""

        def step(carry, inputs):
            y, carry = self(inputs[0], carry, inputs[1])
            return carry, y

        carry, ys = lax.scan(step, carry, (xs, resets))
        return ys, carry


class Recurrent(eqx.Module):
    """A torso for observations, an RNN and a head for its output: a recurrent actor, critic, or
    both. The head may be a chain of another torso and a head, or an [`zero_nets.ActorCritic`][]."""

    torso: Callable[..., Any]
    rnn: RNN
    head: Callable[..., Any]

    def init(self) -> PyTree[Float[Array, " hidden_size"]]:
        """The carry before an episode."""
        return self.rnn.init()

    def __call__(
        self,
        observation: PyTree,
        carry: PyTree[Float[Array, " hidden_size"]],
        reset: Bool[Array, ""] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Any, PyTree[Float[Array, " hidden_size"]]]:
        """One step, for acting: the result of the head, and the carry for the next step."""
        tkey, hkey = subkeys(key, 2)
        y, carry = self.rnn(self.torso(observation, key=tkey), carry, reset)
        return self.head(y, key=hkey), carry

    def scan(
        self,
        observations: PyTree,
        resets: Bool[Array, " time"],
        carry: PyTree[Float[Array, " hidden_size"]],
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Any, PyTree[Float[Array, " hidden_size"]]]:
        """All steps of a sequence, for learning: the results of the head, with a leading time axis
        as the observations have, and the carry after the last step.

        Only the RNN runs step by step; torso and head process all steps at once. Noise is the same
        for all steps.
        """
        tkey, hkey = subkeys(key, 2)
        xs = eqx.filter_vmap(lambda x: self.torso(x, key=tkey))(observations)
        ys, carry = self.rnn.scan(xs, resets, carry)
        return eqx.filter_vmap(lambda y: self.head(y, key=hkey))(ys), carry
