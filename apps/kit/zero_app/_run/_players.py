"""Trained players: of runs, in files, and those that come with an app."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import tyro
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save

from .._command._config import AbstractConfig
from .._command._errors import UsageError, warn
from .._command._lazy import equinox as eqx, jax, zero_train
from ._app import AbstractCommand, App, built, Trained
from ._checkpoint import Checkpoints
from ._disk import reason, write_whole
from ._lines import lines_of, read_lines
from ._manifest import check_leaves, spec
from ._measures import kind_of, ratings, RETURN, SCORE, WON
from ._provenance import check_logs, check_run, CHECKPOINTS, finished_steps, PLAYERS
from ._stored import complete, config_of, likeness, load_config, stored_config


Config = TypeVar("Config", bound=AbstractConfig)

#: What a file of a player is called after its name.
SUFFIX = ".safetensors"
#: The entry of its metadata that protects the others, and the arrays.
_DIGEST = "digest"
#: The name of the step of the best player of a run.
_BEST = "best"
#: The name of the player that is meant where none is given.
PRETRAINED = "pretrained"


@dataclasses.dataclass(frozen=True)
class AbstractPlayerCommand(AbstractCommand):
    """A command about a trained player."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[RUN]")] = PRETRAINED
    """The folder of a run, RUN@STEP or RUN@best for an earlier player of it, a file of a player, or
    the name of one that comes with the command."""
    run_code: bool = False
    """Run code that the configuration of the run names, if you trust whoever made it."""

    def load(self, app: App[Config], name: str | None = None) -> Trained[Config]:
        """The player, or another one of this name; see [`zero_app.load`][]."""
        return load(app, self.run if name is None else name, run_code=self.run_code)

    @property
    def folder(self) -> pathlib.Path:
        """Where files about the player are written: into its run, or else here."""
        path, _ = which_player(self.run)
        return path if path.is_dir() else pathlib.Path()


def load(
    app: App[Config], run: str | os.PathLike[str] = PRETRAINED, *, run_code: bool = False
) -> Trained[Config]:
    """A trained player: the newest of a run, or another one that it has kept, which are the first
    one and all that it evaluated. Where the parameters of the newest are damaged a warning says so,
    and the ones before are loaded.

    **Arguments:**

    - `run`: the folder of a run, `RUN@STEP` or `RUN@best` as [`zero_app.which_player`][]
        takes them, a file that `export` wrote, or the name of a player that comes with the app, as
        [`zero_app.player_file`][] takes it.
    - `run_code`: whether code that its configuration names may be run. Nothing else that is loaded
        is run.

    **Raises:** [`zero_app.CheckpointError`][] where all parameters are damaged or do not fit the
    configuration; [`zero_app.RunError`][] where some in the folder are of another run, or
    `RUN@best` has evaluations that are repeated or in disorder.
    """
    path, step = which_player(run)
    if not path.exists() and has_player(app, str(run)):
        path = player_file(app, str(run))
    if path.is_file():
        return _read(app, path, run_code)
    config = load_config(app.config, path, app.command, run_code=run_code)
    check_run(path, tell=warn)
    if step is not None and str(run).endswith(f"@{_BEST}"):
        check_logs(path, tell=warn, names=("evaluations",))
    loop = built(app, config)
    saved, shapes = Checkpoints(path / PLAYERS, keep=None), player_shapes(loop)
    if step is None:
        known = max([finished_steps(path), *Checkpoints(path / CHECKPOINTS).steps()])
        if saved.latest is not None and saved.latest < known:
            missing = saved.directory / f"{known:08d}"
            warn(f"{missing} is missing, the player of step {known}; --resume saves it again.")
        step, arrays = saved.restore_latest(shapes, tell=warn)
    else:
        arrays = saved.restore(shapes, step=step)
    return Trained(config, loop, player_of(loop, arrays), step, _origin(path, step))


def which_player(run: str | os.PathLike[str]) -> tuple[pathlib.Path, int | None]:
    """The path that is meant, and for `RUN@STEP` and `RUN@best` the step of the player.

    The best is the player with the highest Elo rating where the run has elo.json, and else with the
    highest score, rate of wins or mean return, whichever comes first in the first line of its
    evaluation; of equals it is the later one. The best of many evaluations is partly so by luck.
    """
    path = pathlib.Path(run)
    name, _, which = str(run).rpartition("@")
    if path.exists() or not name or not pathlib.Path(name).is_dir():
        return path, None
    if which == _BEST:
        return pathlib.Path(name), _best(pathlib.Path(name))
    if not which.isdecimal():
        raise UsageError(f"{run} was given; after {name}@ give the number of a step, or best.")
    return pathlib.Path(name), int(which)


