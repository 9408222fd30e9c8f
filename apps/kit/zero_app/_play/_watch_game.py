"""A trained player of a game with a board, alone or against itself, or of continuous actions."""

import abc
import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from rich.console import Console, Group, RenderableType

from zero_envs import AbstractDiscreteEnvironment, AbstractEnvironment, BraxEnvironment
from zero_train import AbstractActor

from .._command._config import Count, Delay, Seed
from .._run._app import App, Trained
from .._run._evaluation import MOST_MOVES, num_players, with_simulations
from .._run._film import check_path, drawn, Frame, scalable
from ._game import AbstractBoard, Game
from ._game_command import AbstractGameCommand
from ._imagined import Imagination
from ._moments import moments
from ._watch import is_plain, screen


@dataclasses.dataclass(frozen=True)
class AbstractWatch(AbstractGameCommand):
    """The command `watch` of an app, which says how its game is shown.

    In a terminal the board is updated in place. Elsewhere the boards are printed one after another.
    Where actions are no single numbers there is no board, and each step is a line. Of a player that
    learned a model, what it had expected of each move is shown too.
    """

    max_moves: Count = MOST_MOVES
    """Moves after which the game is cut off."""
    delay: Delay = 0.5
    """Seconds between two moves."""
    seed: Seed = 0
    """The seed of the game and of the player's search."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    @abc.abstractmethod
    def board(self, app: App[Any], trained: Trained[Any]) -> AbstractBoard:
        """How the game of a player is shown."""

    def __call__(self, app: App[Any]) -> None:
        check_path(self.save)
        trained, console = self.load(app), Console(highlight=False)
        seconds = lambda moment: self.delay * (4 if moment.over else 1)
        frame = lambda moment: moment.frame(seconds(moment))
        with screen(console, _Moment.draw, seconds, save=self.save, frame=frame) as show:
            for moment in self._moments(app, trained):
                show(moment)

    def _moments(self, app: App[Any], trained: Trained[Any]) -> "Iterator[_Moment]":
        env = trained.loop.env
        if not isinstance(env, AbstractDiscreteEnvironment):
            actor = with_simulations(trained.player, self.simulations)
            return _steps(env, actor, self.max_moves, key=jr.key(self.seed))
        return _moves(env, self.start(trained, self.board(app, trained), self.seed), self.max_moves)


@dataclasses.dataclass(frozen=True, eq=False)
class _Moment:
    """A state, and what led to it.

    **Attributes:**

    - `env`, `state`: the environment, which may draw the state.
    - `said`: what led to it.
    - `over`: whether the episode has ended.
    - `game`: where the actions are those of a game.
    """

    env: Any
    state: Any
    said: str
    over: bool
    game: Game | None = None

    def draw(self, console: Console) -> RenderableType:
        if self.game is None:
            return self.said
        board = self.game.board.draw(self.game, plain=is_plain(console))
        return Group(board, f"   {self.said}\n")

    def frame(self, seconds: float) -> Frame:
        """The picture that the environment renders, or else what a terminal shows."""
        game, render = self.game, getattr(self.env, "render", None)
        # brax renders whole episodes.
        if render is not None and not isinstance(self.env, BraxEnvironment):
            return Frame(scalable(render(self.state)), self.said, seconds)
        if game is None:
            return Frame(drawn(self.draw), "", seconds)
        svg = drawn(lambda console: game.board.draw(game, plain=is_plain(console)))
        return Frame(svg, self.said, seconds)


def _moves(env: AbstractEnvironment, game: Game, most: int) -> Iterator[_Moment]:
    """The positions of a game in which the player moves for all sides, up to so many moves."""
    alone, imagination = num_players(env) == 1, Imagination(env, game.actor)
    with contextlib.closing(game):
        yield _Moment(env, game.state, "the start", game.over, game)
        while not game.over and game.num_plies < most:
            plan = game.own  # a solver would hide how the player plays
            action, side = int(plan.action), "" if alone else f"{game.mover} "
            value = round(float(plan.value), 2) + 0.0  # no -0.00
            said = f"{game.num_plies + 1}. {side}{game.name(action)}, value {value:+z.2f}"
            before, game = game, game.play(action)
            reward = (game.total - before.total) * (1 if before.first_moves else -1)
            told = imagination.told(before.state, jnp.asarray(action, jnp.int32), reward)
            if game.over:
                said += f"; return {game.total:g}" if alone else f"; {game.board.result(game)}"
            yield _Moment(env, game.state, said + told, game.over, game)


def _steps(
    env: AbstractEnvironment, actor: AbstractActor, most: int, *, key: PRNGKeyArray
) -> Iterator[_Moment]:
    """The states of an episode of continuous or factored actions, up to so many steps."""
    start, key = jr.split(key)
    said, imagination, before = "the start", Imagination(env, actor), None
    for moment in moments(env, actor, start=start, key=key, most=most):
        if before is not None:
            told = imagination.told(before.state, before.action, moment.reward)
            said = f"{moment.step}. {said}" + ("" if told else f", reward {moment.reward:+z.2f}")
            if moment.end is not None:
                said += f"; return {moment.gained:.2f}, {moment.end}"
            said += told
        before = moment
        yield _Moment(env, moment.state, said, moment.end is not None)
        said = " ".join(_number(x) for x in np.ravel(moment.action))


def _number(x: Any) -> str:
    return f"{x:+z.2f}" if np.issubdtype(x.dtype, np.floating) else str(x)


def game_frames(trained: Trained[Any], board: AbstractBoard, key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game that a player plays alone, or against itself: the `episode` of an
    [`zero_app.App`][] with a board. Where actions are no single numbers, it shows nothing."""
    env, actor = trained.loop.env, trained.player
    if not isinstance(env, AbstractDiscreteEnvironment):
        shown = _steps(env, actor, MOST_MOVES, key=key)
    else:
        shown = _moves(env, Game.start(env, actor, board, key=key), MOST_MOVES)
    for moment in shown:
        yield moment.frame(0.5)
