"""What can be run on the workspace: `uv run nox -l` lists it, `uv run nox -s NAME` runs it.

Every session has an environment of its own under `.nox`; nothing has to be set up before.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from typing import Any

import nox
import nox.command


nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "typecheck", "tests"]
nox.options.error_on_external_run = True
# `uv sync` makes an environment of before what it would be anew, but for the bytecode, which takes
# half a minute to compile. Sessions that have to begin with nothing say so.
nox.options.reuse_venv = "yes"

ROOT = pathlib.Path(__file__).parent
MEMBERS = {
    file.parent.name: file.parent
    for kind in ("packages", "apps")
    for file in sorted(ROOT.glob(f"{kind}/*/pyproject.toml"))
}
PYTHONS = ["3.11", "3.12", "3.13"]
#: Prints the name of every installed distribution, with "editable" before those that are, and
#: "index" before those that came from one.
LIST_INSTALLED = """
import importlib.metadata, json
for found in importlib.metadata.distributions():
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    editable = origin.get("dir_info", {}).get("editable", False)
    print(("editable-" if editable else "" if origin else "index-") + found.name)
"""
#: pytest on all cores, each app and each file whole in one process (conftest.py groups them), in
#: the order of `testpaths`: the apps take longest, so they start first. `-n 0` after `--` runs
#: everything in one process, as a debugger needs it.
PYTEST = (
    *("pytest", "-n", "auto", "--dist", "loadscope", "--no-loadscope-reorder"),
    *("--durations", "40"),
)
#: What a new JAX breaks first: the strict modes, a search beside mctx, the buffers, an agent.
QUICK = (
    "tests/test_hook.py",
    "packages/zero-search/tests/test_parity.py",
    "packages/zero-memory",
    "tests/test_your_own_app_page.py",
)
#: Of every package, what must also pass under JAX's own flags, and the flags. Tests that feed a NaN
#: on purpose, as many of the refusals do, have no place here.
FLAGGED = (
    "packages/zero-search/tests/test_shard_map.py",
    "packages/zero-envs/tests/test_control.py",
    "packages/zero-memory/tests/test_pages.py",
    "packages/zero-nets/tests/test_heads.py",
    "packages/zero-train/tests/test_collect.py",
)
FLAGS = {
    "x64": {"JAX_ENABLE_X64": "1"},
    "nans": {"JAX_DEBUG_NANS": "1"},
    "rbg": {"JAX_DEFAULT_PRNG_IMPL": "rbg"},
}
#: The benchmarks that let a trained player play, and the run folder that they take it from.
TRAINED, RUN = ("search_leaves", "search_reuse", "search_rounds"), ROOT / "runs" / "quick"
#: How the names of benchmarks end that run only where they are named: some take hours, and the last
#: four need arguments.
NAMED = ("_speedrun", "_ablations", "_ntuple", "_figure", "_rules", "_headroom")
NAMED += ("_dice", "_mines", "_planners", "_apart")
#: Own tests must cover this many percent of a member's lines.
COVERAGE = 85
#: Of each member, tests that cross much of its code in seconds, to be run from its wheel.
ALONE = {
    "zero-games": ("test_cli.py",),
    "zero-envs": ("test_import.py", "test_control.py"),
    "zero-memory": ("test_latest.py",),
    "zero-nets": ("test_heads.py",),
    "zero-search": ("test_check.py",),
    "zero-train": ("test_flops.py", "test_losses.py"),
    "zero-app": ("test_command.py",),
    "zero-minesweeper": ("test_play.py",),
    "zero-monsters": ("test_config.py", "test_network.py"),
    "zero-othello": ("test_board.py", "test_gtp.py"),
    "zero-spo": ("test_config.py",),
}


def installed(python: str) -> str | None:
    """The interpreter of this version that lies beside the one that runs, as those of pyenv and uv
    do, which neither uv nor nox may find by themselves."""
    found = sorted(pathlib.Path(sys.base_prefix).parent.glob(f"*{python}.*/bin/python"))
    return str(found[-1]) if found else None


#: The newest Python beside the one that runs: from 3.12 on measuring coverage costs no time.
NEWEST = next(filter(None, map(installed, reversed(PYTHONS))), None)


def pyproject(path: pathlib.Path) -> dict[str, Any]:
    return tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))


DISTRIBUTIONS = {pyproject(path)["project"]["name"]: path for path in MEMBERS.values()}
#: What `build` has built.
WHEELS: dict[str, pathlib.Path] = {}


def siblings(name: str, *, tests: bool = False) -> set[str]:
    """The members of this workspace that a member, or its tests, declare, and those that they
    declare."""
    declared, found = pyproject(DISTRIBUTIONS[name]), set[str]()
    groups = declared.get("dependency-groups", {})
    for requirement in declared["project"]["dependencies"] + tests * groups.get("tests", []):
        sibling = requirement.split("[")[0].split(">")[0].strip()
        if sibling in DISTRIBUTIONS and sibling not in (name, *found):
            found |= {sibling} | siblings(sibling)
    return found - {name}


def module_of(name: str) -> str:
    """What a member is imported as."""
    (module,) = pyproject(DISTRIBUTIONS[name])["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    return module


def sync(session: nox.Session, *groups: str, packages: bool = True) -> None:
    """Installs what uv.lock says: the groups, and all packages in editable form."""
    selection = ["--all-packages", "--no-default-groups"] if packages else []
    option = "--group" if packages else "--only-group"
    for group in groups:
        selection += [option, group]
    session.run_install(
        *("uv", "sync", "--locked", *selection),
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
        external=True,
    )
    if packages:
        share_compilations(session)


def share_compilations(session: nox.Session) -> None:
    """What one session compiled, the others, the next run and other checkouts need not compile
    again. JAX tells programs of different versions of itself apart: the folder has the version in
    its name only for whoever wants to remove an old one."""
    code = "import importlib.metadata; print(importlib.metadata.version('jax'))"
    version = str(session.run("python", "-c", code, silent=True)).strip()
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    session.env["JAX_COMPILATION_CACHE_DIR"] = given or str(home / "zero-tests" / f"jax-{version}")
    # Many programs are single operations, which every test file compiles again.
    session.env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    # Where a machine sets it, every process that a test starts compiles all that it imports.
    session.env["PYTHONDONTWRITEBYTECODE"] = ""


def cache() -> pathlib.Path:
    folder = ROOT / ".nox" / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@nox.session
def lint(session: nox.Session) -> None:
    """Code style and format: ruff."""
    sync(session, "lint", packages=False)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def typecheck(session: nox.Session) -> None:
    """Static types: pyright."""
    sync(session, "tests", "browser", "typecheck", "dev")
    python = session.run("python", "-c", "import sys; print(sys.executable)", silent=True)
    session.run("pyright", "--pythonpath", str(python).strip(), *session.posargs)


@nox.session(python=NEWEST)
def tests(session: nox.Session) -> None:
    """All fast tests, with the newest Python here. Arguments after `--` go to pytest; `-- --cov`
    alone also checks how much of each member its own tests run."""
    sync(session, "tests")
    if session.posargs != ["--cov"]:
        session.run(*PYTEST, *session.posargs)
        return
    session.env["COVERAGE_FILE"] = data = str(cache() / "coverage")
    modules = [f"--cov={module_of(name)}" for name in DISTRIBUTIONS]
    # Python tells of each line once, and conftest.py has it tell again where another member's tests
    # begin. Coverage warns of that, and on Python 3.11, which cannot, traces by itself.
    traced = ("-W", "ignore::coverage.exceptions.CoverageWarning", "--cov-context=test")
    session.env["COVERAGE_CORE"] = "sysmon"
    session.run(*PYTEST, *modules, *traced, "--cov-report=")
    for name, folder in DISTRIBUTIONS.items():
        # What importing the member runs belongs to no test, and counts as well.
        own = f"--contexts=^$,^{folder.relative_to(ROOT).as_posix()}/"
        include = f"--include={folder}/{module_of(name)}/*"
        limit = f"--fail-under={COVERAGE}"
        session.run("coverage", "report", f"--data-file={data}", own, include, limit)


@nox.session
def tests_slow(session: nox.Session) -> None:
    """The tests that take minutes: end to end, training to a strength."""
    sync(session, "tests")
    session.run(*PYTEST, "-m", "slow", *session.posargs)


@nox.session(python=PYTHONS)
def tests_python(session: nox.Session) -> None:
    """All fast tests on each supported Python; uv fetches the ones that are missing."""
    sync(session, "tests")
    session.run(*PYTEST, *session.posargs)


@nox.session(reuse_venv=False)
@nox.parametrize("name", list(DISTRIBUTIONS), ids=list(DISTRIBUTIONS))
def isolated(session: nox.Session, name: str) -> None:
    """Each package alone: installs from git (HEAD), with uv and with pip, and from its wheel, which
    holds every file of the source. There all its tests are collected and a part of them is run.
    None of ours ever comes from an index, where anybody may have their names.

    `tests/test_import_edges.py` reads from the source that nothing undeclared is imported. The git
    address serves what is committed; the wheel and the tests are those of the working tree.
    """
    part = [str(DISTRIBUTIONS[name] / "tests" / file) for file in ALONE[name]]
    run_alone(session, name, "pytest", *part)


@nox.session(reuse_venv=False)
@nox.parametrize("name", list(DISTRIBUTIONS), ids=list(DISTRIBUTIONS))
def isolated_full(session: nox.Session, name: str) -> None:
    """The same as `isolated`, with all fast tests of the package, or with those after `--`."""
    run_alone(session, name, *PYTEST, *(session.posargs or [str(DISTRIBUTIONS[name])]))


def run_alone(session: nox.Session, name: str, *command: str) -> None:
    """Installs a member as its users do, checks what came with it, and runs the command there."""
    folder, module, expected = DISTRIBUTIONS[name], module_of(name), siblings(name) | {name}
    tested = siblings(name, tests=True) | {name}
    wheels, dist = build(session, tested), cache() / "wheels" / name
    # Third-party versions as in uv.lock, so that this fails for our reasons only.
    locked = f"--constraints={dist}/locked.txt"
    session.run_install(
        *("uv", "export", "--quiet", "--locked", "--all-packages", "--group", "tests"),
        *("--no-hashes", "--no-emit-workspace", "--no-header", "--no-annotate"),
        *("--output-file", f"{dist}/locked.txt"),
        external=True,
    )
    # Siblings are these wheels, whatever an index has under their names.
    lines = [f"{ours} @ {wheel.as_uri()}\n" for ours, wheel in wheels.items()]
    (dist / "ours.txt").write_text("".join(lines), encoding="utf-8")
    install = [locked, f"--constraints={dist}/ours.txt", "--no-sources"]

    addresses = {
        ours: f"{ours} @ git+{ROOT.as_uri()}#subdirectory={DISTRIBUTIONS[ours].relative_to(ROOT)}"
        for ours in expected
    }
    session.install(locked, addresses[name])
    check_installed(session, expected, module)
    session.run_install("uv", "pip", "uninstall", *expected, external=True)
    # pip does not read where uv finds the siblings, so it is given all of them. uv has built each
    # in an environment with what its pyproject.toml asks for; pip finds that here, and makes none.
    session.install("pip", "hatchling")
    pip_install = ("python", "-m", "pip", "install", "--quiet", "--no-build-isolation")
    session.run_install(*pip_install, *addresses.values())
    session.run_install("uv", "pip", "uninstall", "hatchling", external=True)
    check_installed(session, expected, module)
    session.run_install("uv", "pip", "uninstall", *expected, external=True)
    session.install(*install, str(wheels[name]))
    check_installed(session, expected, module)
    check_complete(session, wheels[name], folder / module)

    groups = [ROOT / "pyproject.toml"]
    if "tests" in pyproject(folder).get("dependency-groups", {}):
        groups.append(folder / "pyproject.toml")
    session.install(*install, *(f"--group={path}:tests" for path in groups))
    check_installed(session, tested, module)
    share_compilations(session)
    session.run("pytest", "--collect-only", "-qq", str(folder), silent=True)
    session.run(*command)


def build(session: nox.Session, names: set[str]) -> dict[str, pathlib.Path]:
    """The wheel of each member named, built once for all sessions of a command."""
    for name in sorted(names - WHEELS.keys()):
        folder = cache() / "wheels" / name
        shutil.rmtree(folder, ignore_errors=True)
        session.run_install(
            *("uv", "build", "--quiet", "--wheel", "--package", name, "--out-dir", str(folder)),
            external=True,
        )
        (WHEELS[name],) = folder.glob("*.whl")
    return {name: WHEELS[name] for name in names}


@nox.session(venv_backend="none")
def wheels(session: nox.Session) -> None:
    """Builds the wheels of all packages, or of those named after `--` and what they need of ours,
    into dist/: `pip install dist/*.whl` takes none of ours from an index."""
    unknown = set(session.posargs) - set(DISTRIBUTIONS)
    if unknown:
        session.error(f"{sorted(unknown)} are no packages; give some of {', '.join(DISTRIBUTIONS)}")
    names = session.posargs or DISTRIBUTIONS
    built = build(session, {x for name in names for x in {name} | siblings(name)})
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.glob("zero_*.whl"):
        old.unlink()
    for wheel in built.values():
        shutil.copy(wheel, dist)
    session.log(f"pip install {' '.join(f'dist/{wheel.name}' for wheel in built.values())}")


def check_installed(session: nox.Session, expected: set[str], module: str) -> None:
    """The module imports; of ours exactly what is expected is there, and not in editable form."""
    session.run("python", "-c", f"import {module}")
    listing = session.run("python", "-c", LIST_INSTALLED, silent=True)
    installed = {name for name in str(listing).split() if "zero-" in name}
    if installed != expected:
        session.error(f"installed {sorted(installed)}, expected {sorted(expected)}")


def check_complete(session: nox.Session, wheel: pathlib.Path, source: pathlib.Path) -> None:
    """The wheel holds every file of the module's source."""
    files = (path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    expected = {path.relative_to(source.parent).as_posix() for path in files}
    with zipfile.ZipFile(wheel) as archive:
        missing = expected - set(archive.namelist())
    if missing:
        session.error(f"{wheel.name} lacks {sorted(missing)}")


@nox.session(reuse_venv=False)
def lowest(session: nox.Session) -> None:
    """All fast tests of all members, with the lowest versions that the packages declare."""
    resolve(session, "lowest-direct")
    # Old releases ask newer ones for what is deprecated since.
    session.run(*PYTEST, "-W", "ignore::DeprecationWarning", *session.posargs)


@nox.session(reuse_venv=False)
def newest(session: nox.Session) -> None:
    """A quick part of the fast tests, with the newest Python and the newest versions to be had.

    What a user gets who installs a package today; uv.lock holds an older JAX.
    """
    for python in reversed(PYTHONS):
        found = installed(python) or python
        venv = ("uv", "venv", "--clear", "--python", found, session.virtualenv.location)
        try:
            session.run_install(*venv, external=True, stderr=subprocess.DEVNULL)
            break
        except nox.command.CommandFailed:
            session.warn(f"Python {python} is not installed, and uv could not fetch it")
    resolve(session, "highest")
    session.run("python", "-c", "import jax; jax.print_environment_info()")
    session.run(*PYTEST, *(session.posargs or QUICK))


@nox.session
@nox.parametrize("flag", list(FLAGS), ids=list(FLAGS))
def flags(session: nox.Session, flag: str) -> None:
    """A quick part of the fast tests under flags of JAX that users turn on for a whole program:
    double precision, the search for NaN, and another generator of random numbers."""
    sync(session, "tests")
    session.run(*PYTEST, *(session.posargs or FLAGGED), env=FLAGS[flag])


def resolve(session: nox.Session, resolution: str) -> None:
    """Installs all members in editable form, and of what they declare not the versions of uv.lock,
    but those that uv finds anew."""
    pinned = cache() / f"{resolution}.txt"
    files = [str(path / "pyproject.toml") for path in MEMBERS.values()]
    groups = [
        f"{path}/pyproject.toml:tests"
        for path in [ROOT, *MEMBERS.values()]
        if "tests" in pyproject(path).get("dependency-groups", {})
    ]
    pins = list[str]()
    if resolution == "lowest-direct":
        # Else uv raises JAX where the newest release of another library asks for a newer one.
        asked = (x for path in MEMBERS.values() for x in pyproject(path)["project"]["dependencies"])
        (lowest,) = {x.replace(">=", "==") for x in asked if x.startswith("jax>=")}
        (cache() / "jax.txt").write_text(lowest, encoding="utf-8")
        pins.append(f"--constraints={cache() / 'jax.txt'}")
    session.run_install(
        *(
            "uv",
            "pip",
            "compile",
            "--quiet",
            "--upgrade",
            "--resolution",
            resolution,
            *files,
            *pins,
        ),
        *(f"--group={group}" for group in groups),
        *(f"--no-emit-package={name}" for name in DISTRIBUTIONS),
        *("--output-file", str(pinned)),
        external=True,
    )
    session.install("--requirements", str(pinned))
    session.install("--no-deps", *(f"--editable={path}" for path in MEMBERS.values()))
    share_compilations(session)


@nox.session
def browser(session: nox.Session) -> None:
    """Plays games in a real browser, the system's chromium: `-- --shots FOLDER` takes pictures."""
    sync(session, "tests", "browser")
    session.run("python", str(ROOT / "tests" / "browser.py"), *session.posargs)


@nox.session
def gtp(session: nox.Session) -> None:
    """Lets a client that people use, the npm package @sabaki/gtp, play over GTP."""
    sync(session, "tests")
    packages = str(cache() / "npm")
    client = ("install", "--no-audit", "--no-fund", "--prefix", packages, "@sabaki/gtp@3.0.0")
    session.run_install("npm", *client, external=True)
    session.run("python", str(ROOT / "tests" / "gtp.py"), packages)


@nox.session
def bench(session: nox.Session) -> None:
    """Every benchmark, or those named after `--`: JSON lines, beside a peer. Options after names
    go to each, as in `-- search_vs_mctx --against COMMIT`.

    Those that need a trained player are left out as long as there is none.
    """
    sync(session, "tests")
    is_name = lambda word: not word.startswith("-")
    given = list(itertools.takewhile(is_name, session.posargs))
    options = session.posargs[len(given) :]
    for name in given or sorted(path.stem for path in ROOT.glob("benchmarks/[a-z]*.py")):
        if name in TRAINED and not given and not RUN.exists():
            session.warn(f"{name} left out: first `uv run othello train --out runs/quick`")
            continue
        if name.endswith(NAMED) and not given:
            continue
        session.run("python", str(ROOT / "benchmarks" / f"{name}.py"), *options)


@nox.session
def accelerators(session: nox.Session) -> None:
    """Compiles steps and searches for TPUs and GPUs that are not here, and holds what comes out to
    benchmarks/accelerators/budget.toml. `-- --targets v5e:2x2` needs no CUDA, which is 3 GB."""
    sync(session, "tests")
    version = session.run("python", "-c", "import jax; print(jax.__version__)", silent=True)
    given = " ".join(session.posargs)
    compilers = "tpu" if "--targets" in given and "h200" not in given else "tpu,cuda12"
    session.install(f"jax[{compilers}]=={str(version).strip()}")
    session.run("python", str(ROOT / "benchmarks" / "accelerators"), *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, into site/, whose index.html opens from disk and fetches nothing from elsewhere.
    `-- serve` shows it while it is written."""
    sync(session, "docs", packages=False)
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]))
    for page in (ROOT / "site").rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|link|img|iframe)\b[^>]*"(?:https?:)?//[^>]*>', html)
        if fetched:
            session.error(f"{page} fetches {fetched[0]}; give a file of docs/ instead.")


@nox.session
def site(session: nox.Session) -> None:
    """Opens every page that `docs` has made on a telephone and a desktop, in the system's chromium:
    nothing may scroll sideways, be missing, lead nowhere or report an error."""
    sync(session, "browser", packages=False)
    session.run("python", str(ROOT / "tests" / "site.py"), *session.posargs)
