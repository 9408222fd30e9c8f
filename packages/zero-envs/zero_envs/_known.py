"""The names of environments, and what is known of each before it is made. JAX is not imported, nor
any library of environments, which all take seconds."""

import ast
import difflib
import importlib.util
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple


class EnvironmentFacts(NamedTuple):
    """Facts of an environment that are known before it is made.

    **Attributes:**

    - `actions`: of which kind they are; `None` if of another one.
    - `num_players`: 1 or 2.
    - `hidden`: see [`zero_envs.AbstractEnvironment`][].
    - `resamples`: whether it is a [`zero_envs.AbstractHiddenEnvironment`][] or
        [`zero_envs.Filtered`][].
    - `chance`: whether it is a [`zero_envs.AbstractChanceEnvironment`][].
    - `hosted`: whether it is [`zero_envs.Hosted`][].
    """

    actions: Literal["discrete", "factored", "continuous"] | None
    num_players: int = 1
    hidden: bool = False
    resamples: bool = False
    chance: bool = False
    hosted: bool = False


_OWN = {
    **dict.fromkeys(("2048", "monsters"), EnvironmentFacts("discrete", chance=True)),
    "cartpole": EnvironmentFacts("discrete"),
    "othello": EnvironmentFacts("discrete", 2),
    "pendulum": EnvironmentFacts("continuous"),
    **dict.fromkeys(
        (
            *("lasertag", "lightdark", "lightdark-10", "lightdark-5", "minesweeper"),
            *("rocksample-11-11", "rocksample-15-15", "rocksample-7-8", "tag", "tiger"),
        ),
        EnvironmentFacts("discrete", hidden=True, resamples=True),
    ),
}

#: The two-player card games of pgx, whose state is only partly observable.
PGX_HIDDEN = frozenset({"kuhn_poker", "leduc_holdem"})

# The games of pgx that are made as chance environments.
_PGX_CHANCE = frozenset({"backgammon"})

_MINATAR = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
# The games of pgx for one player: constructing a game to see its players takes seconds.
_PGX_ALONE = frozenset({"2048", *(f"minatar-{name}" for name in _MINATAR)})

#: The games of pgx whose steps draw.
PGX_RANDOM = _PGX_ALONE | {"backgammon"}

#: The games of pgx that need a downloaded data file to be constructed.
PGX_DOWNLOADED = frozenset({"bridge_bidding"})

#: The classes of Jumanji's environments whose state is only partly observable.
JUMANJI_HIDDEN = frozenset({"Minesweeper", "RobotWarehouse"})

#: Those whose steps draw.
JUMANJI_RANDOM = frozenset({"Game2048", "MMST", "PacMan", "RobotWarehouse", "Snake", "Tetris"})

# Those with several rewards, or actions that are not discrete.
_JUMANJI_REFUSED = frozenset({"Connector", "LevelBasedForaging", "SearchAndRescue"})

#: Those with too many actions to number them.
JUMANJI_FACTORED = frozenset({"FlatPack", "JobShop", "MMST"})


