"""`zero play`: a game against a trained player in the terminal."""

import dataclasses
import pathlib
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import tyro
from jaxtyping import PRNGKeyArray

from zero_envs import AbstractEnvironment, PgxEnvironment
from zero_train import AbstractActor
from zero_train.app import AbstractCommand, App, Bounds, Episode, load, with_simulations

from ._board import Board
from ._config import Config, SIMULATIONS
from ._worlds import world_of_two


class Table:
    """One game, and an actor that hears of every move.

    **Attributes:**

    - `episode`: its state and observation.
    - `first_moves`: whether whoever moved first is to move.
    - `total`: the sum of rewards so far, from the view of whoever moved first.
    - `over`: whether the game has ended.
    """

    def __init__(self, env: AbstractEnvironment, actor: AbstractActor, *, key: PRNGKeyArray):
        self._env = env
        self._key, ikey = jr.split(key)
        self.episode = Episode(env, actor, key=ikey)
        self.first_moves, self.total, self.over = True, 0.0, False
        self._starter = self._player()

    @property
    def sees_first(self) -> bool:
        """Whether the observation is from the view of whoever moved first. pgx changes the player
        to move at the end of a game as well, where no discount tells."""
        player = self._player()
        return self.first_moves if player is None else player == self._starter

    def _player(self) -> int | None:
        if isinstance(self._env, PgxEnvironment):
            return int(self.episode.state.position.current_player[0])
        return None

    @property
    def legal(self) -> list[int]:
        """The legal moves."""
        legal = self.episode.obs.legal
        assert legal is not None
        return np.flatnonzero(legal[0]).tolist()

    def think(self) -> int:
        """The move of the actor."""
        action, _ = self.episode.act(key=self._next_key())
        return int(action[0])

    def move(self, action: int) -> None:
        """Makes a move."""
        moved = jnp.asarray([action], jnp.int32)
        transition = self.episode.step(moved, key=self._next_key())
        self.total += float(transition.reward[0]) * (1 if self.first_moves else -1)
        self.first_moves ^= bool(transition.discount[0] < 0)
        self.over = bool(transition.last[0])

    def _next_key(self) -> PRNGKeyArray:
        self._key, key = jr.split(self._key)
        return key


@dataclasses.dataclass(frozen=True)
class Play(AbstractCommand):
    """Play against a trained player in the terminal."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seat: Literal["first", "second"] = "first"
    """Who moves first: you, or the player."""
    seed: int = 0
    """The seed of the game and of the player's search."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        trained = load(app, self.run)
        world = world_of_two(trained.config.env, self.run)
        actor = with_simulations(trained.player, self.simulations)
        table, board = Table(world.env, actor, key=jr.key(self.seed)), Board.of(world)
        human_first, picture = self.seat == "first", pathlib.Path(self.run) / "play.svg"
        print(
            f"{world.name}. You are {'X and move' if human_first else 'O and move second; X moves'}"
            " first. Type a move, ? for the legal ones, or q."
        )
        while not table.over:
            show(board, table, picture)
            if table.first_moves == human_first:
                action = _ask(board, table)
                if action is None:
                    return
            else:
                action = table.think()
                print(f"The player moves {board.name(action, table.first_moves)}.")
            table.move(action)
        show(board, table, picture)
        mine = table.total if human_first else -table.total
        print("You win." if mine > 0 else "You lose." if mine < 0 else "A draw.")


def _ask(board: Board, table: Table) -> int | None:
    """A legal move, or `None` to stop."""
    legal, first = table.legal, table.first_moves
    while True:
        try:
            said = input("> ").strip()
        except EOFError:
            return None
        if said.lower() in ("q", "quit"):
            return None
        if said == "?":
            print("Legal: " + " ".join(board.name(action, first) for action in legal))
            continue
        action = board.action(said, first)
        if action in legal:
            return action
        why = "is no move here" if action is None else "is not legal now"
        print(f"{said!r} {why}; ? lists the legal ones.")


def show(board: Board, table: Table, picture: pathlib.Path) -> None:
    """Prints the board, or draws it into a file where there is none for a terminal."""
    episode = table.episode
    state, features = jax.tree.map(lambda x: x[0], (episode.state, episode.obs.features))
    text = board.text(features, table.sees_first)
    if text is None:
        svg = board.svg(state)
        if svg is not None:
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(svg)
            text = f"The board is drawn in {picture}."
    print(text or "This environment cannot be drawn.")
