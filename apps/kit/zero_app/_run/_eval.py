"""`eval`: plays games with a trained player, and prints the score or the return."""

import dataclasses
import json as json_text
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.random as jr
from annotated_types import Interval

from zero_train import AbstractActor, OPENING_PLIES, RandomActor

from .._command._config import Seed, Simulations
from .._command._errors import flag, UsageError
from ._app import App, Trained
from ._evaluation import measure, MOST_MOVES, num_players, sentence, who, with_simulations
from ._ladder import asked_ladder, FixedLadder, LADDER, ladder_of
from ._measures import plus_minus
from ._players import AbstractPlayerCommand, has_player, player_names, PRETRAINED
from ._suite import asked_suites, Suite, suite_sentence


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Measure a trained player: its score in games of two players, or else its mean return."""

    opponent: str = "random"
    """Whom it meets in games of two players: random, another fixed player of the app (an unknown
    name is answered with a list), ladder for all that have a rating, or a trained player: another
    run, a file or pretrained."""
    games: Annotated[int, Interval(ge=2, le=10**8)] = 200
    """How many games are played: in games of two players an even number, because each opening of
    random moves is played from both seats. Equal games of players without randomness count once."""
    opening_plies: Annotated[int, Interval(ge=0, le=10**4)] | None = None
    """Random moves at the start of each game of two players; by default 2, and in Othello 6."""
    simulations: Simulations | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration. A trained opponent gets as many."""
    suite: str | None = None
    """Instead of games, solved positions, of which the game has some by this name, or all: how many
    of its moves are best, how many keep the result, and what they lose. An unknown name is answered
    with a list."""
    seed: Seed = 0
    """The seed of openings, chance and ties."""
    json: bool = False
    """Print one JSON line."""

    def __call__(self, app: App[Any]) -> None:
        trained = self.load(app)
        number, own = self.simulations, _simulations(trained.player)
        if number is not None and own is None:
            raise UsageError(
                f"--simulations {number} was given, and the player of {self.run} has none to "
                "set; leave --simulations out."
            )
        number = own if number is None else number
        env, name = trained.loop.env, getattr(trained.config, "env", None)
        if self.suite is not None:
            return self._suites(app, trained, number)
        players = num_players(env)
        if players == 2 and self.games % 2:
            raise UsageError(
                f"--games {self.games} was given; give an even number, for both seats."
            )
        if players == 1:
            self._refuse(f", and {name or self.run} has one player", "opponent", "opening_plies")
        plies, player = self._plies(app), with_simulations(trained.player, number)
        about = ", ".join(filter(None, (name, f"step {trained.step}", who(player))))
        opponent = self.opponent if players == 2 else None
        known = {"env": name, "step": trained.step, "simulations": number, "opponent": opponent}
        known = {what: value for what, value in known.items() if value is not None}

        def played(other: AbstractActor | None) -> dict[str, Any]:
            return measure(
                env,
                player,
                other,
                players=players,
                games=self.games,
                max_moves=getattr(trained.config, "max_moves", MOST_MOVES),
                key=jr.key(self.seed),
                opening_plies=plies,
            )[0]

        if opponent == LADDER:
            ladder = asked_ladder(app, trained.config, plies)
            others = {name: self._opponent(app, trained, name, number) for name in ladder.ratings}
            return self._ladder(ladder, others, played, known, about)
        row = played(None if opponent is None else self._opponent(app, trained, opponent, number))
        if self.json:
            print(json_text.dumps(known | row))
            return
        print(f"{self.run} ({about}): {sentence(row, self.opponent)}")
        if 2 * row.get("games", 0) < row.get("played", 0):
            print(f"More games differ with more random moves than --opening-plies {plies}.")

    def _ladder(
        self,
        ladder: FixedLadder,
        others: Mapping[str, AbstractActor],
        played: Callable[[AbstractActor], dict[str, Any]],
        known: dict[str, Any],
        about: str,
    ) -> None:
        """Rates the player by its games against all opponents of the ladder."""
        rows = {}
        for name, other in others.items():
            rows[name] = played(other)
            if not self.json:
                elo = ladder.known[name]
                print(f"Elo {elo:.0f}: {sentence(rows[name], name)}", flush=True)
        elo, se = ladder.rate(rows)
        if self.json:
            print(json_text.dumps({**known, "elo": elo, "elo_se": se, "opponents": rows}))
        else:
            said = f"Elo {plus_minus(elo, se)} (95 % interval) on the fixed ladder"
            print(f"{self.run} ({about}): {said}, where {next(iter(rows))} has 0")

    def _plies(self, app: App[Any]) -> int:
        """The random moves at the start of a game."""
        plies = app.opening_plies if self.opening_plies is None else self.opening_plies
        return OPENING_PLIES if plies is None else plies

    def _suites(self, app: App[Any], trained: Trained[Any], simulations: int | None) -> None:
        """Measures the player in solved positions."""
        why, names = " beside --suite, which plays no games", ("opponent", "games", "opening_plies")
        self._refuse(why, *names, leave="one of them")
        env: Any = trained.loop.env
        game = getattr(trained.config, "env", app.name)
        asked = asked_suites(app, trained.config, str(self.suite), game)
        player = with_simulations(trained.player, simulations)
        about = [game, f"step {trained.step}", who(player)]
        for suite, path in asked.items():
            row = Suite.read(path).measure(env, player, key=jr.key(self.seed))
            known = {"env": game, "step": trained.step, "simulations": simulations, "suite": suite}
            if self.json:
                print(json_text.dumps(known | row), flush=True)
            else:
                said = f"{self.run} ({', '.join(about)}): {suite}: {suite_sentence(row)}"
                print(said, flush=True)

    def _refuse(self, why: str, *names: str, leave: str | None = None) -> None:
        """Refuses those of these flags that were given, and says which to leave out."""
        for name in names:
            if (given := getattr(self, name)) != getattr(type(self), name):
                then = leave or flag(name)
                raise UsageError(f"{flag(name)} {given} was given{why}; leave {then} out.")

    def _opponent(
        self, app: App[Any], trained: Trained[Any], name: str, simulations: int | None
    ) -> AbstractActor:
        """The other player, which plays in the environment of this one."""
        env = trained.loop.env
        fixed = {"random": lambda env: RandomActor(), **app.opponents}
        if name in fixed:
            opponent = fixed[name](env)
            if self._plies(app) < (fewest := getattr(opponent, "fewest_plies", 0)):
                raise UsageError(
                    f"--opponent {name} takes long for a move at the start of a game; give "
                    f"--opening-plies {fewest} or more."
                )
            return opponent
        if not has_player(app, name):
            comes = getattr(trained.config, "env", PRETRAINED) in player_names(app)
            rated = ladder_of(app, trained.config) is not None
            known = ", ".join([*fixed, *[LADDER] * rated, *[PRETRAINED] * comes])
            raise UsageError(
                f"--opponent {name} is unknown; give {known}, or another run or a file of a player "
                f"of `{app.name}`."
            )
        other = self.load(app, name)
        for theirs, ours in zip(_game(other), _game(trained), strict=True):
            if theirs != ours:
                raise UsageError(f"--opponent {name} plays {theirs}, and not {ours}.")
        number = None if _simulations(other.player) is None else simulations
        player: Any = with_simulations(other.player, number)
        model: Any = getattr(player, "model", None)
        if not hasattr(model, "env"):
            return player
        begin = lambda env: jax.eval_shape(lambda: env.init(key=jr.key(0)))
        if eqx.tree_equal(begin(model.env), begin(env)) is True:
            return player  # it plans with the rewards that it was trained with
        most, ours = (getattr(x, "max_return", 1.0) for x in (model.env, env))
        if most != ours:
            raise UsageError(
                f"--opponent {name} was trained with returns of up to {most:g} by another engine "
                f"of the game, and here they are up to {ours:g}; evaluate that player against this "
                "one."
            )
        # Its run may have another engine of the game, but the states are those of this one.
        return dataclasses.replace(player, model=dataclasses.replace(model, env=env))


def _simulations(player: AbstractActor) -> int | None:
    """The simulations per move of a player; `None` where its planner has no such number."""
    return getattr(getattr(player, "planner", None), "num_simulations", None)


def _game(trained: Trained[Any]) -> tuple[str, str]:
    """What a player plays, as far as another of the app may play something else."""
    env = trained.loop.env
    seen = jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0))))
    shapes = ", ".join(str([*x.shape]) for x in jax.tree.leaves(seen))
    return getattr(trained.config, "env", ""), f"a game with observations of {shapes}"