def _best(folder: pathlib.Path) -> int:
    strengths: dict[int, float] = {x["step"]: x["elo"] for x in ratings(folder) if "step" in x}
    if not strengths:
        for row in lines_of(folder / "evaluations.jsonl", kind_of, distinct="nothing"):
            # Of these more is better.
            measured = [row[one.name] for one in (SCORE, WON, RETURN) if one.name in row]
            if measured:
                strengths.setdefault(row["step"], measured[0])
    if not strengths:
        raise UsageError(f"{folder}@best was given, and no player of {folder} was evaluated yet.")
    return max(strengths, key=lambda step: (strengths[step], step))


def player_names(app: App[Any]) -> list[str]:
    """The names of the trained players that come with an app."""
    if app.players is None:
        return []
    files = sorted(app.players.rglob(f"*{SUFFIX}"))
    return [path.relative_to(app.players).as_posix().removesuffix(SUFFIX) for path in files]


def player_file(
    app: App[Any], name: str = PRETRAINED, config: AbstractConfig | None = None
) -> pathlib.Path:
    """The file of a trained player that comes with an app; `pretrained` is that of the
    configuration, by default of the default preset."""
    found = name
    if name == PRETRAINED:
        usual = app.presets[app.default_preset] if config is None else config
        found = getattr(usual, "env", PRETRAINED)
    known = player_names(app)
    if app.players is None or found not in known:
        has = f"players of {', '.join(known)}, and none of {found}"
        raise UsageError(
            f"`{app.command}` comes with {has if known else 'no trained player'}; give the folder "
            f"of a run, as `{app.command} train --out` made it."
        )
    return app.players / f"{found}{SUFFIX}"


def has_player(app: App[Any], name: str) -> bool:
    """Whether [`zero_app.load`][] has something to look into: a path that exists, or the name
    of a player that comes with the app."""
    return which_player(name)[0].exists() or name in (*player_names(app), PRETRAINED)


def save_player(
    path: pathlib.Path,
    app: App[Any],
    trained: Trained[Any],
    *,
    half: bool = False,
    strength: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Writes a player into a file that [`zero_app.load`][] reads: its arrays by their paths,
    with what is known of it in the metadata. With `half`, arrays of two and more axes are rounded
    to 16 bits, as far as these can hold them."""
    about = {
        "app": app.name,
        "config": dataclasses.asdict(trained.config),
        "step": trained.step,
        "origin": dict(trained.origin),
        "strength": list(strength),
    }
    arrays = {name: _stored(x, half) for name, x in named(_arrays(trained.player))}
    said = {name: json.dumps(value) for name, value in about.items()}
    write_whole(path, save(arrays, {**said, _DIGEST: _digest(arrays, said)}))


def app_of_player(apps: Mapping[str, App[Any]], path: pathlib.Path) -> App[Any]:
    """The app of the run in a folder, whose configuration is one of it, or of a file of a player.
    What is wrong with a run is said in the words of the app that comes nearest: the one that made
    it, or else that has most entries of its configuration."""
    if path.is_file():
        try:
            with safe_open(path, framework="np") as stored:
                name = json.loads((stored.metadata() or {})["app"])
            if isinstance(name, str) and name in apps:
                return apps[name]
            raise ValueError(f"it is of {json.dumps(name)[:40]}, which is no app that is known")
        except _UNREADABLE as e:
            raise _no_player(path, "export", e) from e
    refused: list[tuple[tuple[bool, int], UsageError]] = []
    for app in apps.values():
        try:
            stored_config(app.config, path, app.name)
            return app
        except UsageError as e:
            refused.append((likeness(app.config, path), e))
    raise max(refused, key=lambda entry: entry[0])[1]


#: What reading a file of a player may raise.
_UNREADABLE = (
    *(ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError),
    SafetensorError,
)


def _no_player(file: pathlib.Path, command: str, error: Exception) -> UsageError:
    why = f"it has no {error}" if isinstance(error, KeyError) else reason(error)
    return UsageError(
        f"{file} is no file of a player: {' '.join(why.split())[:200]}; give one that `{command}` "
        "wrote."
    )


def _digest(arrays: Mapping[str, np.ndarray], said: Mapping[str, str]) -> str:
    """A checksum of a file's arrays and of what it says about them."""
    found = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def _read(app: App[Config], file: pathlib.Path, run_code: bool) -> Trained[Config]:
    try:
        with safe_open(file, framework="np") as stored:
            said = dict(stored.metadata() or {})
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}
        # Older versions wrote none.
        if said.pop(_DIGEST, None) not in (None, _digest(arrays, said)):
            raise ValueError("it is damaged, and not what was written")
        about = {name: json.loads(text) for name, text in said.items()}
        if about["app"] != app.name:
            raise ValueError(f"it is of `{about['app']}`")
        fields = complete(app.config, about["config"])
        step, origin, strength = int(about["step"]), dict(about["origin"]), [*about["strength"]]
    except _UNREADABLE as e:
        raise _no_player(file, f"{app.command} export", e) from e
    config = config_of(app.config, fields, file, app.command, run_code=run_code)
    loop = built(app, config)
    shapes = player_shapes(loop)
    wanted = dict(named(shapes))
    is_float = lambda x: jax.numpy.issubdtype(x.dtype, jax.numpy.floating)
    for name in arrays.keys() & wanted.keys():
        # Numbers may have been rounded, or widened.
        if is_float(arrays[name]) and is_float(wanted[name]):
            arrays[name] = arrays[name].astype(wanted[name].dtype)
    specs = lambda leaves: [spec(name, x) for name, x in sorted(leaves.items())]
    check_leaves(file, specs(arrays), specs(wanted))
    leaves = [jax.numpy.asarray(arrays[name]) for name in wanted]
    player = player_of(loop, jax.tree.unflatten(jax.tree.structure(shapes), leaves))
    return Trained(config, loop, player, step, origin, strength)