#: Environments of gymnax that draw what an episode pays, or a context, at its begin and do not show
#: it.
GYMNAX_HIDDEN = frozenset(
    {
        "BernoulliBandit-misc",
        "GaussianBandit-misc",
        "MemoryChain-bsuite",
        "MetaMaze-misc",
        "PointRobot-misc",
        "SimpleBandit-bsuite",
    }
)
#: Those whose steps look at their key and do not depend on it: two by their parameters, and Catch,
#: which draws after an end.
GYMNAX_STEADY = frozenset({"Acrobot-v1", "Catch-bsuite", "DeepSea-bsuite"})
_GYMNAX_CONTINUOUS = frozenset(
    {"MountainCarContinuous-v0", "Pendulum-v1", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"}
)

_GYMNASIUM_CONTINUOUS = frozenset(
    {
        "BipedalWalker-v3",
        "BipedalWalkerHardcore-v3",
        "CarRacing-v3",
        "LunarLanderContinuous-v3",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
    }
)
#: It needs a version of MuJoCo before 3.
_GYMNASIUM_OLD = frozenset({"Pusher-v4"})
#: The games of the Arcade Learning Environment that one player alone cannot play.
_ALE_FOR_SEVERAL = frozenset({"combat", "joust", "maze_craze", "warlords"})

#: It loads images from the internet when it is constructed.
GYMNAX_DOWNLOADED = frozenset({"MNISTBandit-bsuite"})

#: The tasks of the DeepMind Control Suite come with MuJoCo Playground. Its robots, whose sensors
#: are noisy and whose state is therefore hidden, need models that it fetches by `git clone`.
PLAYGROUND = "mujoco_playground"
PLAYGROUND_SUITE, PLAYGROUND_ROBOTS = "dm_control_suite", ("locomotion", "manipulation")


def known_environments() -> dict[str, EnvironmentFacts]:
    """Every name that [`zero_envs.make`][] accepts, those of the libraries that are installed
    included, and what is known of it. Neither JAX nor any of the libraries is imported."""
    return {name: facts for name, facts in _registered().items() if facts is not None}


def names_of(library: str) -> dict[str, EnvironmentFacts]:
    """What is known of the environments of a library, by its own names."""
    known = known_environments()
    return {x.partition("/")[2]: known[x] for x in known if x.startswith(f"{library}/")}


def check_name(name: str) -> None:
    """Checks that [`zero_envs.make`][] may know an environment of a name, or that it names code of
    the user's own, which is not looked at. For any other name it raises a `ValueError` with the
    nearest ones. As [`zero_envs.known_environments`][], it imports nothing."""
    registered, known = _registered(), known_environments()
    library, slash, theirs = name.partition("/")
    others = [f"{one}/NAME" for one in _LIBRARIES]
    if ":" in name or name in registered:
        return
    if slash and library in _LIBRARIES:
        within = [one for one in known if one.startswith(f"{library}/")]
        if not within:  # it is not installed, as its adapter says
            return
        raise unknown("make", name, within, known)
    if slash:
        near = difflib.get_close_matches(library, _LIBRARIES, 1)
        meant = f" Did you mean {near[0]}/{theirs}?" if near else ""
        raise ValueError(f'make("{name}"): no such library.{meant} Allowed: {", ".join(others)}.')
    raise unknown("make", name, [*_OWN, *others, "module:Class"], known)


def unknown(
    call: str, name: str, allowed: Iterable[str], known: Iterable[str] | None = None
) -> ValueError:
    """An error for an unknown name, which says what is `allowed` and the nearest of the `known`
    names, with or without their libraries; these are by default those allowed."""
    allowed = sorted(allowed)
    bare: dict[str, list[str]] = {}
    for one in allowed if known is None else known:
        bare.setdefault(_bare(one), []).append(one)
    found = difflib.get_close_matches(_bare(name), bare, 3, 0.65)
    # Only the library is missing or wrong, so no other name is suggested.
    near = [one for part in found[: 1 if _bare(name) in bare else None] for one in bare[part]]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return ValueError(
        f'{call}("{name}"): no such environment.{meant} Allowed: {", ".join(allowed)}.'
    )


def _bare(name: str) -> str:
    """A name without its library."""
    return name.rpartition("/")[2].lower()


def _registered() -> dict[str, EnvironmentFacts | None]:
    """The names of all environments, `None` for those that are not listed, most of which are
    refused when they are made."""
    found: dict[str, EnvironmentFacts | None] = dict(sorted(_OWN.items()))
    for library, names in _LIBRARIES.items():
        found |= {f"{library}/{name}": facts for name, facts in sorted(names().items())}
    return found


def _brax_names() -> dict[str, EnvironmentFacts | None]:
    names = _listed("brax", "envs/__init__.py", "_envs")
    return dict.fromkeys(names, EnvironmentFacts("continuous"))


def _gymnax_names() -> dict[str, EnvironmentFacts | None]:
    names = _listed("gymnax", "registration.py", "_BUILTIN_ENV_IDS")
    kind = lambda x: "continuous" if x in _GYMNAX_CONTINUOUS else "discrete"
    facts = lambda x: EnvironmentFacts(kind(x), hidden=x in GYMNAX_HIDDEN)
    return {name: None if name in GYMNAX_DOWNLOADED else facts(name) for name in names}


def playground_names(*suites: str) -> list[str]:
    """The names that these suites of MuJoCo Playground register."""
    files = (f"_src/{suite}/__init__.py" for suite in suites)
    return [name for file in files for name in _listed(PLAYGROUND, file, "_envs")]


def playground_menagerie() -> pathlib.Path:
    """The folder of the models of robots."""
    spec = importlib.util.find_spec(PLAYGROUND)
    home = pathlib.Path(spec.origin if spec and spec.origin else "").parent
    return home / "external_deps" / "mujoco_menagerie"


def _playground_facts() -> dict[str, EnvironmentFacts | None]:
    tasks = dict.fromkeys(playground_names(PLAYGROUND_SUITE), EnvironmentFacts("continuous"))
    there = playground_menagerie().exists()
    robot = EnvironmentFacts("continuous", hidden=True) if there else None
    return tasks | dict.fromkeys(playground_names(*PLAYGROUND_ROBOTS), robot)


def _pgx_names() -> dict[str, EnvironmentFacts | None]:
    ids = _assigned("pgx", "core.py", "EnvId")
    games = ast.literal_eval(ids.slice) if isinstance(ids, ast.Subscript) else ()
    players = lambda x: 1 if x in _PGX_ALONE else 2
    facts = lambda x: EnvironmentFacts(
        "discrete", players(x), x in PGX_HIDDEN, chance=x in _PGX_CHANCE
    )
    refused = {*PGX_DOWNLOADED, "sparrow_mahjong"}  # the latter has three players
    return {game: None if game in refused else facts(game) for game in games}


def _jumanji_names() -> dict[str, EnvironmentFacts | None]:
    names = {}
    for given in _registrations("jumanji", "__init__.py"):
        kind = ast.literal_eval(given["entry_point"]).rpartition(":")[2]
        actions = "factored" if kind in JUMANJI_FACTORED else "discrete"
        facts = EnvironmentFacts(actions, hidden=kind in JUMANJI_HIDDEN)
        refused = kind in _JUMANJI_REFUSED
        names[ast.literal_eval(given["id"])] = None if refused else facts
    return names


def _gymnasium_names() -> dict[str, EnvironmentFacts | None]:
    names = {}
    for given in _registrations("gymnasium", "envs/__init__.py"):
        entry = given["entry_point"]
        name = ast.literal_eval(given["id"])
        if isinstance(entry, ast.Constant):  # others are functions that only raise
            continuous = name in _GYMNASIUM_CONTINUOUS or ".mujoco." in str(entry.value)
            kind = "continuous" if continuous else "discrete"
            # Those in folders are the same worlds as others, and are not listed.
            refused = "/" in name or name in _GYMNASIUM_OLD
            names[name] = None if refused else EnvironmentFacts(kind, hosted=True)
    return names


def _ale_names() -> dict[str, EnvironmentFacts | None]:
    spec = importlib.util.find_spec("ale_py")
    if spec is None or spec.origin is None:
        return {}
    games = [rom.stem for rom in (pathlib.Path(spec.origin).parent / "roms").glob("*.bin")]
    names = [game.title().replace("_", "") for game in games if game not in _ALE_FOR_SEVERAL]
    return dict.fromkeys(names, EnvironmentFacts("discrete", hosted=True))


#: What reads the registry of each library, which is empty where it is not installed. That of
#: EnvPool cannot be read without importing it.
_LIBRARIES = {
    "ale": _ale_names,
    "brax": _brax_names,
    "envpool": dict,
    "gymnasium": _gymnasium_names,
    "gymnax": _gymnax_names,
    "jumanji": _jumanji_names,
    "pgx": _pgx_names,
    "playground": _playground_facts,
}


def _registrations(library: str, file: str) -> Iterator[dict[str, ast.expr]]:
    """The arguments of every call of `register` in a file of a library."""
    for node in ast.walk(_syntax(library, file)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "register":
            yield {word.arg or "": word.value for word in node.keywords}


def _listed(library: str, file: str, name: str) -> list[str]:
    """The names in the dictionary or list that is assigned to a name in a file of a library."""
    found = _assigned(library, file, name)
    names = found.keys if isinstance(found, ast.Dict) else getattr(found, "elts", [])
    return [ast.literal_eval(one) for one in names if one]


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
