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

from ._checks import as_features, check_sizes, subkeys
from ._precision import cast, computing, wide, widen


class RNN(eqx.Module):
    """Recurrent cells on top of each other: each reads what the one below it says.

    A *reset* marks the first step of an episode: the carry is set to zeros before the step that
    carries it, so nothing of the old episode reaches that step or any later one.

    **Attributes:**

    - `in_size`, `out_size`: lengths of the input and of the output.
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

        - `in_size`: length of the input.
        - `hidden_size`: length of each cell's hidden state, and of the output.
        - `layers`: how many cells.
        - `cell`: `equinox.nn.LSTMCell`, whose four gates are one matrix product, `GRUCell`,
            [`zero_nets.MGUCell`][], [`zero_nets.SimpleCell`][], or another that is called like
            them and carries one vector of `hidden_size`.
        - `dtype`: what the cells compute in. Parameters, carry and output are float32 all the
            same.
        - `key`: for the initial parameters.
        """
        check_sizes(in_size=in_size, hidden_size=hidden_size, layers=layers)
        self.cells = tuple(
            cell(
                hidden_size if i else in_size,
                hidden_size,
                dtype=jnp.float32,
                key=jr.fold_in(key, i),
            )
            for i in range(layers)
        )
        self.in_size = in_size
        self.out_size = hidden_size
        self.dtype = computing(dtype)

    @property
    def carry_size(self) -> int:
        """How many numbers the carry holds."""
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(self.init)))

    def init(self) -> PyTree[Float[Array, " hidden_size"]]:
        """The carry before an episode: zeros, a pair of vectors for each LSTM."""
        zeros = jnp.zeros((self.out_size,), wide(self.dtype))
        return tuple(
            (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros for cell in self.cells
        )

    def __call__(
        self,
        x: Shaped[Array, "..."],
        carry: PyTree[Float[Array, " hidden_size"]],
        reset: Bool[Array, ""] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, " out_size"], PyTree[Float[Array, " hidden_size"]]]:
        """One step.

        **Arguments:**

        - `x`: of shape `[in_size]`.
        - `carry`: from the step before, or `init()`.
        - `reset`: whether this step is the first of an episode; `None` is no.
        - `key`: ignored.

        **Returns:**

        The last cell's hidden state, and the carry for the next step.
        """
        del key
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
        """All the steps of a sequence, as `__call__` would take them one by one.

        **Arguments:**

        - `xs`: the inputs.
        - `resets`: which steps are the first of an episode.
        - `carry`: from before the first step.

        **Returns:**

        The outputs, and the carry after the last step.
        """

        def step(carry, inputs):
            y, carry = self(inputs[0], carry, inputs[1])
            return carry, y

        carry, ys = lax.scan(step, carry, (xs, resets))
        return ys, carry


class Recurrent(eqx.Module):
    """A torso, an RNN, and a head on what it says: a recurrent actor, critic, or both.

    The head may be a chain of another torso and a head, or an [`zero_nets.ActorCritic`][].
    """

    torso: Callable[..., Any]
    rnn: RNN
    head: Callable[..., Any]

    def __init__(self, torso: Callable[..., Any], rnn: RNN, head: Callable[..., Any]):
        """**Arguments:**

        - `torso`: maps an observation to the RNN's input.
        - `rnn`: carries what is to be remembered.
        - `head`: maps the RNN's output to the result.
        """
        self.torso = torso
        self.rnn = rnn
        self.head = head

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
        """One step, to act.

        **Arguments:**

        - `observation`: what the torso takes.
        - `carry`: from the step before, or `init()`.
        - `reset`: whether this step is the first of an episode; `None` is no.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        What the head says, and the carry for the next step.
        """
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
        """All the steps of a sequence, to learn.

        Only the RNN itself runs step by step: torso and head take all steps at once.

        **Arguments:**

        - `observations`: with a leading axis of time.
        - `resets`: which steps are the first of an episode.
        - `carry`: from before the first step.
        - `key`: for layers that draw noise, the same for all steps.

        **Returns:**

        What the head says, with a leading axis of time, and the carry after the last step.
        """
        tkey, hkey = subkeys(key, 2)
        xs = eqx.filter_vmap(lambda x: self.torso(x, key=tkey))(observations)
        ys, carry = self.rnn.scan(xs, resets, carry)
        return eqx.filter_vmap(lambda y: self.head(y, key=hkey))(ys), carry
