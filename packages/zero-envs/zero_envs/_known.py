"""The names of environments, and what is known of each before it is made. JAX is not imported, nor
any library of environments, which all take seconds."""

import ast
import importlib.util
import pathlib
from typing import Any, Literal, NamedTuple


class EnvironmentFacts(NamedTuple):
    """Facts of an environment that are known before it is made.

    **Attributes:**

    - `actions`: of which kind they are; `None` if of another one.
    - `num_players`: 1 or 2.
    - `hidden`: see [`zero_envs.AbstractEnvironment`][].
    - `resamples`: whether it is a [`zero_envs.AbstractHiddenEnvironment`][].
    - `chance`: whether it is a [`zero_envs.AbstractChanceEnvironment`][].
    """

    actions: Literal["discrete", "factored", "continuous"] | None
    num_players: int = 1
    hidden: bool = False
    resamples: bool = False
    chance: bool = False


_OWN = {
    "2048": EnvironmentFacts("discrete", chance=True),
    "cartpole": EnvironmentFacts("discrete"),
    "minesweeper": EnvironmentFacts("discrete", hidden=True, resamples=True),
    "monsters": EnvironmentFacts("discrete", chance=True),
    "othello": EnvironmentFacts("discrete", 2),
    "pendulum": EnvironmentFacts("continuous"),
}

#: The two-player card games of pgx, whose state is only partly observable.
PGX_HIDDEN = frozenset({"kuhn_poker", "leduc_holdem"})

# The players of those games that do not have two: constructing a game to see them takes seconds.
_PGX_PLAYERS = {
    "2048": 1,
    "minatar-asterix": 1,
    "minatar-breakout": 1,
    "minatar-freeway": 1,
    "minatar-seaquest": 1,
    "minatar-space_invaders": 1,
    "sparrow_mahjong": 3,
}

#: The games of pgx that need a downloaded data file to be constructed.
PGX_DOWNLOADED = frozenset({"bridge_bidding"})

#: The classes of Jumanji's environments whose state is only partly observable.
JUMANJI_HIDDEN = frozenset({"Minesweeper", "RobotWarehouse"})

# Those with several rewards, or actions that are not discrete.
_JUMANJI_REFUSED = frozenset({"Connector", "LevelBasedForaging", "SearchAndRescue"})

#: Those with too many actions to number them.
JUMANJI_FACTORED = frozenset({"FlatPack", "JobShop", "MMST"})


def known_environments() -> dict[str, EnvironmentFacts]:
    """Every name that [`zero_envs.make`][] accepts, those of the libraries that are installed
    included, and what is known of it. Neither JAX nor any of the libraries is imported."""
    found = {"brax": brax_names(), "jumanji": _jumanji_names(), "pgx": pgx_names()}
    theirs = {f"{name}/{one}": x for name, of in found.items() for one, x in sorted(of.items())}
    return _OWN | theirs


def brax_names() -> dict[str, EnvironmentFacts]:
    """The names of brax's registry, or none if brax is not installed."""
    names = _assigned("brax", "envs/__init__.py", "_envs")
    keys = names.keys if isinstance(names, ast.Dict) else []
    return {ast.literal_eval(name): EnvironmentFacts("continuous") for name in keys if name}


def pgx_names() -> dict[str, EnvironmentFacts]:
    """The ids of pgx's games that are not refused; none if pgx is not installed."""
    ids = _assigned("pgx", "core.py", "EnvId")
    games = ast.literal_eval(ids.slice) if isinstance(ids, ast.Subscript) else ()
    return {
        game: EnvironmentFacts("discrete", players, game in PGX_HIDDEN)
        for game in games
        if game not in PGX_DOWNLOADED and (players := _PGX_PLAYERS.get(game, 2)) <= 2
    }


def _jumanji_names() -> dict[str, EnvironmentFacts]:
    """The ids of Jumanji's registry that are not refused; none if Jumanji is not installed."""
    names = {}
    for node in ast.walk(_syntax("jumanji", "__init__.py")):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "register":
            given = {word.arg: word.value for word in node.keywords}
            kind = ast.literal_eval(given["entry_point"]).rpartition(":")[2]
            if kind not in _JUMANJI_REFUSED:
                actions = "factored" if kind in JUMANJI_FACTORED else "discrete"
                facts = EnvironmentFacts(actions, hidden=kind in JUMANJI_HIDDEN)
                names[ast.literal_eval(given["id"])] = facts
    return names


def _assigned(library: str, file: str, name: str) -> Any:
    """What is assigned to a name in a file of a library."""
    for node in _syntax(library, file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


def _syntax(library: str, file: str) -> ast.Module:
    """The syntax tree of a file of a library, which is empty if it is not installed."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        return ast.parse("")
    return ast.parse((pathlib.Path(spec.origin).parent / file).read_text("utf-8"))
