"""The READMEs: programs that show a search print what they say, and nothing takes our packages from
an index."""

import re
import shlex

import pytest

from . import workspace


#: The folder of every package by the name under which it is installed.
MEMBERS = {
    workspace.pyproject(member)["project"]["name"]: member.relative_to(workspace.ROOT).as_posix()
    for member in workspace.MEMBERS
}


@pytest.mark.parametrize("path", ["README.md", "packages/zero-search/README.md"])
def test_the_game_of_a_readme(path, capsys):
    text = (workspace.ROOT / path).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, path, "exec"), {"__name__": "readme"})
    (said,) = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.strip() == said


def _installed(command: str) -> tuple[set[str], set[str]]:
    """Of the packages of this workspace, those that a command installs, and those that it gives
    the address or the file of."""
    named, given = set(), set()
    for word in shlex.split(command):
        found = re.match(r"(zero(?:-[a-z]+)?)(?:\[[^]]*\])?(?: @ (.*))?$", word)
        if found is None:
            continue
        name, address = found.groups()
        assert name in MEMBERS, f"{name} is other people's, or nobody's: {command}"
        named.add(name)
        if address == "..." or str(address).endswith(f"#subdirectory={MEMBERS[name]}"):
            given.add(name)
    return named, given


def _with_siblings(name: str) -> set[str]:
    project = workspace.pyproject(workspace.ROOT / MEMBERS[name])["project"]
    more = [x for extra in project.get("optional-dependencies", {}).values() for x in extra]
    needed = {re.split(r"[\[>]", x)[0] for x in [*project["dependencies"], *more]}
    return {name}.union(*map(_with_siblings, needed & set(MEMBERS)))


def test_no_command_of_a_page_installs_ours_from_an_index():
    """Anybody may register a name that we have not published. pip looks up what a package needs
    unless it is given its address in the same command."""
    pages = [
        page
        for page in workspace.ROOT.rglob("*.md")
        if not any(part.startswith(".") for part in page.relative_to(workspace.ROOT).parts)
    ]
    commands = [
        (page.relative_to(workspace.ROOT), command)
        for page in pages
        for command in re.findall(
            r"(?:pip install|uv add|uvx|uv tool (?:install|run)|pipx (?:install|run)) ([^`\n]*)",
            page.read_text(encoding="utf-8").replace("\\\n", " "),
        )
    ]
    ours = 0
    for page, command in commands:
        named, given = _installed(command)
        needed = set().union(*map(_with_siblings, named))
        assert needed <= given, f"{page}: {command} lacks the address of {sorted(needed - given)}"
        ours += bool(named)
    assert ours >= 5
