"""Environments by name."""

import contextlib
import functools as ft
import inspect
import types
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints, Union

from ._backgammon import Backgammon
from ._brax import BraxEnvironment
from ._code import load_class, own_code
from ._control import CartPole, Pendulum
from ._environment import (
    AbstractChanceEnvironment,
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    AbstractHiddenEnvironment,
)
from ._filtered import AbstractFilter, Filtered
from ._game2048 import Game2048
from ._gymnasium import ale_environment, envpool_environment, gymnasium_environment
from ._gymnax import gymnax_environment
from ._hosted import Hosted
from ._jumanji import jumanji_environment
from ._known import check_name, EnvironmentFacts
from ._light_dark import LightDark, LightFilter
from ._minesweeper import Minesweeper
from ._monsters import Monsters
from ._othello import Othello
from ._pgx import PgxEnvironment
from ._playground import PlaygroundEnvironment
from ._rock_sample import RockFilter, RockSample
from ._tag import Tag, TagFilter
from ._tiger import Tiger, TigerFilter


_OWN: dict[str, Callable[..., Any]] = {
    "2048": Game2048,
    "cartpole": CartPole,
    "lasertag": Tag.laser,
    "lightdark": LightDark,
    "lightdark-10": ft.partial(LightDark.betazero, 10),
    "lightdark-5": ft.partial(LightDark.betazero, 5),
    "minesweeper": Minesweeper,
    "monsters": Monsters,
    "othello": Othello,
    "pendulum": Pendulum,
    "pgx/backgammon": Backgammon,
    "rocksample-11-11": ft.partial(RockSample.of, 11, 11),
    "rocksample-15-15": ft.partial(RockSample.of, 15, 15),
    "rocksample-7-8": ft.partial(RockSample.of, 7, 8),
    "tag": Tag,
    "tiger": Tiger,
}
#: What its player keeps a belief with in each of the above that hides its state.
_FILTERS: dict[str, AbstractFilter] = {
    **dict.fromkeys(("lightdark", "lightdark-10", "lightdark-5"), LightFilter()),
    "tiger": TigerFilter(),
    **dict.fromkeys(("rocksample-11-11", "rocksample-15-15", "rocksample-7-8"), RockFilter()),
    **dict.fromkeys(("lasertag", "tag"), TagFilter()),
}
_ADAPTERS: dict[str, Callable[..., Any]] = {
    "ale": ale_environment,
    "brax": BraxEnvironment,
    "envpool": envpool_environment,
    "gymnasium": gymnasium_environment,
    "gymnax": gymnax_environment,
    "jumanji": jumanji_environment,
    "pgx": PgxEnvironment,
    "playground": PlaygroundEnvironment,
}


_DERIVED = "AbstractDiscreteEnvironment"
_BASES = f"{_DERIVED} or AbstractContinuousEnvironment"


def make(name: str, **options: Any) -> AbstractEnvironment:
    """The environment of a name.

    | name | environment |
    |---|---|
    | `2048`, `cartpole`, `minesweeper`, `monsters`, `othello`, `pendulum`, `pgx/backgammon` | \
those of this package |
    | `rocksample-7-8`, `rocksample-11-11`, `rocksample-15-15`, `tag`, `lasertag`, `lightdark`, \
`lightdark-10`, `lightdark-5`, `tiger` | [`zero_envs.Filtered`][] worlds that hide their state; of \
RockSample, Tag and LaserTag the filter is exact |
    | `brax/ant`, `gymnax/Catch-bsuite`, `jumanji/Snake-v1`, `pgx/othello`, \
`playground/WalkerRun`, `gymnasium/LunarLander-v3`, `ale/Breakout`, `envpool/Pong-v5` | of another \
library, through its adapter |
    | `module:Class`, `path/to/file.py:Class` | your own class, which is called with the options, \
or a function that is annotated to return an environment |

    The options are passed to the class of the environment.
    """
    if not isinstance(name, str):
        raise ValueError(f"make({name!r}): give the name of an environment, a text.")
    library, _, theirs = name.partition("/")
    check_name(name)
    if name in _OWN:
        env: Any = _made(name, _OWN[name], options)
        return Filtered(env, _FILTERS[name]) if name in _FILTERS else env
    if ":" in name and library != "gymnasium":
        return _own(name, options)
    return _made(name, ft.partial(_ADAPTERS[library], theirs), options)


def environment_facts(env: AbstractEnvironment) -> EnvironmentFacts:
    """What [`zero_envs.known_environments`][] says of the environments that are known."""
    kinds = {
        "discrete": AbstractDiscreteEnvironment,
        "factored": AbstractFactoredEnvironment,
        "continuous": AbstractContinuousEnvironment,
    }
    actions: Any = next((name for name, kind in kinds.items() if isinstance(env, kind)), None)
    return EnvironmentFacts(
        actions,
        getattr(env, "num_players", 1),
        env.hidden,
        isinstance(env, AbstractHiddenEnvironment | Filtered),
        isinstance(env, AbstractChanceEnvironment),
        isinstance(env, Hosted),
    )


def _made(name: str, kind: Callable[..., Any], options: dict[str, Any]) -> AbstractEnvironment:
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as e:
        raise ValueError(f'make("{name}"): {e}; give other options.') from e
    return kind(**options)


def _own(name: str, options: dict[str, Any]) -> AbstractEnvironment:
    kind = load_class(name)
    # Nothing is called but what says that it makes an environment.
    made = made_by = kind.func if isinstance(kind, ft.partial) else kind
    if not isinstance(made_by, type):
        with contextlib.suppress(Exception):  # of names that cannot be resolved, too
            called = made_by if inspect.isroutine(made_by) else type(made_by).__call__
            made = get_type_hints(called).get("return")
    is_union = get_origin(made) in (Union, types.UnionType)
    kinds = get_args(made) if is_union else (get_origin(made) or made,)
    if not all(isinstance(x, type) and issubclass(x, AbstractEnvironment) for x in kinds):
        what = f"a {getattr(kind, '__name__', type(kind).__name__)} and no environment"
        if inspect.isroutine(kind):
            what = f"a function, and does not say that it returns an environment (-> {_DERIVED})"
        raise ValueError(f'make("{name}"): it is {what}; give a class derived from {_BASES}.')
    try:
        with contextlib.suppress(ValueError):  # of some classes Python knows no signature
            inspect.signature(kind).bind(**options)
    except TypeError as e:
        raise ValueError(f'make("{name}"): {e}; give a class that needs no other arguments.') from e
    with own_code(name):
        env = kind(**options)
    if not isinstance(env, AbstractEnvironment):
        raise ValueError(
            f'make("{name}"): it returned a {type(env).__name__} and no environment; give a class '
            f"derived from {_BASES}."
        )
    return env
