"""A game of one or two players that can be shown, planned and taken back."""

import abc
import copy
import dataclasses
import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree
from rich.console import RenderableType

from zero_envs import AbstractEnvironment, Observation
from zero_search import Plan

from .. import AbstractActor, NonFiniteError, PlanningActor
from ._evaluation import with_simulations
from ._watch import act, Episode


class AbstractBoard(abc.ABC):
    """How the positions of a game are shown, and its moves called.

    **Attributes:**

    - `sides`: what whoever moves first is called, and whoever moves second.
    - `example`: the name of a move.
    - `about`: what typing a move does, for the list of commands.
    """

    sides: tuple[str, str]
    example: str
    about: str

    @abc.abstractmethod
    def name(self, action: int, first: bool = True) -> str:
        """What a move is called when whoever moves `first` makes it, or else the other side.
        `"pass"` is a move of no choice where it is the only one."""

    @abc.abstractmethod
    def action(self, name: str, first: bool = True) -> int:
        """The move of that side with this name, in upper or lower case. It may be illegal in a
        position.

        **Raises:** `ValueError` for other texts.
        """

    @abc.abstractmethod
    def draw(self, game: "Game", *, plain: bool) -> RenderableType:
        """A picture of the position.

        **Arguments:**

        - `plain`: whether to draw without colours, in ASCII.
        """

    @abc.abstractmethod
    def result(self, game: "Game") -> str:
        """Who has won, or that nobody has."""


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """A game at one of its positions. A move leads to another `Game` and leaves this one as it is,
    so whoever keeps it can return to it.

    **Attributes:**

    - `board`: how it is shown.
    - `action`: the last move; `None` at the start.
    - `num_plies`: the number of moves so far.
    - `first_moves`: whether whoever moved first is to move.
    - `total`: the sum of the rewards so far, from the view of whoever moved first.
    - `over`: whether it has ended.
    """

    board: AbstractBoard
    _actor: AbstractActor
    _episode: Episode
    _key: PRNGKeyArray
    action: int | None = None
    num_plies: int = 0
    first_moves: bool = True
    total: float = 0.0
    over: bool = False

    @classmethod
    def start(
        cls,
        env: AbstractEnvironment,
        actor: AbstractActor,
        board: AbstractBoard,
        *,
        key: PRNGKeyArray,
    ) -> "Game":
        """A new game.

        **Arguments:**

        - `actor`: plans the moves. It hears of every move, and may keep its tree.
        - `key`: the same key and moves give the same plans if plans are asked for in the same
            positions. A search that reuses its tree keeps what it found in each of them, so that
            a further one, such as that of a hint, changes the later plans.
        """
        return cls(board, actor, Episode(env, actor, key=jr.fold_in(key, 0)), key)

    @property
    def obs(self) -> Observation:
        """What the player observes."""
        return jax.tree.map(lambda x: x[0], self._episode.obs)

    @property
    def state(self) -> PyTree[Array]:
        """The environment's state."""
        return jax.tree.map(lambda x: x[0], self._episode.state)

    @ft.cached_property
    def features(self) -> PyTree[np.ndarray]:
        """What the player observes, as NumPy arrays."""
        return jax.tree.map(lambda x: np.asarray(x[0]), self._episode.obs.features)

    @ft.cached_property
    def legal(self) -> tuple[int, ...]:
        """The legal moves in ascending order; none at the end."""
        legal = self._episode.obs.legal
        assert legal is not None  # the actions are discrete
        return () if self.over else tuple(np.flatnonzero(legal[0]).tolist())

    @property
    def mover(self) -> str:
        """What the side to move is called."""
        return self.board.sides[0 if self.first_moves else 1]

    @property
    def must_pass(self) -> bool:
        """Whether a pass is the only legal move."""
        return len(self.legal) == 1 and self.name(self.legal[0]) == "pass"

    def name(self, action: int) -> str:
        """What a move of the side to move is called."""
        return self.board.name(action, self.first_moves)

    def play(self, action: int) -> "Game":
        """The game after a move of the side to move.

        **Raises:** `ValueError` for an illegal move, with legal ones.
        """
        if action not in self.legal:
            name = self.name(action)
            if self.over:
                raise ValueError(f"{name} cannot be played: the game is over")
            moves = " ".join(map(self.name, self.legal[:20]))
            more = " ..." if len(self.legal) > 20 else ""
            raise ValueError(f"{name} is not legal; {self.mover} may play {moves}{more}")
        episode = copy.copy(self._episode)
        moved = jnp.asarray([action], jnp.int32)
        transition = jax.device_get(episode.step(moved, key=self._draw(1)[0]))
        return dataclasses.replace(
            self,
            _episode=episode,
            action=action,
            num_plies=self.num_plies + 1,
            first_moves=self.first_moves ^ bool(transition.discount[0] < 0),
            total=self.total + float(transition.reward[0]) * (1 if self.first_moves else -1),
            over=bool(transition.last[0]),
        )

    @ft.cached_property
    def plan(self) -> Plan:
        """The plan for this position, as NumPy arrays without a batch axis, computed once. Without
        a search there are no visits, and every move has the value of the position.

        **Raises:** `ValueError` at the end; [`zero_train.NonFiniteError`][] where the player's
        network returned NaN or infinity.
        """
        if self.over:
            raise ValueError("there is no move to plan: the game is over")
        action, plan = self._episode.act(key=self._draw(0)[0])
        searched = isinstance(plan, Plan)
        # What is compiled cannot raise: a search counts what is not finite, `PolicyActor` plays -1.
        unknown = plan.stats["invalid"] if searched else (action < 0) | ~jnp.isfinite(plan.value)
        if np.any(unknown):
            raise NonFiniteError(
                f"The player's network returned NaN or infinity in the position after "
                f"{self.num_plies} moves, so it has no plan. Play with the player of another run, "
                "or train one anew with a lower learning rate."
            )
        if not searched:
            plan = Plan.over_actions(
                action,
                plan.weights,
                visits=jnp.zeros_like(plan.weights),
                qvalues=jnp.broadcast_to(plan.value[:, None], plan.weights.shape),
                value=plan.value,
                stats={"invalid": jnp.zeros_like(action)},
            )
        return jax.tree.map(lambda x: np.asarray(x)[0], plan)

    @ft.cached_property
    def prior(self) -> Float[np.ndarray, " actions"]:
        """The policy of the network without a search."""
        if not isinstance(self._actor, PlanningActor):
            return np.asarray(self.plan.weights)
        alone: Any = with_simulations(self._actor, 0)
        here = self._episode
        return np.asarray(act(alone, here.state, here.obs, None, self._draw(2))[1].weights[0])

    def _draw(self, purpose: int) -> Key[Array, "1"]:
        return jr.fold_in(jr.fold_in(self._key, self.num_plies + 1), purpose)[None]
