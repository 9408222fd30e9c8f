"""What a value learns: the outcome of a whole episode, or a return that is bootstrapped."""

import abc
import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ._experience import Experience
from ._learning import check_windows
from .returns import n_step_returns


class AbstractValueTarget(eqx.Module):
    """What the value of [`zero_train.ExpertIteration`][] learns from the rows of a batch."""

    @abc.abstractmethod
    def targets(
        self, rows: Experience, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        """One target for each row, from the view of the player to move.

        **Arguments:**

        - `rows`: of `[batch]` or, from a buffer of windows, `[batch, time]`.
        - `values`: what the target network says of every row; computed if it is called.
        - `gamma`: the discount factor.

        **Raises:** `ValueError` for rows of a buffer of the other kind.
        """


class Outcomes(AbstractValueTarget):
    """The outcome of the row's whole episode, which a [`zero_memory.EpisodeBuffer`][] writes into
    `reward`."""

    def targets(
        self, rows: Experience, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        del values, gamma
        if rows.last.ndim != 1:
            raise ValueError(
                f"Outcomes was given rows of shape {list(rows.last.shape)}; it learns from rows "
                "[batch] of whole episodes: use a zero_memory.EpisodeBuffer."
            )
        return rows.reward


class NStepReturns(AbstractValueTarget):
    """The return of `n` steps, bootstrapped from the target network's value after them.

    It needs windows of consecutive rows (a [`zero_memory.TrajectoryBuffer`][]), and no end of the
    episode.

    **Attributes:**

    - `n`: rewards in a return before it is bootstrapped, at least 1.
    - `rewards`: `(rows) -> rewards` of one window, both `[time]`, for other rewards than those of
        the environment, such as ones without luck. `None` takes the environment's.
    """

    n: int = 5
    rewards: Callable[[Experience], Float[Array, " time"]] | None = None

    def __check_init__(self):
        if self.n < 1:
            raise ValueError(f"NStepReturns(n={self.n}) must be at least 1")

    def targets(
        self, rows: Experience, values: Callable[[], Float[Array, "*axes"]], *, gamma: float
    ) -> Float[Array, "*axes"]:
        check_windows("NStepReturns", rows)
        reward = rows.reward if self.rewards is None else jax.vmap(self.rewards)(rows)
        returns = jax.vmap(ft.partial(n_step_returns, n=self.n))
        return returns(reward, gamma * rows.discount, values(), rows.last)
