"""The learned model of MuZero: a hidden state, what an action makes of it, and its reward."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._checks import check_vector, subkeys
from ._recurrent import RNN


class WorldModel(eqx.Module):
    """Representation and dynamics of MuZero (https://arxiv.org/abs/1911.08265, appendix G).

    The hidden state is the carry of an RNN as one vector, scaled into `[minimum, maximum]`. A
    step lets the RNN read the embedded action, adds the hidden state it came from, and scales
    the sum; the reward is read from the result. Policies and values are networks of the hidden
    state, trained beside this one.

    ```python
    rnn = RNN(16, 64, layers=2, key=rkey)
    model = WorldModel(
        Chain(MLP(8, (128,), key=ekey), LinearHead(128, (rnn.carry_size,), key=hkey)),
        eqx.nn.Embedding(num_actions, 16, key=akey),
        rnn,
        Chain(MLP(rnn.carry_size, (64,), key=tkey), LinearHead(64, key=vkey)),
    )
    ```
    """

    encoder: Callable[..., Any]
    embedding: Callable[..., Any]
    rnn: RNN
    reward: Callable[..., Any]
    minimum: float = eqx.field(static=True)
    maximum: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(
        self,
        encoder: Callable[..., Any],
        embedding: Callable[..., Any],
        rnn: RNN,
        reward: Callable[..., Any],
        *,
        minimum: float = -1.0,
        maximum: float = 1.0,
        epsilon: float = 1e-5,
    ):
        """**Arguments:**

        - `encoder`: maps an observation to a vector of `rnn.carry_size`.
        - `embedding`: maps an action to the input of `rnn`: an `equinox.nn.Embedding` of a
            discrete one, an [`zero_nets.MLP`][] of a continuous one.
        - `rnn`: the dynamics.
        - `reward`: maps a hidden state to the reward of the step that led there.
        - `minimum`, `maximum`: the range of the hidden state.
        - `epsilon`: the least range that is scaled up, see
            [`zero_nets.normalise_min_max`][].
        """
        if not minimum < maximum:
            raise ValueError(
                f"`minimum` is {minimum} and `maximum` {maximum}; the first must be the smaller."
            )
        if epsilon <= 0:
            raise ValueError(f"`epsilon` is {epsilon}; it must be positive.")
        self.encoder = encoder
        self.embedding = embedding
        self.rnn = rnn
        self.reward = reward
        self.minimum = minimum
        self.maximum = maximum
        self.epsilon = epsilon

    def represent(
        self, observation: PyTree, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " hidden"]:
        """The hidden state of an observation.

        **Arguments:**

        - `observation`: what the encoder takes.
        - `key`: for layers that draw noise; without it there is none.
        """
        hidden = self.encoder(observation, key=key)
        if hidden.shape != (self.rnn.carry_size,):
            raise ValueError(
                f"The encoder's result has shape {hidden.shape}; it must be "
                f"({self.rnn.carry_size},), the numbers that `rnn` carries."
            )
        return self._scaled(hidden)

    def step(
        self, hidden: Float[Array, " hidden"], action: PyTree, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " hidden"], Any]:
        """What an action makes of a hidden state.

        **Arguments:**

        - `hidden`: from `represent` or the step before.
        - `action`: what the embedding takes.
        - `key`: for layers that draw noise; without it there is none.

        **Returns:**

        The next hidden state, and what the reward network says of it.
        """
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
    """A vector shifted and scaled so that its least entry is `minimum` and its greatest `maximum`.

    **Arguments:**

    - `x`: the vector.
    - `minimum`, `maximum`: the range to fill.
    - `epsilon`: a vector whose entries differ by less is scaled as if they differed by that much,
        so a constant one becomes `minimum` everywhere and its gradient stays finite.
    """
    check_vector("x", x)
    least = jnp.min(x)
    unit = (x - least) / jnp.maximum(jnp.max(x) - least, epsilon)
    return minimum + (maximum - minimum) * unit
