"""Pages are made of what stands elsewhere, so that they cannot fall behind it: a line
`The site shows [PATH](../PATH) here.`, which leads there on a code host, becomes that file, and a
line `@api zero_x` what `zero_x` says of itself, and one entry for each of its public names.
"""

import ast
import pathlib
import posixpath
import re


ROOT = pathlib.Path(__file__).parent.parent
#: Where the files that pages include, and links between them, end up.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
for _folder in [x.parent for k in ("packages", "apps") for x in ROOT.glob(f"{k}/*/pyproject.toml")]:
    _path = _folder.relative_to(ROOT).as_posix()
    PAGES[_path] = PAGES[f"{_path}/README.md"] = f"{_folder.name}.md"
    PAGES[f"docs/{_folder.name}.md"] = f"{_folder.name}.md"


def include(path: str) -> str:
    """The file, a program as one, a page with its links turned into links between pages."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return f"]({PAGES.get(target, target.removeprefix('docs/'))}{match[2] or ''})"

    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".py"):
        return f"```python\n{text}```"
    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, text)


def source(module: str) -> ast.Module:
    """The `__init__.py` of a module."""
    (init,) = ROOT.glob(f"[ap]*/*/{module.replace('.', '/')}/__init__.py")
    return ast.parse(init.read_text(encoding="utf-8"))


def public_names(module: str) -> list[str]:
    """What the module re-exports as `from ._x import Y as Y`, also where that needs an extra, or
    defines itself."""
    names, body = [], source(module).body
    for node in [
        x for one in body for x in (one.body if isinstance(one, ast.Try | ast.If) else [one])
    ]:
        match node:
            case ast.ImportFrom(names=aliases):
                names += [alias.name for alias in aliases if alias.name == alias.asname]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name[0] != "_":
                names.append(name)
    return sorted(names, key=str.lower)


def api(module: str) -> str:
    """What the module says of itself, and an entry for each of its names."""
    said = ast.get_docstring(source(module)) or ""
    return "\n\n".join([said, *(f"::: {module}.{name}" for name in public_names(module))])


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for every page."""
    shown = re.compile(r"^The site shows \[(\S+)\]\(\.\./\1\) here\.$", re.MULTILINE)
    markdown = shown.sub(lambda m: include(m[1]), markdown)
    return re.sub(r"^@api (\S+)$", lambda m: api(m[1]), markdown, flags=re.MULTILINE)
