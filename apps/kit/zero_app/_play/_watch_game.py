"""A trained player of a game with a board, alone or against itself, or of continuous actions."""

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from rich.console import Console, Group, RenderableType
from rich.text import Text

from zero_envs import AbstractDiscreteEnvironment, AbstractEnvironment, BraxEnvironment
from zero_train import AbstractActor, AbstractLatentModel, PlanningActor

from .._run._app import Trained
from .._run._evaluation import MOST_MOVES, num_players
from .._run._film import drawn, Frame, scalable
from ._game import AbstractBoard, Game
from ._watch import is_plain, moments


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """A state, which its environment may draw, and what is `said` of what led to it. It is `over`
    at the end of an episode, and has a `game` where the actions are those of one."""

    env: Any
    state: Any
    said: str
    over: bool
    game: Game | None = None

    def draw(self, console: Console) -> RenderableType:
        if self.game is None:
            return self.said
        board = self.game.board.draw(self.game, plain=is_plain(console))
        # A string would be read as markup.
        board = Text(board) if isinstance(board, str) else board
        return Group(board, Text(f"   {self.said}\n"))

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


def _moves(env: AbstractEnvironment, game: Game, most: int) -> Iterator[Scene]:
    """The positions of a game in which the player moves for all sides, up to so many moves."""
    alone, imagination = num_players(env) == 1, _Imagination(env, game.actor)
    with contextlib.closing(game):
        yield Scene(env, game.state, "the start", game.over, game)
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
            yield Scene(env, game.state, said + told, game.over, game)


def _steps(
    env: AbstractEnvironment, actor: AbstractActor, most: int, *, key: PRNGKeyArray
) -> Iterator[Scene]:
    """The states of an episode of continuous or factored actions, up to so many steps."""
    start, key = jr.split(key)
    said, imagination, before = "the start", _Imagination(env, actor), None
    for moment in moments(env, actor, start=start, key=key, most=most):
        if before is not None:
            told = imagination.told(before.state, before.action, moment.reward)
            said = f"{moment.step}. {said}" + ("" if told else f", reward {moment.reward:+z.2f}")
            if moment.end is not None:
                said += f"; return {moment.gained:.2f}, {moment.end}"
            said += told
        before = moment
        yield Scene(env, moment.state, said, moment.end is not None)
        said = " ".join(_number(x) for x in np.ravel(moment.action))


#: How many moves before it a move was expected at the most.
_AHEAD = 5


class _Imagination:
    """Compares each move of an episode with what a learned model had expected of it, one move and
    several moves before. It has nothing to say of other players, nor of a model with a memory,
    since it is told single states."""

    def __init__(self, env: AbstractEnvironment, actor: AbstractActor):
        model = actor.model if isinstance(actor, PlanningActor) else None
        if not isinstance(model, AbstractLatentModel) or model.memory is not None:
            model = None
        self._env, self._model = env, model
        self._played = collections.deque[tuple[Any, Any]](maxlen=_AHEAD)

    def told(self, state: PyTree, action: PyTree, reward: float) -> str:
        """What was expected of a move that was played in `state`, and its `reward`: `""`, or lines
        of text. Values are for the player who moved."""
        if self._model is None:
            return ""
        self._played.append((state, action))
        said = f"\n   reward {reward:+z.2f}"
        for ahead in (1, _AHEAD):
            if ahead > len(self._played):
                break
            line = [*self._played][-ahead:]
            actions = [action for _, action in line]
            rewards, values = _imagined(self._env, self._model, line[0][0], actions)
            when = f"{ahead} moves" if ahead > 1 else "1 move"
            value = values[0, -1] * (1 if self._model.num_players == 1 else -1)
            said += f"\n   imagined {when} before: {rewards[0, -1]:+z.2f}, "
            said += f"and a value of {value:+z.2f} after it"
        return said


@eqx.filter_jit
def _imagined(
    env: AbstractEnvironment, model: AbstractLatentModel, state: PyTree, actions: list[PyTree]
) -> tuple[Array, Array]:
    batched = lambda tree: jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    line = jax.tree.map(lambda *x: jnp.stack(x), *actions)
    return model.imagine(batched(env.observe(state)), batched(line), key=jr.key(0)[None])


def _number(x: Any) -> str:
    return f"{x:+z.2f}" if np.issubdtype(x.dtype, np.floating) else str(x)


def scenes(
    env: AbstractEnvironment,
    actor: AbstractActor,
    board: Callable[[], AbstractBoard],
    most: int,
    *,
    key: PRNGKeyArray,
) -> Iterator[Scene]:
    """What a player does for all sides, up to so many moves. Where actions are no single numbers
    there is no board to be asked for."""
    if isinstance(env, AbstractDiscreteEnvironment):
        return _moves(env, Game.start(env, actor, board(), key=key), most)
    return _steps(env, actor, most, key=key)


def game_frames(trained: Trained[Any], board: AbstractBoard, key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game that a player plays alone, or against itself: the `episode` of an
    [`zero_app.App`][] with a board. Where actions are no single numbers, it shows nothing."""
    for scene in scenes(trained.loop.env, trained.player, lambda: board, MOST_MOVES, key=key):
        yield scene.frame(0.5)
