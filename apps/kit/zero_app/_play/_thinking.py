"""A search that goes on for as long as there is time."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from zero_search import Plan, PriorRoot, read_tree, Tree, TreeSearch
from zero_train import AbstractActor, AbstractLatentModel

from ._clock import Clock
from ._game import expected, Game


#: Simulations of a part of a search, for each leaf at a time. It can be broken off after each.
_PART = 16
#: Nodes of its tree, or more for a player of many simulations. A full one would only grow its
#: visits, so the search ends there.
_ROOM = 8192
#: A part may be quicker or slower than the one before by this factor.
_SWING = 2.0


class Thinker:
    """Searches the positions of a game in parts. It keeps the tree of the last one, and goes on
    below the moves that lead from there to the next, whoever made them.

    A player without a tree that can grow, such as a learned model's, has one plan for a position.
    """

    def __init__(
        self,
        actor: AbstractActor,
        *,
        most: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        """The search is that of `actor`. `most` limits the simulations of a move by the clock, and
        `now` gives the time in seconds."""
        self._most = math.inf if most is None else most
        self._now = now
        self._actor: Any = None
        self._own, self._part, self._can_stop = 0, 1, False
        player: Any = actor
        planner = getattr(player, "planner", None)
        if isinstance(planner, TreeSearch) and not isinstance(player.model, AbstractLatentModel):
            self._own = planner.num_simulations
            self._room = max(_ROOM, 2 * self._own + 1)
            self._can_stop = planner.can_stop_early
            turns = self._own // planner.num_leaves
            # Other rules at the root share out the simulations of a whole plan.
            parts = math.ceil(turns / _PART) if isinstance(planner.root, PriorRoot) else 1
            # Parts of one size, which together are all turns, or a few more.
            parts = next((n for n in range(parts, 2 * parts) if turns % n == 0), parts)
            self._part = -(-turns // parts) * planner.num_leaves
            planner = dataclasses.replace(
                planner,
                num_simulations=self._part,
                reuse=True,
                stop_early=False,
                max_nodes=self._room,
            )
            self._actor = dataclasses.replace(player, planner=planner)
        # Of the last position: the moves to it, what the planner keeps, the last plan with its
        # tree, and the simulations there.
        self._actions: tuple[int, ...] = ()
        self._carry: Any = None
        self._found: tuple[Plan, Tree | None] | None = None
        self._done, self._seconds = 0, 0.0  # the latter of the last part

    @property
    def grows(self) -> bool:
        """Whether its search can go on, so that time makes a difference."""
        return self._actor is not None

    def grow(self, game: Game) -> Iterator[tuple[Plan, Tree | None]]:
        """The plan and the tree after each part, until the tree is full. What is known of the
        position comes first. It raises what `Game.plan` does."""
        if game.over or game.scores is not None or self._actor is None:
            yield game.plan, None
            return
        self._follow(game)
        if self._found is not None:
            yield self._found
        while self._found is None or self._found[0].visits.sum() < self._room:
            before = self._now()
            plan, self._carry, tree = game.searched(self._actor, self._carry)
            self._found, self._done = (plan, tree), self._done + self._part
            self._seconds = self._now() - before
            yield self._found

    def think(self, game: Game, clock: Clock | None) -> Iterator[tuple[Plan, Tree | None]]:
        """As `grow`, until the player has its simulations, or with a clock until a further part may
        take more than what is left of its share of the time. It ends sooner where there is one move
        only or the position is proven, and, if the most visited move is played, once no simulation
        that may follow could make it another."""
        began, share = self._now(), math.inf if clock is None else clock.share()
        for plan, tree in self.grow(game):
            yield plan, tree
            left = share - (self._now() - began)
            more = self._most - self._done
            if clock is None:
                more = -(-(self._own - self._done) // self._part) * self._part
            more = min(more, _SWING * left / max(self._seconds, 1e-9) * self._part)
            ended = more < self._part or left <= _SWING * self._seconds
            if ended or self._decided(game, plan, more):
                return

    def thought(self, game: Game, clock: Clock | None = None) -> Game:
        """The game with the plan of this search."""
        ((plan, tree),) = collections.deque(self.think(game, clock), maxlen=1)
        line = expected(game, None if tree is None else read_tree(tree), int(plan.action))
        return dataclasses.replace(game, found=(plan, line))

    def ready(self, game: Game) -> None:
        """Compiles all that a move needs, which no clock should count."""
        plan, _ = next(self.grow(game))
        if not (after := game.play(int(plan.action))).over:
            next(self.grow(after))
        self._actions, self._carry, self._found, self._seconds = (), None, None, 0.0

    def _decided(self, game: Game, plan: Plan, more: float) -> bool:
        if len(game.legal) == 1:
            return True
        if "proven" in plan.stats:  # what is most visited may still be proven to be worse
            return bool(plan.stats["proven"])
        *_, second, first = sorted([-math.inf, *plan.visits[[*game.legal]].tolist()])
        return self._can_stop and first - second > more

    def _follow(self, game: Game) -> None:
        """Brings what is kept to this position."""
        actions = game.actions[len(self._actions) :]
        if game.actions != (*self._actions, *actions):
            self._carry = None
        elif not actions and self._carry is not None:
            return
        for action in actions if self._carry is not None else ():
            moved = jnp.asarray([action], jnp.int32)
            self._carry = _followed(self._actor.planner, self._carry, moved)
        self._actions, self._found, self._done = game.actions, None, 0


@eqx.filter_jit
def _followed(planner: TreeSearch, carry: Any, action: Int[Array, "1"]) -> Any:
    return planner.advance(carry, action, jnp.zeros(1, jnp.bool_))