def named(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree, each with its path, such as `model.evaluate.network.stem.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]


def _stored(array: "jax.Array", half: bool) -> np.ndarray:
    stored = np.array(array, order="C")
    if not jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        return stored
    if stored.dtype.name not in ("float16", "float32", "float64"):
        return stored.astype(np.float32)  # NumPy has no such type, and the format none of NumPy's
    if half and stored.ndim > 1 and np.all(np.abs(stored) < np.finfo(np.float16).max):
        return stored.astype(np.float16)
    return stored


def _origin(folder: pathlib.Path, step: int) -> dict[str, Any]:
    """What the player of this step was trained with."""
    rows = read_lines(folder / "starts.jsonl")
    # What goes on after this step has not trained it.
    starts = [row for row in rows if row["step"] < step] or rows[:1]
    made = {**starts[-1]} if starts else {}
    return {name: made[name] for name in made if name not in ("step", "preset")}


# A player is saved as the arrays of the agent's actor at full strength.


def player_arrays(loop: "zero_train.Loop", agent: Any) -> Any:
    """What is saved of a player, on one device: the state is on all devices of the mesh, and an
    evaluation would run on all of them. Of several processes each has all of it."""
    arrays = _arrays(loop.agent.actor(agent, explore=False))
    alone = jax.process_count() == 1
    everywhere = jax.sharding.PartitionSpec()
    where = jax.devices()[0] if alone else jax.sharding.NamedSharding(loop.learner_mesh, everywhere)
    return jax.device_put(arrays, where)


def player_shapes(loop: "zero_train.Loop") -> Any:
    """Shapes and dtypes of [`player_arrays`]."""
    shapes = eqx.filter_eval_shape(lambda: _fresh(loop))
    return eqx.filter(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))


def player_of(loop: "zero_train.Loop", arrays: Any) -> "zero_train.AbstractActor":
    """The player with these arrays, on a device of this process."""
    here = lambda x: x if getattr(x, "is_fully_addressable", True) else x.addressable_data(0)
    # By way of the host, so that they are committed to no device: else so would be the states after
    # the first move, and acting would be compiled once for the first state and once for the others.
    arrays = jax.device_get(jax.tree.map(here, arrays))
    return zero_train.with_arrays(lambda: _fresh(loop), jax.device_put(arrays))


def _fresh(loop: "zero_train.Loop") -> "zero_train.AbstractActor":
    return loop.agent.actor(loop.agent.init(key=jax.random.key(0)), explore=False)


def _arrays(player: "zero_train.AbstractActor") -> Any:
    return eqx.filter(player, eqx.is_array)
