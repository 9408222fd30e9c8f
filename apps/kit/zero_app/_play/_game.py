"""A game of one or two players that can be shown, planned and taken back."""

import abc
import copy
import dataclasses
import functools as ft
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int8, Key, PRNGKeyArray, PyTree
from rich.console import RenderableType

from zero_envs import AbstractEnvironment
from zero_search import Plan, read_tree, SearchTree, Tree, TreeSearch
from zero_train import AbstractActor, PlanningActor, RememberingCarry

from .._command._errors import NonFiniteError
from .._run._evaluation import with_simulations
from ._watch import act, Episode, only, whole


if TYPE_CHECKING:
    from ._service import Page


class AbstractRecord(abc.ABC):
    """A notation in which other programs save and load games.

    **Attributes:**

    - `notation`: its name, such as `"SGF"`. In lower case it is the ending of file names.
    """

    notation: str

    @abc.abstractmethod
    def write(self, games: "Sequence[Game]") -> str:
        """A game as text.

        **Arguments:**

        - `games`: the game at each of its positions, from the start on.
        """

    @abc.abstractmethod
    def read(self, start: "Game", text: str) -> "tuple[Game, list[str]] | None":
        """The new game, with the komi and the handicap of the text, and the names of its moves,
        which may be illegal; `None` for a text of another kind, which may be a line of names.

        **Arguments:**

        - `start`: a new game.

        **Raises:** `ValueError` for a text that is no game of this kind.
        """


