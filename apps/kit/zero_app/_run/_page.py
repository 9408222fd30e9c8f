"""Pages of figures, charts and tables that load nothing else."""

import base64
import hashlib
import html
import pathlib
from collections.abc import Iterable, Mapping, Sequence


_HERE = pathlib.Path(__file__).parent
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body{refresh}>
<h1>{title}</h1>
{body}
{script}</body>
</html>
"""
#: The pictures of films are put into the page as they are, so the page's own script alone may run.
_POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def page(title: str, parts: Iterable[str], *, refresh: int = 0) -> str:
    """A page of parts that the functions of this module made, with plain text as its title. It runs
    no script but its own, whatever stands in the parts; empty ones are left out. The browser reads
    it again after `refresh` seconds, unless that is 0."""
    body = "\n".join(filter(None, parts))
    moves = refresh or "<template>" in body
    script = "\n" + (_HERE / "report.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _PAGE.format(
        title=text(title),
        policy=_POLICY.format(f"'sha256-{digest}'" if moves else "'none'"),
        style=(_HERE / "report.css").read_text(),
        refresh=f' data-refresh="{refresh}"' if refresh else "",
        body=body,
        script=f"<script>{script}</script>\n" if moves else "",
    )


def figures(shown: Mapping[str, str]) -> str:
    """The main figures of a run, each with its name."""
    cells = "".join(
        f"<div><b>{text(value)}</b><p>{text(name)}</p></div>" for name, value in shown.items()
    )
    return f'<div class="figures">{cells}</div>'


def charts(heading: str, *parts: str) -> str:
    """A section of charts side by side; empty without any."""
    if not any(parts):
        return ""
    return "\n".join([f'<h2>{text(heading)}</h2><div class="charts">', *parts, "</div>"])


def picture(heading: str, caption: str, svg: str, *, kind: str = "") -> str:
    """A drawing among charts: an SVG element, with plain text above it. The page defines
    the colours `var(--ink)`, `var(--line)` and `var(--series-0)` to `var(--series-5)`; `kind` is a
    class of the element."""
    opening = f'<figure class="{kind}">' if kind else "<figure>"
    return f"{opening}<h3>{text(heading)}</h3><p>{text(caption)}</p>{svg}</figure>"


def tables(*parts: str) -> str:
    """Tables side by side."""
    return "\n".join(['<div class="tables">', *parts, "</div>"])


def table(heading: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table under its heading; the first column names the rows."""
    head = "".join(f"<th>{text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{text(x)}</td>' for x in row)}</tr>" for row in rows)
    whole = f"<table><tr>{head}</tr>{body}</table>"
    return f'<div class="scroll"><h2>{text(heading)}</h2>{whole}</div>'


def text(value: object) -> str:
    """Plain text for a page."""
    written = str(value).encode(errors="replace").decode()  # half of a surrogate pair is no text
    return html.escape(written, quote=False)
