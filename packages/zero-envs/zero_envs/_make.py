"""Environments by name."""

import contextlib
import difflib
import functools as ft
import inspect
import types
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints, NamedTuple, Union

from ._brax import brax_names, BraxEnvironment
from ._code import load_class, own_code
from ._control import CartPole, Pendulum
from ._environment import AbstractEnvironment
from ._foreign import unknown, UnknownNameError
from ._game2048 import Game2048
from ._gymnax import gymnax_environment, gymnax_names
from ._jumanji import jumanji_environment, jumanji_names
from ._minesweeper import Minesweeper
from ._monsters import Monsters
from ._othello import Othello
from ._pgx import pgx_names, PgxEnvironment
from ._playground import playground_names, PlaygroundEnvironment


_OWN: dict[str, type[Any]] = {
    "2048": Game2048,
    "cartpole": CartPole,
    "minesweeper": Minesweeper,
    "monsters": Monsters,
    "othello": Othello,
    "pendulum": Pendulum,
}
_ADAPTERS: dict[str, Callable[..., Any]] = {
    "brax": BraxEnvironment,
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
    | `2048`, `cartpole`, `minesweeper`, `monsters`, `othello`, `pendulum` | those of this package |
    | `brax/ant`, `gymnax/Catch-bsuite`, `jumanji/Snake-v1`, `pgx/othello`, \
`playground/WalkerRun` | of another library, through its adapter |
    | `module:Class`, `path/to/file.py:Class` | your own class, which is called with the options, \
or a function that is annotated to return an environment |

    The options are passed to the class of the environment.
    """
    if not isinstance(name, str):
        raise ValueError(f"make({name!r}): give the name of an environment, a text.")
    library, slash, theirs = name.partition("/")
    others = [f"{known}/NAME" for known in _ADAPTERS]
    if name in _OWN:
        return _made(name, _OWN[name], options)
    if ":" in name:
        return _own(name, options)
    if slash and library in _ADAPTERS:
        try:
            return _made(name, ft.partial(_ADAPTERS[library], theirs), options)
        except UnknownNameError:
            known = known_environments()
            theirs = [one for one in known if one.startswith(f"{library}/")]
            raise unknown("make", name, theirs, known) from None
    if slash:
        near = difflib.get_close_matches(library, _ADAPTERS, 1)
        meant = f" Did you mean {near[0]}/{theirs}?" if near else ""
        raise ValueError(f'make("{name}"): no such library.{meant} Allowed: {", ".join(others)}.')
    raise unknown("make", name, [*_OWN, *others, "module:Class"], known_environments())


class EnvironmentFacts(NamedTuple):
    """Facts of an environment that are known before it is made.

    **Attributes:**

    - `kind`: its class, which says what its actions are.
    - `num_players`: 1 or 2.
    - `hidden`: see [`zero_envs.AbstractEnvironment`][].
    """

    kind: type[AbstractEnvironment]
    num_players: int
    hidden: bool


def known_environments() -> dict[str, EnvironmentFacts]:
    """Every name that [`zero_envs.make`][] accepts, those of the libraries that are installed
    included, and what is known of it. No library is imported but pgx, so it takes no second."""
    found = {
        name: EnvironmentFacts(kind, getattr(kind, "num_players", 1), kind.hidden)
        for name, kind in sorted(_OWN.items())
    }
    for name in sorted(brax_names()):
        found[f"brax/{name}"] = EnvironmentFacts(BraxEnvironment, 1, False)
    for library, names in (("gymnax", gymnax_names()), ("jumanji", jumanji_names())):
        for name, (kind, hidden) in sorted(names.items()):
            found[f"{library}/{name}"] = EnvironmentFacts(kind, 1, hidden)
    for name, (players, hidden) in sorted(pgx_names().items()):
        found[f"pgx/{name}"] = EnvironmentFacts(PgxEnvironment, players, hidden)
    for name, hidden in sorted(playground_names().items()):
        found[f"playground/{name}"] = EnvironmentFacts(PlaygroundEnvironment, 1, hidden)
    return found


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
