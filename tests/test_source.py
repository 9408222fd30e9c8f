"""What a reader of the source may rely on."""

import ast
import re

import pytest

from . import workspace


SOURCES = [path for member in workspace.MEMBERS for path in workspace.sources(member)]
FOLDERS = ("packages", "apps", "tests", "benchmarks", "docs")
SUFFIXES = {".py", ".md", ".toml", ".yml", ".json"}

sources = pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: str(path.relative_to(workspace.ROOT))
)


@sources
def test_a_file_is_one_idea(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines <= 60, node.name


@sources
def test_nothing_is_left_unfinished(path):
    text = path.read_text(encoding="utf-8")
    found = re.findall(
        r"NotImplementedError|TODO|FIXME|XXX|pragma: no cover|import jax\._src", text
    )
    assert found == []


@pytest.mark.parametrize("member", workspace.MEMBERS, ids=lambda member: member.name)
def test_public_names_are_exported_once(member):
    init = member / workspace.import_name(member) / "__init__.py"
    nodes = [
        node
        for node in ast.walk(ast.parse(init.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    aliases = [alias for node in nodes for alias in node.names]
    assert [alias.name for alias in aliases if alias.name != alias.asname] == []
    assert len({alias.name for alias in aliases}) == len(aliases)


def test_no_path_of_a_machine():
    pattern = re.compile(r"(?<![\w.])/(?:home/\w+|root|Users/\w+|work)/")
    files = [path for name in FOLDERS for path in (workspace.ROOT / name).rglob("*")]
    files += [*workspace.ROOT.glob("*.*"), workspace.ROOT / ".ci" / "run"]
    texts = [
        path for path in files if path.is_file() and (path.suffix in SUFFIXES or path.name == "run")
    ]
    assert len(texts) > 50
    found = [path for path in texts if pattern.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_test_folders_are_no_packages():
    """All would be called `tests`: pytest would then take one package's `test_x.py` or helper for
    another's of the same name, and run it in its place."""
    folders = [member / "tests" for member in workspace.MEMBERS] + [workspace.ROOT / "tests"]
    assert [folder for folder in folders if (folder / "__init__.py").exists()] == []


def test_the_map_names_what_exists():
    """Its paths, and in rows that begin with a file the names that are said to be in it."""
    page = (workspace.ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    found = {}
    for name in set(re.findall(r"`([\w./-]*(?:/|\.py|\.md|\.yml)[\w./-]*)`", page)):
        places = [base / name for base in (workspace.ROOT, *workspace.MEMBERS)]
        found[name] = next((path for path in places if path.exists()), None)
    assert [name for name, path in found.items() if path is None] == []
    rows = re.findall(r"^\| `([\w./]+\.py)` \|(.*)\|$", page, flags=re.MULTILINE)
    assert len(found) > 60 and len(rows) > 30
    for name, said in rows:
        text = found[name].read_text(encoding="utf-8")
        for part in re.split("[;,] ", said):
            known = "`zero_" in part or {*re.findall(r"`(\w+)`", part)} <= {
                *re.findall(r"\w+", text)
            }
            assert known, f"{name}: {part}"


def test_the_gpu_day_gives_flags_that_exist():
    folder = workspace.ROOT / "benchmarks"
    script = (folder / "gpu_day.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    arrays = dict(re.findall(r"(\w+)=\(([^()]*)\)", script))
    expand = lambda match: arrays[match[1]]
    given = 0
    for line in script.splitlines():
        line = re.sub(r'"\$\{(\w+)\[@\]\}"', expand, line)
        if called := re.search(r"(\w+\.py)(.*)", line):
            source = (folder / called[1]).read_text(encoding="utf-8")
            for flag in re.findall(r"--[\w-]+", called[2]):
                given += 1
                assert f'"{flag}"' in source, line
    assert given > 10
