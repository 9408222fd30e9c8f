"""Environments for search and learning: an interface, adapters and a conformance check.

- By name: `make("pgx/chess")` makes an environment, `known_environments` lists all names.
- Of other libraries: `PgxEnvironment`, `JumanjiEnvironment`, `FactoredJumanjiEnvironment`,
  `BraxEnvironment`, `PlaygroundEnvironment`, `gymnax_environment`, `stoa_environment`.
- Simulated on the host: `gymnasium_environment`, `ale_environment`, `envpool_environment`.
- Written here: `Othello`, `Minesweeper`, `Monsters`, `Game2048`, `Backgammon` (over pgx's game),
  `CartPole`, `Pendulum`.
- That hide their state: `RockSample`, `Tag`, `LightDark`, `Tiger`; `Filtered` keeps what their
  player can know.
- To write one: derive from `AbstractDiscreteEnvironment`, `AbstractChanceEnvironment` (known
  probabilities), `AbstractHiddenEnvironment`, `AbstractObservedEnvironment` (known likelihoods of
  what is seen), `AbstractContinuousEnvironment` or `AbstractFactoredEnvironment`;
  `zero_envs.testing.check_environment` checks it.
- Wrappers: `TimeLimit`, `Fallible`.
- What they return: `Observation`, `Transition`.

What holds of all of them, and is not said again:

- Arguments that cannot be taken raise a ValueError of one line that names them, and a library that
  is not installed an ImportError that names the extra to install.
- An action that is known and does not exist raises a ValueError too; what a traced one does the
  environment says.
- The method raw returns the library's own state, for its tools, and render an SVG image of a state.
"""

import importlib.metadata
import typing

from ._lazy import lazy_names as lazy_names


if typing.TYPE_CHECKING:
    from . import testing as testing
    from ._adapted import (
        AdaptedEnvironment as AdaptedEnvironment,
        AdaptedState as AdaptedState,
        ContinuousAdaptedEnvironment as ContinuousAdaptedEnvironment,
    )
    from ._backgammon import Backgammon as Backgammon, BackgammonAfterstate as BackgammonAfterstate
    from ._brax import BraxEnvironment as BraxEnvironment
    from ._code import load_class as load_class, own_code as own_code
    from ._control import (
        CartPole as CartPole,
        CartPoleState as CartPoleState,
        Pendulum as Pendulum,
        PendulumState as PendulumState,
    )
    from ._environment import (
        AbstractChanceEnvironment as AbstractChanceEnvironment,
        AbstractContinuousEnvironment as AbstractContinuousEnvironment,
        AbstractDiscreteEnvironment as AbstractDiscreteEnvironment,
        AbstractEnvironment as AbstractEnvironment,
        AbstractFactoredEnvironment as AbstractFactoredEnvironment,
        AbstractHiddenEnvironment as AbstractHiddenEnvironment,
        AbstractObservedEnvironment as AbstractObservedEnvironment,
        draws as draws,
        Fallible as Fallible,
        Observation as Observation,
        Transition as Transition,
    )
    from ._filtered import (
        AbstractChanceFilter as AbstractChanceFilter,
        AbstractFilter as AbstractFilter,
        BeliefAfterstate as BeliefAfterstate,
        Filtered as Filtered,
        FilteredState as FilteredState,
        ParticleFilter as ParticleFilter,
        Particles as Particles,
    )
    from ._game2048 import (
        Game2048 as Game2048,
        Game2048Afterstate as Game2048Afterstate,
        Game2048State as Game2048State,
    )
    from ._gymnasium import (
        ale_environment as ale_environment,
        envpool_environment as envpool_environment,
        gymnasium_environment as gymnasium_environment,
    )
    from ._gymnax import gymnax_environment as gymnax_environment
    from ._hosted import AbstractWorlds as AbstractWorlds, Hosted as Hosted, HostStep as HostStep
    from ._jumanji import (
        FactoredJumanjiEnvironment as FactoredJumanjiEnvironment,
        JumanjiEnvironment as JumanjiEnvironment,
        JumanjiState as JumanjiState,
    )
    from ._known import (
        check_name as check_name,
        EnvironmentFacts as EnvironmentFacts,
        known_environments as known_environments,
    )
    from ._light_dark import (
        LightBelief as LightBelief,
        LightDark as LightDark,
        LightDarkState as LightDarkState,
        LightFilter as LightFilter,
    )
    from ._make import environment_facts as environment_facts, make as make
    from ._mine_posterior import (
        list_mines as list_mines,
        mine_posterior as mine_posterior,
        MinePosterior as MinePosterior,
        sample_mines as sample_mines,
    )
    from ._minesweeper import Minesweeper as Minesweeper, MinesweeperState as MinesweeperState
    from ._monsters import (
        Monsters as Monsters,
        MONSTERS_WORDS as MONSTERS_WORDS,
        MonstersAfterstate as MonstersAfterstate,
        MonstersState as MonstersState,
        MonstersTokens as MonstersTokens,
    )
    from ._othello import Othello as Othello, OthelloState as OthelloState
    from ._pgx import PgxEnvironment as PgxEnvironment, PgxState as PgxState
    from ._physics import (
        AbstractPhysicsEnvironment as AbstractPhysicsEnvironment,
        PhysicsState as PhysicsState,
    )
    from ._playground import PlaygroundEnvironment as PlaygroundEnvironment
    from ._rock_sample import (
        RockBelief as RockBelief,
        RockFilter as RockFilter,
        RockSample as RockSample,
        RockSampleState as RockSampleState,
    )
    from ._sokoban import SokobanGenerator as SokobanGenerator, SokobanLevel as SokobanLevel
    from ._stoa import stoa_environment as stoa_environment
    from ._tag import (
        Tag as Tag,
        TagBelief as TagBelief,
        TagFilter as TagFilter,
        TagState as TagState,
    )
    from ._tiger import (
        Tiger as Tiger,
        TigerBelief as TigerBelief,
        TigerFilter as TigerFilter,
        TigerState as TigerState,
    )
    from ._time_limit import TimeLimit as TimeLimit, TimeLimitState as TimeLimitState
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)


__version__ = importlib.metadata.version("zero-envs")
