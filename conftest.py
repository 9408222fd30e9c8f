"""What every test runs under: the type-checking import hook and JAX's strict modes.

Nothing under test may be imported here, or the hook would come too late for it.
"""

import gc
import importlib.metadata
import os
import pathlib
import random
import re
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jaxtyping
import pytest
from jax import Array


def _members() -> list[str]:
    """The import name of every member of the workspace, apps included."""
    root = pathlib.Path(__file__).parent
    files = [*root.glob("packages/*/pyproject.toml"), *root.glob("apps/*/pyproject.toml")]
    tools = [tomllib.loads(file.read_text(encoding="utf-8"))["tool"] for file in files]
    return sorted(
        x for tool in tools for x in tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    )


# (jaxtyping's own `--jaxtyping-packages` option cannot take several packages and a configured
# type checker at once.)
_CHECKED = _members()
_EARLY = sorted(set(_CHECKED) & set(sys.modules))
if _EARLY:
    raise RuntimeError(f"{', '.join(_EARLY)} imported before conftest.py: find out by whom.")
# `is_pep484_tower`: an int is a float, as it is for pyright.
jaxtyping.install_import_hook(
    _CHECKED, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# JAX before 0.10 takes the keys that Equinox's MLP picks from an array for used ones.
jax.config.update("jax_debug_key_reuse", jax.__version_info__ >= (0, 10))
# Eight virtual devices in every test, for the tests of meshes: work on one of them compiles and
# runs as fast as before, and subprocesses do not inherit it.
jax.config.update("jax_num_cpu_devices", 8)
if "JAX_PLATFORMS" not in os.environ:
    jax.config.update("jax_platforms", "cpu")


#: What fast tests cost is compiling, not running: their code need not be good, nor be made by
#: several threads, for every core has tests of its own.
_HASTY = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def _known_flags(*flags: str) -> tuple[str, ...]:
    """The flags that this version of XLA knows. A single one that it does not know would end
    every test process, and XLA has no list to ask: so a process of its own tries them, once for all
    runs that share a compilation cache."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", os.devnull)
    name = f"xla-flags-{importlib.metadata.version('jaxlib')}-{zlib.crc32(repr(flags).encode())}"
    stored = pathlib.Path(cache) / name
    if stored.is_file():
        return tuple(stored.read_text(encoding="utf-8").split())
    tried = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)},
        capture_output=True,
        text=True,
    )
    refused = tried.stderr.split() if tried.returncode else []
    known = tuple(flag for flag in flags if flag not in refused)
    if cache != os.devnull and (tried.returncode == 0 or known != flags):
        stored.parent.mkdir(parents=True, exist_ok=True)
        written = stored.with_suffix(f".{os.getpid()}")
        written.write_text(" ".join(known), encoding="utf-8")
        written.replace(stored)
    return known


def _share_ir_context() -> None:
    """Lowers all programs in one MLIR context. JAX makes a new one for each, and loads its dialects
    into it: 5 ms for each of the 15 000 programs of the fast tests."""
    from jax._src.interpreters import mlir

    if hasattr(mlir, "make_ir_context"):  # it has no public name
        context = mlir.make_ir_context()
        mlir.make_ir_context = lambda: context


def _check_keys_where_there_are_some() -> None:
    """Runs what neither takes nor returns keys as fast as without JAX's check of reused keys, which
    has nothing to look at there. JAX would look, and call every program from Python: up to 1 ms for
    each of the millions of operations that the fast tests run one at a time. What is inside of a
    program is checked when it is traced, as before."""
    from jax._src import core, pjit
    from jax.experimental.key_reuse import _core as reuse

    names = ((pjit, "_run_python_pjit"), (core, "jaxprs_in_params"), (reuse, "prng"))
    if not all(hasattr(module, name) for module, name in names):  # they have no public names
        return
    run, check = pjit._run_python_pjit, reuse.call_impl_with_key_reuse_checks
    kind: Any = vars(reuse)["prng"].PRNGKeyArray
    is_key = lambda x: isinstance(x, kind)

    def run_program(p: Any, *rest: Any) -> Any:
        program = p.params["jaxpr"]
        ends = (*program.in_avals, *program.out_avals, *program.consts)
        if any(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) for x in ends):
            return run(p, *rest)
        with jax.debug_key_reuse(False):
            return run(p, *rest)

    def run_operation(primitive: Any, implementation: Any, *args: Any, **params: Any) -> Any:
        if any(map(is_key, args)) or any(True for _ in core.jaxprs_in_params(params)):
            return check(primitive, implementation, *args, **params)
        result = implementation(*args, **params)
        if any(map(is_key, result if primitive.multiple_results else [result])):
            return check(primitive, lambda *_, **__: result, *args, **params)
        return result

    pjit._run_python_pjit = run_program
    reuse.call_impl_with_key_reuse_checks = run_operation


def pytest_configure(config: pytest.Config) -> None:
    _share_ir_context()
    _check_keys_where_there_are_some()
    # The workers of pytest-xdist inherit what the process that starts them has set.
    if config.option.markexpr == "not slow" and "PYTEST_XDIST_WORKER" not in os.environ:
        flags = (*_known_flags(*_HASTY), os.environ.get("XLA_FLAGS", ""))
        os.environ["XLA_FLAGS"] = " ".join(flags).strip()
    gc.disable()


def _scope(nodeid: str) -> str:
    """What shares compiled programs: the tests of a file, and those of an app, which share a
    training run too."""
    path = pathlib.PurePosixPath(nodeid.partition("::")[0])
    shares = path.parts[0] == "apps" and path.parts[1] != "kit"
    return "-".join(path.parts[:2]) if shares else str(path)


# (The marks of `--dist loadgroup` do not reach pytest-xdist 3.8 under pytest 9.)
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps in one worker what shares compiled programs."""
    from xdist.scheduler import LoadScopeScheduling

    class ByScope(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return ByScope(config, log)


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look at it over and over, a tenth of the
    time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


_PREVIOUS = pytest.StashKey[tuple[str, tuple[str, ...]]]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where tests begin that share no compiled programs with those before, these programs are
    dropped: they would fill gigabytes, and make every later garbage collection longer. Where
    another member's tests begin, Python's monitoring tells of every line again."""
    scope, member = _scope(item.nodeid), item.path.relative_to(item.config.rootpath).parts[:-1][:2]
    before = item.session.stash.get(_PREVIOUS, (scope, member))
    if before[0] != scope:
        jax.clear_caches()
    if before[1] != member and sys.version_info >= (3, 12):
        sys.monitoring.restart_events()
    item.session.stash[_PREVIOUS] = scope, member


@pytest.fixture(scope="session")
def known_flags() -> Callable[..., tuple[str, ...]]:
    """`known_flags(*flags)`: those of the flags that this version of XLA knows."""
    return _known_flags


@pytest.fixture
def getkey() -> Callable[[], Array]:
    """Call it for a fresh key. A failing test prints the seed; `ZERO_TEST_SEED` replays it."""
    seed = int(os.environ.get("ZERO_TEST_SEED") or random.SystemRandom().randrange(2**31))
    print(f"replay with ZERO_TEST_SEED={seed}")
    draws = random.Random(seed)
    return lambda: jax.random.key(draws.randrange(2**31))


@pytest.fixture
def float64() -> Iterator[None]:
    """JAX computes in double precision where it is asked to."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="session")
def collectives() -> Callable[..., set[str]]:
    """`collectives(function, *args)`: by which operations devices talk in the program that XLA
    makes of it; `collectives(text)` of a program's text."""
    import equinox as eqx

    named = re.compile(
        r"\s(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|"
        r"collective-broadcast)(?:-start)?\("
    )

    def found(program: Any, *args: Any) -> set[str]:
        if not isinstance(program, str):
            jitted: Any = eqx.filter_jit(program)
            program = jitted.lower(*args).lowered.compile().as_text()
        return {match.group(1) for match in named.finditer(program)}

    return found


@pytest.fixture(scope="session")
def sums_in_turn() -> Callable[[str], tuple[int, int]]:
    """`sums_in_turn(text)`: of the sums over devices in a program, how many have to follow each
    other, and how many another one waits for. XLA joins those that nothing lies between."""
    named = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")

    def found(text: str) -> tuple[int, int]:
        turns, before, waited = {}, {}, set()
        entry = text[text.index("\nENTRY ") :]
        for name, rest in (
            match.groups() for match in map(named.match, entry.splitlines()) if match
        ):
            given = re.findall(r"%([\w.\-]+)", rest.partition(", metadata=")[0])
            turns[name] = max((turns.get(x, 0) for x in given), default=0)
            before[name] = set().union(*(before.get(x, set()) for x in given))
            if re.search(r" all-reduce(-start)?\(", rest):
                turns[name] += 1
                waited |= before[name]
                before[name] = {name}
        return max(turns.values()), len(waited)

    return found


@pytest.fixture
def unhooked() -> Iterator[None]:
    """As in a user's program, which has no import hook: only the checks of our own refuse."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def _searches() -> tuple[Any, Any]:
    """Where a search is put together and where it is told of devices, if any test has a search."""
    return sys.modules.get("zero_search._engine"), sys.modules.get("zero_search._forest")


@pytest.fixture(scope="session", autouse=True)
def _searches_are_of_a_cpu() -> Iterator[None]:
    """Outside of tests a search is traced for a CPU and once more for other devices, of which there
    are none here: a third of what it costs. (test_shard_map.py of zero-search traces every kind of
    search for all.)"""
    engine, forest = _searches()
    with pytest.MonkeyPatch.context() as patch:
        if engine is not None:
            assert engine.on_device is forest.on_device
            patch.setattr(engine, "on_device", lambda search, kernels: search(kernels == "pallas"))
        yield


@pytest.fixture
def every_device(monkeypatch) -> None:
    """Searches are traced for every device, as users' are."""
    engine, forest = _searches()
    monkeypatch.setattr(engine, "on_device", forest.on_device)
