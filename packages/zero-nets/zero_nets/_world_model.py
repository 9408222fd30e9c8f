"""The learned model of MuZero: representation, dynamics and reward."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._checks import check_function, check_number, check_vector, numbers, subkeys
from ._precision import is_floating, real
from ._recurrent import RNN


class WorldModel(eqx.Module):
    """Representation and dynamics of MuZero (https://arxiv.org/abs/1911.08265, appendix G).

    The hidden state is the carry of an RNN as one vector, scaled to `[minimum, maximum]`. In a step
    the RNN reads the embedded action, its new carry is added to the previous hidden state, and the
    sum is scaled; the reward is a function of the result. Policies and values are separate networks
    of the hidden state.

    ```python
    rnn = RNN(16, 64, layers=2, key=rkey)
    model = WorldModel(
        Chain(MLP(8, (128,), key=ekey), LinearHead(128, (rnn.carry_size,), key=hkey)),
        eqx.nn.Embedding(num_actions, 16, key=akey),
        rnn,
        Chain(MLP(rnn.carry_size, (64,), key=tkey), LinearHead(64, key=vkey)),
    )
    ```

    **Attributes:**

    - `encoder`: maps an observation to a vector of length `rnn.carry_size`.
    - `embedding`: maps an action to the input of `rnn`: an `equinox.nn.Embedding` for discrete
        actions, an [`zero_nets.MLP`][] for continuous ones.
    - `rnn`: the dynamics.
    - `reward`: maps a hidden state to the reward of the step that led to it.
    - `minimum`, `maximum`: the range of the hidden state.
    - `epsilon`: see [`zero_nets.normalise_min_max`][].
    """

    encoder: Callable[..., Any]
    embedding: Callable[..., Any]
    rnn: RNN
    reward: Callable[..., Any]
    _: dataclasses.KW_ONLY
    minimum: float = eqx.field(static=True, default=-1.0)
    maximum: float = eqx.field(static=True, default=1.0)
    epsilon: float = eqx.field(static=True, default=1e-5)

    def __check_init__(self):
        check_function(encoder=self.encoder, embedding=self.embedding, reward=self.reward)
        if not isinstance(self.rnn, RNN):
            raise ValueError(f"`rnn` is {self.rnn!r}; it must be a `zero_nets.RNN`.")
        check_number(minimum=self.minimum, maximum=self.maximum)
        check_number(0, above=True, epsilon=self.epsilon)
        if not self.minimum < self.maximum:
            raise ValueError(
                f"`minimum` is {self.minimum} and `maximum` {self.maximum}; the first must be the "
                "smaller."
            )

    def represent(
        self, observation: PyTree, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " hidden"]:
        """The hidden state of an observation."""
        hidden = self.encoder(observation, key=key)
        if hidden.shape != (self.rnn.carry_size,):
            raise ValueError(
                f"The encoder's result has shape {hidden.shape}; it must be "
                f"({self.rnn.carry_size},), the size of the carry of `rnn`."
            )
        return self._scaled(hidden)

    def step(
        self, hidden: Float[Array, " hidden"], action: PyTree, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " hidden"], Any]:
        """The hidden state after an action, and the reward network's result for it."""
        akey, rkey = subkeys(key, 2)
        _, unravel = ravel_pytree(self.rnn.init())
        _, carry = self.rnn(self.embedding(action, key=akey), unravel(hidden))
        moved, _ = ravel_pytree(carry)
        hidden = self._scaled(hidden + moved)
        return hidden, self.reward(hidden, key=rkey)

    def _scaled(self, hidden: Float[Array, " hidden"]) -> Float[Array, " hidden"]:
        return normalise_min_max(hidden, self.minimum, self.maximum, epsilon=self.epsilon)


def normalise_min_max(
    x: Float[Array, " size"],
    minimum: float = -1.0,
    maximum: float = 1.0,
    *,
    epsilon: float = 1e-5,
) -> Float[Array, " size"]:
    """Shifts and scales a vector so that its smallest entry is `minimum` and its largest `maximum`.

    If the range of `x` is smaller than `epsilon`, it is scaled as if it were this large. Therefore
    a constant vector becomes `minimum` everywhere, with a finite gradient.
    """
    x = numbers(x)
    check_vector("x", x)
    # The range of numbers in float16 may be too large for float16.
    wide = real(x)
    least = jnp.min(wide)
    unit = (wide - least) / jnp.maximum(jnp.max(wide) - least, epsilon)
    return (minimum + (maximum - minimum) * unit).astype(x.dtype if is_floating(x) else wide.dtype)
