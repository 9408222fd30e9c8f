"""The matches of players during training, and their Elo ratings."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.random as jr
from jax.sharding import Mesh

from zero_envs import AbstractDiscreteEnvironment
from zero_train import AbstractActor, EloLadder, Loop
from zero_train.app import (
    Evaluate,
    EvaluationResult,
    measure,
    plus_minus,
    RunFiles,
    sentence,
    who,
    with_simulations,
)

from ._config import Config, LONGEST_GAME
from ._engines import OPPONENTS


#: The number of uniformly random plies at the start of a game. Each opening is played with both
#: colours.
OPENING_PLIES = 6
#: The fixed players of the ladder. The first one has the rating 0.
BASELINES = ("random", "positional")


class Ladder:
    """The players of a run and their matches.

    Every new player plays against the previous one, the best so far and the fixed baselines. It
    becomes the best if it wins more games against the best than it loses. The ladder is computed
    from the rows of evaluations.jsonl, so a resumed run needs no other file.

    **Attributes:**

    - `elo`: the results so far.
    """

    def __init__(
        self,
        config: Config,
        env: AbstractDiscreteEnvironment,
        load: Callable[[int], AbstractActor],
        rows: Sequence[dict[str, Any]] = (),
        mesh: Mesh | None = None,
    ):
        """**Arguments:**

        - `config`, `env`: the parts of the run.
        - `load`: returns the player of a step.
        - `rows`: the matches so far, in order.
        - `mesh`: the devices over which a match is split.
        """
        self._config = config
        self._env = env
        self._load = load
        self._mesh = mesh
        self.elo = EloLadder(BASELINES[0])
        self._steps: list[int] = []
        self._best: int | None = None
        for row in rows:
            self._enter(row)

    def meet(self, step: int, player: AbstractActor) -> list[dict[str, Any]]:
        """Plays the matches of the player of `step` and returns their new rows."""
        actor = self._actor(player)
        opponents: list[tuple[str, AbstractActor]] = [
            (name, OPPONENTS[name](self._env)) for name in BASELINES
        ]
        past = dict.fromkeys(s for s in (*self._steps[-1:], self._best) if s is not None)
        opponents += [(player_name(s), self._actor(self._load(s))) for s in past]
        new = []
        for index, (name, other) in enumerate(opponents):
            # These keys differ from those of training.
            run_key = jr.fold_in(jr.key(self._config.seed), 1)
            row = measure(
                self._env,
                actor,
                other,
                players=2,
                games=self._config.ladder_games,
                max_moves=LONGEST_GAME,
                key=jr.fold_in(jr.fold_in(run_key, step), index),
                opening_plies=OPENING_PLIES,
                mesh=self._mesh,
            )
            simulations = self._config.ladder_simulations
            names = {"step": step, "player": player_name(step), "opponent": name}
            new.append({**names, **row, "simulations": simulations})
            self._enter(new[-1])
        return new

    def ratings(self) -> list[dict[str, Any]]:
        """The Elo ratings of all players in ascending order. The first baseline is rated 0 without
        an error."""
        steps = {player_name(step): step for step in self._steps}
        rated = self.elo.ratings()
        rows = [
            {"name": name, "step": steps.get(name), "elo": elo, "se": se}
            for name, (elo, se) in rated.items()
        ]
        return sorted(rows, key=lambda row: row["elo"])

    def _actor(self, player: AbstractActor) -> AbstractActor:
        return with_simulations(player, self._config.ladder_simulations)

    def _enter(self, row: dict[str, Any]) -> None:
        step, name = row["step"], row["opponent"]
        points = row["wins"] + row["draws"] / 2
        self.elo = self.elo.add_result(row["player"], name, points, row["games"])
        if step not in self._steps:
            self._steps.append(step)
        if self._best is None:
            self._best = step
        elif name == player_name(self._best) and row["wins"] > row["losses"]:
            self._best = step


def player_name(step: int) -> str:
    """The name of the player of a step in the ladder."""
    return f"step {step}"


def evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """Plays the matches of every player, and keeps the ratings in elo.json."""
    env: Any = loop.env  # whose actions are discrete
    ladder = Ladder(config, env, files.player, files.evaluations, mesh=loop.mesh)

    def write() -> None:
        files.folder.write_json("elo.json", {"players": ladder.ratings()})

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        rows = ladder.meet(step, player)
        write()
        elo, se = ladder.elo.ratings()[player_name(step)]
        plays = who(with_simulations(player, config.ladder_simulations))
        headline = f"{plays}: {sentence(rows[-1], rows[-1]['opponent'])}"
        figures = {"Elo (95 %)": plus_minus(elo, se)}
        return EvaluationResult(rows, {"elo": elo, "elo_se": se}, figures, headline)

    if files.evaluations:
        write()
    return evaluate
