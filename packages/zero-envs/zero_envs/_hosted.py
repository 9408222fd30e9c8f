"""Environments whose simulators run on the host, outside of JAX."""

import abc
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from ._environment import Transition


class HostStep(NamedTuple):
    """What a step of all simulators results in: a [`zero_envs.Transition`][] of each row, and the
    states after it, all on the host."""

    state: PyTree[np.ndarray | Array]
    reward: Float[np.ndarray | Array, " worlds"]
    discount: Float[np.ndarray | Array, " worlds"]
    last: Bool[np.ndarray | Array, " worlds"]

    def transition(self) -> Transition:
        """The same as compiled programs take it.

        **Raises:** `ValueError` where there is not one number for each simulator, or `last` is not
        bool.
        """
        if jnp.result_type(self.last) != jnp.bool_:
            raise ValueError(f"a HostStep has `last` of {jnp.result_type(self.last)}: give bool.")
        shapes = [jnp.shape(x) for x in (self.reward, self.discount, self.last)]
        rows = {jnp.shape(x)[:1] for x in jax.tree.leaves(self.state)}
        if len(shapes[0]) != 1 or len({*shapes, *rows}) > 1:
            raise ValueError(
                f"a HostStep has reward, discount and last of the shapes {shapes[0]}, {shapes[1]} "
                f"and {shapes[2]}, and states whose first axes are {sorted(rows)}: give each one "
                "axis, with one number for each simulator, and as many states."
            )
        reward, discount = (jnp.asarray(x, jnp.float32) for x in (self.reward, self.discount))
        return Transition(reward, discount, jnp.asarray(self.last))


class AbstractWorlds(abc.ABC):
    """Simulators that run side by side, one for each row of a batch. A call may write into the
    arrays that the one before it returned: who keeps those, or gives them to JAX, copies them."""

    @abc.abstractmethod
    def reset(self) -> PyTree[Shaped[np.ndarray, "worlds ..."]]:
        """Begins every episode anew.

        **Returns:** the states.
        """

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> HostStep:
        """Takes one action in each. A row whose last step ended its episode ignores the action and
        begins a new one: its reward is 0 and `last` is false."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the simulators hold. It may be called again."""


@runtime_checkable
class Hosted(Protocol):
    """An environment that is stepped on the host, between what is compiled. Messages call it by its
    `name`.

    A state of it is what its simulator shows, and not the simulator, which cannot be copied. So
    `init` gives a state of zeros, of which only the shapes mean anything, and `step` raises a
    `ValueError`: nothing can plan in such an environment, and it is not [`zero_envs.Fallible`][].
    [`zero_train.collect`][] refuses it, and [`zero_train.step`][] and [`zero_train.evaluate`][]
    step its simulators.
    """

    @property
    def name(self) -> str: ...

    def open(self, num_worlds: int, *, key: PRNGKeyArray) -> AbstractWorlds:
        """New simulators, whose randomness follows from the key."""
        ...
