"""What a planner plans over. Batch-native: every array has a leading batch axis."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key


State = TypeVar("State")


class AbstractModel(eqx.Module, Generic[State]):
    """A model of the world that a planner may step. `State` is any pytree of `[batch, ...]`."""

    @abc.abstractmethod
    def step(
        self, state: State, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """Plays one action in every row.

        **Returns:** `(next_state, reward, discount, last)`. The reward belongs to the player who
        acted; the signed discount turns the next state's value into the actor's view
        (`-1` when the opponent moves next, `0` at the end). A row whose state is final must not
        raise or return NaN.
        """


class AbstractPriorModel(AbstractModel[State], Generic[State]):
    """A model with an evaluator over discrete actions."""

    @abc.abstractmethod
    def predict(
        self, state: State, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        """Prior logits (`-inf` marks an illegal action) and the value for the player to move."""


class AbstractHiddenModel(AbstractModel[State], Generic[State]):
    """A model of a world that may hide something from the player to move."""

    @property
    @abc.abstractmethod
    def num_signals(self) -> int:
        """The number of different signals; 0 where nothing is hidden."""

    @abc.abstractmethod
    def resample(self, state: State, *, key: Key[Array, " batch"]) -> State:
        """States the players to move could not tell from these, from the exact posterior.

        The states themselves where nothing is hidden.
        """

    @abc.abstractmethod
    def signal(
        self, state: State, action: Int[Array, " batch"], next_state: State
    ) -> Int[Array, " batch"]:
        """What the player learned from the step: a number below `num_signals`.

        It tells whatever `predict` depends on, the `discount` and `last` of the step: states that
        looked alike, and gave the same signals to the same actions, look alike. The reward need
        not be told. Zeros where nothing is hidden.
        """