class AbstractBoard(abc.ABC):
    """How the positions of a game are shown, and how its moves are named.

    **Attributes:**

    - `sides`: the names of the side that moves first and of the other one.
    - `example`: the name of a move.
    - `about`: an explanation of typing a move, for the list of commands.
    - `record`: the notation of its games; `None` where they are a line of the names of moves.
    - `page`: how the browser shows it; `None` where it cannot.
    - `chance`: whether the seed decides what happens in a game.
    - `solve`: maps a game to what each legal move scores if both sides play perfectly from then on,
        as the player to move sees it, or to `None` where that cannot be told at once.
    - `worth`: maps such scores, and the game's `max_value`, to what they pay; with `None` every win
        pays `max_value`.
    - `unsolved`: why `solve` is not there, in a line for who begins a game.
    """

    sides: tuple[str, str]
    example: str
    about: str
    record: AbstractRecord | None = None
    page: "Page | None" = None
    chance: bool = False
    solve: "Callable[[Game], Mapping[int, int] | None] | None" = None
    worth: "Callable[[Any, float], Any] | None" = None
    unsolved: str | None = None

    @abc.abstractmethod
    def name(self, action: int, first: bool = True) -> str:
        """The name of a move of the side that moves first, or of the other side.
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
        """The result in words: who has won, or that nobody has."""


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """A game at one of its positions. A move leads to another `Game` and leaves this one as it is,
    so a caller that keeps it can return to it.

    **Attributes:**

    - `board`: how it is shown.
    - `actor`: who plans the moves.
    - `actions`: the moves so far.
    - `moves`: their names, in lower case.
    - `first_moves`: whether the side that moved first is to move.
    - `total`: the sum of the rewards so far, from the view of the side that moved first.
    - `over`: whether it has ended.
    - `max_value`: the largest value of a position, that of the best win.
    - `komi`: the komi of its score, where not that of the environment. `total` and the player know
        of the latter only.
    - `handicap`: the number of its first stones that are a handicap.
    - `found`: a plan with its principal variation, in the place of the player's own.
    """

    board: AbstractBoard
    actor: AbstractActor
    _episode: Episode
    _key: PRNGKeyArray
    actions: tuple[int, ...] = ()
    moves: tuple[str, ...] = ()
    first_moves: bool = True
    total: float = 0.0
    over: bool = False
    max_value: float = 1.0
    komi: float | None = None
    handicap: int = 0
    found: tuple[Plan, list[str]] | None = None

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

        - `actor`: plans the moves. It hears of every move, and may keep its tree. A search that
            plays its most visited move ends once that is certain.
        - `key`: the same key and moves give the same plans if plans are asked for in the same
            positions. A search that reuses its tree keeps what it found in each of them, so that
            a further one, such as that of a hint, changes the later plans.
        """
        player: Any = actor
        planner = getattr(player, "planner", None)
        if isinstance(planner, TreeSearch) and planner.can_stop_early:
            planner = dataclasses.replace(planner, stop_early=True)
            actor = dataclasses.replace(player, planner=planner)
        episode = Episode(env, actor, key=jr.fold_in(key, 0))
        return cls(board, actor, episode, key, max_value=float(getattr(env, "max_return", 1.0)))

    def close(self) -> None:
        """Closes the simulator of this game and of those that it led to, see
        [`zero_app.Episode`][]."""
        self._episode.close()

    @property
    def num_plies(self) -> int:
        """The number of moves so far."""
        return len(self.moves)

    @property
    def action(self) -> int | None:
        """The last move; `None` at the start."""
        return self.actions[-1] if self.actions else None

    @property
    def state(self) -> PyTree[Array]:
        """The environment's state."""
        return _unbatched(self._episode.state)

    @ft.cached_property
    def features(self) -> PyTree[np.ndarray]:
        """The features of the observation, as NumPy arrays."""
        return only(self._episode.obs.features)

    @property
    def stones(self) -> Int8[np.ndarray, "*board"]:
        """1 on the cells with a stone of the side that moved first, -1 on those of the other, else
        0, where the sides take turns and the first two planes of the features are the stones of the
        player to move and those of the opponent."""
        mine, theirs = (self.features[..., plane].astype(np.int8) for plane in range(2))
        # pgx's observation changes sides at the end of a game too, where `first_moves` stays.
        return (mine - theirs) * (1 if self.num_plies % 2 == 0 else -1)

    @ft.cached_property
    def legal(self) -> tuple[int, ...]:
        """The legal moves in ascending order; none at the end."""
        legal = self._episode.obs.legal
        assert legal is not None  # the actions are discrete
        return () if self.over else tuple(np.flatnonzero(legal[0]).tolist())

    @property
    def mover(self) -> str:
        """The name of the side to move."""
        return self.board.sides[0 if self.first_moves else 1]

    @property
    def must_pass(self) -> bool:
        """Whether a pass is the only legal move."""
        return len(self.legal) == 1 and self.name(self.legal[0]) == "pass"

    def name(self, action: int) -> str:
        """The name of a move of the side to move."""
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
            actions=(*self.actions, action),
            moves=(*self.moves, self.name(action).lower()),
            first_moves=self.first_moves ^ bool(transition.discount[0] < 0),
            total=self.total + float(transition.reward[0]) * (1 if self.first_moves else -1),
            over=bool(transition.last[0]),
            found=None,
        )

    @property
    def plan(self) -> Plan:
        """The plan for this position, as NumPy arrays without a batch axis, computed once: that of
        perfect play where the board solves the position. Without a search there are no visits, and
        every move has the value of the position.

        **Raises:** `ValueError` at the end; [`zero_app.NonFiniteError`][] where the player's
        network returned NaN or infinity.
        """
        if self.over:
            raise ValueError("there is no move to plan: the game is over")
        if self.scores is not None:
            return self._exact
        return self.own if self.found is None else self.found[0]

    @ft.cached_property
    def _exact(self) -> Plan:
        """The best moves in equal shares; each move was visited once, and is worth its result."""
        assert self.scores is not None and self._episode.obs.legal is not None
        moves, scores = [*self.scores], np.asarray([*self.scores.values()])
        visits, weights, results = np.zeros((3, *self._episode.obs.legal.shape), np.float32)
        best = scores == scores.max()
        visits[:, moves], weights[:, moves] = 1.0, best / best.sum()
        most, worth = self.max_value, self.board.worth
        results[:, moves] = most * np.sign(scores) if worth is None else worth(scores, most)
        action = np.asarray([moves[int(np.argmax(best))]], np.int32)
        return only(
            Plan.over_actions(
                *map(jnp.asarray, (action, weights)),
                visits=jnp.asarray(visits),
                qvalues=jnp.asarray(results),
                value=jnp.asarray(results[:, action[0]]),
                stats={"invalid": jnp.zeros(1, jnp.int32)},
            )
        )

    @ft.cached_property
    def own(self) -> Plan:
        """The player's plan, whatever else is known of the position."""
        action, plan = self._episode.act(key=self._draw(0)[0])
        searched = isinstance(plan, Plan)
        # Compiled code cannot raise: a search counts invalid values, `PolicyActor` plays -1.
        self._refuse(
            plan.stats["invalid"] if searched else (action < 0) | ~jnp.isfinite(plan.value)
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
        return only(plan)

    @ft.cached_property
    def scores(self) -> Mapping[int, int] | None:
        """The exact scores of the legal moves, where the board solves the position."""
        solve = self.board.solve
        return None if self.over or solve is None else solve(self)

    @property
    def pays_points(self) -> bool:
        """Whether a win may pay more than another, so that values are no chances to win."""
        return self.max_value != 1

    def told(self, value: float) -> str:
        """A value as it is told in a game of two: the chance to win or the expected result."""
        return f"{value:+z.2f}" if self.pays_points else f"{(1 + value) / 2:.0%}"

    def line(self) -> list[str]:
        """The names of the plan's move and of the principal variation after it."""
        if self.found is not None:
            return self.found[1]
        plan, tree = self.plan, self._episode.tree  # in this order
        searched = None if tree is None or self.scores is not None else read_tree(tree)
        return expected(self, searched, int(plan.action))

    def searched(self, player: PlanningActor, carry: Any = None) -> tuple[Plan, Any, Tree | None]:
        """The plan of another player for this position, as `plan`, what that player keeps, and its
        tree where it searches one. `carry` is what it kept; `None` at first."""
        actor: Any = dataclasses.replace(player, record=whole)
        state, obs = self._episode.state, self._episode.obs
        carry = _fresh(actor, state) if carry is None else carry
        _, plan, carry, tree = act(actor, state, obs, carry, self._draw(0))
        self._refuse(plan.stats["invalid"])
        return only(plan), carry, tree

    @ft.cached_property
    def prior(self) -> Float[np.ndarray, " actions"]:
        """The policy of the network without a search."""
        if not isinstance(self.actor, PlanningActor):
            return np.asarray(self.own.weights)
        alone: Any = with_simulations(self.actor, 0)
        here = self._episode
        carry = alone.init(here.state)
        if isinstance(carry, RememberingCarry):
            carry = carry.holding(jax.tree.map(lambda x: jnp.asarray(x)[None], self.own.extra))
        return np.asarray(act(alone, here.state, here.obs, carry, self._draw(2))[1].weights[0])

    def _refuse(self, invalid: Any) -> None:
        if np.any(invalid):
            raise NonFiniteError(
                f"The player's network returned NaN or infinity in the position after "
                f"{self.num_plies} moves, so it has no plan. Play with the player of another run, "
                "or train one anew with a lower learning rate."
            )

    def _draw(self, purpose: int) -> Key[Array, "1"]:
        return jr.fold_in(jr.fold_in(self._key, self.num_plies + 1), purpose)[None]


# One program, as a slice of each leaf would take longer than a move.
@jax.jit
def _unbatched(batch: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda x: x[0], batch)


# It may make room for a tree, which takes long outside of a program.
@eqx.filter_jit
def _fresh(actor: AbstractActor, state: PyTree[Array]) -> Any:
    return actor.init(state)


def expected(game: Game, tree: SearchTree | None, action: int) -> list[str]:
    """The names of a move and of the principal variation after it in a tree of the position."""
    names, first = [game.name(action).lower()], game.first_moves
    line = [] if tree is None else tree.principal_variation(first=action)
    for edge, after in zip(line, line[1:], strict=False):
        assert tree is not None and edge.child is not None
        first ^= bool(tree.discount[edge.child] < 0)
        if not tree.chance[after.node]:
            names.append(game.board.name(after.action, first).lower())
    return names
